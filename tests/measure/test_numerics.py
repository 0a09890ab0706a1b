"""The verdict of a comparison on each tensor: every fake error is found, and no right result fails.

An error exceeds a bound that does not know the rule under test: for each element ten times the tolerance of
``torch.testing``, times the root of the number of terms for sums; or a quarter of the whole tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import CancelledError
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import regional_explorer as rx
from regional_explorer.measure.numerics import Reference, compare_results, run_once, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.measure.tolerances import Arithmetic, Values, arithmetic_of, as_dense
from regional_explorer.record.benchmark import LEAST_SAMPLES, NumericsVerdict
from tests.measure.fake_variants import (
    MANY,
    PROGRAMS,
    RIGHT,
    ROUNDED_DIFFERENTLY,
    WRONG,
    WRONG_BY_LITTLE,
    WRONG_TRACES,
    ChangedValues,
    fake_quantize,
)

# ------------------------------------------------------------------------------------------------------------- tensors

PAIRS = {
    "equal": (torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), True),
    "sign of zero": (torch.tensor([-0.0, 1.0]), torch.tensor([0.0, 1.0]), False),
    "not a number": (torch.tensor(float("nan")), torch.tensor(float("nan")), True),
    "strides": (torch.zeros(2, 3).t(), torch.zeros(3, 2), True),
    "conjugate": (torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j]), True),
    "booleans": (torch.tensor([True, False]), torch.tensor([True, False]), True),
    "nothing": (torch.zeros(0, 3), torch.zeros(0, 3), True),
    "float8": (torch.ones(2).to(torch.float8_e5m2), torch.ones(2).to(torch.float8_e5m2), True),
    "sign of zero in float8": (
        torch.tensor([-0.0]).to(torch.float8_e5m2), torch.tensor([0.0]).to(torch.float8_e5m2), False),
}  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs", "bitwise"), PAIRS.values(), ids=PAIRS)
def test_bitwise_means_to_the_last_bit(mine: torch.Tensor, theirs: torch.Tensor, *, bitwise: bool) -> None:
    ours, eager = (Values((("output", value),), ()) for value in (mine, theirs))
    (row,) = compare_results("regional", ours, Reference(eager))
    assert (row.bitwise, row.verdict) == (bitwise, NumericsVerdict.OK)


@pytest.mark.parametrize(("dtype", "noise"), [(torch.bfloat16, True), (torch.float32, False)])
def test_a_zero_gradient_may_have_noise_of_other_gradients(dtype: torch.dtype, *, noise: bool) -> None:
    """The gradient of a bias of attention's keys, or before a batch norm, is zero but for rounding."""
    large, first, second = torch.randn(64), torch.randn(64) / 500, torch.randn(64) / 500
    one, other = (Values((), (("large", large.to(dtype)), ("zero", left.to(dtype)))) for left in (first, second))
    rows = compare_results("eager", other, Reference(one, arithmetic=Arithmetic(64)))
    assert (verdict(rows) is not NumericsVerdict.FAILED) is noise


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_nested_tensor_is_not_compared_and_not_ok(layout: torch.layout) -> None:
    values = Values((("output", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)),), ())
    (row,) = compare_results("regional", values, Reference(values))
    assert row.verdict == "not checked"
    assert "nested" in row.note


def test_sparse_tensors_are_compared_as_dense_ones() -> None:
    eager = torch.randn(8, 8).relu()
    for sparse in (eager.to_sparse(), eager.to_sparse_csr()):
        assert torch.equal(as_dense(sparse), eager)
    huge = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (1 << 20, 1 << 20))
    values = Values((("output", as_dense(huge)),), ())
    (row,) = compare_results("regional", values, Reference(values))
    assert (row.verdict, row.note) == ("not checked", "a sparse_coo tensor: its elements cannot be compared")


# --------------------------------------------------------------------------------------------------------- fake errors

TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
"""The relative and absolute tolerances of ``torch.testing.assert_close``."""


@functools.cache
def explore_program(name: str) -> tuple[rx.Exploration, Reference]:
    torch.manual_seed(0)
    ex = rx.explore(PROGRAMS[name].function, PROGRAMS[name].arguments())
    reference = find_reference(ex.live.call, ex.live.program)
    assert not reference.diagnostics, "nothing is wrong with the trace"
    assert reference.exact is not None
    return ex, reference


def values_and_reference(name: str, variant: Callable[..., Any] | ChangedValues) -> tuple[Values, Reference]:
    """Return the values of a fake variant of a program, and the reference to compare them with."""
    ex, reference = explore_program(name)
    torch.manual_seed(1)
    if isinstance(variant, ChangedValues):
        return variant.change(reference.eager), reference
    return run_once(ex.live.call, variant), reference


def exceeds_bound(values: Values, eager: Values, terms: int) -> bool:
    pairs = zip((*values.outputs, *values.gradients), (*eager.outputs, *eager.gradients), strict=True)
    return any(_tensor_exceeds_bound(mine, theirs, terms) for (_, mine), (_, theirs) in pairs)


def is_within_bound(values: Values, reference: Reference, terms: int) -> bool:
    """Return whether all elements are within the bound of eager, or of float64, as narrow dtypes round what cancels."""
    exact = reference.exact
    assert exact is not None

    def cast(tensors: Any, like: Any) -> Any:
        return tuple((name, tensor.to(other.dtype)) for (name, tensor), (_, other) in zip(tensors, like, strict=True))

    eager = reference.eager
    truth = Values(cast(exact.outputs, eager.outputs), cast(exact.gradients, eager.gradients))
    return not (exceeds_bound(values, eager, terms) and exceeds_bound(values, truth, terms))


def _tensor_exceeds_bound(mine: torch.Tensor | None, theirs: torch.Tensor | None, terms: int) -> bool:
    if mine is None or theirs is None or mine.dtype is not theirs.dtype or mine.shape != theirs.shape:
        return mine is not theirs
    if theirs.dtype not in TOLERANCES:
        return not torch.equal(mine, theirs)
    relative, absolute = TOLERANCES[theirs.dtype]
    exact, difference = theirs.double(), (mine.double() - theirs.double()).abs()
    few = torch.full_like(exact, 10 * math.sqrt(terms) * absolute)
    within = bool((difference <= few + 10 * math.sqrt(terms) * relative * exact.abs()).all())
    return not within or bool(difference.norm() > few.norm() + exact.norm() / 4)


def test_fake_variants_have_distinct_names() -> None:
    assert (len(WRONG), len(WRONG_BY_LITTLE), len(WRONG_TRACES)) == (101, 15, 12)
    assert (len(RIGHT), len(ROUNDED_DIFFERENTLY)) == (65, 19)


@pytest.mark.parametrize("name", [*WRONG, *WRONG_BY_LITTLE])
def test_wrong_results_are_found(name: str) -> None:
    program, variant = (WRONG | WRONG_BY_LITTLE)[name]
    values, reference = values_and_reference(program, variant)
    assert name in WRONG_BY_LITTLE or exceeds_bound(values, reference.eager, PROGRAMS[program].terms), (
        "not wrong enough"
    )
    assert verdict(compare_results("fake", values, reference)) == "failed"


@pytest.mark.parametrize("name", WRONG_TRACES)
def test_wrong_trace_is_reported(name: str) -> None:
    function, sizes = WRONG_TRACES[name]
    ex = rx.explore(function, [torch.randn(shape, requires_grad="gradient" in name) for shape in pairwise(sizes)])
    call, program = ex.live.call, ex.live.program
    found = find_reference(call, program)
    assert [diagnostic.code for diagnostic in found.diagnostics] == ["trace-differs"]
    program.select_regional(on=False)
    assert verdict(compare_results("aot_eager", run_once(call, program.capture.run), found)) == "failed"
    assert verdict(compare_results("eager", run_once(call), found)) == "ok"


@pytest.mark.parametrize("name", RIGHT)
def test_right_results_do_not_fail(name: str) -> None:
    program, variant = RIGHT[name]
    values, reference = values_and_reference(program, variant)
    assert is_within_bound(values, reference, PROGRAMS[program].terms), "not right"
    rows = compare_results("fake", values, reference)
    assert verdict(rows) == "ok", [row for row in rows if row.verdict != "ok"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_largest_reduction_is_found(name: str) -> None:
    _, reference = explore_program(name)
    assert PROGRAMS[name].terms / 4 <= reference.arithmetic.reduction <= 4 * PROGRAMS[name].terms


FLOAT8 = torch.zeros(32, 16).to(torch.float8_e4m3fn)

SUMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    "product of float8": (
        lambda a, b, scale: torch._scaled_mm(a, b, scale_a=scale, scale_b=scale + 1, out_dtype=torch.bfloat16),
        (FLOAT8, FLOAT8.t(), torch.tensor(1.0)),
        16,
    ),
    "product with itself": (lambda bias, x: torch.addmm(bias, x, x), (torch.zeros(1), torch.zeros(8, 8)), 8),
    "softmax of a number": (lambda x: x.softmax(0), (torch.tensor(1.0),), 1),
    "cumulative sum of a number": (lambda x: x.cumsum(0), (torch.tensor(1.0),), 1),
}


@pytest.mark.parametrize(("function", "arguments", "terms"), SUMS.values(), ids=SUMS)
def test_the_terms_of_a_sum_are_counted(
    function: Callable[..., Any], arguments: tuple[torch.Tensor, ...], terms: int
) -> None:
    ex = rx.explore(function, arguments)
    assert arithmetic_of(live.gm for live in ex.live.program.capture.live).reduction == terms


@pytest.mark.parametrize("name", ROUNDED_DIFFERENTLY)
def test_different_rounding_does_not_fail(name: str) -> None:
    program, variant, expected = ROUNDED_DIFFERENTLY[name]
    rows = compare_results("fake", *values_and_reference(program, variant))
    assert verdict(rows) == expected, rows
    assert verdict(rows).withholds_speedup is (expected == "chaotic")
    assert all("rounds differently" in row.note for row in rows if row.verdict == "not comparable")


def test_sequential_sums_are_farther_off() -> None:
    """In the gradient of a bias before a mean each addition rounds the same way, while eager sums pairwise."""
    program, variant, _ = ROUNDED_DIFFERENTLY["equal terms, one after the other"]
    (row,) = compare_results("fake", *values_and_reference(program, variant))
    assert row.variant_error is not None
    assert row.eager_error is not None
    assert row.variant_error > 20 * row.eager_error, "otherwise nothing is tested"


def test_the_search_for_an_explanation_can_be_cancelled() -> None:
    ex, _ = explore_program("quantized")
    cancelled = Mock(side_effect=[False, False, True])
    found = find_reference(ex.live.call, ex.live.program, cancelled)
    with pytest.raises(CancelledError):
        compare_results("fake", run_once(ex.live.call, lambda x: fake_quantize(x) * 1.25), found)
    assert cancelled.call_count == 3


@pytest.mark.compiles
def test_a_compiled_region_before_a_rounding_step_is_measured() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        with rx.region("before"):
            scaled = (x * 0.37 + 0.11) * 7.3
        return scaled.round() / 7.3

    ex = rx.explore(step, (torch.randn(MANY // 2).bfloat16(),))
    ex.benchmark(("regional",), budget_s=0.3)
    regional = ex.numerics[ex.numerics.variant == "regional"]
    assert set(regional.bitwise) == {False}, "Inductor rounded as eager does: nothing is tested"
    assert set(regional.verdict) == {"not comparable"}
    (timing,) = ex.timings[ex.timings.variant == "regional"].to_dict("records")
    enough = timing["samples"] >= LEAST_SAMPLES  # a busy machine may have time for fewer
    assert math.isnan(timing["speedup"]) is not enough
