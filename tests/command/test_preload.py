"""Imports ahead of time: between cells, never beside one, and only for who uses torch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from regional_explorer.command.magic import Preload
from tests.shared.processes import python

LOAD = """
import os, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for wanted in (False, True):
    os.environ["REGIONAL_EXPLORER_WARM"] = str(int(wanted))
    shell.run_cell("%load_ext regional_explorer").raise_error()
    from regional_explorer.command.magic import preload, toolchain
    hooks = shell.events.callbacks["pre_execute"]
    assert (preload.before_cell in hooks) == wanted
    assert "torch" not in sys.modules and toolchain.build.workers is None
    if wanted:
        shell.run_cell("import torch")
        assert preload.wait(120) and "regional_explorer.exploration.exploration" in sys.modules
    shell.run_cell("%unload_ext regional_explorer").raise_error()
    assert preload.before_cell not in hooks
"""


class FakeEvents:
    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[[], None]]] = {"pre_execute": [], "post_execute": []}

    def register(self, name: str, callback: Callable[[], None]) -> None:
        self.callbacks[name].append(callback)

    def unregister(self, name: str, callback: Callable[[], None]) -> None:
        self.callbacks[name].remove(callback)

    def cell(self) -> None:
        for callback in (*self.callbacks["pre_execute"], *self.callbacks["post_execute"]):
            callback()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> FakeEvents:
    monkeypatch.setitem(sys.modules, "torch", object())  # only the name is looked up
    return FakeEvents()


def test_stages_run_in_turn(events: FakeEvents) -> None:
    done: list[str] = []
    ahead = Preload([partial(done.append, name) for name in "ab"], partial(done.append, "c"), idle_s=0.02)
    ahead.attach(events)
    assert not ahead.wait(0)
    events.cell()
    assert ahead.wait(10)
    assert done == ["a", "b", "c"]


def test_a_cell_waits_for_the_stage_under_way_and_no_other_begins(events: FakeEvents) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        go_on.wait(10)
        done.append("first")

    ahead = Preload((first, partial(done.append, "second")), lambda: None, idle_s=0.02)
    ahead.attach(events)
    events.cell()
    assert begun.wait(10)
    threading.Timer(0.1, go_on.set).start()
    ahead.before_cell()
    assert done == ["first"]
    assert not ahead.wait(0.2)
    assert done == ["first"]
    ahead.after_cell()
    assert ahead.wait(10)
    assert done == ["first", "second"]


def test_preloading_needs_an_imported_torch(events: FakeEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    stage = Mock()
    ahead = Preload((stage,), lambda: None, idle_s=0.0)
    ahead.attach(events)
    events.cell()
    assert not ahead.wait(10)
    assert not stage.called


def test_failing_stage_ends_preloading(events: FakeEvents, capfd: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    stages: list[Callable[[], object]] = [lambda: 1 / 0, partial(done.append, 1)]
    ahead = Preload(stages, partial(done.append, 2), idle_s=0.02)
    ahead.attach(events)
    events.cell()
    assert ahead.wait(10)
    assert done == []
    ahead.detach()
    ahead = Preload([partial(done.append, 1), partial(done.append, 2)], partial(done.append, 3), idle_s=0.02)
    ahead.attach(events)
    events.cell()
    ahead.detach()
    assert ahead.wait(10)
    assert len(done) < 3
    assert events.callbacks == {"pre_execute": [], "post_execute": []}
    assert capfd.readouterr() == ("", "")


def test_reloading_runs_stages_again(events: FakeEvents) -> None:
    done: list[str] = []
    ahead = Preload([partial(done.append, "a")], partial(done.append, "b"), idle_s=0.02)
    for _ in range(2):
        ahead.attach(events)
        events.cell()
        assert ahead.wait(10)
        ahead.detach()
    assert done == ["a", "b"] * 2


def test_loading_the_extension_preloads_unless_turned_off(tmp_path: Path) -> None:
    # No compiler, so no toolchain to build: only the imports are left.
    assert python(LOAD, env={"IPYTHONDIR": tmp_path, "CXX": tmp_path / "none"}).err == ""
