"""Medians, intervals and verdicts of samples."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regional_explorer.errors import count
from regional_explorer.record.benchmark import CONCLUSIONS, Verdict
from regional_explorer.record.figure import QUIET, Figure, Noise

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MIN_FLOOR = 0.005
"""Smaller relative differences are never reported. The memory layout of data and code alone causes them; it is fixed
for the life of the process, so no number of rounds averages them out."""

STOP_CHECKS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Fractions of the budget at which a run checks if it can stop early; its end is one more check."""

CONFIDENCE = 0.99
"""The confidence of the CI of a speedup, and of a verdict."""

VERDICT_CONFIDENCE = 1.0 - (1.0 - CONFIDENCE) / (len(STOP_CHECKS) + 1)
"""The confidence of a single check such that ``CONFIDENCE`` holds over all of them (Bonferroni).

The points where a run can stop are fixed fractions of the budget, so the number of checks is known.
"""

QUIET_LIMIT = 1.5
"""A round is disturbed if the fixed work takes this many times as long as in the quickest fifth of the rounds.

Of six limits tried on a machine with two cores and other work: with 1.25 some slowdowns of 3 % were not found any
more, with 1.5 no verdict changed, and the spread of the samples fell to a third.

In simulations in which other work disturbs a third of the rounds, a limit of 1.1 left one run in six with too few quiet
rounds for a verdict. If other work disturbs half of them, 99 % intervals of a time cover in 96 % of all runs with a
limit of 2, and in a quarter with 3.
"""

QUIET_SPREAD = 5.0
"""A round is undisturbed, too, if the fixed work takes longer by at most this many times its own spread when quiet.

The spread is the distance from the quickest twentieth to the quickest fifth. It matters where the work varies by a
tenth or more on its own, as on some virtual machines.
"""

MAX_DRIFT = 0.02
"""A larger relative change between rounds, or between benchmarks, is reported."""

_POWER = 0.9


def verdict_confidence(benchmarks: int = 1) -> float:
    """Return the confidence of a single check of the samples of ``benchmarks`` benchmarks together.

    It is unknown beforehand how often a user measures again, so each further benchmark gets a smaller part of the
    error: the first gets the error of ``VERDICT_CONFIDENCE``, the k-th a k²-th of it. The parts add up to 1.6 times the
    allowed error, but the checks share rounds and mostly err together: in simulations of five benchmarks ``CONFIDENCE``
    holds.
    """
    return 1.0 - (1.0 - VERDICT_CONFIDENCE) / benchmarks**2


def iqr(samples: ArrayLike) -> float:
    """Return the distance between the quartiles, in the unit of the samples."""
    low, high = np.quantile(np.asarray(samples, dtype=np.float64), (0.25, 0.75))
    return float(high - low)


def paired_ratios(eager: ArrayLike, variant: ArrayLike) -> Floats:
    """Return eager / variant round by round, for the rounds that have both."""
    eager_s, variant_s = np.asarray(eager, dtype=np.float64), np.asarray(variant, dtype=np.float64)
    rounds = min(len(eager_s), len(variant_s))
    # A coarse clock may read 0 for a tiny call: the smallest float replaces it, so that the ratio stays finite.
    smallest = float(np.finfo(np.float64).tiny)
    ratios: Floats = np.maximum(eager_s[:rounds], smallest) / np.maximum(variant_s[:rounds], smallest)
    return ratios


def paired_gaps(later: ArrayLike, earlier: ArrayLike) -> Floats:
    """Return the seconds by which the later variant is slower, round by round, for the rounds that have both."""
    later_s, earlier_s = np.asarray(later, dtype=np.float64), np.asarray(earlier, dtype=np.float64)
    rounds = min(len(later_s), len(earlier_s))
    gaps: Floats = later_s[:rounds] - earlier_s[:rounds]
    return gaps


def quiet_rounds(fixed_work_s: ArrayLike, undisturbed_s: float = math.inf) -> Flags:
    """Return which rounds were undisturbed, by the seconds that fixed work took around each round.

    In an undisturbed round the work takes about as long as in the quickest fifth of the rounds, or as ``undisturbed_s``
    if that is less: its own spread says how long at most.

    The rounds are chosen without looking at their samples, and the order in a round is random, so the choice favours
    none of two equal variants.
    """
    seconds = np.asarray(fixed_work_s, dtype=np.float64)
    least, quickest = np.quantile(seconds, (0.05, 0.2)) if len(seconds) else (0.0, 0.0)
    if undisturbed_s < quickest:
        return np.asarray(seconds <= QUIET_LIMIT * undisturbed_s)
    return np.asarray(seconds <= max(QUIET_LIMIT * quickest, quickest + QUIET_SPREAD * (quickest - least)))


def confidence_interval(values: Floats, confidence: float) -> tuple[float, float] | None:
    """Return the CI of the median between two order statistics, or None if there are too few values.

    Each value lies below the median with probability one half, whatever their distribution, so the interval covers with
    at least ``confidence`` for any number of values. A bootstrap interval does not: with five values, one that promises
    99 % covers 93 %.
    """
    n = len(values)
    if n == 0:
        return None
    counts = np.arange(n)
    log_ways = np.concatenate(([0.0], np.cumsum(np.log((n - counts) / (counts + 1.0)))))
    at_most = np.cumsum(np.exp(log_ways - n * np.log(2.0)))
    cut = int(np.searchsorted(at_most, (1.0 - confidence) / 2.0, side="right"))
    if cut == 0:
        return None
    ordered = np.sort(values)
    return float(ordered[cut - 1]), float(ordered[n - cut])


def fewest_values(confidence: float) -> int:
    """Return how many values the CI of their median takes."""
    return math.ceil(1.0 - math.log2(1.0 - confidence))


def median_figure(values: ArrayLike, why: str = "", confidence: float = CONFIDENCE) -> Figure:
    """Return the median of samples with its CI; without a CI if there are too few samples or a reason ``why``."""
    samples = np.asarray(values, dtype=np.float64)
    median, bounds = float(np.median(samples)), confidence_interval(samples, confidence)
    if why or bounds is None:
        return Figure(median, why=why or f"too few rounds ({len(samples)})")
    return Figure(median, *bounds)


def disagreement(of_medians: float, of_rounds: Figure) -> str:
    """Return a note if two medians give another ratio than the median over their common rounds; else an empty text."""
    low, high = of_rounds.bounds or (of_rounds.value, of_rounds.value)
    medians, rounds = f"{of_medians:.2f}×", f"{of_rounds.value:.2f}×"
    if medians == rounds or low * (1.0 - MIN_FLOOR) <= of_medians <= high * (1.0 + MIN_FLOOR):
        return ""
    return (
        f"the medians say {medians}, the rounds {rounds}: "
        "the machine was not the same in all rounds, and the speedup compares within each round"
    )


def floor_of(control_ratios: Floats | None) -> float:
    """Return the smallest relative difference that counts: how far eager differed from itself in the same rounds.

    It is the distance from 1 to the farther end of the CI of ``control_ratios``, and at least ``MIN_FLOOR``.
    """
    bounds = None if control_ratios is None else confidence_interval(control_ratios, VERDICT_CONFIDENCE)
    if bounds is None:
        return MIN_FLOOR
    low, high = bounds
    return max(MIN_FLOOR, high - 1.0, 1.0 / low - 1.0)


def verdict_of(ratios: Floats, floor: float, noise: Noise = QUIET, benchmarks: int = 1) -> Verdict:
    """Return the verdict of the ratios of so many benchmarks; differences below ``floor`` count as none."""
    return verdict_and_reason(ratios, floor, noise, benchmarks)[0]


def verdict_and_reason(ratios: Floats, floor: float, noise: Noise = QUIET, benchmarks: int = 1) -> tuple[Verdict, str]:
    """Return the verdict of ``verdict_of``, and in a clause why it names no winner; empty if it is a conclusion."""
    confidence = verdict_confidence(benchmarks)
    bounds = confidence_interval(ratios, confidence)
    if noise.is_too_much:
        return Verdict.without_interval(busy=noise.is_busy), "fewer than a third of the rounds were undisturbed"
    if bounds is None:
        few = f"{count(len(ratios), 'round')} {'is' if len(ratios) == 1 else 'are'} too few"
        return Verdict.without_interval(busy=noise.is_busy), f"{few}, a verdict takes {fewest_values(confidence)}"
    median = float(np.median(ratios))
    verdict = verdict_of_bounds(median, bounds, floor, noise)
    return verdict, "" if verdict in CONCLUSIONS else _without_winner(median, bounds, floor)


def verdict_of_bounds(ratio: float, bounds: tuple[float, float] | None, floor: float, noise: Noise = QUIET) -> Verdict:
    """Return the verdict of a ratio with its interval; differences below ``floor`` count as none."""
    if bounds is None:
        return Verdict.without_interval(busy=noise.is_busy)
    low, high = bounds
    if low > 1.0 and ratio > 1.0 + floor:
        return Verdict.FASTER
    if high < 1.0 and 1.0 / ratio > 1.0 + floor:
        return Verdict.SLOWER
    return Verdict.without_winner(low, high, busy=noise.is_busy)


EITHER = "either may be faster"
LARGE_FLOOR = 0.1
"""If a call timed twice in each round differs from itself by more than this, the machine is too noisy to compare."""


def _without_winner(median: float, bounds: tuple[float, float], floor: float) -> str:
    """Return why neither is faster: the interval of a verdict has both, or the difference is too small to count."""
    low, high = bounds
    if low <= 1.0 <= high:
        return EITHER
    found, least = max(median, 1.0 / median) - 1.0, f"{100.0 * floor:.{0 if floor > LARGE_FLOOR else 1}f} %"
    if floor > LARGE_FLOOR:
        return f"the machine is too noisy (eager, timed twice in each round, differed from itself by up to {least})"
    cause = "eager differs from itself by up to" if floor > MIN_FLOOR else "memory layout alone can shift times by"
    return f"{100.0 * found:.1f} % is too small to count: {cause} {least}"


def smallest_difference(ratios: Floats, floor: float, benchmarks: int = 1) -> float | None:
    """Return the smallest relative difference that runs like these find with 90 % probability, or None.

    The spread is derived from the interval; a margin is added so that only one run in ten misses the difference.
    """
    confidence = verdict_confidence(benchmarks)
    bounds = confidence_interval(ratios, confidence)
    if bounds is None:
        return None
    half_width = (bounds[1] - bounds[0]) / 2.0 / float(np.median(ratios))
    normal = NormalDist()
    margin = half_width * normal.inv_cdf(_POWER) / normal.inv_cdf((1.0 + confidence) / 2.0)
    return max(half_width, floor) + margin


def trend(values: Floats) -> float:
    """Return the relative change from the first to the last third, 0 if chance alone could explain it.

    The test is the rank correlation with the order of the rounds, at a significance of about one in a thousand.
    """
    n = len(values)
    third = n // 3
    if third < 3:  # noqa: PLR2004 - a third of fewer has no meaningful median
        return 0.0
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    # Equal values share one rank, or else their order would count as a rise.
    ranks = (np.cumsum(counts) - counts / 2.0)[inverse]
    if len(counts) == 1 or abs(np.corrcoef(ranks, np.arange(n))[0, 1]) * np.sqrt(n - 1) < 3.3:  # noqa: PLR2004
        return 0.0
    return float(np.median(values[-third:]) / np.median(values[:third]) - 1.0)


def middle_half(values: Floats) -> Floats:
    """Return the weights of a mean over the middle half of the values; values at its ends may count in part."""
    edges = np.clip(np.arange(len(values) + 1) / len(values), 0.25, 0.75)
    weights = np.zeros(len(values))
    weights[np.argsort(values, kind="stable")] = np.diff(edges) * 2.0
    return weights
