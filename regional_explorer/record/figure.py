"""A measured number with its interval, or the reason for none, and what else the machine did meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, hypot, log
from typing import final

from regional_explorer.errors import count
from regional_explorer.record import Count, Difference, Quantity, Record


@final
class Figure(Record, frozen=True, array_like=True):
    """A measured number, in the unit of its field, with its confidence interval."""

    value: Difference
    low: Difference | None = None
    """The lower end of the interval; None without one."""
    high: Difference | None = None
    """The upper end of the interval; None without one."""
    why: str = ""
    """Why there is no interval: ``too few rounds (5)``, ``measured once``."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The ends of the interval; None without an interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def map(self, function: Callable[[float], float]) -> Figure:
        """Return the figure under a monotonic function, such as the time of three calls from the time of one."""
        low, high = (None, None) if self.bounds is None else sorted(map(function, self.bounds))
        return Figure(function(self.value), low, high, self.why)

    def __mul__(self, factor: float) -> Figure:
        """Return the figure multiplied by a number."""
        return self.map(lambda value: value * factor)

    def __rtruediv__(self, number: float) -> Figure:
        """Return a number divided by the figure."""
        return self.map(lambda value: number / value)

    def __add__(self, other: Figure) -> Figure:
        """Return the sum. Its interval adds the ends of both, so it is wider than a CI of the sum."""
        value, why = self.value + other.value, self.why or other.why
        if self.bounds is None or other.bounds is None:
            return Figure(value, why=why)
        return Figure(value, self.bounds[0] + other.bounds[0], self.bounds[1] + other.bounds[1], why)

    def over(self, other: Figure) -> Figure:
        """Return the quotient of two positive figures that were measured independently of each other.

        In logarithms, the distance of a bound is the root of the summed squares of the two figures' distances
        ("MOVER"), so that the interval has their confidence.
        """
        value, why = self.value / other.value, self.why or other.why
        if self.bounds is None or other.bounds is None:
            return Figure(value, why=why)
        below, above = (log(self.value / self.bounds[0]), log(self.bounds[1] / self.value))
        less, more = (log(other.value / other.bounds[0]), log(other.bounds[1] / other.value))
        return Figure(value, value * exp(-hypot(below, more)), value * exp(hypot(above, less)), why)


def exactly(value: float) -> Figure:
    """Return an exact figure."""
    return Figure(value, value, value)


MEASURED_ONCE = "measured once"
"""Why a compile time has no interval: it is the time of that one compile, and stands for no other."""


def measured_once(value: float | None) -> Figure | None:
    """Return the figure of something that was measured once."""
    return None if value is None else Figure(value, why=MEASURED_ONCE)


OFTEN = 0.1
"""The share of disturbed rounds, or of cores used by other processes, from which on a machine was busy."""

LEAST_QUIET = 1 / 3
"""If a smaller part of the rounds is undisturbed, no round is left out and there is no verdict.

Other work does not disturb the calls of a round alike: at the end of each parallel kernel all threads wait for the one
that was interrupted, so that a call of many small kernels suffers far more than one of few. Their ratio then says which
has more kernels, whatever its interval.
"""


class Noise(Record, frozen=True):
    """What else the machine did during a measurement."""

    rounds: Count = 0
    """How many rounds were measured."""
    disturbed: Count = 0
    """The number of rounds in which a fixed piece of work took much longer than it needs."""
    left_out: Count = 0
    """The number of disturbed rounds that are in no figure."""
    others: Quantity | None = None
    """How many cores other processes used on average; None if the system does not say."""
    cores: Count = 0
    """How many cores there are."""
    culprit: str = ""
    """What used the processor beside the rounds, in words; empty if that is unknown."""
    throttled: str = ""
    """How the clock of a GPU fell, in words; empty if it did not."""
    added: str = ""
    """A remark on rounds that were added to those of an earlier benchmark; empty if there is none."""

    @property
    def is_too_much(self) -> bool:
        """Whether too many rounds were disturbed to pick out the undisturbed ones."""
        return self.rounds - self.disturbed < self.rounds * LEAST_QUIET

    @property
    def has_kept(self) -> bool:
        """Whether disturbed rounds are in the figures, because too few would be left without them."""
        return self.disturbed > self.left_out

    @property
    def is_often_disturbed(self) -> bool:
        """Whether a considerable part of the rounds was disturbed."""
        return self.disturbed > OFTEN * self.rounds

    @property
    def is_busy(self) -> bool:
        """Whether other work disturbed the rounds, or used a considerable part of the cores."""
        return self.is_often_disturbed or (self.others is not None and self.others > OFTEN * self.cores)

    @property
    def sentence(self) -> str:
        """The noise in a sentence; empty if the machine was quiet."""
        disturbed = self.is_often_disturbed
        facts, kept = [], self.disturbed - self.left_out
        if disturbed and self.left_out:
            facts.append(f"{self.left_out:,} of {count(self.rounds, 'round')} left out")
        if disturbed and kept:
            share = "more were" if facts else f"of {count(self.rounds, 'round')}"
            facts.append(f"{kept:,} {share} disturbed and kept, as too few would be left without them")
        if self.is_busy:
            facts.append(self.culprit or self._unnamed)
        busy = f"The machine was busy: {'; '.join(facts)}." if facts else ""
        return " ".join(filter(None, (busy, self.throttled, self.added)))

    @property
    def _unnamed(self) -> str:
        """What disturbed the rounds, in words, if no single process did."""
        if self.others is None:
            return "this system does not say what disturbed them"
        if self.others > OFTEN * self.cores:
            return f"other processes used {self.others:.1f} of {count(self.cores, 'core')}"
        return "nothing on this system was seen: a virtual machine's neighbour or the processor's clock"

    def __add__(self, other: Noise) -> Noise:
        """Return the noise of both measurements; the cores of other processes are averaged by rounds."""
        known = [noise for noise in (self, other) if noise.others is not None]
        rounds = sum(noise.rounds for noise in known)
        return Noise(
            self.rounds + other.rounds,
            self.disturbed + other.disturbed,
            self.left_out + other.left_out,
            sum(noise.rounds * (noise.others or 0.0) for noise in known) / rounds if rounds else None,
            max(self.cores, other.cores),
            self.culprit or other.culprit,
            self.throttled or other.throttled,
            self.added or other.added,
        )


QUIET = Noise()
"""The noise of a measurement without known other work."""
