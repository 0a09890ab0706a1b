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
    token = _MUTED.set(True)
    _enter()
    try:
        yield
    finally:
        _leave()
        _MUTED.reset(token)


def _enter() -> None:
    global _blocks  # noqa: PLW0603 - there is one sys.stdout for all
    with _CHANGING:
        _blocks += 1
        if not isinstance(sys.stdout, _Muted):
            sys.stdout = _Muted(sys.stdout)


def _leave() -> None:
    global _blocks  # noqa: PLW0603 - there is one sys.stdout for all
    with _CHANGING:
        _blocks -= 1
        if _blocks == 0 and isinstance(sys.stdout, _Muted):
            sys.stdout = sys.stdout.stream


class _Muted(io.TextIOBase):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, unless it comes from a muted block."""
        if _MUTED.get():
            return len(text)
        return int(self.stream.write(text) or 0)

    def flush(self) -> None:
        """Flush the original stream."""
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
