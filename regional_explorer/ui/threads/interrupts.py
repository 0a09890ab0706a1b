"""Cancels a button's job when the kernel is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from regional_explorer.ui.threads.main_thread import Loop


class JobInterrupts:
    """Calls ``stop_job``, then ``tell``, when the kernel is interrupted between cells, where ipykernel ignores it.

    Signals belong to the main thread: its ``loop`` installs the handler, and takes it away after the job. ``stop_job``
    is called inside the handler, ``tell`` once the main thread is free.
    """

    def __init__(self, loop: Loop, stop_job: Callable[[], None], tell: Callable[[], None]) -> None:
        self._loop = loop
        self._stop_job = stop_job
        self._tell = tell
        self._before: object = None
        self._wanted = False

    def start(self) -> None:
        """Install the handler as soon as the main thread is free."""
        self._wanted = True
        self._loop.add_callback(self._install)

    def stop(self) -> None:
        """Give the signal back to who had it; an interrupt that comes before that is ignored."""
        self._wanted = False
        self._loop.add_callback(self._remove)

    def _install(self) -> None:
        if self._wanted:
            self._before = signal.signal(signal.SIGINT, self._handle)

    def _remove(self) -> None:
        # While a cell runs, ipykernel holds the handler and brings it back: it is taken away after the cell.
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._wanted:
            self._wanted = False
            self._stop_job()
            # Not here: whatever the main thread was doing when the signal came may hold half-sent messages.
            self._loop.add_callback(self._tell)
