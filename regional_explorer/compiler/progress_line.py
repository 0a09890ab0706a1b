"""A line with the progress of a long call, below a notebook's cell or on a terminal; it disappears at the end."""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Protocol, TextIO

from regional_explorer.compiler.run import (
    REPORT_INTERVAL_S,
    LogProgress,
    Run,
    Throttle,
    default_progress,
    kind_of,
    no_progress,
)
from regional_explorer.style.element import markup

AFTER_S = 0.5
"""A call that takes at most this long shows no line."""
TICK_S = 1.0
"""Seconds after which the line is drawn again without a new report, because it shows the time."""
_BAR_WIDTH = 24


class Place(Protocol):
    """A place to show a line."""

    def show(self, text: str, fraction: float) -> None:
        """Show a line in place of the previous line."""

    def erase(self) -> None:
        """Erase the line."""


class TerminalPlace:
    """The last line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str, fraction: float) -> None:
        """Write the line over the previous line, with a progress bar."""
        filled = round(_BAR_WIDTH * fraction)
        line = f"{'━' * filled}{'╌' * (_BAR_WIDTH - filled)} {text}"
        # A line that wraps could not be erased.
        self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")

    def erase(self) -> None:
        """Erase the line."""
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, it is closed, or lacks a character
            self._stream.write(text)
            self._stream.flush()


class CellPlace:
    """An output of the running cell, published by ``publish`` of its shell; empty at the end."""

    def __init__(self, publish: Callable[..., object]) -> None:
        self._publish = publish
        self._id = uuid.uuid4().hex
        self._shown = False

    def show(self, text: str, fraction: float) -> None:
        """Show the line with a progress bar."""
        bar = f'<progress max="1" value="{fraction:.3f}"></progress> '
        self._update({"text/plain": text, "text/html": f"<div>{bar}{markup(text)}</div>"})

    def erase(self) -> None:
        """Leave nothing to see: an empty text would take a line, and tools complain of an output without data."""
        self._update({"text/html": "<!-- progress was shown here -->"})

    def _update(self, data: dict[str, str]) -> None:
        self._publish(data=data, metadata={}, transient={"display_id": self._id}, update=self._shown)
        self._shown = True


def find_place() -> Place | None:
    """Return the place to show a line now: a running notebook cell, or stderr if it is a terminal; else None."""
    # IPython puts it there while a cell runs. Not imported: it need not be installed.
    shell: Any = getattr(builtins, "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        publisher = shell.display_pub
        # Under %%capture the outputs are kept, to be shown later.
        return None if hasattr(publisher, "outputs") else CellPlace(publisher.publish)
    return TerminalPlace(sys.stderr) if is_terminal(sys.stderr) else None


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal, whose last line can be overwritten."""
    return stream is not None and not stream.closed and stream.isatty() and os.environ.get("TERM") != "dumb"


LATE_S = 3.0
"""Seconds after the expected end from which on a run takes longer than expected."""
_MOST_SHOWN = 0.97
"""The share of a bar that is filled while the end is expected, but has not come."""


class TimeLeft:
    """How long a run has taken, and how long it will still take, counted down from the last estimate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._ends_s: float | None = None
        self._done = 0.0

    def done(self, fraction: float) -> float:
        """Return the share for a bar, which never falls: of the time, or ``fraction`` if the end is not known."""
        now_s = self._clock()
        if self._ends_s is not None and self._ends_s > self._began_s:
            fraction = min((now_s - self._began_s) / (max(now_s, self._ends_s) - self._began_s), _MOST_SHOWN)
        self._done = max(self._done, min(1.0, fraction))
        return self._done

    def estimate(self, left_s: float | None) -> None:
        """Record the seconds that are left; None if unknown."""
        self._ends_s = None if left_s is None else self._clock() + left_s

    def __str__(self) -> str:
        """Return ``about 12 s left``, or ``14 s so far`` if less than a second or nothing is known; empty at first."""
        now_s = self._clock()
        if self._ends_s is not None and self._ends_s - now_s >= 1.0:
            return f"about {_rounded(self._ends_s - now_s)} left"
        if self._ends_s is not None and now_s - self._ends_s >= LATE_S:
            return "a little longer than expected"
        so_far_s = now_s - self._began_s
        return f"{_rounded(so_far_s)} so far" if so_far_s >= 1.0 else ""


_MINUTES_FROM_S = 100.0


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60.0:.0f} min"


class ProgressLine:
    """A progress callback that shows a line at ``place`` once the call has taken ``after_s``, by default ``AFTER_S``.

    The thread that reports draws the line, between timed blocks; ``tick`` draws it if nothing was reported for long.
    """

    def __init__(
        self, place: Place, clock: Callable[[], float] = time.monotonic, *, after_s: float | None = None
    ) -> None:
        self._place = place
        self._clock = clock
        self._drawing = threading.Lock()
        self._doing, self._fraction = "working", 0.0
        self._due_s = clock() + (AFTER_S if after_s is None else after_s)
        self._drawn_s: float | None = None
        self._is_closed = False
        self.left = TimeLeft(clock)

    def __call__(self, doing: str, fraction: float) -> None:
        """Show the current task and the fraction done; a new kind of work is shown at once."""
        is_other = kind_of(doing) != kind_of(self._doing)
        self._doing, self._fraction = doing, fraction
        self._draw(0.0 if is_other else REPORT_INTERVAL_S)

    def tick(self) -> None:
        """Draw the line again, with the new time, if nothing was reported for a while."""
        self._draw(TICK_S)

    def _draw(self, interval_s: float) -> None:
        now_s = self._clock()
        due_s = self._due_s if self._drawn_s is None else self._drawn_s + interval_s
        with self._drawing:
            if now_s >= due_s and not self._is_closed:
                self._drawn_s = now_s
                text = " · ".join(filter(None, (self._doing, str(self.left))))
                self._place.show(text, self.left.done(self._fraction))

    def close(self) -> None:
        """Erase the line; later reports show nothing."""
        with self._drawing:
            self._is_closed = True
            if self._drawn_s is not None:
                self._place.erase()


@contextmanager
def ticking(line: ProgressLine) -> Iterator[None]:
    """Context manager: a thread draws the line again every second in which nothing is reported."""
    ended = threading.Event()

    def tick() -> None:
        wait_s = AFTER_S
        while not ended.wait(wait_s):
            line.tick()
            wait_s = TICK_S

    # In this context: the line belongs to this cell, and is not muted as the call's prints are.
    run = contextvars.copy_context().run
    thread = threading.Thread(target=run, args=(tick,), name="regional-explorer-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


_ONLY_LINE = threading.Lock()
"""Held by the call that shows progress: a process shows one line at a time, also with nested calls and threads."""


@contextmanager
def reporting(run: Run) -> Iterator[Run]:
    """Context manager: give ``run`` a progress line, if there is a place to show it.

    A run with its own progress callback gets none, nor does a call inside of another call that has a line.
    """
    place = find_place() if run.progress is default_progress else None
    if place is None or not _ONLY_LINE.acquire(blocking=False):
        yield run
        return
    try:
        with closing(ProgressLine(place)) as line, ticking(line):
            yield replace(run, progress=line, estimate=line.left.estimate)
    finally:
        _ONLY_LINE.release()


@contextmanager
def reporting_of_command(stream: TextIO, *, quiet: bool = False) -> Iterator[Run]:
    """Context manager: give the run of a command a progress line on a terminal, or one log line per kind of work.

    With ``quiet``, neither the command nor a call inside the block shows anything.
    """
    if quiet:
        with _ONLY_LINE:
            yield Run(progress=no_progress)
    elif is_terminal(stream):
        with reporting(Run()) as run:
            yield run
    else:
        yield Run(progress=Throttle(LogProgress(stream)))
