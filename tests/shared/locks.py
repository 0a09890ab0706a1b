"""Threads that hold a lock."""

from __future__ import annotations

import threading
from contextlib import contextmanager

WAITING = "waiting for another thread of this process that compiles"


def start_threads(*works):
    """Start a thread for each of ``works``, and return them."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


@contextmanager
def held_by_another_thread(lock):
    """Context manager: another thread holds ``lock``."""
    taken, release = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            release.wait(60)

    (thread,) = start_threads(hold)
    taken.wait()
    try:
        yield release.set
    finally:
        release.set()
        thread.join()
