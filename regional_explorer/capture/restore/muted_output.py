"""Mutes what the user's code prints when a call is repeated."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_MUTED: ContextVar[bool] = ContextVar("muted", default=False)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """A block in which prints are dropped, also those of work that other threads do for it; cells print on."""
    token = _MUTED.set(True)
    try:
        with contextlib.redirect_stdout(_Muted(sys.stdout)):
            yield
    finally:
        _MUTED.reset(token)


class _Muted(io.TextIOBase):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, unless it comes from a muted block."""
        if _MUTED.get():
            return len(text)
        return int(self._stream.write(text) or 0)

    def flush(self) -> None:
        """Flush the stream behind."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
