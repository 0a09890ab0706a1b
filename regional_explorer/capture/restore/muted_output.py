"""Mutes what the user's code prints to stdout when a call is repeated."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_IS_MUTED: ContextVar[bool] = ContextVar("muted", default=False)


_STDOUT_LOCK = threading.Lock()
_muted_blocks = 0


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Context manager: drop what the block prints, and what other threads print for it; other cells still print.

    Blocks of several threads overlap in any order: the first one replaces ``sys.stdout``, the last one restores it.
    """
    global _muted_blocks  # noqa: PLW0603 - there is one sys.stdout for all
    token = _IS_MUTED.set(True)
    with _STDOUT_LOCK:
        _muted_blocks += 1
        if not isinstance(sys.stdout, _MutedStream):
            sys.stdout = _MutedStream(sys.stdout)
    try:
        yield
    finally:
        with _STDOUT_LOCK:
            _muted_blocks -= 1
            if _muted_blocks == 0 and isinstance(sys.stdout, _MutedStream):
                sys.stdout = sys.stdout.stream
        _IS_MUTED.reset(token)


class _MutedStream(io.TextIOBase):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, unless it comes from a muted block."""
        return len(text) if _IS_MUTED.get() else int(self.stream.write(text) or 0)

    def flush(self) -> None:
        """Flush the original stream."""
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
