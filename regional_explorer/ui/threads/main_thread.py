"""Runs timed work on the kernel's main thread, between cells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Generic, Protocol, TypeVar

from regional_explorer.compiler.thread_modes import ThreadModes

T = TypeVar("T")

_CANCEL_POLL_S = 0.1
"""Seconds between two checks for cancellation while timed work waits for the main thread."""


class Loop(Protocol):
    """The event loop of the main thread (tornado's, in a kernel)."""

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Schedule ``callback`` on the main thread."""


class MainThread:
    """Executor that runs timed work on the main thread, and untimed work on a thread of its own.

    While a cell runs, measuring waits: neither takes time from the other.
    """

    def __init__(self, loop: Loop, cancelled: Callable[[], bool]) -> None:
        self._loop = loop
        self._cancelled = cancelled

    def run_timed(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the main thread, under the calling thread's modes.

        Raises:
            CancelledError: the job was cancelled before the work began.
        """
        if threading.current_thread() is threading.main_thread():
            return work()
        task = _Task(work)
        self._loop.add_callback(task.run)
        while wait([task.future], _CANCEL_POLL_S).not_done:
            if self._cancelled() and task.future.cancel():
                raise CancelledError
        return task.future.result()

    def run_untimed(self, work: Callable[[], T]) -> T:
        """Run ``work`` on a new thread, under the calling thread's modes."""
        task = _Task(work)
        # A daemon: a compile that takes long must not keep the kernel from ending.
        threading.Thread(target=task.run, name="regional_explorer untimed", daemon=True).start()
        return task.future.result()


class _Task(Generic[T]):
    """Work for another thread, to run under the modes of the thread that creates it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self._work = work
        self._modes = ThreadModes.current()

    def run(self) -> None:
        """Run the work unless it was cancelled; exceptions, kernel interrupts included, are passed to the future."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self._modes.run(lambda: self.future.set_result(self._work()))
        except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
            self.future.set_exception(error)
