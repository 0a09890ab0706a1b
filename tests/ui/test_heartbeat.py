"""Work of a panel that no page shows any longer ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regional_explorer.ui import jobs
from regional_explorer.ui.jobs import ABANDONED_NOTE, Heartbeat
from regional_explorer.ui.panel import Panel
from tests.ui.conftest import BlockedWork
from tests.ui.main_loop import MainLoop


class Beats:
    """A main thread that has time for one callback at a time, when the test says so, and a heartbeat on it."""

    def __init__(self) -> None:
        self.heartbeat = Heartbeat()
        self.asked: list[Callable[[], object]] = []
        self.lost = 0
        self.heartbeat.start(self, self.on_lost)
        self.run()

    def add_callback(self, callback: Callable[[], object]) -> None:
        self.asked.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        assert delay_s == jobs.INTERVAL_S
        self.asked.append(callback)

    def on_lost(self) -> None:
        self.lost += 1

    def run(self, times: int = 1) -> None:
        """Do what was asked; each time the heartbeat asks for one beat more."""
        for _ in range(times):
            asked, self.asked = self.asked, []
            for callback in asked:
                callback()


def test_a_page_that_replies_counts_as_open() -> None:
    beats = Beats()
    beats.heartbeat.pings.append(beats.heartbeat.on_reply)
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert beats.lost == 0
    beats.heartbeat.pings.clear()  # the page is closed
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert beats.lost == 1
    assert beats.asked == []


def test_a_page_that_never_replied_is_ignored() -> None:
    beats = Beats()
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert beats.lost == 0


def test_after_its_job_nothing_is_asked_and_the_next_begins_anew() -> None:
    beats = Beats()
    beats.heartbeat.on_reply()
    beats.run(jobs.MAX_UNANSWERED)
    beats.heartbeat.start(beats, beats.on_lost)
    beats.run()
    assert len(beats.asked) == 1, "the beats of the job before have ended"
    beats.run(jobs.MAX_UNANSWERED)
    assert beats.lost == 0
    beats.heartbeat.stop()
    beats.run(2)
    assert (beats.lost, beats.asked) == (0, [])


def test_a_cell_that_ran_resets_the_count_of_missing_replies() -> None:
    beats = Beats()
    beats.heartbeat.on_reply()
    for _ in range(2 * jobs.MAX_UNANSWERED):
        beats.heartbeat.reset()
        beats.run()
    assert beats.lost == 0
    beats.run(jobs.MAX_UNANSWERED)
    assert beats.lost == 1


def test_the_job_of_a_closed_panel_ends(
    panel: Panel, blocked_work: BlockedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "INTERVAL_S", 0.01)
    loop, sent = MainLoop(), list[object]()
    panel.control.main_loop = lambda: loop
    panel.send = sent.append  # the page, as far as it matters here
    panel.press("here")
    panel.press("measure")
    loop.run_until(lambda: not panel.control.state.busy)
    assert len(sent) == jobs.MAX_UNANSWERED
    assert panel.control.state.note == ABANDONED_NOTE
    panel.close()
    assert panel.control.heartbeat.pings == []
