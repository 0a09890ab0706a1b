"""Torch's own compile lock: two compiles at once in one process break each other, and all later ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from torch._dynamo import convert_frame

_COMPILE_LOCK_POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""


def compile_lock(
    cancelled: Callable[[], bool] = lambda: False, on_wait: Callable[[], object] = lambda: None
) -> AbstractContextManager[bool]:
    """Return a block in which no other thread of this process compiles or traces; see ``acquired``.

    It is the lock that Dynamo takes around each frame, and Inductor around the backward of a frame; a thread that holds
    it may take it again. Never hold it while waiting for another thread that compiles: autograd runs the backward of
    devices other than the CPU on threads of its own, and a backward that is not compiled yet is compiled there.
    """
    return acquired(convert_frame.compile_lock, cancelled, on_wait)


@contextlib.contextmanager
def acquired(
    lock: threading.RLock,
    cancelled: Callable[[], bool] = lambda: False,
    on_wait: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """A block with ``lock`` held; it yields False, without the lock, if ``cancelled`` before it was free.

    ``on_wait`` is called once if the lock is not free at once.
    """
    held = lock.acquire(blocking=False)
    if not held:
        on_wait()
        while not held and not cancelled():
            held = lock.acquire(timeout=_COMPILE_LOCK_POLL_S)
    try:
        yield held
    finally:
        if held:
            lock.release()
