"""Imports what the first exploration needs while no cell runs."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

REST_S = 0.5
"""How long no cell must have run before the next stage begins."""


class Preload:
    """Runs ``stages`` one by one in a thread of the kernel, each while no cell runs, once torch has been imported.

    A cell that comes while a stage runs waits for its end: threads that enter torch's circular imports at two places
    may see half-made modules. ``afterwards`` runs beside cells. A user who never imports torch pays nothing. What fails
    ends it all without a word: whoever needs what it was to bring is told then.
    """

    def __init__(self, stages: Sequence[Callable[[], object]], afterwards: Callable[[], object]) -> None:
        self._stages = stages
        self._afterwards = afterwards
        self._events: Any = None
        self._turn = threading.Lock()
        self._resting = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def attach(self, events: Any) -> None:
        """Hear from IPython's ``events`` when cells begin and end."""
        self._events = events
        events.register("pre_execute", self.before_cell)
        events.register("post_execute", self.after_cell)
        atexit.register(self.end)

    def detach(self) -> None:
        """Hear no more, and begin no further stage."""
        if self._events is not None:
            self._events.unregister("pre_execute", self.before_cell)
            self._events.unregister("post_execute", self.after_cell)
            self._events = None
            self.end()

    def before_cell(self) -> None:
        """Let no stage begin from now on, and wait for the one under way."""
        self._resting.clear()
        with self._turn:
            pass

    def after_cell(self) -> None:
        """Let stages begin."""
        self._resting.set()
        if self._thread is None and not self._ended and "torch" in sys.modules:
            self._thread = threading.Thread(target=self._run, name="regional-explorer-preload", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Begin no further stage, and wait for the one under way."""
        self._ended = True
        self._resting.set()
        with self._turn:
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all stages have run, and tell whether they have."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is not None and not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.suppress(Exception):
            for stage in self._stages:
                while not self._ended and not self._run_at_rest(stage):
                    pass
            if not self._ended:
                self._afterwards()

    def _run_at_rest(self, stage: Callable[[], object]) -> bool:
        """Run ``stage`` after a rest, or return False where a cell came in between."""
        self._resting.wait()
        time.sleep(REST_S)
        with self._turn:
            if self._ended or not self._resting.is_set():
                return False
            stage()
            return True
