"""Records keyboard interrupts (SIGINT) of a command, because compilers may swallow the exception."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupts:
    """Context manager that records a keyboard interrupt in addition to raising it.

    Dynamo and Inductor run callbacks in which Python drops exceptions; work that checks ``seen`` stops nevertheless.
    Does nothing on threads other than the main one, because they receive no signals.
    """

    def __init__(self) -> None:
        self._seen = False
        self._previous_handler: Any = None

    def __enter__(self) -> Self:
        """Install the signal handler."""
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous signal handler."""
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)

    def seen(self) -> bool:
        """Return whether there was an interrupt."""
        return self._seen

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        handler = self._previous_handler if callable(self._previous_handler) else signal.default_int_handler
        handler(number, frame)
