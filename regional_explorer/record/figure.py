"""A measured number: with the interval that bounds it, or with the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, log


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, in the unit of its field, with the bounds of its CI.

    Without an interval ``low`` and ``high`` are None and ``why`` says why: ``too few rounds (5)``, ``measured once``.
    """

    value: float
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The ends of the interval, None without one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def __add__(self, other: Figure) -> Figure:
        """Return the sum; both are at the same bound at once, so its interval is wider than a CI of the sum."""
        value, why = self.value + other.value, self.why or other.why
        if self.bounds is None or other.bounds is None:
            return Figure(value, why=why)
        return Figure(value, self.bounds[0] + other.bounds[0], self.bounds[1] + other.bounds[1], why)

    def scaled(self, by: float) -> Figure:
        """Return the product with a number; a negative one exchanges the bounds."""
        if self.bounds is None:
            return Figure(self.value * by, why=self.why)
        low, high = sorted(end * by for end in self.bounds)
        return Figure(self.value * by, low, high, self.why)

    def over(self, other: Figure) -> Figure:
        """Return the quotient of two positive figures that were measured independently of each other.

        The distances of the bounds, as logarithms, are those of the two figures added as squares ("MOVER"), so that
        the interval has the same confidence as theirs.
        """
        value, why = self.value / other.value, self.why or other.why
        if self.bounds is None or other.bounds is None:
            return Figure(value, why=why)
        below, above = (log(self.value / self.bounds[0]), log(self.bounds[1] / self.value))
        less, more = (log(other.value / other.bounds[0]), log(other.bounds[1] / other.value))
        return Figure(value, value * exp(-hypot(below, more)), value * exp(hypot(above, less)), why)
