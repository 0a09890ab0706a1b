"""Gradients are taken where a user takes them: outside of the blocks that the call was explored in."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import regional_explorer as rx
from regional_explorer.record.benchmark import NumericsVerdict
from tests.shared.checks import codes

AUTOCAST = torch.autocast("cpu", dtype=torch.bfloat16)


def in_float32(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return (x.float() @ linear.weight.float().T + linear.bias).square().mean()


def partly_in_float32(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    return in_float32(linear(x), linear)


def behind_a_graph_break(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    h = x.float() * 2
    torch._dynamo.graph_break()
    return in_float32(h, linear)


def gradients(call: Callable[..., Any], x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    with AUTOCAST:
        out = call(x, linear)
    return torch.autograd.grad(out, linear.weight)[0]


@pytest.mark.filterwarnings("ignore:.*ill not be optimized")
@pytest.mark.parametrize("function", [in_float32, partly_in_float32, behind_a_graph_break])
def test_the_gradients_of_a_call_explored_under_autocast_are_a_users(function: Callable[..., Any]) -> None:
    linear, x = nn.Linear(48, 48), torch.randn(8, 48, dtype=torch.bfloat16, requires_grad=True)
    with AUTOCAST:
        ex = rx.explore(function, (x, linear))
    expected, traced = (gradients(call, x, linear) for call in (function, ex.compiled))
    with ex.live.call.restoring():
        (checked,) = (
            gradient
            for name, gradient in zip(ex.live.call.gradient_names, ex.live.call.run()[1], strict=True)
            if name.endswith("weight")
        )
    torch.testing.assert_close(checked, expected, rtol=0, atol=0)
    torch.testing.assert_close(traced, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    ex.benchmark(variants=("eager", "aot_eager"), budget_s=0.1)
    assert set(ex.numerics.verdict) == {NumericsVerdict.OK}
    assert "trace-differs" not in codes(ex)


@pytest.mark.compiles
def test_torch_compile_is_checked_against_the_gradients_of_a_user() -> None:
    linear, x = nn.Linear(48, 48), torch.randn(8, 48, dtype=torch.bfloat16, requires_grad=True)
    with AUTOCAST:
        ex = rx.explore(in_float32, (x, linear))
    ex.benchmark(variants=("eager", "full"), budget_s=0.1)
    torch_compiled = torch.compile(in_float32, dynamic=False)
    expected, got = (gradients(call, x, linear) for call in (in_float32, torch_compiled))
    is_right = bool((got - expected).abs().max() < 1e-5 * expected.abs().max())
    rows = ex.numerics.loc[lambda rows: rows.variant == "full"]
    assert (set(rows.verdict) == {NumericsVerdict.OK}) is is_right


class Backward(torch.autograd.Function):
    """Records the modes of its backward."""

    modes: tuple[Any, ...] = ()

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            is_saved_as_it_is = (leaf * leaf).grad_fn._saved_self is leaf
        Backward.modes = torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), is_saved_as_it_is
        return gradients[0] * 2


def pack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


BLOCKS = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "saved tensors": lambda: saved_tensors_hooks(pack, pack),
    "save_on_cpu": save_on_cpu,
    "no_grad": torch.no_grad,
    "nothing": torch.enable_grad,
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_the_backward_runs_outside_of_the_blocks_around_the_call(block: Callable[[], Any]) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    double: Callable[..., Any] = Backward.apply
    double(x).sum().backward()
    expected = Backward.modes
    Backward.modes = ()
    with block():
        ex = rx.explore(lambda x: double(x).sin(), (x,), grad=True)
        first = Backward.modes
        with ex.live.call.restoring():
            ex.live.call.run()
    assert first == Backward.modes == expected
