"""Mutes what the user's code prints to stdout when a call is repeated."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_MUTED: ContextVar[bool] = ContextVar("muted", default=False)


_CHANGING = threading.Lock()
_blocks = 0


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Context manager: drop what the block prints, and what other threads print for it; other cells still print.

    Blocks of several threads overlap in any order: the first one replaces ``sys.stdout``, the last one restores it.
    """
    global _blocks  # noqa: PLW0603 - there is one sys.stdout for all
    token = _MUTED.set(True)
    with _CHANGING:
        _blocks += 1
        if not isinstance(sys.stdout, _Muted):
            sys.stdout = _Muted(sys.stdout)
    try:
        yield
    finally:
        with _CHANGING:
            _blocks -= 1
            if _blocks == 0 and isinstance(sys.stdout, _Muted):
                sys.stdout = sys.stdout.stream
        _MUTED.reset(token)


class _Muted(io.TextIOBase):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, unless it comes from a muted block."""
        return len(text) if _MUTED.get() else int(self.stream.write(text) or 0)

    def flush(self) -> None:
        """Flush the original stream."""
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
