"""The controller behind an exploration's panels: state, background jobs, and error handling of callbacks."""

from __future__ import annotations

import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.config.catalogue import check_value
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.measure.timing.executor import SAME_THREAD, Executor
from regional_explorer.record.region import DEFAULT, Plan
from regional_explorer.record.session import Session
from regional_explorer.ui.state import PanelState, Problem, Setting
from regional_explorer.ui.threads.heartbeat import Heartbeat
from regional_explorer.ui.threads.main_thread import Loop, MainThread
from regional_explorer.ui.threads.progress import Throttle
from regional_explorer.ui.threads.worker import Modes, Worker

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration

CANCELLED = "Cancelled. The results so far are kept."
ABANDONED = "Stopped because no page shows the panel any more. The results so far are kept."
INTERRUPTED = "Interrupted. The results so far are kept."

Listener = Callable[["Control"], None]


class Control:
    """Holds the state of one exploration's panels and makes every change to it.

    ``state`` is what the user chose, ``session`` the results. Listeners are called after each change, one at a time, on
    the thread that made it; ``changed_by_cell`` is True meanwhile if code in another cell made it. ``main_loop``
    returns the running event loop of the main thread, or None.
    """

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        self.state = PanelState(exploration.plan)
        self.session: Session = exploration.session
        self.listeners: list[Listener] = []
        self.changed_by_cell = False
        self.main_loop: Callable[[], Loop | None] = lambda: None
        self.heartbeat = Heartbeat()
        self._abandoned = False
        self._worker = Worker(Modes.current())
        self._lock = threading.RLock()

    # ------------------------------------------------------------------------------------------------------- changes

    def change(self, state: PanelState) -> None:
        """Replace the state and call the listeners."""
        with self._lock:
            self.state = state
            for listener in list(self.listeners):
                listener(self)

    def refresh(self) -> None:
        """Read the exploration again after code in a cell may have changed it."""
        with self._lock:
            if self.state.busy:  # the worker changes what a session is made of, and may be measuring
                return
            session = self.exploration.session
            if session != self.session:
                self.session = session
                self.changed_by_cell = True
                try:
                    self.change(self.state.edited(self.exploration.plan))
                finally:
                    self.changed_by_cell = False

    @contextmanager
    def showing_errors(self) -> Iterator[None]:
        """Context manager for callbacks: show exceptions in the panel, because ipywidgets would swallow them."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be seen
            self.change(self.state.failed(problem_of(error)))

    # ---------------------------------------------------------------------------------------------------------- plan

    def edit(self, change: Callable[[Exploration], Any]) -> None:
        """Apply ``change`` to the exploration's plan; raise RegionalExplorerError while a job is running."""
        with self._lock:
            if self.state.busy:
                raise RegionalExplorerError(
                    "A job is running. Cancel it or wait for it to finish before you change regions."
                )
            change(self.exploration)
            self.session = self.exploration.session
            self.change(self.state.edited(self.exploration.plan))

    def undo(self) -> None:
        """Return to the previous plan."""
        self._go_to(self.state.undone())

    def redo(self) -> None:
        """Repeat the change that was undone last."""
        self._go_to(self.state.redone())

    def _go_to(self, state: PanelState) -> None:
        self.edit(lambda exploration: _set_plan(exploration, state.plan))
        self.change(state)

    def set_config(self, setting: Setting, text: str, read: Callable[[str], Any]) -> None:
        """Set a config value from typed text; an invalid value is shown with its error at its field."""
        region, direction, key = setting
        try:
            value = check_value(key, read(text))
        except RegionalExplorerError as error:
            self.change(self.state.with_invalid_input(setting, text, str(error)))
            return
        self.edit(lambda exploration: exploration.configure(region, {key: value}, direction=direction))
        self.change(self.state.without_invalid_input(setting))

    def remove_config(self, setting: Setting) -> None:
        """Remove a config key from a region."""
        region, direction, key = setting
        self.change(self.state.without_invalid_input(setting))
        self.edit(lambda exploration: exploration.configure(region, {key: DEFAULT}, direction=direction))

    # ---------------------------------------------------------------------------------------------------------- work

    def start(self, name: str, work: Callable[[Exploration, Callable[[], bool], Throttle], Any]) -> None:
        """Start ``work(exploration, cancelled, progress)`` on the worker thread."""
        with self._lock:
            if self.state.busy:
                raise RegionalExplorerError("Another job is running. Cancel it or wait for it to finish.")
            self.change(self.state.started(name))
            self._abandoned = False
            self.heartbeat.start(self._wait_for_main_thread, self._abandon)
            self._worker.start(lambda: self._run(work))

    @property
    def executor(self) -> Executor:
        """The executor that runs the worker's timed and untimed work on the right threads."""
        loop = self.main_loop()
        return SAME_THREAD if loop is None else MainThread(loop, self._worker.cancelled)

    def _run(self, work: Callable[[Exploration, Callable[[], bool], Throttle], Any]) -> None:
        note, problem = "", None
        try:
            work(self.exploration, self._worker.cancelled, Throttle(self._on_progress))
        except KeyboardInterrupt:  # sent to the kernel while the work ran on the main thread
            note = INTERRUPTED
        except BaseException as error:  # noqa: BLE001 - last frame of the thread: nothing else would show it
            # A measurement that is cancelled while it waits for the main thread raises CancelledError.
            problem = None if isinstance(error, CancelledError) and self._worker.cancelled() else problem_of(error)
        finally:
            self.heartbeat.stop()
            if self._worker.cancelled():
                note = ABANDONED if self._abandoned else CANCELLED
            self._end(note, problem)

    @contextmanager
    def running_in_cell(self, name: str) -> Iterator[Throttle]:
        """Context manager: show work of a running cell in the panels; errors and interrupts propagate."""
        with self._lock:
            if self.state.busy:
                raise RegionalExplorerError("A job of the panel is running. Cancel it or wait for it to finish.")
            self.change(self.state.started(name, in_cell=True))
        note, problem = "", None
        try:
            yield Throttle(self._on_progress)
        except KeyboardInterrupt:
            note = INTERRUPTED
            raise
        except Exception as error:
            problem = problem_of(error)
            raise
        finally:
            self._end(note, problem)

    def _on_progress(self, doing: str, fraction: float) -> None:
        self.change(self.state.progressed(doing, fraction))

    def _end(self, note: str, problem: Problem | None) -> None:
        with self._lock:
            self.session = self.exploration.session
            self.change(self.state.ended(note, problem))

    def _abandon(self) -> None:
        """Cancel the job of a panel that no page shows any more."""
        self._abandoned = True
        self.cancel()

    def _wait_for_main_thread(self) -> None:
        """Block until the main thread's event loop has run a callback."""
        if (loop := self.main_loop()) is not None:
            turn = threading.Event()
            loop.add_callback(turn.set)
            turn.wait()

    def cancel(self) -> None:
        """Ask the job on the worker thread to stop."""
        with self._lock:
            if self.state.job is not None and not self.state.job.in_cell:
                self._worker.cancel()
                self.change(self.state.cancelling())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the worker's job to end; return whether it ended in time."""
        return self._worker.join(timeout_s)


def problem_of(error: BaseException) -> Problem:
    """Return how to show ``error``: our own exceptions by message only, others with their traceback."""
    if isinstance(error, RegionalExplorerError):
        return Problem(str(error))
    details = "".join(traceback.format_exception(error))
    return Problem(f"{type(error).__name__}: {error}", details)


def _set_plan(exploration: Exploration, plan: Plan) -> None:
    exploration.plan = plan


_CONTROLS: weakref.WeakValueDictionary[int, Control] = weakref.WeakValueDictionary()
"""Controls by ``id`` of their exploration. A panel keeps its control alive, and a control its exploration."""


def control_of(exploration: Exploration) -> Control:
    """Return the control of ``exploration``, which all its panels share."""
    control = _CONTROLS.get(id(exploration))
    if control is None:
        control = _CONTROLS[id(exploration)] = Control(exploration)
    return control
