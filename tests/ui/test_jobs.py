"""Threads of the panel: what a job carries to its thread, what runs on the main one, interrupts, closed pages."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from regional_explorer.capture.undo import silent
from regional_explorer.errors import BusyError
from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.ui import jobs
from regional_explorer.ui.control import control_of
from regional_explorer.ui.jobs import (
    ABANDONED_NOTE,
    INTERRUPTED_NOTE,
    Heartbeat,
    JobInterrupts,
    Latest,
    MainThread,
    ThreadModes,
)
from regional_explorer.ui.panel import Panel
from tests.shared.panel import Blocked, MainLoop, make, text

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("MARK", default="nobody's")


def on_a_thread(work: Callable[[], Any]) -> Future[Any]:
    """Have ``work`` done on a thread of its own."""
    return ThreadPoolExecutor(1).submit(work)


def seen_on_a_thread(modes: ThreadModes, read_modes: Callable[[], Any]) -> Any:
    found: list[Any] = []
    on_a_thread(lambda: modes.run(lambda: found.append(read_modes()))).result(10)
    return found[0]


def modes_now() -> tuple[object, ...]:
    cpu, device = torch.get_autocast_dtype("cpu"), torch.ones(1).device.type
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), cpu, torch.is_inference_mode_enabled(), device


def test_modes_are_those_of_the_making_not_of_now() -> None:
    before = modes_now()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cast = ThreadModes.current()
    with torch.inference_mode(), torch.device("meta"):
        inference = ThreadModes.current()
    assert seen_on_a_thread(cast, modes_now) == (False, True, torch.bfloat16, False, "cpu")
    assert seen_on_a_thread(inference, modes_now)[3:] == (True, "meta")
    assert seen_on_a_thread(ThreadModes.current(), modes_now) == before == modes_now()


def test_the_context_is_a_copy_of_the_makers() -> None:
    token = MARK.set("the maker's")
    modes = ThreadModes.current()
    MARK.reset(token)
    assert seen_on_a_thread(modes, MARK.get) == "the maker's"
    assert seen_on_a_thread(modes, lambda: MARK.set("changed") and MARK.get()) == "changed"
    assert seen_on_a_thread(modes, MARK.get) == "the maker's"
    assert MARK.get() == "nobody's"


def test_settings_of_inductor_are_carried() -> None:
    import torch._inductor.config as inductor
    from torch.utils import _config_module

    if not hasattr(_config_module, "ContextVar"):
        pytest.skip("in torch 2.11 a setting is that of the process, for all threads alike")
    with inductor.patch(max_fusion_size=3):
        modes = ThreadModes.current()
    assert seen_on_a_thread(modes, lambda: inductor.max_fusion_size) == 3
    assert inductor.max_fusion_size != 3


# ------------------------------------------------------------------------------------------------------ the main thread


def never() -> bool:
    return False


def test_what_is_timed_runs_on_the_main_thread_and_the_rest_on_one_that_ends() -> None:
    loop = MainLoop()
    executor = MainThread(loop, never)
    other = on_a_thread(lambda: [run(threading.current_thread) for run in (executor.run_timed, executor.run_untimed)])
    loop.run_until(other.done)
    timed, untimed = other.result()
    assert timed is threading.main_thread()
    untimed.join(10)
    assert not untimed.is_alive()
    assert executor.run_timed(threading.current_thread) is threading.main_thread()  # asked there, nobody waits


def test_work_has_the_modes_of_who_asked_and_leaves_those_of_the_main_thread() -> None:
    loop = MainLoop()
    executor = MainThread(loop, never)

    def modes() -> tuple[bool, bool, torch.device]:
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_device()

    def request() -> list[object]:
        with torch.no_grad():
            return [executor.run_timed(modes), executor.run_untimed(modes)]

    with torch.device("meta"), torch.autocast("cpu"):
        mine = modes()
        other = on_a_thread(request)
        loop.run_until(other.done)
        assert modes() == mine == (True, True, torch.device("meta"))
    assert other.result() == [(False, False, torch.device("cpu"))] * 2
    torch.set_default_device("meta")
    assert torch.get_default_device() == torch.device("meta")
    torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu"), "as if nothing had been set before"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_is_raised_goes_to_who_asked_also_an_interrupt_of_the_kernel(error: BaseException) -> None:
    loop = MainLoop()
    other = on_a_thread(lambda: MainThread(loop, never).run_timed(Mock(side_effect=error)))
    loop.run_until(other.done)
    assert other.exception() is error


def test_while_the_main_thread_is_busy_a_measurement_can_be_cancelled() -> None:
    loop, cancelled, done = MainLoop(), threading.Event(), []
    other = on_a_thread(lambda: MainThread(loop, cancelled.is_set).run_timed(lambda: done.append(1)))
    cancelled.set()
    assert isinstance(other.exception(10), CancelledError)
    loop.run_until(loop._asked.empty)
    assert done == []  # its turn comes, and it is no longer wanted


def test_what_is_done_for_a_muted_block_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    loop = MainLoop()
    executor = MainThread(loop, never)

    def request() -> None:
        with silent():
            executor.run_timed(lambda: print("timed"))  # noqa: T201 - as the user's function does
            executor.run_untimed(lambda: print("aside"))  # noqa: T201
            print("asked")  # noqa: T201

    other = on_a_thread(request)
    loop.add_callback(lambda: print("a cell"))  # noqa: T201
    loop.run_until(other.done)
    assert other.exception() is None
    assert capsys.readouterr().out == "a cell\n"


@contextmanager
def measuring_eager(exploration: Exploration, budget_s: float) -> Iterator[tuple[Panel, MainLoop]]:
    """Context manager: a panel whose button was pressed, and the loop of the kernel."""
    panel, loop = Panel(control_of(exploration)), MainLoop()
    panel.control.main_loop = lambda: loop
    for name in ("aot_eager", "regional", "full"):
        panel.press("variant", name, value=False)
    panel.press("budget", value=str(budget_s))
    panel.press("measure")
    yield panel, loop
    assert panel.control.state.problem is None
    panel.close()
    exploration.close()


def test_the_button_times_on_the_main_thread() -> None:
    seen: Counter[str] = Counter()

    def work(x: torch.Tensor) -> torch.Tensor:
        seen[threading.current_thread().name] += 1
        return x.sin()

    # Nothing to trace: a function that Dynamo leaves alone is called as it is.
    exploration = explore(torch.sin, (torch.randn(8),), grad=False)
    exploration.live.call.fn = work
    with measuring_eager(exploration, 0.2) as (panel, loop):
        loop.run_until(lambda: panel.control.jobs.wait(0.0))
    assert seen["MainThread"] > 50
    assert set(seen) <= {"MainThread", "regional_explorer untimed"}


def test_cells_between_two_rounds_of_a_button_cannot_change_what_is_measured() -> None:
    exploration = make()
    plan = exploration.plan
    cells: list[Callable[[], object]] = [
        lambda: exploration.configure("mm", max_fusion_size=16),
        exploration.compile,
        lambda: exploration.benchmark(("eager",), 0.05),
    ]
    with measuring_eager(exploration, 60) as (panel, loop):
        loop.run_until(lambda: "round" in text(panel, "progress"))
        for cell in cells:
            with pytest.raises(BusyError, match="wait for it, or cancel it where it was started"):
                cell()
        panel.press("cancel")
        loop.run_until(lambda: panel.control.jobs.wait(0.0))
        assert exploration.plan == plan
        assert set(exploration.timings.variant) == {"eager"}
        assert exploration.configure("mm", max_fusion_size=16).plan != plan


# ----------------------------------------------------------------------------------------------------------- interrupts


class Steps:
    """A loop of the main thread that does what it was asked when the test says so, whatever the delay."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], object]] = []

    def add_callback(self, callback: Callable[[], object]) -> None:
        self.asked.append(callback)

    def call_later(self, _delay_s: float, callback: Callable[[], object]) -> None:
        self.asked.append(callback)

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            asked, self.asked = self.asked, []
            for callback in asked:
                callback()


def test_the_signal_is_taken_for_the_job_and_given_back() -> None:
    loop, calls = Steps(), []
    before = signal.getsignal(signal.SIGINT)
    early, interrupts = (
        JobInterrupts(loop, lambda: calls.append("stop"), lambda: calls.append("notify")) for _ in range(2)
    )
    early.start()
    early.stop()  # before the main thread is free
    loop.run()
    assert signal.getsignal(signal.SIGINT) is before
    interrupts.start()
    loop.run()
    signal.raise_signal(signal.SIGINT)
    assert calls == ["stop"]
    loop.run()
    assert calls == ["stop", "notify"]
    signal.raise_signal(signal.SIGINT)
    interrupts.stop()  # the job has ended before the main thread was free: another one may run then
    loop.run()
    assert calls == ["stop", "notify", "stop"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_cancels_the_job_of_a_button(panel: Panel, blocked_work: Blocked) -> None:
    loop = MainLoop()
    panel.control.main_loop = lambda: loop
    panel.press("measure")
    loop.run_until(blocked_work.begun.is_set)
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    loop.run_until(lambda: not panel.control.state.busy)
    assert panel.control.state.note == INTERRUPTED_NOTE


# --------------------------------------------------------------------------------------------------------- closed pages


class Beats(Steps):
    """A heartbeat whose time passes as the test says; each step is a beat."""

    def __init__(self) -> None:
        super().__init__()
        self.heartbeat, self.on_lost = Heartbeat(), Mock()
        self.start()

    def start(self) -> None:
        self.heartbeat.start(self, self.on_lost)
        self.run()


def test_a_page_that_replied_and_no_longer_does_is_closed() -> None:
    beats = Beats()
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert not beats.on_lost.called, "it never replied"
    beats.heartbeat.pings.append(beats.heartbeat.on_reply)
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert not beats.on_lost.called
    beats.heartbeat.pings.clear()
    for _ in range(2 * jobs.MAX_UNANSWERED):  # a cell runs, in which it cannot reply
        beats.heartbeat.reset()
        beats.run()
    assert not beats.on_lost.called
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert (beats.on_lost.call_count, beats.asked) == (1, [])


def test_after_its_job_nothing_is_asked_and_the_next_begins_anew() -> None:
    beats = Beats()
    beats.heartbeat.on_reply()
    beats.run(jobs.MAX_UNANSWERED)
    beats.start()
    assert len(beats.asked) == 1, "the beats of the job before have ended"
    beats.run(jobs.MAX_UNANSWERED)
    assert not beats.on_lost.called
    beats.heartbeat.stop()
    beats.run(2)
    assert (beats.on_lost.call_count, beats.asked) == (0, [])


def test_the_job_of_a_closed_panel_ends(panel: Panel, blocked_work: Blocked, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ------------------------------------------------------------------------------------------------------ the latest wins


def test_only_what_was_asked_last_is_done_one_at_a_time() -> None:
    latest, begun, go_on, done = Latest(0.0), threading.Event(), threading.Event(), []

    def hold(outdated: threading.Event) -> None:
        begun.set()
        go_on.wait(60)
        done.append(f"hold, outdated: {outdated.is_set()}")

    def work(name: str) -> Callable[[threading.Event], None]:
        return lambda _outdated: done.append(name)

    latest.submit(hold)
    assert begun.wait(60)
    for name in ("one", "two", "three"):
        latest.submit(work(name))
    go_on.set()
    assert latest.wait(60)
    assert done == ["hold, outdated: True", "three"]


def test_what_waits_for_a_pause_is_not_begun_once_there_is_newer_work() -> None:
    latest, begun = Latest(3600.0), list[threading.Event]()
    for _ in range(2):
        latest.submit(begun.append)
    latest.cancel()
    assert latest.wait(60)
    assert begun == []
