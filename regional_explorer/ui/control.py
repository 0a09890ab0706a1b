"""The controller of one exploration's panels: state, work, and error handling of all callbacks."""

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
from regional_explorer.ui.threads.main_thread import Loop, MainThread
from regional_explorer.ui.threads.presence import Presence
from regional_explorer.ui.threads.progress import Throttle
from regional_explorer.ui.threads.worker import Modes, Worker

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration

CANCELLED = "Cancelled. What was done until then is kept."
LEFT = "Ended, for no page showed the panel any longer. What was done until then is kept."
INTERRUPTED = "Interrupted. What was done until then is kept."

Listener = Callable[["Control"], None]


class Control:
    """The state of one exploration's panels, and every change to it.

    ``state`` is what was decided, ``session`` what was found. Listeners are told of each change, on whatever thread
    made it, one at a time; ``elsewhere`` tells them that code in another cell made it. ``main_loop`` gives
    the event loop of the main thread, where there is one that runs.
    """

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        self.state = PanelState(exploration.plan)
        self.session: Session = exploration.session
        self.listeners: list[Listener] = []
        self.elsewhere = False
        self.main_loop: Callable[[], Loop | None] = lambda: None
        self.presence = Presence()
        self._abandoned = False
        self._worker = Worker(Modes.here())
        self._lock = threading.RLock()

    # ------------------------------------------------------------------------------------------------------- changes

    def change(self, state: PanelState) -> None:
        """Go over to ``state`` and tell the listeners."""
        with self._lock:
            self.state = state
            for listener in list(self.listeners):
                listener(self)

    def refresh(self) -> None:
        """Take up what was changed or found without the panel, by code in a cell."""
        with self._lock:
            if self.state.busy:  # the worker changes what a session is made of, and may be measuring
                return
            session = self.exploration.session
            if session != self.session:
                self.session = session
                self.elsewhere = True
                try:
                    self.change(self.state.edited(self.exploration.plan))
                finally:
                    self.elsewhere = False

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """The one guard of all callbacks: what is raised inside is shown, for widgets would swallow it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be seen
            self.change(self.state.failed(problem_of(error)))

    # ---------------------------------------------------------------------------------------------------------- plan

    def edit(self, change: Callable[[Exploration], Any]) -> None:
        """Change the plan through the exploration, which checks it; nothing happens while work is under way."""
        with self._lock:
            if self.state.busy:
                raise RegionalExplorerError("Work is under way. Cancel it, or wait for its end, to change regions.")
            change(self.exploration)
            self.session = self.exploration.session
            self.change(self.state.edited(self.exploration.plan))

    def undo(self) -> None:
        """Go back to the plan before."""
        self._go_to(self.state.undone())

    def redo(self) -> None:
        """Go forward again."""
        self._go_to(self.state.redone())

    def _go_to(self, state: PanelState) -> None:
        self.edit(lambda exploration: _set_plan(exploration, state.plan))
        self.change(state)

    def set_config(self, setting: Setting, text: str, read: Callable[[str], Any]) -> None:
        """Set a config from what was typed; what cannot be taken is told at its field."""
        region, direction, key = setting
        try:
            value = check_value(key, read(text))
        except RegionalExplorerError as error:
            self.change(self.state.refused(setting, text, str(error)))
            return
        self.edit(lambda exploration: exploration.configure(region, {key: value}, direction=direction))
        self.change(self.state.cleared(setting))

    def drop_config(self, setting: Setting) -> None:
        """Take a config key out of a region."""
        region, direction, key = setting
        self.change(self.state.cleared(setting))
        self.edit(lambda exploration: exploration.configure(region, {key: DEFAULT}, direction=direction))

    # ---------------------------------------------------------------------------------------------------------- work

    def start(self, name: str, work: Callable[[Exploration, Callable[[], bool], Throttle], Any]) -> None:
        """Start ``work(exploration, cancelled, tell)`` on the worker thread."""
        with self._lock:
            if self.state.busy:
                raise RegionalExplorerError("Work is under way already; one job at a time.")
            self.change(self.state.started(name))
            self._abandoned = False
            self.presence.watch(self._free, self._abandon)
            self._worker.start(lambda: self._run(work))

    @property
    def executor(self) -> Executor:
        """On which threads the job on the worker measures."""
        loop = self.main_loop()
        return SAME_THREAD if loop is None else MainThread(loop, self._worker.cancelled)

    def _run(self, work: Callable[[Exploration, Callable[[], bool], Throttle], Any]) -> None:
        note, problem = "", None
        try:
            work(self.exploration, self._worker.cancelled, Throttle(self._on_progress))
        except KeyboardInterrupt:  # of the kernel, while it was the work's turn on the main thread
            note = INTERRUPTED
        except BaseException as error:  # noqa: BLE001 - the end of the thread: nobody else would show it
            # A measurement that is cancelled before its turn on the main thread came ends so.
            problem = None if isinstance(error, CancelledError) and self._worker.cancelled() else problem_of(error)
        finally:
            self.presence.end()
            if self._worker.cancelled():
                note = LEFT if self._abandoned else CANCELLED
            self._end(note, problem)

    @contextmanager
    def working_here(self, name: str) -> Iterator[Throttle]:
        """A block in which a cell does the work, told to the panels; errors and interrupts go through."""
        with self._lock:
            if self.state.busy:
                raise RegionalExplorerError("Work is under way in the panel; one job at a time.")
            self.change(self.state.started(name, here=True))
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
        """End the work of a panel that no page shows any longer."""
        self._abandoned = True
        self.cancel()

    def _free(self) -> None:
        """Wait until the main thread has had a turn."""
        if (loop := self.main_loop()) is not None:
            turn = threading.Event()
            loop.add_callback(turn.set)
            turn.wait()

    def cancel(self) -> None:
        """Tell the job on the worker thread to end."""
        with self._lock:
            if self.state.job is not None and not self.state.job.here:
                self._worker.cancel()
                self.change(self.state.cancelling())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the worker's job to end; return whether it has."""
        return self._worker.join(timeout_s)


def problem_of(error: BaseException) -> Problem:
    """Return an error as it is shown: our own as their text, others with where they come from."""
    if isinstance(error, RegionalExplorerError):
        return Problem(str(error))
    details = "".join(traceback.format_exception(error))
    return Problem(f"{type(error).__name__}: {error}", details)


def _set_plan(exploration: Exploration, plan: Plan) -> None:
    exploration.plan = plan


_CONTROLS: weakref.WeakValueDictionary[int, Control] = weakref.WeakValueDictionary()
"""Controls by ``id`` of their exploration. Panels keep a control alive, and a control its exploration."""


def control_of(exploration: Exploration) -> Control:
    """Return the one control of ``exploration``: all its panels share it."""
    control = _CONTROLS.get(id(exploration))
    if control is None:
        control = _CONTROLS[id(exploration)] = Control(exploration)
    return control
