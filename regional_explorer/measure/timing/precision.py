"""Whether the samples of a run are precise enough to stop before the budget is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.rounds_result import ratios_of
from regional_explorer.record.statistics import Floats, rank_interval
from regional_explorer.record.timing import Phase


def is_precise(
    samples: Mapping[str, Mapping[Phase, tuple[float, ...]]], baseline: str, options: BenchmarkOptions
) -> bool:
    """Return whether the CI of every speedup (of every median, if there is no baseline) is narrow enough.

    ``samples`` holds seconds per call by entry and phase. The entry of the control counts too: if its CI is wide, its
    high floor hides small differences.
    """
    of_baseline = samples.get(baseline, {})
    variants = [phases for entry, phases in samples.items() if entry != baseline]
    all_ratios = [ratios_of(of_baseline, phases, phase) for phases in variants for phase in phases]
    figures = [ratios for ratios in all_ratios if ratios is not None]
    figures = figures or [np.array(seconds) for phases in samples.values() for seconds in phases.values()]
    return all(_is_narrow(values, options) for values in figures)


def _is_narrow(values: Floats, options: BenchmarkOptions) -> bool:
    if rank_interval(values, options.verdict_confidence) is None:
        return False
    interval = rank_interval(values, options.confidence)
    half_width = (interval[1] - interval[0]) / 2.0 if interval else math.inf
    return half_width <= options.precision * float(np.median(values))
