"""Torch's own compile lock: two compiles at once in one process break each other, and all later ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch._dynamo import convert_frame

_COMPILE_LOCK_POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""


def compile_lock(
    cancelled: Callable[[], bool] = lambda: False, on_wait: Callable[[], object] = lambda: None
) -> AbstractContextManager[bool]:
    """Return a block in which no other thread of this process compiles or traces; see ``acquired``.

    It is the lock that Dynamo takes around each frame, and Inductor around the backward of a frame; a thread that holds
    it may take it again. Never hold it while waiting for another thread that compiles.
    """
    return acquired(convert_frame.compile_lock, cancelled, on_wait)


@contextlib.contextmanager
def compile_lock_for_user_code() -> Iterator[None]:
    """A block that runs the user's code, in which no other thread of this process compiles or traces.

    Autograd runs a backward on devices other than the CPU on threads of its own, where one that is not compiled yet
    would wait for the lock. In this block it runs on the calling thread.
    """
    with compile_lock(), torch.autograd.set_multithreading_enabled(False):
        yield


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
