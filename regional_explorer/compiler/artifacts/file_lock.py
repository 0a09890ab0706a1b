"""A file lock shared by processes; it is released however the holding process ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LOCK_POLL_S = 0.1


@contextlib.contextmanager
def locked(path: Path, patience_s: float) -> Iterator[bool]:
    """A block with the lock of ``path`` held; it yields False, without the lock, if that was not free in time.

    Windows and some file systems have no such locks: the block then runs without one.
    """
    descriptor = _open_lock_file(path)
    has_lock = descriptor is not None and _acquire_in_time(descriptor, patience_s)
    try:
        yield has_lock
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether any process holds the lock of ``path``; False if there are no locks."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        # Shared, so that processes that only ask do not see each other.
        return _take_if_free(descriptor, shared=True) is False
    finally:
        os.close(descriptor)


def _open_lock_file(path: Path) -> int | None:
    try:
        path.parent.mkdir(exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _acquire_in_time(descriptor: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while (taken := _take_if_free(descriptor)) is False and time.monotonic() < deadline:
        time.sleep(_LOCK_POLL_S)
    return taken is True


def _take_if_free(descriptor: int, *, shared: bool = False) -> bool | None:
    """Take the lock of an open file if it is free, and return whether it was; None if there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
