"""Progress callbacks: throttled, and printed to a terminal."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import TextIO

REPORT_INTERVAL_S = 0.25
"""Seconds between two reports of the same kind of work. Each takes time that would disturb a benchmark."""

_BAR_WIDTH = 24
_DIGITS = re.compile(r"\d+")


class Throttle:
    """A progress callback that limits the rate of reports: a new kind of work is reported at once."""

    def __init__(self, progress: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._callback = progress
        self._clock = clock
        self._last_kind: str | None = None
        self._last_report_s = 0.0

    def __call__(self, doing: str, fraction: float) -> None:
        """Report what is being done, and the fraction done."""
        kind, now_s = _DIGITS.sub("", doing), self._clock()
        if kind != self._last_kind or now_s - self._last_report_s >= REPORT_INTERVAL_S:
            self._last_kind, self._last_report_s = kind, now_s
            self._callback(doing, fraction)


class StreamProgress:
    """A progress callback that writes to a stream: a progress bar on a terminal, else one line per kind of work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._on_terminal = stream.isatty()
        self._last_kind: str | None = None

    def __call__(self, doing: str, fraction: float) -> None:
        """Write what is being done, and the fraction done."""
        if self._on_terminal:
            done = round(_BAR_WIDTH * fraction)
            self._write(f"\r\x1b[K{'━' * done}{'╌' * (_BAR_WIDTH - done)} {doing}")
        elif (kind := _DIGITS.sub("", doing)) != self._last_kind:
            self._last_kind = kind
            self._write(f"{doing}\n")

    def close(self) -> None:
        """Erase the progress bar."""
        if self._on_terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more, or the disk is full; the work goes on
            self._stream.write(text)
            self._stream.flush()
