"""Tells whether any page still shows a panel: nobody can cancel the work of a closed one."""

from __future__ import annotations

import threading
from collections.abc import Callable

EVERY_S = 5.0
"""So often the pages are asked."""
PATIENCE = 12
"""So many questions without an answer, and nobody is there. A page that is loaded anew answers in time."""


class Presence:
    """Asks the pages while work is under way.

    ``ask`` are the ways to ask, one per panel; ``free`` waits until the main thread has had a turn: where the kernel
    hears its messages there, no answer can be heard while a cell runs.
    """

    def __init__(self) -> None:
        self.ask: list[Callable[[], None]] = []
        self._answers = False
        self._unanswered = 0
        self._over = threading.Event()

    def heard(self) -> None:
        """Take an answer."""
        self._answers, self._unanswered = True, 0

    def excuse(self) -> None:
        """Begin to count anew: a cell has run, and answers may wait behind it."""
        self._unanswered = 0

    def watch(self, free: Callable[[], None], gone: Callable[[], None]) -> None:
        """Ask until ``end``; call ``gone`` once when no page answers any longer. One that never did is not missed."""
        self.end()
        self._unanswered, self._over = 0, threading.Event()
        name = "regional_explorer asking the page"
        threading.Thread(target=self._ask, args=(self._over, free, gone), name=name, daemon=True).start()

    def end(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self, over: threading.Event, free: Callable[[], None], gone: Callable[[], None]) -> None:
        while not over.wait(EVERY_S):
            free()
            if over.is_set():
                return
            if self._answers and self._unanswered >= PATIENCE:
                gone()
                return
            self._unanswered += 1
            for ask in list(self.ask):
                ask()
