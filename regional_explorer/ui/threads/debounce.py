"""Debounces: runs work a moment after the last request."""

from __future__ import annotations

import threading
from collections.abc import Callable

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
