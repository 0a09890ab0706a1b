"""Imports the modules that the first exploration needs in the background, while no cell runs."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

IDLE_S = 0.5
"""Seconds without a running cell before the next stage starts."""


class Preload:
    """Runs ``stages`` on a background thread, each while no cell runs, once torch has been imported.

    A cell that starts during a stage waits for it: two threads inside torch's circular imports may see partially
    initialized modules. ``afterwards`` may run in parallel with cells. Without torch imported nothing runs. Exceptions
    stop the thread silently: code that needs the same import will raise them again.
    """

    def __init__(
        self, stages: Sequence[Callable[[], object]], afterwards: Callable[[], object], idle_s: float = IDLE_S
    ) -> None:
        self._stages = stages
        self._afterwards = afterwards
        self._idle_s = idle_s
        self._events: Any = None
        self._stage_lock = threading.Lock()
        self._idle = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def attach(self, events: Any) -> None:
        """Register for IPython's ``events`` of cells."""
        self._events = events
        self._stopped, self._thread = threading.Event(), None
        events.register("pre_execute", self.before_cell)
        events.register("post_execute", self.after_cell)
        atexit.register(self.stop)

    def detach(self) -> None:
        """Unregister from the events, and stop."""
        if self._events is not None:
            self._events.unregister("pre_execute", self.before_cell)
            self._events.unregister("post_execute", self.after_cell)
            self._events = None
            atexit.unregister(self.stop)
            self.stop()

    def before_cell(self) -> None:
        """Block further stages, and wait for the running one."""
        self._idle.clear()
        with self._stage_lock:
            pass

    def after_cell(self) -> None:
        """Allow stages to run; start the thread if torch has been imported."""
        self._idle.set()
        if self._thread is None and not self._stopped.is_set() and "torch" in sys.modules:
            self._thread = threading.Thread(
                target=self._run_stages, args=(self._stopped,), name="regional-explorer-preload", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Start no further stage, and wait for the running one."""
        self._stopped.set()
        self._idle.set()
        with self._stage_lock:
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all stages have run; return whether they have."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is not None and not self._thread.is_alive()

    def _run_stages(self, stopped: threading.Event) -> None:
        with contextlib.suppress(Exception):
            for stage in self._stages:
                while not stopped.is_set() and not self._run_when_idle(stage, stopped):
                    pass
            if not stopped.is_set():
                self._afterwards()

    def _run_when_idle(self, stage: Callable[[], object], stopped: threading.Event) -> bool:
        """Run ``stage`` after ``idle_s`` without a cell; return False if a cell started meanwhile."""
        self._idle.wait()
        time.sleep(self._idle_s)
        with self._stage_lock:
            if stopped.is_set() or not self._idle.is_set():
                return False
            stage()
            return True
