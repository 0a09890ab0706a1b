"""Torch's own compile lock: one thread at a time compiles; a thread that user code waits for may borrow it."""

from __future__ import annotations

import contextlib
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch._dynamo import convert_frame

_COMPILE_LOCK_POLL_S = 0.1
"""Seconds between checks whether a wait was cancelled."""
_WAITS_AFTER_S = 0.5
_STUCK_AFTER_S = 10.0
"""Seconds without a step after which a thread counts as waiting: in Python's own waiting code, and in other code."""
_LOOK_AGAIN_S = 0.4
"""Seconds after which an observation of a thread is outdated: the thread may have come back to the same step."""
_WAITING_FILES = (threading.__file__, selectors.__file__)


def compile_lock(
    cancelled: Callable[[], bool] = lambda: False, on_wait: Callable[[], object] = lambda: None
) -> AbstractContextManager[bool]:
    """Return a context manager in whose block no other thread of this process compiles or traces; see ``acquired``.

    It is the lock that Dynamo takes around each frame, and Inductor around the backward of a frame; a thread that holds
    it may take it again. Never hold it while waiting for another thread that compiles.
    """
    return acquired(convert_frame.compile_lock, cancelled, on_wait)


@contextlib.contextmanager
def compile_lock_for_user_code() -> Iterator[None]:
    """Context manager: while the block runs the user's code, no other thread of this process compiles or traces.

    Threads that this code waits for are an exception, such as its own pool that calls compiled functions. On devices
    other than the CPU, autograd runs a backward on threads of its own, where a backward that is not compiled yet would
    wait for the lock. In this block a backward runs on the calling thread.
    """
    with compile_lock(), torch.autograd.set_multithreading_enabled(False):
        lock = convert_frame.compile_lock
        if isinstance(lock, _LentLock):  # a block inside a block
            yield
            return
        lent = _LentLock(lock)
        convert_frame.compile_lock = lent  # type: ignore[assignment]  # it has the methods of a lock that torch uses
        try:
            yield
        finally:
            convert_frame.compile_lock = lock
            lent.close()


class _LentLock:
    """The compile lock while its owner runs the user's code: a thread that the owner waits for may borrow it.

    Otherwise the two threads would wait for each other forever. The owner takes turns with the borrower.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock, self._turn = lock, threading.RLock()
        self._owner, self._borrower, self._depth = threading.get_ident(), 0, 0
        self._open = True
        self._looked: tuple[tuple[str, int, int] | None, float, float] = (None, 0.0, 0.0)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as of any lock
        """Acquire the lock, or borrow it."""
        me = threading.get_ident()
        if me == self._owner:
            return self._turn.acquire(blocking, timeout)
        if me == self._borrower:
            return self._borrow()
        end = time.monotonic() + (timeout if timeout >= 0 else threading.TIMEOUT_MAX)
        while not self._lock.acquire(blocking=False):
            if self._open and self._owner_waits() and self._borrow():
                return True
            if not blocking or time.monotonic() >= end:
                return False
            time.sleep(_COMPILE_LOCK_POLL_S / 10)
        return True

    def _owner_waits(self) -> bool:
        """Return whether the owner has made no step for long; threads that want the lock observe it often."""
        step, now = _step_of(self._owner), time.monotonic()
        seen_step, since, last_look = self._looked
        if step != seen_step or now - last_look > _LOOK_AGAIN_S:
            since = now
        self._looked = step, since, now
        if step is None:
            return False
        return now - since > (_WAITS_AFTER_S if step[0] in _WAITING_FILES else _STUCK_AFTER_S)

    def _borrow(self) -> bool:
        if not self._turn.acquire(blocking=False):
            return False
        if not self._open:
            self._turn.release()
            return False
        self._borrower, self._depth = threading.get_ident(), self._depth + 1
        return True

    def release(self) -> None:
        """Release the lock, or give it back."""
        me = threading.get_ident()
        if me not in (self._owner, self._borrower):
            self._lock.release()
            return
        if me == self._borrower:
            self._depth -= 1
            self._borrower = me if self._depth else 0
        self._turn.release()

    def close(self) -> None:
        """Wait until the lock is given back, and lend it no more."""
        with self._turn:
            self._open = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return threading.get_ident() in (self._owner, self._borrower) or self._lock._is_owned()  # type: ignore[attr-defined]


def _step_of(thread: int) -> tuple[str, int, int] | None:
    """Return where a thread is: the file, the frame and the instruction; None if it has ended."""
    frame = sys._current_frames().get(thread)
    return None if frame is None else (frame.f_code.co_filename, id(frame), frame.f_lasti)


@contextlib.contextmanager
def acquired(
    lock: threading.RLock | _LentLock,
    cancelled: Callable[[], bool] = lambda: False,
    on_wait: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """Context manager: hold ``lock``; yield False, without the lock, if ``cancelled`` before the lock was free.

    ``on_wait`` is called once if the lock is not free at once, and nothing is cancelled.
    """
    held = lock.acquire(blocking=False)
    if not held and not cancelled():
        on_wait()
        while not held and not cancelled():
            held = lock.acquire(timeout=_COMPILE_LOCK_POLL_S)
    try:
        yield held
    finally:
        if held:
            lock.release()
