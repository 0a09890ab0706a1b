"""A small exploration and its panel: pressing, reading, and work that waits for the test."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regional_explorer.compiler.run import Run
from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.style.element import words
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel import Panel


def small(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum()


def small_exploration(*, dynamic: bool | None = None) -> Exploration:
    ex = explore(small, (torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)), dynamic=dynamic)
    ex.mark("mm", ops="aten.mm*").mark("act", ops="aten.relu*")
    ex.configure("mm", {"max_fusion_size": 8})
    return ex


def elements(tree: Any, **attributes: str) -> list[Any]:
    """Return the elements of a tree that have these attributes: ``data_of="mm"``."""
    wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    parts = [part for part in tree if isinstance(part, list)]
    mine = [part for part in parts if isinstance(part[0], str) and wanted.items() <= part[1].items()]
    return [*mine, *(found for part in parts for found in elements(part[2:], **attributes))]


def text(panel: Panel, part: str) -> str:
    return " ".join(" ".join(map(words, panel.part(part))).split())


def button(panel: Panel, part: str, action: str, target: str = "") -> Any:
    (found,) = elements(panel.part(part), data_do=action, data_of=target)
    return found


def is_enabled(panel: Panel, part: str, action: str) -> bool:
    return "disabled" not in button(panel, part, action)[1]


def type_in(panel: Panel, action: str, value: str | bool, target: str = "") -> None:
    panel.press(action, target, value=value)


def message(number: int, do: str, of: str = "", **more: Any) -> dict[str, Any]:
    """Return a message as a page sends it, with this number."""
    return {"page": "one", "number": number, "do": do, "of": of, "value": None, **more}


def rows(panel: Panel) -> dict[str, str]:
    """Return the shown text of each region's row, by region."""
    return {row[1]["data-of"]: words(row) for row in elements(panel.part("regions"), data_do="pick")}


def pick(panel: Panel, *names: str) -> None:
    for number, name in enumerate(names):
        panel.press("pick", name, ctrl=number > 0)


def region_nodes(control: Control, *regions: str, graph: str = "") -> set[str]:
    """Return the nodes of regions in all graphs, or in one."""
    return {
        f"{graph_id}:{name}"
        for region in regions
        for graph_id, names in control.session.members[region].items()
        for name in names
        if graph in ("", graph_id)
    }


class BlockedMethod:
    """A fake method of an exploration that sets ``begun`` and waits for ``go_on`` or until it is cancelled.

    It then returns the result of ``then``; with ``error`` it raises that without waiting.
    """

    def __init__(self, then: Callable[..., Any] | None = None, error: BaseException | None = None) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.calls: list[tuple[Any, ...]] = []
        self._then, self._error = then, error

    def __call__(self, *arguments: Any, **given: Any) -> Any:
        run = given.get("run", Run())
        self.calls.append((*arguments, torch.is_grad_enabled()))
        run.progress("compiling mm", 0.5)
        self.begun.set()
        if self._error is not None:
            raise self._error
        while not (self.go_on.wait(0.005) or run.cancelled()):
            pass
        return None if self._then is None else self._then(*arguments, **given)


class MainLoop:
    """A fake loop of the main thread: ``run_until`` runs all callbacks that other threads have added by its end."""

    def __init__(self) -> None:
        self._asked: queue.Queue[Callable[[], object]] = queue.Queue()

    def add_callback(self, callback: Callable[[], object]) -> None:
        self._asked.put(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        threading.Timer(delay_s, self.add_callback, [callback]).start()

    def run_until(self, done: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + 120.0
        while not done() or not self._asked.empty():
            if time.monotonic() > ends_s:
                pytest.fail("the work did not end")
            try:
                self._asked.get(timeout=0.01)()
            except queue.Empty:
                continue
