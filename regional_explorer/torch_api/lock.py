"""Torch's own lock around compiles: two at once in one process break each other, and every compile after them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from torch._dynamo import convert_frame

_POLL_S = 0.1
"""So often a wait looks whether it was cancelled."""


def compile_lock(
    cancelled: Callable[[], bool] = lambda: False, on_wait: Callable[[], object] = lambda: None
) -> AbstractContextManager[bool]:
    """Return a block that nothing else in this process compiles in, nor traces; see ``acquired``.

    It is the lock that Dynamo takes around each frame, and Inductor around the backward of a frame; a thread that has
    it may take it again. Never hold it while another thread has to compile for you: autograd runs the backward of
    other devices than the CPU on threads of its own, where what was compiled without its backward gets it.
    """
    return acquired(convert_frame.compile_lock, cancelled, on_wait)


@contextlib.contextmanager
def acquired(
    lock: threading.RLock,
    cancelled: Callable[[], bool] = lambda: False,
    on_wait: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """A block with ``lock`` held; it yields False, without the lock, where ``cancelled`` before it came free.

    ``on_wait`` is called once where there is something to wait for.
    """
    held = lock.acquire(blocking=False)
    if not held:
        on_wait()
        while not held and not cancelled():
            held = lock.acquire(timeout=_POLL_S)
    try:
        yield held
    finally:
        if held:
            lock.release()
