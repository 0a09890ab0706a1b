"""Imports ahead of time: between cells, never beside one, and only for who uses torch."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from regional_explorer.command.preload import Preload
from tests.shared.processes import python

LOAD = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext regional_explorer").raise_error()
from regional_explorer.command import magic
hooked = lambda: magic.preload.before_cell in shell.events.callbacks["pre_execute"]
print("torch" in sys.modules, hooked(), magic.toolchain.build._child is not None)
shell.run_cell("import torch")
print(magic.preload.wait(120), "regional_explorer.exploration.exploration" in sys.modules)
print(shell.run_cell("%unload_ext regional_explorer").success, hooked())
"""


class Events:
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
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    monkeypatch.setitem(sys.modules, "torch", object())  # a name is all that is asked for
    return Events()


def test_stages_run_in_turn_and_then_what_comes_afterwards(events: Events) -> None:
    done: list[str] = []
    ahead = Preload([partial(done.append, name) for name in "ab"], partial(done.append, "c"), idle_s=0.02)
    ahead.attach(events)
    assert not ahead.wait(0)
    events.cell()
    assert ahead.wait(10)
    assert done == ["a", "b", "c"]


def test_a_cell_waits_for_the_stage_under_way_and_no_other_begins(events: Events) -> None:
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
    time.sleep(0.2)
    assert done == ["first"]
    ahead.after_cell()
    assert ahead.wait(10)
    assert done == ["first", "second"]


def test_nothing_is_imported_for_who_does_not_use_torch(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    stage = Mock()
    ahead = Preload((stage,), lambda: None, idle_s=0.02)
    ahead.attach(events)
    events.cell()
    time.sleep(0.1)
    assert not stage.called


def test_what_fails_or_is_detached_ends_it_without_a_word(events: Events, capfd: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("off", [True, False])
def test_loading_the_extension(off: bool, tmp_path: Path) -> None:
    # No compiler, so no toolchain to build: what is left are the imports.
    env = {"REGIONAL_EXPLORER_WARM": "0" if off else "1", "IPYTHONDIR": tmp_path, "CXX": tmp_path / "none"}
    done = python(LOAD, env=env)
    assert done.err == ""
    assert done.out.split("\n")[:3] == [f"False {not off} False", f"{not off} {not off}", "True False"]
