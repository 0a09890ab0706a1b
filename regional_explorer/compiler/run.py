"""How a long call is cancelled, where it reports, and which threads do its work."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Protocol, TextIO, TypeVar

from regional_explorer.errors import (
    InvalidArgumentError,
    check_argument,
    check_callable,
    shown_value,
    user_facing_methods,
)

T = TypeVar("T")

ProgressCallback = Callable[[str, float], object]
"""A function that is called with the current task and the fraction done."""


class Threads(Protocol):
    """The threads that do the work of a run. A method returns the result of the work, or raises its error.

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
    """The calling thread alone, for timed and untimed work."""

    def run_timed(self, work: Callable[[], T]) -> T:
        """Run ``work``."""
        return work()

    run_untimed = run_timed


SAME_THREAD = SameThread()


def never_cancelled() -> bool:
    """Return False."""
    return False


def no_progress(_doing: str, _fraction: float) -> None:
    """Ignore the progress."""


def default_progress(_doing: str, _fraction: float) -> None:
    """Ignore the progress; methods of an exploration replace it by a line, see ``progress_line.reporting``."""


def no_estimate(_left_s: float | None) -> None:
    """Ignore the estimate of the seconds left."""


@user_facing_methods
@dataclass(frozen=True)
class Run:
    """How a long call is cancelled, where it reports its progress, and which threads do its work.

    ``ex.benchmark(run=rx.Run(progress=print))``; the same Run can be given to any number of calls.

    Args:
        cancelled: called often; once it returns True the call ends, and keeps its results so far.
        progress: called with the current task and the fraction done. By default a call that takes about a second
            or longer shows a line in a notebook or on a terminal, which is gone at its end.
        threads: the threads of timed and untimed work; by default the calling thread.
        estimate: called with the seconds that are left, from the budget and what similar work took; None if unknown.

    Raises:
        InvalidArgumentError: a callback cannot be called, or ``threads`` lacks a method.
    """

    cancelled: Callable[[], bool] = never_cancelled
    progress: ProgressCallback = default_progress
    threads: Threads = SAME_THREAD
    estimate: Callable[[float | None], object] = no_estimate

    def __post_init__(self) -> None:
        """Check the arguments."""
        check_callable("cancelled", self.cancelled, "a function that returns whether to stop")
        check_callable("progress", self.progress, "a function that takes what is being done and the fraction done")
        check_callable("estimate", self.estimate, "a function that takes the seconds that are left, or None")
        for method in ("run_timed", "run_untimed"):
            if not callable(getattr(self.threads, method, None)):
                raise InvalidArgumentError(
                    f"threads={shown_value(self.threads)} has no {method}(): omit threads= to use the calling thread."
                )

    def waiting(self) -> None:
        """Report that the call waits for another thread that compiles or traces: torch allows one at a time."""
        self.progress("waiting for another thread of this process that compiles", 0.0)

    def part(self, start: float, end: float, title: str = "", *, then_s: float = 0.0) -> Run:
        """Return a part of the run, which reports fractions from ``start`` to ``end`` of the whole.

        The rest of the run after the part takes ``then_s`` seconds.
        """

        def progress(doing: str, fraction: float) -> None:
            self.progress(title + doing, start + (end - start) * fraction)

        def estimate(left_s: float | None) -> None:
            self.estimate(None if left_s is None else left_s + then_s)

        return replace(self, progress=progress, estimate=estimate)

    def also_reporting(self, other: Run) -> Run:
        """Return the run with its reports also sent to ``other``."""

        def progress(doing: str, fraction: float) -> None:
            self.progress(doing, fraction)
            other.progress(doing, fraction)

        def estimate(left_s: float | None) -> None:
            self.estimate(left_s)
            other.estimate(left_s)

        return replace(self, progress=progress, estimate=estimate)

    def silent(self) -> Run:
        """Return the run without its reports."""
        return replace(self, progress=no_progress, estimate=no_estimate)


PLAIN_RUN = Run()
"""A run that nothing cancels, and that stays on the calling thread."""


def check_run(run: object) -> None:
    """Raise InvalidArgumentError unless ``run`` is a Run."""
    check_argument("run", run, Run, "an rx.Run, such as rx.Run(progress=print)")


REPORT_INTERVAL_S = 1.0
"""Seconds between two reports of the same kind of work; their texts count whole seconds.

A report disturbs a benchmark: the page draws it, which takes time from a machine with few cores.
"""

_DIGITS = re.compile(r"\d+")


def kind_of(doing: str) -> str:
    """Return the kind of work in a progress text: the text without its numbers."""
    return _DIGITS.sub("", doing)


class Throttle:
    """A progress callback that limits the rate of reports: a new kind of work is reported at once."""

    def __init__(self, progress: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._callback = progress
        self._clock = clock
        self._last_kind: str | None = None
        self._last_report_s = 0.0

    def __call__(self, doing: str, fraction: float) -> None:
        """Report the current task and the fraction done."""
        kind, now_s = kind_of(doing), self._clock()
        if kind != self._last_kind or now_s - self._last_report_s >= REPORT_INTERVAL_S:
            self._last_kind, self._last_report_s = kind, now_s
            self._callback(doing, fraction)


class LogProgress:
    """A progress callback that writes one line per kind of work to a stream that is no terminal, such as a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_kind: str | None = None

    def __call__(self, doing: str, _fraction: float) -> None:
        """Write the current task if its kind is new."""
        if (kind := kind_of(doing)) != self._last_kind:
            self._last_kind = kind
            with contextlib.suppress(OSError):  # the reader is gone or the disk is full; the work goes on
                self._stream.write(f"{doing}\n")
                self._stream.flush()


@contextmanager
def interruptible(run: Run) -> Iterator[Run]:
    """Context manager: yield ``run``, which a keyboard interrupt cancels too; raise the interrupt again at the end.

    Dynamo and Inductor run callbacks in which Python drops exceptions; work that asks ``run.cancelled`` stops
    nevertheless. Threads other than the main one receive no interrupts.

    Raises:
        InvalidArgumentError: ``run`` is not a Run.
        KeyboardInterrupt: at the end, if one was dropped inside.
    """
    check_run(run)
    handler: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield run
        return
    interrupted, raised = False, None  # whether there was an interrupt, and what the handler raised

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted, raised
        interrupted = True
        try:
            handler(number, frame)
        except BaseException as error:
            raised = error
            raise

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield replace(run, cancelled=lambda: interrupted or run.cancelled())
    finally:
        if signal.getsignal(signal.SIGINT) is on_signal:  # otherwise another handler was set inside
            signal.signal(signal.SIGINT, handler)
    if raised is not None:
        raise raised.with_traceback(None)  # a traceback keeps all that its frames hold
