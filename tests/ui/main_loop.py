"""A stand-in for the event loop of a kernel's main thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest


class MainLoop:
    """Does what it is asked by other threads while the main one is in ``run_until``."""

    def __init__(self) -> None:
        self._asked: queue.Queue[Callable[[], object]] = queue.Queue()

    def add_callback(self, callback: Callable[[], object]) -> None:
        self._asked.put(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        threading.Timer(delay_s, self.add_callback, [callback]).start()

    def run_until(self, done: Callable[[], bool], timeout_s: float = 120.0) -> None:
        ends_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > ends_s:
                pytest.fail("the work did not end")
            try:
                self._asked.get(timeout=0.01)()
            except queue.Empty:
                continue
