"""Work of a panel that no page shows any longer ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.ui import jobs
from regional_explorer.ui.jobs import ABANDONED_NOTE, Heartbeat
from regional_explorer.ui.panel import Panel
from tests.ui.conftest import BlockedWork


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "INTERVAL_S", 0.01)


@pytest.fixture
def watched() -> Iterator[tuple[Heartbeat, threading.Event]]:
    found, gone = Heartbeat(), threading.Event()
    yield found, gone
    found.stop()


def free() -> None:
    """Stands in for a main thread that is always free."""


def test_a_page_that_replies_counts_as_open(watched: tuple[Heartbeat, threading.Event]) -> None:
    found, gone = watched
    found.pings.append(found.on_reply)
    found.start(free, gone.set)
    assert not gone.wait(0.3)
    found.pings.clear()  # the page is closed
    assert gone.wait(5)


def test_a_page_that_never_replied_is_ignored(watched: tuple[Heartbeat, threading.Event]) -> None:
    found, gone = watched
    found.start(free, gone.set)
    assert not gone.wait(0.3)


def test_missing_replies_do_not_count_while_the_main_thread_is_busy(watched: tuple[Heartbeat, threading.Event]) -> None:
    found, gone = watched
    turns = threading.Semaphore(1)
    found.on_reply()

    def wait() -> None:
        turns.acquire()

    found.start(wait, gone.set)
    assert not gone.wait(0.3)  # as long as it has no turn
    for _ in range(jobs.MAX_UNANSWERED):
        turns.release()
    assert gone.wait(5)


def test_a_cell_that_ran_resets_the_count_of_missing_replies(watched: tuple[Heartbeat, threading.Event]) -> None:
    found, gone = watched
    turns, pinged = threading.Semaphore(0), threading.Semaphore(0)

    def wait() -> None:
        turns.acquire()

    found.pings.append(pinged.release)
    found.on_reply()
    found.start(wait, gone.set)
    for _ in range(2 * jobs.MAX_UNANSWERED):
        found.reset()
        turns.release()
        assert pinged.acquire(timeout=60)
    assert not gone.is_set()
    for _ in range(jobs.MAX_UNANSWERED):
        turns.release()
    assert gone.wait(60)


def test_the_job_of_a_closed_panel_ends(panel: Panel, exploration: Exploration, blocked_work: BlockedWork) -> None:
    sent: list[object] = []
    panel.send = sent.append  # the page, as far as it matters here
    panel.press("here")
    panel.press("measure")
    assert panel.control.jobs.wait(10)
    assert len(sent) == jobs.MAX_UNANSWERED
    assert panel.control.state.note == ABANDONED_NOTE
    panel.close()
    assert panel.control.heartbeat.pings == []
