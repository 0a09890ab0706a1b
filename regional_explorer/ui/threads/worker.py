"""Runs jobs on a worker thread, under the torch modes of the thread that created the exploration."""

from __future__ import annotations

import threading
from collections.abc import Callable

from regional_explorer.compiler.thread_modes import ThreadModes


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
