"""An interrupt of the kernel cancels the job of a button."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from regional_explorer.ui.jobs import INTERRUPTED_NOTE, JobInterrupts
from regional_explorer.ui.panel import Panel
from tests.ui.conftest import BlockedWork
from tests.ui.main_loop import MainLoop


class Loop:
    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def add_callback(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def call_later(self, _delay_s: float, callback: Callable[[], object]) -> None:
        """Forget ``callback``: its time does not come."""

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def test_the_signal_is_taken_for_the_job_and_given_back() -> None:
    loop, calls = Loop(), []
    before = signal.getsignal(signal.SIGINT)
    interrupts = JobInterrupts(loop, lambda: calls.append("stop"), lambda: calls.append("notify"))
    interrupts.start()
    loop.run()
    signal.raise_signal(signal.SIGINT)
    assert calls == ["stop"]
    loop.run()
    signal.raise_signal(signal.SIGINT)
    loop.run()
    assert calls == ["stop", "notify"]
    interrupts.stop()
    loop.run()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_job_that_ended_before_the_main_thread_was_free_leaves_the_signal() -> None:
    loop = Loop()
    before = signal.getsignal(signal.SIGINT)
    interrupts = JobInterrupts(loop, lambda: None, lambda: None)
    interrupts.start()
    interrupts.stop()
    loop.run()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_cancels_the_job_of_a_button(panel: Panel, blocked_work: BlockedWork) -> None:
    loop = MainLoop()
    panel.control.main_loop = lambda: loop
    panel.press("measure")
    loop.run_until(blocked_work.begun.is_set)
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    loop.run_until(lambda: not panel.control.state.busy)
    assert panel.control.state.note == INTERRUPTED_NOTE
