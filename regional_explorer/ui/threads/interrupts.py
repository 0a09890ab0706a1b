"""Cancels a button's job when the kernel is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from regional_explorer.ui.threads.main_thread import Loop


class JobInterrupts:
    """Calls ``stop_job``, then ``notify``, when the kernel is interrupted between cells, where ipykernel ignores it.

    Only the main thread can set signal handlers: its ``loop`` installs the handler, and removes it after the job.
    ``stop_job`` is called inside the handler, ``notify`` once the main thread is free.
    """

    def __init__(self, loop: Loop, stop_job: Callable[[], None], notify: Callable[[], None]) -> None:
        self._loop = loop
        self._stop_job = stop_job
        self._notify = notify
        self._before: object = None
        self._wanted = False

    def start(self) -> None:
        """Install the handler as soon as the main thread is free."""
        self._wanted = True
        self._loop.add_callback(self._install)

    def stop(self) -> None:
        """Restore the previous signal handler; an interrupt that comes before that is ignored."""
        self._wanted = False
        self._loop.add_callback(self._remove)

    def _install(self) -> None:
        if self._wanted:
            self._before = signal.signal(signal.SIGINT, self._handle)

    def _remove(self) -> None:
        # While a cell runs, ipykernel replaces our handler and restores it afterwards: it is removed after the cell.
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._wanted:
            self._wanted = False
            self._stop_job()
            # Not inside the handler: the main thread may have been interrupted while sending a message.
            self._loop.add_callback(self._notify)
