"""Handles the messages of a page in the order in which it sent them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MAX_WAITING = 1000
"""How many messages of a page may wait for a missing one; with more, that one is considered lost."""


class InOrder:
    """Passes messages on in the order of their numbers, page by page.

    ipykernel 7 handles messages of a widget on several threads: on the subshell that JupyterLab sends them to, or on
    the main thread after a cell changed the widget. So they may arrive out of order.
    """

    def __init__(self, handle: Callable[[str, int, Mapping[str, Any]], None]) -> None:
        self._handle = handle
        self._next_numbers: dict[str, int] = {}
        self._waiting: dict[str, dict[int, Mapping[str, Any]]] = {}

    def receive(self, page: str, number: int, message: Mapping[str, Any]) -> None:
        """Handle ``message`` and those that waited for it, or let it wait; the first of a page has the number 1."""
        waiting = self._waiting.setdefault(page, {})
        waiting[number] = message
        next_number = self._next_numbers.get(page, 1)
        if len(waiting) > MAX_WAITING:
            next_number = min(waiting)
        while next_number in waiting:
            self._next_numbers[page] = next_number + 1
            self._handle(page, next_number, waiting.pop(next_number))
            next_number = self._next_numbers[page]
