"""Keeping repeated prints of the user's code off the screen, on one thread."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """A block in which what this thread prints is dropped; other threads, the notebook's cells say, print on."""
    with contextlib.redirect_stdout(_Muted(sys.stdout, threading.get_ident())):
        yield


class _Muted(io.TextIOBase):
    def __init__(self, stream: Any, thread: int) -> None:
        super().__init__()
        self._stream = stream
        self._thread = thread

    def write(self, text: str) -> int:
        """Write ``text``, unless it comes from the muted thread."""
        if threading.get_ident() == self._thread:
            return len(text)
        return int(self._stream.write(text) or 0)

    def flush(self) -> None:
        """Flush the stream behind."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
