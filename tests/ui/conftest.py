"""A small exploration, whose compiling and measuring a test may hold in its hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.measure.timing.executor import SAME_THREAD, Executor
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.panel.panel import Panel


def small(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum()


def make() -> Exploration:
    ex = explore(small, (torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)))
    ex.mark("mm", ops="aten.mm*").mark("act", ops="aten.relu*")
    ex.configure("mm", {"max_fusion_size": 8})
    return ex


def words(part: Any) -> str:
    """Return the texts of an element as a page would show them."""
    return part if isinstance(part, str) else " ".join(map(words, part[2:]))


@pytest.fixture
def exploration() -> Iterator[Exploration]:
    ex = make()
    yield ex
    ex.close()


@pytest.fixture
def control(exploration: Exploration) -> Control:
    return control_of(exploration)


@pytest.fixture
def panel(control: Control) -> Iterator[Panel]:
    panel = Panel(control)
    yield panel
    panel.close()


class BlockedWork:
    """Stands in for ``benchmark`` and ``compile``: begins, tells, and goes on when the test says so."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.calls: list[tuple[Any, ...]] = []
        self.error: BaseException | None = None

    def __call__(
        self,
        *arguments: Any,
        cancelled: Callable[[], bool] = lambda: False,
        executor: Executor = SAME_THREAD,
        progress: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self.calls.append((*arguments, torch.is_grad_enabled()))
        progress("compiling mm", 0.5)
        self.begun.set()
        while not self.go_on.wait(0.005):
            if cancelled():
                return
        if self.error is not None:
            raise self.error


@pytest.fixture
def blocked_work(exploration: Exploration, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedWork]:
    work = BlockedWork()
    monkeypatch.setattr(exploration, "benchmark", work)
    monkeypatch.setattr(exploration, "compile", work)
    yield work
    work.go_on.set()
