"""Finds repeats, such as the layers of a deep model: stretches of a sequence that are folded into one box."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

LONGEST_PERIOD = 16
"""How many boxes a repeated pattern may have at most."""
FEWEST_REPEATS = 3
"""How many occurrences of a pattern, besides the first, must follow to be folded into one box."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """``times`` equal patterns of ``period`` items each, from ``start`` on."""

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The index after the last item."""
        return self.start + self.period * self.times


def stretches(keys: Sequence[Hashable]) -> list[Stretch]:
    """Return the stretches in which a pattern of ``keys`` is repeated, in order, without its first occurrence."""
    repeats = []
    position = 0
    while position < len(keys):
        best = max((_stretch_from(keys, position, period) for period in range(1, LONGEST_PERIOD + 1)), key=_preference)
        if best.times > FEWEST_REPEATS:
            repeats.append(Stretch(position + best.period, best.period, best.times - 1))
            position = best.end
        else:
            position += 1
    return repeats


def _stretch_from(keys: Sequence[Hashable], start: int, period: int) -> Stretch:
    times = 1
    while keys[start : start + period] == keys[start + times * period : start + (times + 1) * period]:
        times += 1
    return Stretch(start, period, times)


def _preference(stretch: Stretch) -> tuple[bool, int, int]:
    # Of two that cover the same items, the shorter pattern is preferred.
    return stretch.times > FEWEST_REPEATS, stretch.end - stretch.start, -stretch.period
