"""Background work: jobs with cancel, progress and interrupts; of requests the latest wins."""

from __future__ import annotations

import contextlib
import contextvars
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TextIO, TypeVar

import torch

from regional_explorer.capture.call import Modes
from regional_explorer.compiler.run import SAME_THREAD, Executor
from regional_explorer.errors import BusyError
from regional_explorer.ui.state import PanelState, Problem

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


@dataclass(frozen=True)
class ThreadModes:
    """The thread-local state of torch (modes, stream) and the context variables."""

    context: contextvars.Context
    modes: Modes
    cuda_stream: Any

    @classmethod
    def current(cls) -> ThreadModes:
        """Return the modes of the calling thread."""
        return cls(
            context=contextvars.copy_context(),
            modes=Modes.current(),
            cuda_stream=torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        )

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the calling thread under these modes."""
        # A context cannot be entered twice at the same time: each run gets a copy.
        self.context.copy().run(self._run_under_modes, work)

    def _run_under_modes(self, work: Callable[[], None]) -> None:
        stream = contextlib.nullcontext() if self.cuda_stream is None else torch.cuda.stream(self.cuda_stream)
        with stream, self.modes.active():
            work()


class Worker:
    """Runs one job at a time, each on a new thread."""

    def __init__(self, modes: ThreadModes) -> None:
        self._modes = modes
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()

    def start(self, work: Callable[[], None]) -> None:
        """Start ``work``, which must not raise and should check ``cancelled`` regularly."""
        self._cancelled = threading.Event()
        # A daemon: a compile that takes long must not keep the kernel from ending.
        thread = threading.Thread(target=self._modes.run, args=(work,), name="regional_explorer", daemon=True)
        thread.start()
        self._thread = thread

    def cancel(self) -> None:
        """Ask the job to stop at its next check of ``cancelled``."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        """Return whether the job was asked to stop."""
        return self._cancelled.is_set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the job to end; return whether it ended in time."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


T = TypeVar("T")

_CANCEL_POLL_S = 0.1
"""Seconds between two checks for cancellation while timed work waits for the main thread."""


class Loop(Protocol):
    """The event loop of the main thread (tornado's, in a kernel)."""

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Schedule ``callback`` on the main thread."""


class MainThread:
    """Executor that runs timed work on the main thread, and untimed work on a thread of its own.

    While a cell runs, measuring waits: neither takes time from the other.
    """

    def __init__(self, loop: Loop, cancelled: Callable[[], bool]) -> None:
        self._loop = loop
        self._cancelled = cancelled

    def run_timed(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the main thread, under the calling thread's modes.

        Raises:
            CancelledError: the job was cancelled before the work began.
        """
        if threading.current_thread() is threading.main_thread():
            return work()
        task = _Task(work)
        self._loop.add_callback(task.run)
        while wait([task.future], _CANCEL_POLL_S).not_done:
            if self._cancelled() and task.future.cancel():
                raise CancelledError
        return task.future.result()

    def run_untimed(self, work: Callable[[], T]) -> T:
        """Run ``work`` on a new thread, under the calling thread's modes."""
        task = _Task(work)
        # A daemon: a compile that takes long must not keep the kernel from ending.
        threading.Thread(target=task.run, name="regional_explorer untimed", daemon=True).start()
        return task.future.result()


class _Task(Generic[T]):
    """Work for another thread, to run under the modes of the thread that creates it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._work = work
        self._modes = ThreadModes.current()

    def run(self) -> None:
        """Run the work unless it was cancelled; exceptions, kernel interrupts included, are passed to the future."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self._modes.run(lambda: self.future.set_result(self._work()))
        except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
            self.future.set_exception(error)


class JobInterrupts:
    """Calls ``stop_job``, then ``notify``, when the kernel is interrupted between cells, where ipykernel ignores it.

    Only the main thread can set signal handlers: its ``loop`` installs the handler, and removes it after the job.
    ``stop_job`` is called inside the handler, ``notify`` once the main thread is free.
    """

    def __init__(self, loop: Loop, stop_job: Callable[[], None], notify: Callable[[], None]) -> None:
        self._loop = loop
        self._stop_job = stop_job
        self._notify = notify
        self._previous_handler: object = None
        self._armed = False

    def start(self) -> None:
        """Install the handler as soon as the main thread is free."""
        self._armed = True
        self._loop.add_callback(self._install_handler)

    def stop(self) -> None:
        """Restore the previous signal handler; an interrupt that comes before that is ignored."""
        self._armed = False
        self._loop.add_callback(self._restore_handler)

    def _install_handler(self) -> None:
        if self._armed:
            self._previous_handler = signal.signal(signal.SIGINT, self._on_interrupt)

    def _restore_handler(self) -> None:
        # While a cell runs, ipykernel replaces our handler and restores it afterwards: it is removed after the cell.
        if signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, self._previous_handler)  # type: ignore[arg-type]

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            self._stop_job()
            # Not inside the handler: the main thread may have been interrupted while sending a message.
            self._loop.add_callback(self._notify)


INTERVAL_S = 5.0
"""Seconds between two pings."""
MAX_UNANSWERED = 12
"""The pages count as closed after this many pings without a reply. A page that is being reloaded replies in time."""


class Heartbeat:
    """Pings the pages while a job runs, and reports when they stop replying.

    ``pings`` are functions that ping a page, one per panel.
    """

    def __init__(self) -> None:
        self.pings: list[Callable[[], None]] = []
        self._has_replied = False
        self._unanswered_pings = 0
        self._stopped = threading.Event()

    def on_reply(self) -> None:
        """Record a reply of a page."""
        self._has_replied, self._unanswered_pings = True, 0

    def reset(self) -> None:
        """Restart the count of missing replies: a cell has run, and replies may be queued behind it."""
        self._unanswered_pings = 0

    def start(self, wait_for_main_thread: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Ping until ``stop``; call ``on_lost`` once when no page replies any more.

        A page that never replied is ignored. ``wait_for_main_thread`` is called before each ping: where the kernel
        handles messages on that thread, no reply arrives while a cell runs.
        """
        self.stop()
        self._unanswered_pings, self._stopped = 0, threading.Event()
        name = "regional_explorer heartbeat"
        threading.Thread(
            target=self._ping_pages, args=(self._stopped, wait_for_main_thread, on_lost), name=name, daemon=True
        ).start()

    def stop(self) -> None:
        """Stop pinging."""
        self._stopped.set()

    def _ping_pages(
        self, stopped: threading.Event, wait_for_main_thread: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        while not stopped.wait(INTERVAL_S):
            wait_for_main_thread()
            if stopped.is_set():
                return
            if self._has_replied and self._unanswered_pings >= MAX_UNANSWERED:
                on_lost()
                return
            self._unanswered_pings += 1
            for ping in list(self.pings):
                ping()


REPORT_INTERVAL_S = 0.25
"""Seconds between two reports of the same kind of work. Each takes time that would disturb a benchmark."""

_BAR_WIDTH = 24
_DIGITS = re.compile(r"\d+")


class Throttle:
    """A progress callback that limits the rate of reports: a new kind of work is reported at once."""

    def __init__(self, progress: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._callback = progress
        self._clock = clock
        self._last_kind: str | None = None
        self._last_report_s = 0.0

    def __call__(self, doing: str, fraction: float) -> None:
        """Report what is being done, and the fraction done."""
        kind, now_s = _DIGITS.sub("", doing), self._clock()
        if kind != self._last_kind or now_s - self._last_report_s >= REPORT_INTERVAL_S:
            self._last_kind, self._last_report_s = kind, now_s
            self._callback(doing, fraction)


class StreamProgress:
    """A progress callback that writes to a stream: a progress bar on a terminal, else one line per kind of work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._on_terminal = stream.isatty()
        self._last_kind: str | None = None

    def __call__(self, doing: str, fraction: float) -> None:
        """Write what is being done, and the fraction done."""
        if self._on_terminal:
            done = round(_BAR_WIDTH * fraction)
            self._write(f"\r\x1b[K{'━' * done}{'╌' * (_BAR_WIDTH - done)} {doing}")
        elif (kind := _DIGITS.sub("", doing)) != self._last_kind:
            self._last_kind = kind
            self._write(f"{doing}\n")

    def close(self) -> None:
        """Erase the progress bar."""
        if self._on_terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more, or the disk is full; the work goes on
            self._stream.write(text)
            self._stream.flush()


CANCELLED_NOTE = "Cancelled. The results so far are kept."
ABANDONED_NOTE = "Stopped because no page shows the panel any more. The results so far are kept."
INTERRUPTED_NOTE = "Interrupted. The results so far are kept."


class JobOwner(Protocol):
    """The controller whose state shows the job."""

    exploration: Exploration
    state: PanelState
    lock: threading.RLock
    heartbeat: Heartbeat
    main_loop: Callable[[], Loop | None]

    def update(self, change: Callable[[PanelState], PanelState]) -> None:
        """Replace the state by what ``change`` returns for it."""

    def read_exploration(self) -> None:
        """Read the results of the job from the exploration."""


class Jobs:
    """Runs one job at a time, and shows its progress and how it ended in the state of ``control``."""

    def __init__(self, control: JobOwner) -> None:
        self._control = control
        self._stop_note = CANCELLED_NOTE
        self._interrupts: JobInterrupts | None = None
        self._worker = Worker(ThreadModes.current())

    def start(self, name: str, work: Callable[[Exploration, Callable[[], bool], Throttle], Any]) -> None:
        """Start ``work(exploration, cancelled, progress)`` on the worker thread.

        Raises:
            BusyError: a job is running.
        """
        with self._starting(name):
            self._stop_note = CANCELLED_NOTE
            self._interrupts = self._watch_interrupts()
            self._control.heartbeat.start(self._wait_for_main_thread, self._abandon_job)
            self._worker.start(lambda: self._run_job(work))

    @contextmanager
    def _starting(self, name: str, *, in_cell: bool = False) -> Iterator[None]:
        """Context manager around what starts a job: the state has the job, unless something fails."""
        with self._control.lock:
            if self._control.state.busy:
                raise BusyError("Another job is running. Cancel it or wait for it to finish.")
            try:
                self._control.update(lambda state: state.started(name, in_cell=in_cell))
                yield
            except BaseException:
                self._stop_watching()
                self._control.update(PanelState.ended)
                raise

    @property
    def executor(self) -> Executor:
        """The executor that runs the worker's timed and untimed work on the right threads."""
        loop = self._control.main_loop()
        return SAME_THREAD if loop is None else MainThread(loop, self._worker.cancelled)

    def _run_job(self, work: Callable[[Exploration, Callable[[], bool], Throttle], Any]) -> None:
        note, problem = "", None
        try:
            work(self._control.exploration, self._worker.cancelled, Throttle(self._on_progress))
        except KeyboardInterrupt:  # sent to the kernel while the work ran on the main thread
            note = INTERRUPTED_NOTE
        except BaseException as error:  # noqa: BLE001 - last frame of the thread: nothing else would show it
            # A measurement that is cancelled while it waits for the main thread raises CancelledError.
            problem = None if isinstance(error, CancelledError) and self._worker.cancelled() else Problem.of(error)
        finally:
            self._stop_watching()
            if self._worker.cancelled():
                note = self._stop_note
            self._end_job(note, problem)

    def _stop_watching(self) -> None:
        """Stop waiting for interrupts of the kernel, and for pages that close."""
        self._control.heartbeat.stop()
        if self._interrupts is not None:
            self._interrupts.stop()
            self._interrupts = None

    @contextmanager
    def running_in_cell(self, name: str) -> Iterator[Throttle]:
        """Context manager: show work of a running cell in the panels; errors and interrupts propagate.

        Raises:
            BusyError: a job is running.
        """
        with self._starting(name, in_cell=True):
            pass
        note, problem = "", None
        try:
            yield Throttle(self._on_progress)
        except KeyboardInterrupt:
            note = INTERRUPTED_NOTE
            raise
        except Exception as error:
            problem = Problem.of(error)
            raise
        finally:
            self._end_job(note, problem)

    def _on_progress(self, doing: str, fraction: float) -> None:
        self._control.update(lambda state: state.progressed(doing, fraction))

    def _end_job(self, note: str, problem: Problem | None) -> None:
        with self._control.lock:
            try:
                self._control.read_exploration()
            except Exception as error:  # noqa: BLE001 - shown; whatever it is, the panel must not stay busy
                problem = problem or Problem.of(error)
            finally:  # also after an interrupt of the kernel
                self._control.update(lambda state: state.ended(note, problem))

    def _abandon_job(self) -> None:
        """Cancel the job of a panel that no page shows any more."""
        self._cancel_job(ABANDONED_NOTE)

    def _watch_interrupts(self) -> JobInterrupts | None:
        """Let an interrupt of the kernel cancel the job, where there is a kernel."""
        loop = self._control.main_loop()
        if loop is None:
            return None
        interrupts = JobInterrupts(loop, self._stop_after_interrupt, lambda: self._cancel_job(INTERRUPTED_NOTE))
        interrupts.start()
        return interrupts

    def _wait_for_main_thread(self) -> None:
        """Block until the main thread's event loop has run a callback."""
        if (loop := self._control.main_loop()) is not None:
            callback_ran = threading.Event()
            loop.add_callback(callback_ran.set)
            callback_ran.wait()

    def cancel(self) -> None:
        """Ask the job on the worker thread to stop."""
        self._cancel_job(CANCELLED_NOTE)

    def _stop_after_interrupt(self) -> None:
        self._stop_note = INTERRUPTED_NOTE
        self._worker.cancel()

    def _cancel_job(self, note: str) -> None:
        with self._control.lock:
            if self._control.state.job is not None and not self._control.state.job.in_cell:
                self._stop_note = note
                self._worker.cancel()
                self._control.update(PanelState.cancelling)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the worker's job to end; return whether it ended in time."""
        return self._worker.join(timeout_s)


DELAY_S = 0.25


class Debounce:
    """Runs the most recently submitted work on its own thread, after a delay without further submissions."""

    def __init__(self, delay_s: float = DELAY_S) -> None:
        self._delay_s = delay_s
        self._timer: threading.Timer | None = None

    def submit(self, work: Callable[[Callable[[], bool]], None]) -> None:
        """Schedule ``work`` in place of earlier work; it gets a function that returns if it is still the latest."""
        self.cancel()
        timer = threading.Timer(self._delay_s, lambda: work(lambda: self._timer is timer))
        timer.name, timer.daemon = "regional_explorer debounce", True
        self._timer = timer
        timer.start()

    def cancel(self) -> None:
        """Discard the submitted work."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the submitted work has run."""
        if self._timer is not None:
            self._timer.join(timeout_s)
