"""Work on threads: jobs with cancel, progress and interrupts, and requests that a later request replaces."""

from __future__ import annotations

import contextlib
import contextvars
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch

from regional_explorer.capture.call import Modes
from regional_explorer.compiler.progress_line import ProgressLine, ticking
from regional_explorer.compiler.run import SAME_THREAD, Run, Threads
from regional_explorer.errors import BusyError
from regional_explorer.record.session import Session
from regional_explorer.ui.state import CANCEL, Job, PanelState, Problem

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
        """Return the torch modes, CUDA stream and context variables of the calling thread."""
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


T = TypeVar("T")

_CANCEL_POLL_S = 0.1
"""Seconds between two checks for cancellation while timed work waits for the main thread."""


class Loop(Protocol):
    """The event loop of the main thread (tornado's, in a kernel)."""

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Schedule ``callback`` on the main thread; any thread may call this."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> object:
        """Schedule ``callback`` on the main thread in ``delay_s`` seconds; only the main thread may call this."""


class MainThread:
    """Runs timed work on the main thread, and each piece of untimed work on a new thread.

    While a cell runs, timed work waits, so neither takes time from the other.
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
        # A daemon, so that a long compile does not keep the kernel from ending.
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
    """Calls ``stop_job``, then ``notify``, if the kernel is interrupted between cells; ipykernel ignores it there.

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
        """Have the main thread restore the previous signal handler; until then, interrupts are ignored."""
        self._armed = False
        self._loop.add_callback(self._restore_handler)

    def _install_handler(self) -> None:
        if self._armed:
            self._previous_handler = signal.signal(signal.SIGINT, self._on_interrupt)

    def _restore_handler(self) -> None:
        # While a cell runs, ipykernel replaces our handler and restores it afterwards. So remove it after the cell.
        if signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, self._previous_handler)  # type: ignore[arg-type]

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._stop_job()
            # Not inside the handler: the main thread may have been interrupted while sending a message.
            self._loop.add_callback(self._notify_of_interrupt)

    def _notify_of_interrupt(self) -> None:
        if self._armed:  # else the job has ended, and another one may run
            self._notify()


INTERVAL_S = 5.0
"""Seconds between two pings."""
MAX_UNANSWERED = 12
"""The pages count as closed after this many pings without a reply. A page that is being reloaded replies in time."""


class Heartbeat:
    """Pings the pages while a job runs, and reports when they stop replying.

    It pings on the loop of the main thread, between cells: if the kernel handles messages on that thread, no reply
    arrives while a cell runs. ``pings`` are functions that ping a page, one per panel.
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
        """Restart the count of missing replies after a cell: replies may have waited for it to end."""
        self._unanswered_pings = 0

    def start(self, loop: Loop, on_lost: Callable[[], None]) -> None:
        """Ping until ``stop``; call ``on_lost`` once, when no page replies any more.

        A page that never replied is ignored.
        """
        self.stop()
        self._unanswered_pings = 0
        self._stopped = stopped = threading.Event()

        def ping_pages() -> None:
            if stopped.is_set():
                return
            if self._has_replied and self._unanswered_pings >= MAX_UNANSWERED:
                on_lost()
                return
            self._unanswered_pings += 1
            for ping in list(self.pings):
                ping()
            loop.call_later(INTERVAL_S, ping_pages)

        loop.add_callback(lambda: loop.call_later(INTERVAL_S, ping_pages))

    def stop(self) -> None:
        """Stop pinging."""
        self._stopped.set()


CANCELLED_NOTE = "Cancelled. The results so far are kept."
ABANDONED_NOTE = "Stopped because no page shows the panel any more. The results so far are kept."
INTERRUPTED_NOTE = "Interrupted. The results so far are kept."


class JobOwner(Protocol):
    """The controller whose state shows the job."""

    exploration: Exploration
    session: Session
    state: PanelState
    lock: threading.RLock
    heartbeat: Heartbeat
    main_loop: Callable[[], Loop | None]

    def update(self, change: Callable[[PanelState], PanelState]) -> None:
        """Replace the state with the result of ``change``."""

    def read_exploration(self) -> None:
        """Read the results of the job from the exploration."""


@dataclass(frozen=True)
class _InPanels:
    """The place of a job's progress: the state, by ``change``."""

    change: Callable[..., None]

    def show(self, text: str, fraction: float) -> None:
        """Show a line in place of the previous line."""
        self.change(doing=text, fraction=fraction)

    def erase(self) -> None:
        """Do nothing: the line goes with the job."""


Work = Callable[["Exploration", PanelState, Run], object]
"""The work of a job, called with the state at its start."""


class Jobs:
    """Runs one job at a time, and writes its progress and its end into the state of ``control``."""

    def __init__(self, control: JobOwner) -> None:
        self._control = control
        self._modes = ThreadModes.current()
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        self._stop_note = CANCELLED_NOTE
        self._interrupts: JobInterrupts | None = None
        self._next: list[Callable[[], None]] = []

    def start(
        self,
        name: str,
        work: Work,
        *,
        background: bool = False,
        shapes: str = "",
        stop: str = CANCEL,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Start ``work`` on a thread of its own.

        ``shapes`` are those of the trace that the job makes, ``stop`` is the text of the button that stops the job. A
        job in the ``background`` is cancelled as soon as a cell or a panel has other work for the exploration. ``then``
        is called after a job that was not cancelled and raised nothing.

        Raises:
            BusyError: a job is running.
        """
        with self._starting(Job(name, stop, background=background, shapes=shapes)):
            if background:
                self._control.exploration.exclusive_use.give_way = self._cancelled.set
            loop, cancelled = self._control.main_loop(), self._cancelled.is_set
            threads: Threads = SAME_THREAD
            if loop is not None:
                threads = MainThread(loop, cancelled)
                self._interrupts = JobInterrupts(
                    loop, lambda: self._stop(INTERRUPTED_NOTE), lambda: self.cancel(INTERRUPTED_NOTE)
                )
                self._interrupts.start()
                self._control.heartbeat.start(loop, lambda: self.cancel(ABANDONED_NOTE))
            state = self._control.state

            def do_work() -> None:
                with self._ending(), self._reporting_run() as run:
                    work(self._control.exploration, state, replace(run, cancelled=cancelled, threads=threads))
                    if then is not None and not cancelled():
                        self._next.append(then)

            # A daemon, so that a long compile does not keep the kernel from ending.
            thread = threading.Thread(target=self._modes.run, args=(do_work,), name="regional_explorer", daemon=True)
            thread.start()
            self._thread = thread

    @contextmanager
    def running_in_cell(self, name: str) -> Iterator[Run]:
        """Context manager: show work of a running cell in the panels; errors and interrupts propagate.

        Raises:
            BusyError: a job is running.
        """
        with self._starting(Job(name, in_cell=True)):
            pass
        with self._ending(in_cell=True), self._reporting_run() as run:
            yield replace(run, cancelled=self._cancelled.is_set)

    @contextmanager
    def _reporting_run(self) -> Iterator[Run]:
        """Context manager: yield a run whose progress the panels show."""
        with closing(ProgressLine(_InPanels(self._change_job), after_s=0.0)) as line, ticking(line):
            yield Run(progress=line, estimate=line.left.estimate)

    @contextmanager
    def _starting(self, job: Job) -> Iterator[None]:
        """Context manager around the start of ``job``: put it into the state, and remove it if the block raises."""
        with self._control.lock:
            if self._control.state.job is not None:
                raise BusyError("Another job is running. Cancel it or wait for it to finish.")
            self._cancelled, self._stop_note = threading.Event(), "" if job.background else CANCELLED_NOTE
            try:
                self._control.update(lambda state: state.with_job(job))
                yield
            except BaseException:
                self._stop_watching()
                self._control.update(PanelState.without_job)
                raise

    @contextmanager
    def _ending(self, *, in_cell: bool = False) -> Iterator[None]:
        """Context manager around a job: read its results afterwards, and write into the state how it ended.

        Only a cell's errors propagate: no frame above a thread's last would show them.
        """
        note, problem = "", None
        try:
            yield
        except KeyboardInterrupt:  # it interrupted the cell, or the kernel while a job's work ran on the main thread
            note = INTERRUPTED_NOTE
            if in_cell:
                raise
        except BaseException as error:
            # A measurement that is cancelled while it waits for the main thread raises CancelledError.
            was_cancelled = isinstance(error, CancelledError) and self._cancelled.is_set()
            problem = None if was_cancelled else Problem.of(error)
            if in_cell and not was_cancelled:
                raise
        finally:
            self._stop_watching()
            self._show_end(self._stop_note if self._cancelled.is_set() else note, problem)

    def _stop_watching(self) -> None:
        """Stop watching for interrupts of the kernel, for pages that close, and for other work."""
        self._control.heartbeat.stop()
        self._control.exploration.exclusive_use.give_way = None
        if self._interrupts is not None:
            self._interrupts.stop()
            self._interrupts = None

    def _show_end(self, note: str, problem: Problem | None) -> None:
        with self._control.lock:
            try:
                self._control.read_exploration()
            except Exception as error:  # noqa: BLE001 - shown; whatever it is, the panel must not stay busy
                problem = problem or Problem.of(error)
            finally:  # also after an interrupt of the kernel; a cell may have edited the plan meanwhile
                plan = self._control.session.plan
                self._control.update(lambda state: state.edited(plan).without_job(note, problem))
            following, self._next = self._next, []
            for work in following:
                work()

    def _change_job(self, **fields: Any) -> None:
        self._control.update(
            lambda state: state if state.job is None else replace(state, job=replace(state.job, **fields))
        )

    def _stop(self, note: str) -> None:
        self._stop_note = note
        self._cancelled.set()

    def cancel(self, note: str = CANCELLED_NOTE, *, in_cell: bool = False) -> None:
        """Ask the job on the thread to stop, or a cell's job with ``in_cell``; show ``note`` once it has ended."""
        with self._control.lock:
            job = self._control.state.job
            if job is not None and (in_cell or not job.in_cell):
                self._stop(note)
                self._change_job(cancelling=True)

    def run_instead(self, work: Callable[[], None]) -> None:
        """Cancel the background job, and call ``work`` once the job has ended; ``work`` must not raise."""
        self._next.append(work)
        self.cancel(note="")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the job on the thread to end; return whether it ended in time."""
        return has_ended(self._thread, timeout_s)


def has_ended(thread: threading.Thread | None, timeout_s: float | None) -> bool:
    """Wait for ``thread`` to end, if there is one; return whether it ended in time."""
    if thread is not None:
        thread.join(timeout_s)
    return thread is None or not thread.is_alive()


DELAY_S = 0.25
"""Seconds without a keystroke after which typed text is processed."""


class LatestWorkRunner:
    """Runs only the latest submitted work, one at a time, each in a thread of its own.

    Work begins ``delay_s`` seconds after it was submitted, unless newer work replaces it before. Each work gets an
    event that is set as soon as newer work is submitted.
    """

    def __init__(self, delay_s: float = DELAY_S) -> None:
        self._delay_s = delay_s
        self._turn = threading.Lock()
        self._outdated = threading.Event()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[threading.Event], None]) -> None:
        """Run ``work`` in place of earlier work; ``work`` must not raise."""
        self.cancel()
        self._outdated = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(work, self._outdated), name="regional_explorer latest", daemon=True
        )
        self._thread.start()

    def cancel(self) -> None:
        """Discard the waiting work; tell running work that it is outdated."""
        self._outdated.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no work is running or waiting; return False on a timeout."""
        return has_ended(self._thread, timeout_s)

    def _run(self, work: Callable[[threading.Event], None], outdated: threading.Event) -> None:
        outdated.wait(self._delay_s)
        with self._turn:
            if not outdated.is_set():
                work(outdated)
