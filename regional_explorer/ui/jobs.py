"""Runs the job of an exploration's panels: compiling or measuring, started by a button or run by a cell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from regional_explorer.compiler.run_context import SAME_THREAD, Executor
from regional_explorer.compiler.thread_modes import ThreadModes
from regional_explorer.errors import BusyError
from regional_explorer.ui.state import PanelState, Problem
from regional_explorer.ui.threads.heartbeat import Heartbeat
from regional_explorer.ui.threads.interrupts import JobInterrupts
from regional_explorer.ui.threads.main_thread import Loop, MainThread
from regional_explorer.ui.threads.progress import Throttle
from regional_explorer.ui.threads.worker import Worker

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration

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
