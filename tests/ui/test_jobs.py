"""Jobs of the panel: what they show, how they end, which threads they use, interrupts, closed pages."""

from __future__ import annotations

import contextlib
import contextvars
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from msgspec import structs

from regional_explorer.capture.restore import silent
from regional_explorer.compiler.run import Run, never_cancelled
from regional_explorer.errors import MeasureError
from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.style.element import Node
from regional_explorer.ui import jobs
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.job_events import start_job
from regional_explorer.ui.jobs import (
    ABANDONED_NOTE,
    CANCELLED_NOTE,
    INTERRUPTED_NOTE,
    Heartbeat,
    JobInterrupts,
    LatestWorkRunner,
    MainThread,
    ThreadModes,
)
from regional_explorer.ui.panel import PARTS, Panel, Part
from regional_explorer.ui.parts import traceback
from regional_explorer.ui.state import PanelState, Shown
from tests.shared.panel import BlockedMethod, MainLoop, button, elements, is_enabled, text, type_in


def run_on_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run ``work`` on a new thread."""
    return ThreadPoolExecutor(1).submit(work)


# --------------------------------------------------------------------------------------- what a job shows, and its end


def test_a_background_profile_ends_when_a_job_is_requested(
    own_exploration: Exploration,
) -> None:
    control = control_of(own_exploration)
    panel = Panel(control)

    def start() -> BlockedMethod:
        def profile(_budget_s: float, *, run: Run) -> None:
            with own_exploration.exclusive_use.turn(run, "profile") as run:
                work(run=run)

        work = BlockedMethod()
        own_exploration.profile = profile  # type: ignore[method-assign,assignment]
        start_job(control, "profile", background=True)
        assert work.begun.wait(10)
        return work

    start()
    panel.press("pick", "mm")
    panel.press("why", "mm")
    assert control.state.job is not None, "looking requests no work"
    assert is_enabled(panel, "tools", "measure")
    panel.press("remove", "act")
    assert control.jobs.wait(10)
    assert [region.name for region in own_exploration.plan.regions] == ["mm"], "the button has its effect"
    assert text(panel, "progress") == "", "a job in the background leaves no note"
    assert text(panel, "problem") == ""
    start()
    own_exploration.configure("mm", max_fusion_size=2)  # in a cell
    assert control.jobs.wait(10)
    assert own_exploration.plan["mm"].config == {"max_fusion_size": 2}
    work = start()
    work.go_on.set()
    assert control.jobs.wait(10)
    own_exploration.configure("mm", max_fusion_size=3)
    panel.close()


def test_the_why_pane_diagnoses_a_region_in_the_background(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    exploration.diagnose = work = BlockedMethod()  # type: ignore[method-assign]
    panel.press("why", "mm")
    assert control.state.job is None, "nothing is compiled"
    parts = tuple(structs.replace(part, artifact="its key") for part in control.session.partitions)
    control.session = structs.replace(control.session, partitions=parts)
    panel.press("why", "mm")
    assert work.begun.wait(10)
    assert work.calls[0][0] == "mm"
    assert is_enabled(panel, "tools", "measure")
    panel.press("cancel")
    assert control.jobs.wait(10)


def test_the_primary_button_measures_what_was_chosen_exclusively(
    panel: Panel, control: Control, blocked_work: BlockedMethod, own_exploration: Exploration
) -> None:
    other = Panel(control_of(own_exploration))
    type_in(panel, "variant", value=False, target="full")
    type_in(panel, "budget", "2.5")
    panel.press("measure")
    assert blocked_work.begun.wait(10)
    assert control.state.busy
    assert not is_enabled(panel, "tools", "measure")
    assert "disabled" in button(panel, "regions", "enable", "mm")[1]
    assert is_enabled(panel, "tools", "cancel")
    assert "compiling mm" in text(panel, "progress")
    assert elements(panel.part("progress"), value="0.500")
    panel.press("compile")  # another front end may send it before it learns that work began
    assert "Another job is running" in text(panel, "problem")
    panel.press("enable", "mm", value=False)
    assert "A job is running" in text(panel, "problem")
    assert control.exploration.plan["mm"].enabled
    other.press("enable", "act", value=False)
    assert not own_exploration.plan["act"].enabled, "another exploration is not affected"
    assert control.exploration.plan["act"].enabled
    assert not other.control.state.busy
    blocked_work.go_on.set()
    assert control.jobs.wait(10)
    assert blocked_work.calls == [(("eager", "aot_eager", "regional"), 2.5, True)]
    assert not control.state.busy
    assert is_enabled(panel, "tools", "measure")
    other.close()


def test_cancel_ends_the_job_with_a_note(panel: Panel, control: Control, blocked_work: BlockedMethod) -> None:
    panel.press("compile")
    assert blocked_work.begun.wait(10)
    panel.press("cancel")
    assert control.jobs.wait(10)
    assert CANCELLED_NOTE in text(panel, "progress")
    assert not is_enabled(panel, "tools", "cancel")
    panel.press("compile")
    blocked_work.go_on.set()
    assert control.jobs.wait(10)
    assert CANCELLED_NOTE not in text(panel, "progress")


@pytest.mark.parametrize(
    ("error", "message", "in_full"),
    [
        (MeasureError("Nothing could be measured."), "Nothing could be measured.", False),
        (KeyError("x"), "KeyError", True),
        (SystemExit(1), "SystemExit", True),
        (CancelledError(), "CancelledError", True),
    ],
)
def test_an_error_of_work_is_shown_and_frees_the_panel(
    panel: Panel, control: Control, error: BaseException, message: str, in_full: bool
) -> None:
    control.exploration.benchmark = Mock(side_effect=error)  # type: ignore[method-assign]
    panel.press("measure")
    assert control.jobs.wait(10)
    assert not control.state.busy
    assert message in text(panel, "problem")
    assert ("Traceback" in text(panel, "problem")) is in_full
    panel.press("dismiss")
    assert text(panel, "problem") == ""


def test_an_error_in_reading_results_is_shown_unless_work_failed(
    panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    for in_work, shown in ((None, "ZeroDivisionError: no results"), (KeyError("x"), "KeyError: 'x'")):
        control.exploration.benchmark = Mock(side_effect=in_work)  # type: ignore[method-assign]
        monkeypatch.setattr(control, "read_exploration", Mock(side_effect=ZeroDivisionError("no results")))
        panel.press("measure")
        assert control.jobs.wait(10)
        assert not control.state.busy
        assert shown in text(panel, "problem")


def test_a_traceback_keeps_its_lines_and_indentation() -> None:
    details = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    y = 1 / 0\nZeroDivisionError'
    (fold,) = traceback(details)
    assert fold[-1] == ["code", {}, details]
    assert traceback("") == []


def test_work_of_a_cell_is_shown_and_can_be_cancelled(
    panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def record_part(name: str, part: Part, shown: Shown) -> list[Node]:
        made.append(name)
        return part.make(shown)

    recorded_parts = {name: replace(part, make=partial(record_part, name, part)) for name, part in PARTS.items()}
    monkeypatch.setattr("regional_explorer.ui.panel.PARTS", recorded_parts)
    with control.jobs.running_in_cell("Compile & measure") as run:
        assert {"tools", "regions"} <= set(made)
        made.clear()
        run.progress("round 3", 0.3)
        assert made == ["progress"], "a report updates one part"
        assert is_enabled(panel, "tools", "cancel")
        assert "interrupt the kernel" in text(panel, "progress"), "no message reaches a running cell"
        assert not is_enabled(panel, "tools", "measure")
        run.progress("round 4", 1.5)
        run.progress("compiling act", 1.5)
        assert elements(panel.part("progress"), value="1.000")
    ended = control.state
    assert not ended.busy
    run.progress("a late report", 0.5)
    assert control.state == ended
    with control.jobs.running_in_cell("Compile & measure") as run:
        control.jobs.cancel()
        assert not run.cancelled(), "nobody pressed anything: a page was closed"
        panel.press("cancel")
        assert run.cancelled()
        assert not is_enabled(panel, "tools", "cancel")
        raise CancelledError
    assert CANCELLED_NOTE in text(panel, "progress")
    assert is_enabled(panel, "tools", "measure")


@pytest.mark.parametrize("readable", [True, False])
def test_an_interrupt_ends_any_job_with_a_note(
    panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    if not readable:  # a second interrupt, while the results are read
        monkeypatch.setattr(control, "read_exploration", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), control.jobs.running_in_cell("Compile"):
        raise KeyboardInterrupt
    assert not control.state.busy
    assert INTERRUPTED_NOTE in text(panel, "progress")
    monkeypatch.undo()
    control.exploration.compile = BlockedMethod(error=KeyboardInterrupt())  # type: ignore[method-assign]
    panel.press("compile")
    assert control.jobs.wait(10)
    assert not control.state.busy
    assert INTERRUPTED_NOTE in text(panel, "progress")


@pytest.mark.compiles
@pytest.mark.parametrize("note", [INTERRUPTED_NOTE, CANCELLED_NOTE])
def test_results_of_a_cancelled_cell_are_shown_and_usable(own_exploration: Exploration, note: str) -> None:
    control = control_of(own_exploration)
    panel = Panel(control)
    times_left: list[str] = []

    def end_run(doing: str, _fraction: float) -> None:
        times_left.append(control.state.job.doing if control.state.job else "")
        if doing.startswith("round") and int(doing.split()[1]) >= 20:  # long before the run may end by itself
            if note == CANCELLED_NOTE:
                run_on_thread(lambda: panel.press("cancel")).result(10)
            else:
                signal.raise_signal(signal.SIGINT)

    with contextlib.suppress(KeyboardInterrupt), control.jobs.running_in_cell("Compile & measure") as run:
        shown = run.also_reporting(Run(progress=end_run))
        own_exploration.benchmark(("regional",), 60.0, run=shown)
    assert any("about" in left for left in times_left), "the estimate is shown"
    assert not control.state.busy
    assert note in text(panel, "progress")
    assert {timing.variant for timing in control.session.timings} == {"eager", "regional"}
    assert control.session.conditions
    assert control.session.conditions.stopped in {"interrupted", "cancelled"}
    assert is_enabled(panel, "tools", "measure")
    panel.press("remove", "act")
    assert [region.name for region in own_exploration.plan.regions] == ["mm"]
    panel.close()


def test_progress_does_not_undo_presses_during_a_job(panel: Panel, control: Control) -> None:
    go_on, reported, end = threading.Event(), threading.Event(), threading.Event()

    def work(_exploration: Exploration, _state: PanelState, run: Run) -> None:
        go_on.wait(10)
        run.progress("compiling act", 0.5)
        reported.set()
        end.wait(10)

    control.jobs.start("Compile", work)
    with control.lock:
        go_on.set()
        assert not reported.wait(0.2), "the report waits for the lock"
        type_in(panel, "budget", "2.5")
        panel.press("cancel")
    assert reported.wait(10)
    job = control.state.job
    assert job is not None
    assert (job.doing, job.cancelling, control.state.budget_s) == ("compiling act", True, 2.5)
    end.set()
    assert control.jobs.wait(10)


def test_a_job_whose_start_fails_is_not_begun(
    panel: Panel, control: Control, blocked_work: BlockedMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def fail_to_start_job_thread(thread: threading.Thread) -> None:
        if thread.name == "regional_explorer":
            raise RuntimeError("can't start new thread")
        start(thread)

    control.listeners.append(broken_listener := Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        control.jobs.start("Compile", lambda exploration, _state, _run: exploration.compile())
    with pytest.raises(ZeroDivisionError), control.jobs.running_in_cell("Compile"):
        pass
    control.listeners.remove(broken_listener)
    assert not control.state.busy
    monkeypatch.setattr(threading.Thread, "start", fail_to_start_job_thread)
    panel.press("compile")
    assert "can't start new thread" in text(panel, "problem")
    assert not control.state.busy
    assert control.jobs.wait(10)
    assert blocked_work.calls == []
    monkeypatch.undo()
    blocked_work.go_on.set()
    panel.press("compile")
    assert control.jobs.wait(10)
    assert len(blocked_work.calls) == 1


# ------------------------------------------------------------------------------------------------------ the main thread

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("OWNER", default="nobody's")


def read_on_thread(modes: ThreadModes, read_modes: Callable[[], Any]) -> Any:
    found: list[Any] = []
    run_on_thread(lambda: modes.run(lambda: found.append(read_modes()))).result(10)
    return found[0]


def test_jobs_run_in_a_copy_of_their_creators_context() -> None:
    token = OWNER.set("the maker's")
    modes = ThreadModes.current()
    OWNER.reset(token)
    assert read_on_thread(modes, OWNER.get) == "the maker's"
    assert read_on_thread(modes, lambda: OWNER.set("changed") and OWNER.get()) == "changed"
    assert read_on_thread(modes, OWNER.get) == "the maker's"
    assert OWNER.get() == "nobody's"


def test_jobs_run_under_the_inductor_settings_of_their_creator() -> None:
    import torch._inductor.config as inductor
    from torch.utils import _config_module

    if not hasattr(_config_module, "ContextVar"):
        pytest.skip("in torch 2.11 a setting is that of the process, for all threads alike")
    with inductor.patch(max_fusion_size=3):
        modes = ThreadModes.current()
    assert read_on_thread(modes, lambda: inductor.max_fusion_size) == 3
    assert inductor.max_fusion_size != 3


def request_from_main_thread(request: Callable[[MainThread], object], loop: MainLoop | None = None) -> Future[Any]:
    """Let another thread request work from the main thread; return its future, which is done."""
    loop = loop or MainLoop()
    threads = MainThread(loop, never_cancelled)
    other = run_on_thread(lambda: request(threads))
    loop.run_until(other.done)
    return other


def test_only_timed_work_runs_on_the_main_thread() -> None:
    future = request_from_main_thread(
        lambda threads: [run(threading.current_thread) for run in (threads.run_timed, threads.run_untimed)]
    )
    timed, untimed = future.result()
    assert timed is threading.main_thread()
    untimed.join(10)
    assert not untimed.is_alive()
    here = MainThread(MainLoop(), never_cancelled).run_timed(threading.current_thread)
    assert here is threading.main_thread()  # a request on the main thread itself does not wait


def current_modes() -> tuple[object, ...]:
    cpu, device = torch.get_autocast_dtype("cpu"), torch.ones(1).device.type
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), cpu, torch.is_inference_mode_enabled(), device


def test_work_has_the_modes_of_its_caller() -> None:
    def request(threads: MainThread) -> list[object]:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            cast = [threads.run_timed(current_modes), threads.run_untimed(current_modes)]
        with torch.inference_mode(), torch.device("meta"):
            return [*cast, threads.run_timed(current_modes), threads.run_untimed(current_modes)]

    usual_dtype = torch.get_autocast_dtype("cpu")
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.float16):
        mine = current_modes()
        other = request_from_main_thread(request)
        assert current_modes() == mine == (True, True, torch.float16, False, "meta")
    cast, inference = (False, True, torch.bfloat16, False, "cpu"), (False, False, usual_dtype, True, "meta")
    assert other.result() == [cast, cast, inference, inference]
    torch.set_default_device("meta")
    assert torch.get_default_device() == torch.device("meta")
    torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu"), "as if nothing had been set before"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_errors_and_interrupts_are_raised_in_the_waiting_thread(error: BaseException) -> None:
    future = request_from_main_thread(lambda threads: threads.run_timed(Mock(side_effect=error)))
    assert future.exception() is error


def test_measurements_can_be_cancelled_while_the_main_thread_is_busy() -> None:
    loop, cancelled, done = MainLoop(), threading.Event(), []
    other = run_on_thread(lambda: MainThread(loop, cancelled.is_set).run_timed(lambda: done.append(1)))
    cancelled.set()
    assert isinstance(other.exception(10), CancelledError)
    loop.run_until(other.done)
    assert done == []  # its turn comes after it was cancelled


def test_work_of_a_silent_block_prints_nothing_on_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    def request(threads: MainThread) -> None:
        with silent():
            threads.run_timed(lambda: print("timed"))  # noqa: T201 - as the user's function does
            threads.run_untimed(lambda: print("aside"))  # noqa: T201
            print("asked")  # noqa: T201

    loop = MainLoop()
    loop.add_callback(lambda: print("a cell"))  # noqa: T201
    assert request_from_main_thread(request, loop).exception() is None
    assert capsys.readouterr().out == "a cell\n"


def test_cells_between_two_rounds_find_their_own_state() -> None:
    norm, threads_before = torch.nn.BatchNorm1d(4), torch.get_num_threads()
    mean = norm.get_buffer("running_mean")
    ex = explore(lambda x: torch.nn.functional.dropout(norm(x)).sum(), (torch.randn(8, 4, requires_grad=True),))
    loop, doing, drawn = MainLoop(), ["nothing"], list[float]()

    def cell() -> None:
        if not doing[-1].startswith("round"):
            return loop.add_callback(cell)
        drawn.append(torch.rand(()).item())
        mean.add_(1.0)
        torch.set_num_threads(1)
        return loop.add_callback(cell) if len(drawn) < 20 else None

    torch.manual_seed(3)
    expected = [torch.rand(()).item() for _ in range(20)]
    torch.manual_seed(3)
    loop.add_callback(cell)
    try:
        measured = request_from_main_thread(
            lambda threads: ex.benchmark(
                budget_s=0.5,
                variants=["aot_eager"],
                run=Run(threads=threads, progress=lambda task, _: doing.append(task)),
            ),
            loop,
        )
        while len(drawn) < 20:
            loop.run_until(lambda: len(drawn) == 20)
        assert measured.exception() is None
        assert drawn == expected
        assert mean.tolist() == [20.0] * 4
        assert norm.num_batches_tracked == 0
        assert torch.get_num_threads() == 1
        assert ex.session.conditions is not None
        assert ex.session.conditions.threads == threads_before
    finally:
        torch.set_num_threads(threads_before)
        ex.close()


def test_measurements_started_by_a_button_run_on_the_main_thread() -> None:
    seen: Counter[str] = Counter()

    def work(x: torch.Tensor) -> torch.Tensor:
        seen[threading.current_thread().name] += 1
        return x.sin()

    # Nothing to trace: a function that Dynamo leaves alone is called as it is.
    with explore(torch.sin, (torch.randn(8),), grad=False) as ex:
        ex.live.call.fn = work
        panel, loop = Panel(control_of(ex)), MainLoop()
        panel.control.main_loop = lambda: loop
        for name in ("aot_eager", "regional", "full"):
            panel.press("variant", name, value=False)
        panel.press("budget", value="0.2")
        panel.press("measure")
        loop.run_until(lambda: panel.control.jobs.wait(0.0))
        assert panel.control.state.problem is None
        panel.close()
    assert seen["MainThread"] > 50
    assert set(seen) <= {"MainThread", "regional_explorer untimed"}


# ----------------------------------------------------------------------------------------------------------- interrupts


class SteppedLoop:
    """A fake loop of the main thread that runs its callbacks when the test says so, whatever their delay."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], object]] = []

    def add_callback(self, callback: Callable[[], object]) -> None:
        self.callbacks.append(callback)

    def call_later(self, _delay_s: float, callback: Callable[[], object]) -> None:
        self.callbacks.append(callback)

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            callbacks, self.callbacks = self.callbacks, []
            for callback in callbacks:
                callback()


def test_the_interrupt_handler_is_installed_for_a_job_and_restored() -> None:
    loop, calls = SteppedLoop(), []
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


def test_an_interrupt_cancels_the_job_of_a_button(panel: Panel, blocked_work: BlockedMethod) -> None:
    loop, before = MainLoop(), signal.getsignal(signal.SIGINT)
    panel.control.main_loop = lambda: loop
    panel.press("measure")
    loop.run_until(blocked_work.begun.is_set)
    loop.add_callback(lambda: signal.raise_signal(signal.SIGINT))
    loop.run_until(lambda: not panel.control.state.busy)
    assert panel.control.state.note == INTERRUPTED_NOTE
    assert signal.getsignal(signal.SIGINT) is before


# -------------------------------------------------------------------------------------------------------- closed pages


class SteppedHeartbeat(SteppedLoop):
    """Runs a heartbeat on a fake loop, one beat per step."""

    def __init__(self) -> None:
        super().__init__()
        self.heartbeat, self.on_lost = Heartbeat(), Mock()
        self.start()

    def start(self) -> None:
        self.heartbeat.start(self, self.on_lost)
        self.run()


def test_a_page_that_stops_replying_counts_as_closed() -> None:
    beats = SteppedHeartbeat()
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert not beats.on_lost.called, "it never replied"
    beats.heartbeat.pings.append(beats.heartbeat.on_reply)
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert not beats.on_lost.called
    beats.heartbeat.pings.clear()
    for _ in range(2 * jobs.MAX_UNANSWERED):  # while a cell runs, it cannot reply
        beats.heartbeat.reset()
        beats.run()
    assert not beats.on_lost.called
    beats.run(3 * jobs.MAX_UNANSWERED)
    assert (beats.on_lost.call_count, beats.callbacks) == (1, [])


def test_pings_end_with_their_job_and_restart_with_the_next() -> None:
    beats = SteppedHeartbeat()
    beats.heartbeat.on_reply()
    beats.run(jobs.MAX_UNANSWERED)
    beats.start()
    assert len(beats.callbacks) == 1, "the beats of the job before have ended"
    beats.run(jobs.MAX_UNANSWERED)
    assert not beats.on_lost.called
    beats.heartbeat.stop()
    beats.run(2)
    assert (beats.on_lost.call_count, beats.callbacks) == (0, [])


def test_the_job_of_a_closed_panel_ends(
    panel: Panel, blocked_work: BlockedMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "INTERVAL_S", 0.01)
    loop, sent = MainLoop(), list[object]()
    panel.control.main_loop = lambda: loop
    panel.send = sent.append  # stands in for the page
    panel.press("here")
    panel.press("measure")
    loop.run_until(lambda: not panel.control.state.busy)
    assert len(sent) == jobs.MAX_UNANSWERED
    assert panel.control.state.note == ABANDONED_NOTE
    panel.close()
    assert panel.control.heartbeat.pings == []


# ----------------------------------------------------------------------------------------------------- the latest wins


def test_only_the_latest_request_runs_after_the_current_one() -> None:
    latest, begun, go_on, done = LatestWorkRunner(0.0), threading.Event(), threading.Event(), []

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


def test_delayed_work_does_not_begin_once_there_is_newer_work() -> None:
    latest, begun = LatestWorkRunner(3600.0), list[threading.Event]()
    for _ in range(2):
        latest.submit(begun.append)
    latest.cancel()
    assert latest.wait(60)
    assert begun == []
