"""Step functions: what a rounding error before one moves is not called wrong, and all else still is."""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.measure.numerics import compare, run_once, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.record.timing import LEAST_SAMPLES, Numerics

MILLION = 1_000_000

Function = Callable[..., torch.Tensor]


def quantized(x: torch.Tensor) -> torch.Tensor:
    """Fake quantization, straight through: what is before ``round`` is rounded to bfloat16 several times."""
    scaled = (x * 0.37 + 0.11) * 7.3
    return (scaled + (scaled.round() - scaled).detach()) / 7.3


def unrounded(x: torch.Tensor) -> torch.Tensor:
    """Compute the same, as a fused kernel does: rounded to bfloat16 at the end alone."""
    return quantized(x.float()).bfloat16()


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return quantized(x) @ w


def judged(function: Function, args: Sequence[torch.Tensor], variant: Function) -> tuple[Numerics, ...]:
    torch.manual_seed(0)
    ex = rx.explore(function, args)
    assert ex.live.call is not None
    found = find_reference(ex.live.call, ex.live.program)
    assert not found.diagnostics
    return compare("planted", run_once(ex.live.call, variant), found)


def normal(*shape: int, grad: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape).bfloat16().requires_grad_(grad)


def test_an_ulp_before_a_step_is_not_called_wrong() -> None:
    (row,) = judged(quantized, (normal(4096),), unrounded)
    assert (row.verdict, row.bitwise) == ("not comparable", False)
    assert "rounds otherwise" in row.note


def test_nor_are_sums_of_many_steps_and_their_gradients() -> None:
    rows = judged(layer, (normal(64, 256, grad=True), normal(256, 64, grad=True)), lambda x, w: unrounded(x) @ w)
    assert verdict(rows) != "failed", rows


def test_runs_that_look_for_an_explanation_can_be_cancelled() -> None:
    ex = rx.explore(quantized, (normal(4096),))
    assert ex.live.call is not None
    cancelled = Mock(side_effect=[False, False, True])
    found = find_reference(ex.live.call, ex.live.program, cancelled)
    with pytest.raises(CancelledError):
        compare("planted", run_once(ex.live.call, lambda x: quantized(x) * 1.25), found)
    assert cancelled.call_count == 3


CHANGES: dict[str, Function] = {
    "one element of many": lambda y: torch.cat([y[:100], y[100:101] * 2, y[101:]]),
    "not a number": lambda y: torch.cat([y[:100], y[100:101] * torch.nan, y[101:]]),
    "a step more everywhere": lambda y: y + 1 / 7.3,
    "a quarter more": lambda y: y * 1.25,
}
OTHERS: dict[str, Function] = {
    "no quantization": lambda scaled: scaled,
    "floor for round": torch.floor,
}


@pytest.mark.parametrize("name", [*CHANGES, *OTHERS])
def test_what_no_rounding_explains_is_still_wrong(name: str) -> None:
    def changed(x: torch.Tensor) -> torch.Tensor:
        scaled = (x.float() * 0.37 + 0.11) * 7.3
        if name in OTHERS:
            return (OTHERS[name](scaled) / 7.3).bfloat16()
        return CHANGES[name](unrounded(x))

    (row,) = judged(quantized, (normal(4096),), changed)
    assert row.verdict == "failed"


def test_noise_behind_a_step_is_still_wrong() -> None:
    (row,) = judged(quantized, (normal(4096),), lambda x: unrounded(x) * (1 + 0.3 * torch.randn(x.shape)).bfloat16())
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


def test_another_index_of_the_call_s_own_arguments_is_wrong() -> None:
    """Nothing is computed that could be rounded."""
    (row,) = judged(lambda x: x.max(-1)[1], (NEAR,), lambda x: x.max(-1)[1] - torch.tensor([1, 0]))
    assert row.verdict == "failed"


def test_another_index_far_from_the_first_is_explained_too() -> None:
    """However large the index: it is no figure that is rounded."""
    scores = torch.zeros(1, MILLION).bfloat16()
    scores[0, 900_000], scores[0, 900_003] = 1.0, 1.0 + 2**-7
    (row,) = judged(lambda x: (x * 1.3).argmax(-1), (scores,), lambda x: (x * 1.3).argmax(-1) - 3)
    assert row.verdict == "not comparable"


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


def test_rounding_that_ops_without_steps_amplify_is_not_called_wrong() -> None:
    def expanded(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = 3.9 * x - 3.9 * x * x
        return x

    (row,) = judged(logistic, (torch.rand(1000),), expanded)
    assert row.verdict == "not comparable"


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


def judge_of(function: Function, x: torch.Tensor, weights: torch.Tensor) -> Judge:
    """Return what judges variants, all by one reference."""
    ex = rx.explore(function, (x.requires_grad_(), weights.requires_grad_()))
    call = ex.live.call
    assert call is not None
    found = find_reference(call, ex.live.program)
    assert not found.diagnostics
    return lambda variant: verdict(compare("planted", run_once(call, variant), found))


@pytest.fixture(scope="module")
def judge_normed() -> Judge:
    torch.manual_seed(7)
    x = torch.randn(12, 256)
    return judge_of(normed, x, torch.stack([torch.randn(256, 256) for _ in range(12)]) / 16)


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16], ids=str)
def judge_residual(request: pytest.FixtureRequest) -> Judge:
    torch.manual_seed(0)
    x = torch.randn(32, 128).to(request.param)
    return judge_of(residual, x, (torch.randn(6, 128, 128) / 11).to(request.param))


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
def test_what_is_wrong_in_a_net_of_two_bytes_is_still_found(judge_residual: Judge, name: str) -> None:
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
    timings = ex.timings[ex.timings.variant == "regional"]
    enough = timings.samples >= LEAST_SAMPLES  # a busy machine may have time for fewer
    assert timings.speedup.notna().tolist() == enough.tolist()
