"""Every planted error is found, and nothing that is right is called wrong.

What is an error is decided here, by a bound that knows nothing of the rule under test: element by element, ten times
the tolerance of ``torch.testing``, times the root of the number of terms for reductions; or a quarter as a whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

import regional_explorer as rx
from regional_explorer.measure.numerics import Reference, compare, run_once, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.measure.rounding import Values
from tests.measure.planted import PROGRAMS, RIGHT, WRONG, WRONG_TRACES, Changed

TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
"""The relative and absolute tolerances of ``torch.testing.assert_close``."""


@functools.cache
def explored(name: str) -> tuple[rx.Exploration, Reference]:
    torch.manual_seed(0)
    program = PROGRAMS[name]
    ex = rx.explore(program.function, program.arguments())
    assert ex.live.call is not None
    found = find_reference(ex.live.call, ex.live.program)
    assert not found.diagnostics
    assert found.exact is not None
    return ex, found


def given(name: str, variant: Callable[..., Any] | Changed) -> tuple[Values, Reference]:
    """Return what a variant of a program gives, and what it is compared with."""
    ex, reference = explored(name)
    torch.manual_seed(1)
    if isinstance(variant, Changed):
        return variant.change(reference.eager), reference
    assert ex.live.call is not None
    return run_once(ex.live.call, variant), reference


def beyond(values: Values, eager: Values, terms: int) -> bool:
    """Tell whether any element is beyond the bound."""
    pairs = zip((*values.outputs, *values.gradients), (*eager.outputs, *eager.gradients), strict=True)
    return any(_beyond(mine, theirs, terms) for (_, mine), (_, theirs) in pairs)


def right(values: Values, reference: Reference, terms: int) -> bool:
    """Tell whether all elements are within the bound, of eager or of float64: narrow dtypes round what cancels."""
    exact = reference.exact
    assert exact is not None

    def rounded(tensors: Any, like: Any) -> Any:
        return tuple((name, tensor.to(other.dtype)) for (name, tensor), (_, other) in zip(tensors, like, strict=True))

    eager = reference.eager
    truth = Values(rounded(exact.outputs, eager.outputs), rounded(exact.gradients, eager.gradients))
    return not (beyond(values, eager, terms) and beyond(values, truth, terms))


def _beyond(mine: torch.Tensor | None, theirs: torch.Tensor | None, terms: int) -> bool:
    if mine is None or theirs is None or mine.dtype is not theirs.dtype or mine.shape != theirs.shape:
        return mine is not theirs
    if theirs.dtype not in TOLERANCES:
        return not torch.equal(mine, theirs)
    relative, absolute = TOLERANCES[theirs.dtype]
    exact, difference = theirs.double(), (mine.double() - theirs.double()).abs()
    few = torch.full_like(exact, 10 * math.sqrt(terms) * absolute)
    within = bool((difference <= few + 10 * math.sqrt(terms) * relative * exact.abs()).all())
    return not within or bool(difference.norm() > few.norm() + exact.norm() / 4)


def test_enough_are_planted() -> None:
    assert (len(WRONG), len(WRONG_TRACES), len(RIGHT)) == (87, 12, 46)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    program, variant = WRONG[name]
    values, reference = given(program, variant)
    assert beyond(values, reference.eager, PROGRAMS[program].terms), "not planted well"
    assert verdict(compare("planted", values, reference)) == "failed"


@pytest.mark.parametrize("name", WRONG_TRACES)
def test_a_trace_that_is_wrong_is_told_and_what_runs_it_is_called_wrong(name: str) -> None:
    function, sizes = WRONG_TRACES[name]
    torch.manual_seed(0)
    ex = rx.explore(function, [torch.randn(shape, requires_grad="gradient" in name) for shape in pairwise(sizes)])
    call, program = ex.live.call, ex.live.program
    assert call is not None
    found = find_reference(call, program)
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["trace-differs"]
    program.select_regional(on=False)
    assert verdict(compare("aot_eager", run_once(call, program.capture.run), found)) == "failed"
    assert verdict(compare("eager", run_once(call), found)) == "ok"


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_called_wrong(name: str) -> None:
    program, variant = RIGHT[name]
    values, reference = given(program, variant)
    assert right(values, reference, PROGRAMS[program].terms), "not right"
    rows = compare("planted", values, reference)
    assert verdict(rows) == "ok", [row for row in rows if row.verdict != "ok"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_largest_reduction_is_found(name: str) -> None:
    _, reference = explored(name)
    assert PROGRAMS[name].terms / 4 <= reference.arithmetic.reduction <= 4 * PROGRAMS[name].terms


def test_a_result_rounded_to_fewer_bits_on_the_way_is_judged_by_them() -> None:
    """As under autocast: float32 results of sums in bfloat16."""
    torch.manual_seed(0)

    def halved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.bfloat16().sin() @ b.bfloat16()).cos().float()

    def once(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.bfloat16().sin() @ b.bfloat16()).float().cos().bfloat16().float()

    for columns in (16, 1):
        ex = rx.explore(halved, (torch.randn(16, 16), torch.randn(16, columns)))
        assert ex.live.call is not None
        reference = find_reference(ex.live.call, ex.live.program)
        right = compare("once", run_once(ex.live.call, once), reference)
        wrong = compare("wrong", run_once(ex.live.call, lambda a, b: halved(a, b) + 0.25), reference)
        assert (verdict(right), verdict(wrong)) == ("ok", "failed"), (right, wrong)


def test_equal_terms_summed_one_after_the_other_are_right() -> None:
    """As in the gradient of a bias before a mean: each addition rounds the same way, and eager sums pairwise."""
    torch.manual_seed(0)

    def pairwise(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)

    def one_by_one(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for row in x:
            total = total + row
        return total

    terms = torch.randn(4, 1, 128).expand(4, 1024, 128).reshape(4096, 128) / 1024
    ex = rx.explore(pairwise, (terms,))
    assert ex.live.call is not None
    reference = find_reference(ex.live.call, ex.live.program)
    right = compare("one by one", run_once(ex.live.call, one_by_one), reference)
    wrong = compare("wrong", run_once(ex.live.call, lambda x: one_by_one(x) * 1.001), reference)
    assert (verdict(right), verdict(wrong)) == ("ok", "failed"), (right, wrong)
    (row,) = right
    assert row.variant_error is not None
    assert row.eager_error is not None
    assert row.variant_error > 20 * row.eager_error, "eager is not much nearer"
