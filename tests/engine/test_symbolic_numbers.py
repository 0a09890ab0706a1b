"""Numbers that a call computes from sizes or tensors, and offsets of storages, where a region uses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.record.plan import Cut
from tests.shared.checks import only

SIZES = (4, 9, 16, 25, 36)


def clamped(x):
    limit = x.shape[0] ** 0.5
    with rx.region("r"):
        return x.clamp(max=limit)


def shifted(x):
    share = 1 / x.shape[0]
    with rx.region("r"):
        return torch.add(x, x.sin(), alpha=share).clamp(min=-share)


def scaled(x):
    scale = math.sqrt(x.shape[0])
    shifted_by_one = x + 1
    with rx.region("r"):
        return (shifted_by_one.sin() * scale).clamp(max=scale / 10)


@pytest.mark.parametrize("function", [clamped, shifted, scaled])
@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_that_follow_from_sizes_are_those_of_each_call(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    compiled = rx.compile(function, dynamic=dynamic)
    for size in SIZES:
        x = torch.linspace(-9, 9, size)
        torch.testing.assert_close(compiled(x), function(x))
    assert "compiled" in str(rx.status(compiled))


def test_an_exploration_compiles_such_a_number_for_all_sizes() -> None:
    ex = rx.explore(clamped, (torch.full((4,), 100.0),), dynamic=True)
    ex.compile()
    assert ex.regions["state"].tolist() == ["compiled"]
    assert [ex.compiled(torch.full((size,), 100.0))[0].item() for size in SIZES] == [2, 3, 4, 5, 6]


def test_training_with_such_a_number_is_right_and_says_what_stays_eager() -> None:
    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        sharpness = x.shape[0] ** -0.5
        with rx.region("r"):
            return torch.nn.functional.softplus(x * weight, beta=sharpness).sum()

    compiled = rx.compile(loss)
    for size in SIZES:
        x, results = torch.linspace(-2, 2, size), []
        for function in (loss, compiled):
            weight = torch.ones(size, requires_grad=True)
            value = function(x, weight)
            value.backward()
            results.append((value.detach(), weight.grad))
        torch.testing.assert_close(*results)
    assert "leaves 1 op to eager: softplus_backward" in str(rx.status(compiled))


def test_a_number_read_from_a_tensor_is_that_of_each_call() -> None:
    def softened(x: torch.Tensor, sharpness: torch.Tensor) -> torch.Tensor:
        beta = sharpness.item()
        with rx.region("r"):
            return torch.nn.functional.softplus(x, beta=beta) * 2

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = rx.compile(softened)
        for value in (1.0, 2.0, 4.0):
            inputs = torch.ones(3), torch.tensor(value)
            torch.testing.assert_close(compiled(*inputs), softened(*inputs))
        ex = rx.explore(softened, (torch.ones(3), torch.tensor(2.0)))
        ex.compile()
    found = only(ex, "region-shrunk")
    assert found.nodes == ("softplus",)
    assert ex.partitions["ops"].tolist() == [1]


def attention(q, k, v):
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


def test_a_division_by_such_a_number_belongs_to_the_region_around_it() -> None:
    """AOTAutograd replaces it by ops without metadata, which no selector matches: none is proposed."""
    ex = rx.explore(attention, tuple(torch.randn(2, 8, 16) for _ in range(3)), dynamic=True)
    ex.mark("all", lines="attention:2-3")
    assert len(ex.partitions) == 1
    assert not ex.diagnostics
    ex.plan = replace(ex.plan, cut=Cut.MARKED)
    (found,) = ex.diagnostics
    assert found.code == "region-split"
    assert found.nodes == ("div_tensor",)
    assert found.remedy == "Nothing: torch added these ops while tracing, and no selector matches them."


@pytest.mark.parametrize("start", [0, 2, 4])
def test_storages_are_addressed_from_their_start(start: int) -> None:
    def addressed(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return x.as_strided((2,), (1,), 6) * 2

    compiled, x = rx.compile(addressed), torch.arange(12.0)[start:]
    for _ in range(2):
        torch.testing.assert_close(compiled(x), addressed(x))
