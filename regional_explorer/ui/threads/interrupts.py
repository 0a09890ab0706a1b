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
        self._previous_handler: object = None
        self._armed = False

    def start(self) -> None:
        """Install the handler as soon as the main thread is free."""
        self._armed = True
        self._loop.add_callback(self._install_handler)

    def stop(self) -> None:
        """Restore the previous signal handler; an interrupt that comes before that is ignored."""
        self._armed = False
        self._loop.add_callback(self._restore_handler)

    def _install_handler(self) -> None:
        if self._armed:
            self._previous_handler = signal.signal(signal.SIGINT, self._on_interrupt)

    def _restore_handler(self) -> None:
        # While a cell runs, ipykernel replaces our handler and restores it afterwards: it is removed after the cell.
        if signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, self._previous_handler)  # type: ignore[arg-type]

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            self._stop_job()
            # Not inside the handler: the main thread may have been interrupted while sending a message.
            self._loop.add_callback(self._notify)
