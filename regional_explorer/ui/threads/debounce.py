"""Debounces: runs work a moment after the last request."""

from __future__ import annotations

import threading
from collections.abc import Callable

DELAY_S = 0.25


class Debounce:
    """Does what it was asked last, on a thread of its own, once nobody has asked for a moment."""

    def __init__(self, delay_s: float = DELAY_S) -> None:
        self._delay_s = delay_s
        self._timer: threading.Timer | None = None

    def ask(self, work: Callable[[Callable[[], bool]], None]) -> None:
        """Do ``work`` soon, and nothing asked before; it is given a function that tells whether it is still wanted."""
        self.stop()
        timer = threading.Timer(self._delay_s, lambda: work(lambda: self._timer is timer))
        timer.name, timer.daemon = "regional_explorer soon", True
        self._timer = timer
        timer.start()

    def stop(self) -> None:
        """Do nothing of what was asked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until what was asked is done."""
        if self._timer is not None:
            self._timer.join(timeout_s)
