"""Finds repeats, such as the layers of a deep model: stretches of a sequence that are folded into one box."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

LONGEST = 16
"""How many boxes a repeated pattern may have at most."""
FEWEST = 3
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
    found = []
    here = 0
    while here < len(keys):
        best = max((_from(keys, here, period) for period in range(1, LONGEST + 1)), key=_covered)
        if best.times > FEWEST:
            found.append(Stretch(here + best.period, best.period, best.times - 1))
            here = best.end
        else:
            here += 1
    return found


def _from(keys: Sequence[Hashable], start: int, period: int) -> Stretch:
    times = 1
    while keys[start : start + period] == keys[start + times * period : start + (times + 1) * period]:
        times += 1
    return Stretch(start, period, times)


def _covered(stretch: Stretch) -> tuple[bool, int, int]:
    # Of two that cover the same items, the shorter pattern is preferred.
    return stretch.times > FEWEST, stretch.end - stretch.start, -stretch.period
