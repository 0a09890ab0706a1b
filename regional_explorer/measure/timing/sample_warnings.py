"""Warnings about measured samples, as short texts.

Warnings about the machine are given for the baseline only; those about a variant use its ratio to the baseline, in
which changes of the machine cancel out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.record.statistics import (
    MIN_FLOOR,
    Floats,
    median_and_iqr,
    outlying,
    rank_interval,
    trend,
)

_BUSY_IQR = 0.1
_SHIFT = 0.05
_DRIFT = 0.02
_OUTLYING = 0.05
_SHORT_S = 1e-6
_WAITING = 0.05


def warnings_on_baseline(samples_s: Sequence[float]) -> tuple[str, ...]:
    """Return warnings about the machine, from the baseline's samples."""
    median_s, iqr_s = median_and_iqr(samples_s)
    shift = trend(np.asarray(samples_s))
    found = []
    if iqr_s > _BUSY_IQR * median_s:
        found.append(f"busy machine: half of the baseline's samples spread over {iqr_s / median_s:.0%} of the median")
    if shift > _SHIFT:
        found.append(f"the machine got slower while measuring, by {shift:.0%}: throttling, or other work")
    elif shift < -_SHIFT:
        found.append(f"the machine got quicker while measuring, by {-shift:.0%}: it was cold, or other work ended")
    return (*found, *_on_samples(samples_s))


def warnings_on_control(interval: tuple[float, float] | None) -> tuple[str, ...]:
    """Return a warning if the baseline differs from itself, given the CI of that ratio."""
    if interval is None or interval[0] - MIN_FLOOR <= 1.0 <= interval[1] + MIN_FLOOR:
        return ()
    low, high = interval
    return (f"the baseline differs from itself ({low:.3f} to {high:.3f}): small differences mean nothing here",)


def warnings_on_waiting(waited_s: float | None, spent_s: float) -> tuple[str, ...]:
    """Return a warning if this thread often waited for a core."""
    share = 0.0 if waited_s is None or spent_s <= 0.0 else waited_s / spent_s
    return (f"no core was free for {share:.0%} of the time: a busy machine",) if share > _WAITING else ()


def warnings_on_variant(
    samples_s: Sequence[float], ratios: Floats | None, options: BenchmarkOptions
) -> tuple[str, ...]:
    """Return warnings about a variant; ``ratios`` are baseline / variant, None without a speedup."""
    found = []
    if ratios is not None:
        if rank_interval(ratios, options.verdict_confidence) is None:
            found.append(f"too few samples for a verdict ({len(ratios)}): a larger budget_s helps")
        drift = trend(ratios)
        if abs(drift) > _DRIFT:
            found.append(f"the speedup drifted while measuring, by {drift:+.0%}: the variant may not have been warm")
    return (*found, *_on_samples(samples_s))


def _on_samples(samples_s: Sequence[float]) -> tuple[str, ...]:
    """Return warnings that follow from the samples alone."""
    found = []
    beyond = outlying(samples_s)
    if beyond > _OUTLYING:
        found.append(f"outliers: {beyond:.0%} of the samples lie far above the rest")
    if median_and_iqr(samples_s)[0] < _SHORT_S:
        found.append("under a microsecond per call: the clock's own overhead matters in this figure")
    return tuple(found)
