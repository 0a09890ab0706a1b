"""Runs timed and untimed work of a benchmark on the right thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs work and returns what it returns, or raises what it raises.

    The two are kept apart because a thread is not like another: each one that runs a parallel kernel gets a team of
    OpenMP threads, and from the second team on they are more than the machine has cores. GNU OpenMP then lets them
    sleep sooner between kernels (``gomp_managed_threads`` in libgomp's wait.h), and everything takes longer, eager code
    the most. So what is timed runs where the user's code runs, and what is not leaves no thread behind.
    """

    def run_timed(self, work: Callable[[], T]) -> T:
        """Run what is timed, or a piece of it: it may take turns with other work of that thread.

        Raises:
            concurrent.futures.CancelledError: the measurement was cancelled before its turn came.
        """

    def run_untimed(self, work: Callable[[], T]) -> T:
        """Run untimed work: compiles, checks, recorded calls."""


class SameThread:
    """Executor that runs everything on the calling thread."""

    def run_timed(self, work: Callable[[], T]) -> T:
        """Run ``work``."""
        return work()

    def run_untimed(self, work: Callable[[], T]) -> T:
        """Run ``work``."""
        return work()


SAME_THREAD = SameThread()
