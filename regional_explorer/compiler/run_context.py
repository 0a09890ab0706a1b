"""What the caller of a long run provides: cancellation, a progress callback, and the threads to run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from regional_explorer.compiler.interrupt import Interrupts
from regional_explorer.errors import InvalidArgumentError
from regional_explorer.errors.arguments import check_callable, shown_value

T = TypeVar("T")

ProgressCallback = Callable[[str, float], object]
"""Called with what is being done now, and the fraction done."""


class Executor(Protocol):
    """Runs work and returns what it returns, or raises what it raises.

    The thread matters: each thread that runs a parallel kernel gets an OpenMP team of its own, and with two teams there
    are more threads than the machine has cores. GNU OpenMP then lets them sleep sooner between kernels
    (``gomp_managed_threads`` in libgomp's wait.h), and everything takes longer, eager code the most. So timed work runs
    on the thread of the user's code, and untimed work leaves no thread behind.
    """

    def run_timed(self, work: Callable[[], T]) -> T:
        """Run timed work, or a part of it; other work of that thread may run between two parts.

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


def never_cancelled() -> bool:
    """Return False."""
    return False


def no_progress(_doing: str, _fraction: float) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class RunContext:
    """How a long run is cancelled, where it reports its progress, and which threads do its work.

    ``interrupts`` records those that come while it is entered; made by ``checked``, the run is then cancelled.
    """

    cancelled: Callable[[], bool] = never_cancelled
    progress: ProgressCallback = no_progress
    executor: Executor = SAME_THREAD
    interrupts: Interrupts = field(default_factory=Interrupts)

    @classmethod
    def checked(
        cls,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> RunContext:
        """Return the context made of a user's arguments.

        Raises:
            InvalidArgumentError: one cannot be called, or ``executor`` lacks a method.
        """
        check_callable("cancelled", cancelled, "a function that returns whether to stop")
        check_callable("progress", progress, "a function that takes what is being done and the fraction done")
        for method in ("run_timed", "run_untimed"):
            if not callable(getattr(executor, method, None)):
                raise InvalidArgumentError(f"executor={shown_value(executor)}: it has no {method}(); leave it out.")
        interrupts = Interrupts()
        return cls(lambda: interrupts.seen() or cancelled(), progress, executor, interrupts)

    def waiting(self) -> None:
        """Report that another thread compiles or traces, which torch allows to one thread at a time."""
        self.progress("waiting for another thread of this process that compiles", 0.0)

    def part(self, start: float, end: float, title: str = "") -> RunContext:
        """Return the context of a part of the run, which reports fractions from ``start`` to ``end`` of the whole."""

        def progress(doing: str, fraction: float) -> None:
            self.progress(title + doing, start + (end - start) * fraction)

        return replace(self, progress=progress)
