"""Means over the middle half of the rounds, by duration, so that parts add up; intervals of them by resampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from regional_explorer.record.statistics import Floats

_BOOTSTRAP_RESAMPLES = 1000


@dataclass(frozen=True)
class MiddleRounds:
    """The middle half of some rounds, by the time of the whole call in each.

    The mean of a part over these rounds is robust against disturbed rounds, as its median would be. But medians of
    parts do not add up, since each op is disturbed now and then, and the whole call in nearly every round. Means over
    the same rounds do. ``weights`` has the weight of each round, ``resampled`` its weights in resamples, for intervals.
    """

    weights: Floats
    resampled: Floats
    confidence: float

    @classmethod
    def of(cls, call_times: Floats, confidence: float, seed: int) -> Self:
        """Choose the rounds by ``call_times``, the time of the whole call in each round."""
        count = len(call_times)
        order = np.argsort(call_times, kind="stable")
        drawn_ranks = np.sort(np.random.default_rng(seed).integers(0, count, (_BOOTSTRAP_RESAMPLES, count)), axis=1)
        resampled = np.zeros((_BOOTSTRAP_RESAMPLES, count))
        np.add.at(resampled, (np.arange(_BOOTSTRAP_RESAMPLES)[:, None], order[drawn_ranks]), _middle_half(count))
        weights = np.zeros(count)
        weights[order] = _middle_half(count)
        return cls(weights, resampled, confidence)

    def mean(self, part_times: Floats) -> float:
        """Return the mean of a part, given its time in each round."""
        return float(self.weights @ part_times)

    def figures(self, part_times: Floats) -> tuple[float, float, float]:
        """Return the mean of a part and the ends of its percentile bootstrap CI."""
        mean, tail = self.mean(part_times), (1.0 - self.confidence) / 2.0
        low, high = np.quantile(self.resampled @ part_times, (tail, 1.0 - tail))
        return mean, min(float(low), mean), max(float(high), mean)


def _middle_half(count: int) -> Floats:
    """Return weights by rank that sum to 1: equal in the middle half, partial at its ends, 0 outside."""
    edges = np.clip(np.arange(count + 1) / count, 0.25, 0.75)
    weights: Floats = np.diff(edges) * 2.0
    return weights
