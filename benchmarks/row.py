"""One line of the table that ``make bench`` prints, and the turns it comes from."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regional_explorer.record.statistics import bootstrap_interval


@dataclass(frozen=True)
class Row:
    """What ours and theirs took in each turn, in seconds, and the ratio that is wanted at most.

    Both sides of a turn ran one right after the other: what slows a machine down for a while slows both.
    """

    what: str
    against: str
    ours: Sequence[float]
    theirs: Sequence[float]
    goal: float

    @property
    def ratio(self) -> float:
        """Ours / theirs, the median over the turns."""
        return statistics.median(self._ratios)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of the ratio, or None for a single turn."""
        return bootstrap_interval(np.asarray(self._ratios), 0.95, seed=0)

    @property
    def result(self) -> str:
        """Whether the goal is met, and whether the interval leaves that open."""
        word = "met" if self.ratio <= self.goal else "missed"
        low, high = self.interval or (self.ratio, self.ratio)
        return f"{word}, not sure" if low <= self.goal < high else word

    @property
    def _ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def timed(act: Callable[[], Any]) -> float:
    """Return the wall seconds that ``act`` takes; garbage of what ran before is collected first."""
    gc.collect()
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def turns(repeats: int, *sides: Callable[[], float]) -> list[list[float]]:
    """Call each of ``sides``, which return seconds, once a turn, every second turn backwards; return them by side."""
    found: list[list[float]] = [[] for _ in sides]
    for turn in range(repeats):
        for index in list(range(len(sides)))[:: -1 if turn % 2 else 1]:
            found[index].append(sides[index]())
    return found
