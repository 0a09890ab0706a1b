"""The options of a benchmark: time budget, precision, confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from regional_explorer.errors import MeasureError
from regional_explorer.errors.arguments import shown_value

STOP_CHECKS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Fractions of the budget at which a run checks if it can stop early; its end is one more check."""


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """The options of one run of rounds.

    ``budget_s`` is for all variants together, in seconds; the first calls of a variant, which may compile, are not
    counted. ``precision`` is the relative half width at which the CI of a speedup is narrow enough. ``confidence`` is
    that of the CI, and of the verdict. ``control`` measures the baseline twice in every round; None does so if the
    budget allows it. ``seed`` is that of the order of the rounds.
    """

    budget_s: float = 5.0
    precision: float = 0.01
    confidence: float = 0.99
    control: bool | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the options.

        Raises:
            MeasureError: the budget or the precision is not a positive, finite number.
        """
        _check_positive("budget_s", self.budget_s, "seconds to measure for, such as 5.0")
        _check_positive("precision", self.precision, "the relative half width of a CI to stop at, such as 0.01")
        if not 0.0 < self.confidence < 1.0:
            raise MeasureError(f"confidence={self.confidence!r}: give a number between 0 and 1, such as 0.99.")

    @property
    def verdict_confidence(self) -> float:
        """The confidence of a single check such that ``confidence`` holds over all of them (Bonferroni).

        The points where a run can stop are fixed fractions of the budget, so the number of checks is known.
        """
        return 1.0 - (1.0 - self.confidence) / (len(STOP_CHECKS) + 1)


def _check_positive(name: str, value: object, meaning: str) -> None:
    """Raise MeasureError unless ``value`` is a positive, finite number."""
    try:
        valid = isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf
    except OverflowError:
        valid = False
    if not valid:
        raise MeasureError(f"{name}={shown_value(value)}: give a positive, finite number: {meaning}.")
