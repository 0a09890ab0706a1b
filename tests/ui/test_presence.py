"""Work of a panel that no page shows any longer ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.ui.control import LEFT
from regional_explorer.ui.panel.panel import Panel
from regional_explorer.ui.threads import presence
from regional_explorer.ui.threads.presence import Presence
from tests.ui.conftest import HeldWork


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "EVERY_S", 0.01)


@pytest.fixture
def watched() -> Iterator[tuple[Presence, threading.Event]]:
    found, gone = Presence(), threading.Event()
    yield found, gone
    found.end()


def free() -> None:
    """The main thread always is."""


def test_while_a_page_answers_nobody_is_gone(watched: tuple[Presence, threading.Event]) -> None:
    found, gone = watched
    found.ask.append(found.heard)
    found.watch(free, gone.set)
    assert not gone.wait(0.3)
    found.ask.clear()  # the page is closed
    assert gone.wait(5)


def test_a_page_that_never_answered_is_not_missed(watched: tuple[Presence, threading.Event]) -> None:
    found, gone = watched
    found.watch(free, gone.set)
    assert not gone.wait(0.3)


def test_while_the_main_thread_is_busy_no_answer_is_missed(watched: tuple[Presence, threading.Event]) -> None:
    found, gone = watched
    turns = threading.Semaphore(1)
    found.heard()

    def wait() -> None:
        turns.acquire()

    found.watch(wait, gone.set)
    assert not gone.wait(0.3)  # as long as it has no turn
    for _ in range(presence.PATIENCE):
        turns.release()
    assert gone.wait(5)


def test_cells_that_ran_excuse_the_page(watched: tuple[Presence, threading.Event]) -> None:
    found, gone = watched
    found.heard()
    found.watch(free, gone.set)
    for _ in range(30):
        found.excuse()
        assert not gone.wait(0.01)


def test_the_work_of_a_panel_that_nobody_sees_ends(panel: Panel, exploration: Exploration, held: HeldWork) -> None:
    asked: list[object] = []
    panel.graph.send = asked.append  # the page, as far as it matters here
    panel.graph.receive(panel.graph, {"do": "here"}, [])
    panel.actions.measure.click()
    assert panel.control.wait(10)
    assert len(asked) == presence.PATIENCE
    assert panel.control.state.note == LEFT
    panel.close()
    assert panel.control.presence.ask == []
