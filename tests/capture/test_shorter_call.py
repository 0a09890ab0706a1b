"""The call in which one of each kind of repeated modules runs: which repeat, what it computes, what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from regional_explorer.capture.call import Call
from regional_explorer.capture.shorter_call import ShorterCall, repeats_of


class Block(nn.Module):
    """A residual layer; its two linear layers are alike, and do not follow each other."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Return a tensor like ``x``."""
        y: torch.Tensor = x + self.left(x) * self.right(x) * scale
        return y


class Stack(nn.Module):
    """Blocks one after the other, then a head."""

    def __init__(self, make: Callable[[], nn.Module] = Block, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(make() for _ in range(depth))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two numbers a row."""
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = self.head(x)
        return y


class Keyword(Block):
    """A layer that takes its input by name, and returns it in a tuple, after nothing."""

    def forward(self, *, hidden: torch.Tensor) -> tuple[None, torch.Tensor]:  # type: ignore[override]
        """Return nothing, and a tensor like ``hidden``."""
        return None, hidden + self.left(hidden)


class KeywordStack(Stack):
    """A stack of such layers."""

    def __init__(self) -> None:
        super().__init__(Keyword)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two numbers a row."""
        for block in self.blocks:
            _, x = block(hidden=x)
        y: torch.Tensor = self.head(x)
        return y


def batch() -> torch.Tensor:
    return torch.randn(3, 4, requires_grad=True)


def shorter(model: nn.Module, x: torch.Tensor | None = None) -> ShorterCall:
    call = Call(model, (batch() if x is None else x,))
    return ShorterCall(call, repeats_of(call))


@pytest.mark.parametrize("make", [Stack, KeywordStack])
def test_only_the_first_block_and_the_head_run(make: Callable[[], Stack]) -> None:
    model, x = make(), batch()
    call = shorter(model, x)
    with call.restoring():
        outputs, gradients = call.run()
    block = model.blocks[0]
    expected = model.head(block(hidden=x)[1] if isinstance(block, Keyword) else block(x))
    torch.testing.assert_close(outputs, expected)
    taken = dict(zip(call.gradient_names, gradients, strict=True))
    assert any(name.startswith("grad blocks.0.left") for name in taken)
    assert not any("blocks.1" in name for name in taken)


def test_the_repeats_are_named() -> None:
    assert list(map(str, shorter(Stack()).repeats)) == ["1 of 3 Block"]


def test_the_call_itself_stays_whole() -> None:
    model, x = Stack(), batch()
    before = model(x)
    call = shorter(model, x)
    with call.restoring():
        outputs, _ = call.run()
        torch.testing.assert_close(model(x), before)
        assert not torch.equal(outputs, before)
    assert all("forward" not in vars(block) for block in model.blocks)


GLOBAL = Stack()


def of_a_global(x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = GLOBAL(x).sum()
    return loss


@pytest.mark.parametrize("kind", ["global", "closure", "method", "argument", "decorated", "keyword"])
def test_a_module_is_found_where_the_call_has_it(kind: str) -> None:
    model, x = Stack(), batch()

    def step(x: torch.Tensor, model: nn.Module = model) -> Any:
        return model(x).sum()

    decorated = torch.enable_grad()(lambda x: model(x).sum())
    calls = {
        "global": Call(of_a_global, (x,)),
        "closure": Call(lambda x: model(x).sum(), (x,)),
        "method": Call(model.forward, (x,)),
        "argument": Call(step, (x, model)),
        "decorated": Call(decorated, (x,)),
        "keyword": Call(step, (x,), {"model": model}),
    }
    call = calls[kind]
    short = ShorterCall(call, repeats_of(call))
    assert list(map(str, short.repeats)) == ["1 of 3 Block"]
    used = GLOBAL if kind == "global" else model
    expected = used.head(used.blocks[0](x))
    with short.restoring():
        torch.testing.assert_close(short.run()[0], expected if kind == "method" else expected.sum())


@pytest.mark.parametrize("grad", [None, False])
def test_a_call_without_gradients_stays_without(grad: bool | None) -> None:
    model = Stack().requires_grad_(requires_grad=grad is False)
    call = Call(model, (torch.randn(3, 4),), grad=grad)
    short = ShorterCall(call, repeats_of(call))
    assert not short.grad
    assert short.modes.grad is call.modes.grad
    assert list(map(str, short.repeats)) == ["1 of 3 Block"]


def test_random_numbers_and_buffers_stay() -> None:
    class Noisy(Block):
        def __init__(self) -> None:
            super().__init__()
            self.calls = nn.Buffer(torch.zeros(()))

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            self.calls.add_(1)
            return super().forward(x, scale) + torch.rand_like(x)

    model, x = Stack(Noisy), batch()
    torch.manual_seed(0)
    shorter(model, x)
    after = torch.rand(())
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(()))
    assert [float(count) for count in model.buffers()] == [0.0, 0.0, 0.0]


def test_a_first_block_whose_input_takes_no_gradient_is_a_kind_of_its_own() -> None:
    assert list(map(str, shorter(Stack(depth=4), torch.randn(3, 4)).repeats)) == ["1 of 3 Block"]


class Twice(nn.Module):
    """One block that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor like ``x``."""
        y: torch.Tensor = self.block(self.block(x))
        return y


def widths() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))


@pytest.mark.parametrize("model", [Block(), Twice(), widths(), Stack(depth=1)], ids=str)
def test_nothing_repeats(model: nn.Module) -> None:
    assert repeats_of(Call(model, (batch(),))) == []


def test_blocks_that_differ_are_kinds_of_their_own() -> None:
    def alternating() -> nn.Module:
        model = Stack(depth=6)
        for block in model.blocks[::2]:
            block.right = nn.Linear(4, 4, bias=False)
        return model

    assert list(map(str, shorter(alternating()).repeats)) == ["1 of 3 Block", "1 of 3 Block"]


def test_layers_of_a_list_without_children_repeat() -> None:
    model = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(4, 4), nn.ReLU())])
    assert list(map(str, shorter(model).repeats)) == ["1 of 4 Linear", "1 of 4 ReLU"]


def test_blocks_inside_of_blocks_are_left_to_the_outer_ones() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(Block(), Block())

        def forward(self, x: torch.Tensor) -> Any:
            return self.inner(x)

    assert list(map(str, shorter(Stack(Outer)).repeats)) == ["1 of 3 Outer"]


def test_a_call_that_looks_for_its_modules_raises() -> None:
    class Counting(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            if any("forward" in vars(block) for block in self.blocks):
                raise ValueError("where are they?")
            return y

    with pytest.raises(ValueError, match="where are they"):
        shorter(Counting())
