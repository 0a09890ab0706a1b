"""What a comparison of two runs says of each tensor: every planted error is found, nothing right is called wrong.

What is a planted error is decided here, by a bound that knows nothing of the rule under test: element by element, ten
times the tolerance of ``torch.testing``, times the root of the number of terms for reductions; or a quarter as a whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.measure.numerics import Reference, compare, run_once, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.measure.rounding import Arithmetic, Values, dense
from regional_explorer.record.benchmark import LEAST_SAMPLES, Numerics, NumericsVerdict
from tests.measure.planted import MILLION, PROGRAMS, RIGHT, WRONG, WRONG_TRACES, Changed, rounded

Function = Callable[..., torch.Tensor]


def reference_for(function: Function, args: Sequence[torch.Tensor]) -> tuple[rx.Exploration, Reference]:
    """Return an exploration, and what its variants are compared with; nothing is wrong with its trace."""
    ex = rx.explore(function, args)
    reference = find_reference(ex.live.call, ex.live.program)
    assert not reference.diagnostics
    return ex, reference


def judged(function: Function, args: Sequence[torch.Tensor], variant: Function) -> tuple[Numerics, ...]:
    torch.manual_seed(0)
    return judge_of(function, args)(variant)


def judge_of(function: Function, args: Sequence[torch.Tensor]) -> Callable[[Function], tuple[Numerics, ...]]:
    """Return what judges variants, all by one reference."""
    ex, reference = reference_for(function, args)
    return lambda variant: compare("planted", run_once(ex.live.call, variant), reference)


# ------------------------------------------------------------------------------------------------------------- tensors

PAIRS = {
    "equal": (torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), True),
    "sign of zero": (torch.tensor([-0.0, 1.0]), torch.tensor([0.0, 1.0]), False),
    "not a number": (torch.tensor(float("nan")), torch.tensor(float("nan")), True),
    "strides": (torch.zeros(2, 3).t(), torch.zeros(3, 2), True),
    "conjugate": (torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j]), True),
    "truth values": (torch.tensor([True, False]), torch.tensor([True, False]), True),
    "nothing": (torch.zeros(0, 3), torch.zeros(0, 3), True),
    "eight bits": (torch.ones(2).to(torch.float8_e5m2), torch.ones(2).to(torch.float8_e5m2), True),
}


@pytest.mark.parametrize(("mine", "theirs", "bitwise"), PAIRS.values(), ids=PAIRS)
def test_bitwise_means_to_the_last_bit(mine: torch.Tensor, theirs: torch.Tensor, *, bitwise: bool) -> None:
    ours, eager = (Values((("output", value),), ()) for value in (mine, theirs))
    (row,) = compare("regional", ours, Reference(eager))
    assert (row.bitwise, row.verdict) == (bitwise, NumericsVerdict.OK)


@pytest.mark.parametrize(("dtype", "noise"), [(torch.bfloat16, True), (torch.float32, False)])
def test_a_gradient_that_is_truly_zero_is_noise_at_the_scale_of_the_others(dtype: torch.dtype, *, noise: bool) -> None:
    """Of the bias of attention's keys, or before a batch norm: what is left of it is how the others were rounded."""
    large, first, second = torch.randn(64), torch.randn(64) / 500, torch.randn(64) / 500
    one, other = (Values((), (("large", large.to(dtype)), ("zero", left.to(dtype)))) for left in (first, second))
    rows = compare("eager", other, Reference(one, arithmetic=Arithmetic(64)))
    assert (verdict(rows) is not NumericsVerdict.FAILED) is noise


def test_several_verdicts_say_the_worst_of_them() -> None:
    ok, failed, incomparable = NumericsVerdict.OK, NumericsVerdict.FAILED, NumericsVerdict.NOT_COMPARABLE
    assert NumericsVerdict.worst([ok, incomparable, failed]) is failed
    assert NumericsVerdict.worst([ok, incomparable]) is incomparable
    assert NumericsVerdict.worst([NumericsVerdict.NOT_COMPARED, ok]) is ok
    assert NumericsVerdict.worst([]) is None


def test_nothing_to_compare_is_not_ok() -> None:
    nothing = Values((), ())
    (row,) = compare("regional", nothing, Reference(nothing))
    assert (verdict([row]), verdict([])) == ("not checked", "not checked")
    assert "no tensors" in row.note


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_nested_tensor_is_not_compared_and_not_ok(layout: torch.layout) -> None:
    values = Values((("output", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)),), ())
    (row,) = compare("regional", values, Reference(values))
    assert row.verdict == "not checked"
    assert "nested" in row.note


def test_sparse_tensors_are_compared_as_dense_ones() -> None:
    eager = torch.randn(8, 8).relu()
    for sparse in (eager.to_sparse(), eager.to_sparse_csr()):
        assert torch.equal(dense(sparse), eager)
    huge = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), (1 << 20, 1 << 20))
    values = Values((("output", dense(huge)),), ())
    (row,) = compare("regional", values, Reference(values))
    assert (row.verdict, row.note) == ("not checked", "a sparse_coo tensor: its elements cannot be compared")


# ------------------------------------------------------------------------------------------------------ planted errors

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
    ex, reference = reference_for(PROGRAMS[name].function, PROGRAMS[name].arguments())
    assert reference.exact is not None
    return ex, reference


def given(name: str, variant: Callable[..., Any] | Changed) -> tuple[Values, Reference]:
    """Return what a variant of a program gives, and what it is compared with."""
    ex, reference = explored(name)
    torch.manual_seed(1)
    if isinstance(variant, Changed):
        return variant.change(reference.eager), reference
    return run_once(ex.live.call, variant), reference


def beyond(values: Values, eager: Values, terms: int) -> bool:
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
    ex = rx.explore(function, [torch.randn(shape, requires_grad="gradient" in name) for shape in pairwise(sizes)])
    call, program = ex.live.call, ex.live.program
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

    def halved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.bfloat16().sin() @ b.bfloat16()).cos().float()

    def once(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.bfloat16().sin() @ b.bfloat16()).float().cos().bfloat16().float()

    for columns in (16, 1):
        judge = judge_of(halved, (torch.randn(16, 16), torch.randn(16, columns)))
        right, wrong = judge(once), judge(lambda a, b: halved(a, b) + 0.25)
        assert (verdict(right), verdict(wrong)) == ("ok", "failed"), (right, wrong)


def test_equal_terms_summed_one_after_the_other_are_right() -> None:
    """As in the gradient of a bias before a mean: each addition rounds the same way, and eager sums pairwise."""

    def summed(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)

    def one_by_one(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for row in x:
            total = total + row
        return total

    terms = torch.randn(4, 1, 128).expand(4, 1024, 128).reshape(4096, 128) / 1024
    judge = judge_of(summed, (terms,))
    right, wrong = judge(one_by_one), judge(lambda x: one_by_one(x) * 1.001)
    assert (verdict(right), verdict(wrong)) == ("ok", "failed"), (right, wrong)
    (row,) = right
    assert row.variant_error is not None
    assert row.eager_error is not None
    assert row.variant_error > 20 * row.eager_error, "eager is not much nearer"


# ------------------------------------------------------------------------------------------- rounding before a step


def unrounded(x: torch.Tensor) -> torch.Tensor:
    """Compute the same, as a fused kernel does: rounded to bfloat16 at the end alone."""
    return rounded(x.float()).bfloat16()


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return rounded(x) @ w


def normal(*shape: int, grad: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape).bfloat16().requires_grad_(grad)


def test_an_ulp_before_a_step_is_not_called_wrong_nor_are_sums_of_many_steps_and_their_gradients() -> None:
    (row,) = judged(rounded, (normal(4096),), unrounded)
    assert (row.verdict, row.bitwise) == ("not comparable", False)
    assert "rounds otherwise" in row.note
    rows = judged(layer, (normal(64, 256, grad=True), normal(256, 64, grad=True)), lambda x, w: unrounded(x) @ w)
    assert verdict(rows) != "failed", rows


def test_runs_that_look_for_an_explanation_can_be_cancelled() -> None:
    ex = rx.explore(rounded, (normal(4096),))
    cancelled = Mock(side_effect=[False, False, True])
    found = find_reference(ex.live.call, ex.live.program, cancelled)
    with pytest.raises(CancelledError):
        compare("planted", run_once(ex.live.call, lambda x: rounded(x) * 1.25), found)
    assert cancelled.call_count == 3


UNEXPLAINED: dict[str, Function] = {
    "one element of many": lambda x: at_100(unrounded(x), 2),
    "not a number": lambda x: at_100(unrounded(x), torch.nan),
    "a step more everywhere": lambda x: unrounded(x) + 1 / 7.3,
    "a quarter more": lambda x: unrounded(x) * 1.25,
    "no quantization": lambda x: (x.float() * 0.37 + 0.11).bfloat16(),
    "floor for round": lambda x: (((x.float() * 0.37 + 0.11) * 7.3).floor() / 7.3).bfloat16(),
    "noise behind the step": lambda x: unrounded(x) * (1 + 0.3 * torch.randn(x.shape)).bfloat16(),
}


def at_100(y: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.cat([y[:100], y[100:101] * factor, y[101:]])


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_what_no_rounding_explains_is_still_wrong(name: str) -> None:
    (row,) = judged(rounded, (normal(4096),), UNEXPLAINED[name])
    assert row.verdict == "failed"


NEAR = torch.tensor([[1.1, 1.1 + 2e-7, 0.3], [1.1, 0.7, 0.3]])
INDICES: dict[str, Function] = {
    "argmax": lambda x: (x * 1.0).argmax(-1),
    "max": lambda x: (x * 1.0).max(-1)[1],
    "max pool": lambda x: F.max_pool1d((x * 1.0)[None], 3, return_indices=True)[1].flatten(),
    "topk": lambda x: (x * 1.0).topk(1)[1].flatten(),
}


@pytest.mark.parametrize("name", INDICES)
def test_another_index_is_explained_where_two_are_near_alone(name: str) -> None:
    function = INDICES[name]
    (row,) = judged(function, (NEAR,), lambda x: function(x) * torch.tensor([0, 1]))
    assert row.verdict == "not comparable"
    (row,) = judged(function, (NEAR,), lambda x: function(x) + torch.tensor([0, 1]))
    assert row.verdict == "failed"


def test_an_index_of_what_was_not_computed_is_not_explained_and_one_far_away_is() -> None:
    (row,) = judged(lambda x: x.max(-1)[1], (NEAR,), lambda x: x.max(-1)[1] - torch.tensor([1, 0]))
    assert row.verdict == "failed", "the call's own arguments are not rounded"
    scores = torch.zeros(1, MILLION).bfloat16()
    scores[0, 900_000], scores[0, 900_003] = 1.0, 1.0 + 2**-7
    (row,) = judged(lambda x: (x * 1.3).argmax(-1), (scores,), lambda x: (x * 1.3).argmax(-1) - 3)
    assert row.verdict == "not comparable", "an index is no figure that is rounded, however large"


CASTS: dict[str, Function] = {
    "int8": lambda x: (x * 20.7 * 1.37).round().to(torch.int8),
    "int32, of numbers that are whole by chance": lambda x: (x * 307.7 * 1.37).to(torch.int32),
    "eight bits": lambda x: ((x * 0.37 + 0.11) * 1.37).to(torch.float8_e5m2),
    "eight bits, finite": lambda x: ((x * 0.37 + 0.11) * 1.37).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", CASTS)
def test_what_is_left_unrounded_before_a_cast_is_not_called_wrong(name: str) -> None:
    (row,) = judged(CASTS[name], (normal(64, 1024),), lambda x: CASTS[name](x.float()))
    assert (row.verdict, row.bitwise) == ("not comparable", False)


def test_the_sign_of_zero_in_eight_bits_is_no_difference() -> None:
    (row,) = judged(lambda x: (x.relu() * 2).to(torch.float8_e5m2), (normal(64),),
                    lambda x: (x.relu() * 2 * (x > 0).float().sub(0.5).sign()).to(torch.float8_e5m2))  # fmt: skip
    assert (row.verdict, row.bitwise) == ("ok", False)


def logistic(x: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        x = 3.9 * x * (1 - x)
    return x


def test_rounding_that_ops_without_steps_amplify_is_not_called_wrong_and_withholds_the_speedup() -> None:
    def expanded(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = 3.9 * x - 3.9 * x * x
        return x

    for variant in (expanded, lambda x: logistic(x) * 0.5):  # a check cannot tell either from zeros
        (row,) = judged(logistic, (torch.rand(1000),), variant)
        assert row.verdict == "chaotic"
        assert row.verdict.withholds_speedup
    assert not NumericsVerdict.NOT_COMPARABLE.withholds_speedup


def normed(x: torch.Tensor, weights: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Norms over a batch of twelve amplify rounding from layer to layer, until it decides the sign before a ReLU."""
    for w in weights:
        y = x @ w
        x = ((y - y.mean(0)) / (y.var(0) + 1e-5).sqrt()).relu() * scale
    return x


def normed_in_two_sums(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    for w in weights:
        y = x[:, :100] @ w[:100] + x[:, 100:] @ w[100:]
        x = ((y - y.mean(0)) / (y.var(0) + 1e-5).sqrt()).relu()
    return x


def residual(x: torch.Tensor, weights: torch.Tensor, scale: float = 1.0, noise: float = 0.0) -> torch.Tensor:
    """Layers of a net in two bytes, where the rounding of one layer decides signs in the next."""
    for number, w in enumerate(weights):
        y = (F.layer_norm(x, (x.shape[-1],)) @ w).relu()
        if number == 3:
            y = y * scale + noise * y.detach().std() * torch.randn_like(y)
        x = x + y
    return x


Judge = Callable[[Function], str]


def verdicts_of(function: Function, x: torch.Tensor, weights: torch.Tensor) -> Judge:
    judge = judge_of(function, (x.requires_grad_(), weights.requires_grad_()))
    return lambda variant: verdict(judge(variant))


@pytest.fixture(scope="module")
def judge_normed() -> Judge:
    torch.manual_seed(7)
    x = torch.randn(12, 256)
    return verdicts_of(normed, x, torch.stack([torch.randn(256, 256) for _ in range(12)]) / 16)


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16], ids=str)
def judge_residual(request: pytest.FixtureRequest) -> Judge:
    torch.manual_seed(0)
    x = torch.randn(32, 128).to(request.param)
    return verdicts_of(residual, x, (torch.randn(6, 128, 128) / 11).to(request.param))


def test_a_sign_that_amplified_rounding_decides_is_not_called_wrong(judge_normed: Judge) -> None:
    assert judge_normed(normed_in_two_sums) == "not comparable", "one sign of 36,864 is another"


def test_nor_are_signs_in_a_net_of_two_bytes_that_a_kernel_computes_in_float32(judge_residual: Judge) -> None:
    assert judge_residual(lambda x, w: residual(x.float(), w.float()).to(x.dtype)) == "not comparable"


UNEVEN = torch.linspace(1, 1.01, 256)[:, None]
WRONG_NORMED: dict[str, Function] = {
    "a factor": lambda x, w: normed(x, w, 1.01),
    "a layer less": lambda x, w: normed(x, w[:-1]),
    "no gradient of the input": lambda x, w: normed(x.detach(), w) + 0 * x.sum(),
    "a weight off by a hundredth": lambda x, w: normed(x, torch.cat([w[:3] * UNEVEN, w[3:]])),
    "noise": lambda x, w: normed(x, w) * (1 + 1e-2 * torch.randn(256)),
    "another sign in every tenth column": lambda x, w: normed(x, w) * (1 - 2.0 * (torch.arange(256) % 10 == 0)),
}
WRONG_RESIDUAL: dict[str, Function] = {
    "a factor in one layer": lambda x, w: residual(x, w, 1.1),
    "a layer less": lambda x, w: residual(x, w[:-1]),
    "noise in one layer": lambda x, w: residual(x, w, noise=0.2),
    "no gradient of the input": lambda x, w: residual(x.detach(), w) + 0 * x.sum(),
}


@pytest.mark.parametrize("name", WRONG_NORMED)
def test_where_rounding_is_amplified_what_is_wrong_is_still_found(judge_normed: Judge, name: str) -> None:
    assert judge_normed(WRONG_NORMED[name]) == "failed"


@pytest.mark.parametrize("name", WRONG_RESIDUAL)
def test_and_in_a_net_of_two_bytes_too(judge_residual: Judge, name: str) -> None:
    assert judge_residual(WRONG_RESIDUAL[name]) == "failed"


@pytest.mark.compiles
def test_a_compiled_region_before_a_step_is_measured() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        with rx.region("before"):
            scaled = (x * 0.37 + 0.11) * 7.3
        return scaled.round() / 7.3

    ex = rx.explore(step, (normal(MILLION // 16),))
    ex.benchmark(("regional",), budget_s=1.0)
    regional = ex.numerics[ex.numerics.variant == "regional"]
    assert set(regional.bitwise) == {False}, "Inductor rounded as eager does: the test shows nothing"
    assert set(regional.verdict) == {"not comparable"}
    (timing,) = ex.timings[ex.timings.variant == "regional"].to_dict("records")
    enough = timing["samples"] >= LEAST_SAMPLES  # a busy machine may have time for fewer
    assert math.isnan(timing["speedup"]) is not enough
