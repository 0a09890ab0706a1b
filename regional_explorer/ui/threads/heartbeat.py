"""Checks that some page still shows the panel: if all are closed, nobody could cancel the job."""

from __future__ import annotations

import threading
from collections.abc import Callable

INTERVAL_S = 5.0
"""Seconds between two pings."""
MAX_UNANSWERED = 12
"""The pages count as closed after this many pings without a reply. A page that is being reloaded replies in time."""


class Heartbeat:
    """Pings the pages while a job runs, and reports when they stop replying.

    ``pings`` are functions that ping a page, one per panel.
    """

    def __init__(self) -> None:
        self.pings: list[Callable[[], None]] = []
        self._has_replied = False
        self._unanswered_pings = 0
        self._stopped = threading.Event()

    def on_reply(self) -> None:
        """Record a reply of a page."""
        self._has_replied, self._unanswered_pings = True, 0

    def reset(self) -> None:
        """Restart the count of missing replies: a cell has run, and replies may be queued behind it."""
        self._unanswered_pings = 0

    def start(self, wait_for_main_thread: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Ping until ``stop``; call ``on_lost`` once when no page replies any more.

        A page that never replied is ignored. ``wait_for_main_thread`` is called before each ping: where the kernel
        handles messages on that thread, no reply arrives while a cell runs.
        """
        self.stop()
        self._unanswered_pings, self._stopped = 0, threading.Event()
        name = "regional_explorer heartbeat"
        threading.Thread(
            target=self._ping_pages, args=(self._stopped, wait_for_main_thread, on_lost), name=name, daemon=True
        ).start()

    def stop(self) -> None:
        """Stop pinging."""
        self._stopped.set()

    def _ping_pages(
        self, stopped: threading.Event, wait_for_main_thread: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        while not stopped.wait(INTERVAL_S):
            wait_for_main_thread()
            if stopped.is_set():
                return
            if self._has_replied and self._unanswered_pings >= MAX_UNANSWERED:
                on_lost()
                return
            self._unanswered_pings += 1
            for ping in list(self.pings):
                ping()
