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

_MAX_IQR_SHARE = 0.1
_MAX_SHIFT = 0.05
_MAX_DRIFT = 0.02
_MAX_OUTLYING_SHARE = 0.05
_MIN_CALL_S = 1e-6
_MAX_WAITING_SHARE = 0.05


def warnings_on_baseline(samples_s: Sequence[float]) -> tuple[str, ...]:
    """Return warnings about the machine, from the baseline's samples."""
    median_s, iqr_s = median_and_iqr(samples_s)
    shift = trend(np.asarray(samples_s))
    texts = []
    if iqr_s > _MAX_IQR_SHARE * median_s:
        texts.append(f"busy machine: half of the baseline's samples spread over {iqr_s / median_s:.0%} of the median")
    if shift > _MAX_SHIFT:
        texts.append(f"the machine got slower while measuring, by {shift:.0%}: throttling, or other work")
    elif shift < -_MAX_SHIFT:
        texts.append(f"the machine got quicker while measuring, by {-shift:.0%}: it was cold, or other work ended")
    return (*texts, *_warnings_on_samples(samples_s))


def warnings_on_control(interval: tuple[float, float] | None) -> tuple[str, ...]:
    """Return a warning if the baseline differs from itself, given the CI of that ratio."""
    if interval is None or interval[0] - MIN_FLOOR <= 1.0 <= interval[1] + MIN_FLOOR:
        return ()
    low, high = interval
    return (f"the baseline differs from itself ({low:.3f} to {high:.3f}): small differences mean nothing here",)


def warnings_on_waiting(waited_s: float | None, spent_s: float) -> tuple[str, ...]:
    """Return a warning if this thread often waited for a core."""
    share = 0.0 if waited_s is None or spent_s <= 0.0 else waited_s / spent_s
    return (f"no core was free for {share:.0%} of the time: a busy machine",) if share > _MAX_WAITING_SHARE else ()


def warnings_on_variant(
    samples_s: Sequence[float], ratios: Floats | None, options: BenchmarkOptions
) -> tuple[str, ...]:
    """Return warnings about a variant; ``ratios`` are baseline / variant, None without a speedup."""
    texts = []
    if ratios is not None:
        if rank_interval(ratios, options.verdict_confidence) is None:
            texts.append(f"too few samples for a verdict ({len(ratios)}): a larger budget_s helps")
        drift = trend(ratios)
        if abs(drift) > _MAX_DRIFT:
            texts.append(f"the speedup drifted while measuring, by {drift:+.0%}: the variant may not have been warm")
    return (*texts, *_warnings_on_samples(samples_s))


def _warnings_on_samples(samples_s: Sequence[float]) -> tuple[str, ...]:
    """Return warnings that follow from the samples alone."""
    texts = []
    outlying_share = outlying(samples_s)
    if outlying_share > _MAX_OUTLYING_SHARE:
        texts.append(f"outliers: {outlying_share:.0%} of the samples lie far above the rest")
    if median_and_iqr(samples_s)[0] < _MIN_CALL_S:
        texts.append("under a microsecond per call: the clock's own overhead matters in this figure")
    return tuple(texts)
