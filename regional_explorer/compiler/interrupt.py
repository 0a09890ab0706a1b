"""Records keyboard interrupts (SIGINT) of a long run, because compilers may drop the exception."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class Interrupts:
    """Context manager that records a keyboard interrupt in addition to raising it.

    Dynamo and Inductor run callbacks in which Python drops exceptions; work that checks ``seen`` stops nevertheless.
    Does nothing on threads other than the main one, because they receive no signals, nor where interrupts are ignored.
    """

    def __init__(self) -> None:
        self._seen = False
        self._raised: BaseException | None = None
        self._previous_handler: Any = None

    def __enter__(self) -> Self:
        """Install the signal handler."""
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._previous_handler = handler
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous signal handler, unless another one was set meanwhile."""
        if self._previous_handler is not None and signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, self._previous_handler)

    def seen(self) -> bool:
        """Return whether there was an interrupt."""
        return self._seen

    @contextmanager
    def raised_at_the_end(self) -> Iterator[None]:
        """Context manager that records interrupts; its end raises again what was dropped inside."""
        try:
            with self:
                yield
        finally:
            raised, self._raised = self._raised, None  # its traceback keeps all that the frames hold
        if raised is not None:
            raise raised.with_traceback(None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        try:
            self._previous_handler(number, frame)
        except BaseException as error:
            self._raised = error
            raise
