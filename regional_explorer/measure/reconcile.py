"""Reconciles region timings with those of the variants, phase by phase: gains of regions, gaps, dispatch, the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from regional_explorer.measure.timing.rounds_result import RoundsResult
from regional_explorer.record.region_timing import RegionTiming
from regional_explorer.record.statistics import Floats, bootstrap_interval
from regional_explorer.record.timing import Phase, Reconciled, Timing
from regional_explorer.record.variant_name import VariantName

EAGER, AOT_EAGER, REGIONAL, FULL = VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL, VariantName.FULL
CUT_GRAPH = "cut"

WRAPPER = "AOT wrapper"
DISPATCH = "dispatch of the cut graph"
REST = "rest"
BORDERS = "borders"

_ROW_NOTES = {
    WRAPPER: "aot_eager − eager: guards, autograd and the traced ops instead of the program's own",
    DISPATCH: "the cut graph with all regions eager − aot_eager",
    REST: "what is left of regional − aot_eager: what regions do to each other's caches, and the spread of all rows",
    BORDERS: "full − regional: fusion across the regions' borders, ops outside of regions, and what calls them",
}


def reconcile(
    timings: Sequence[Timing],
    regions: Sequence[RegionTiming],
    cut: RoundsResult | None,
    confidence: float,
) -> tuple[Reconciled, ...]:
    """Return the rows that lead from eager to regional and full, phase by phase.

    If the regions alone take longer than the whole call, only the totals are returned, the first with the reason.

    Args:
        timings: those of the variants.
        regions: the timings of the regions alone.
        cut: rounds of ``aot_eager`` against ``cut``, the cut graph with all regions eager; None if not measured.
        confidence: that of the intervals.
    """
    phases = [phase for phase in Phase if any(timing.phase is phase for timing in timings)]
    rows: list[Reconciled] = []
    for phase in phases:
        variants = {timing.variant: timing for timing in timings if timing.phase is phase}
        phase_regions = [timing for timing in regions if timing.phase is phase and timing.eager_s > 0.0]
        rows += _phase_rows(phase, variants, phase_regions, cut, confidence)
    return tuple(rows)


def _phase_rows(
    phase: Phase,
    variants: Mapping[str, Timing],
    regions: Sequence[RegionTiming],
    cut: RoundsResult | None,
    confidence: float,
) -> list[Reconciled]:
    def total_rows(name: str) -> list[Reconciled]:
        timing = variants.get(name)
        return [] if timing is None else [Reconciled(phase, name, timing.median_s, total=True)]

    def gap_rows(row_name: str, later: str, earlier: str) -> list[Reconciled]:
        if later not in variants or earlier not in variants:
            return []
        gap = _gap_by_round(variants[later].samples_s, variants[earlier].samples_s)
        return [_gap_row(phase, row_name, gap, confidence)]

    if problem := _parts_exceed_whole(variants, regions, confidence):
        first, *others = [row for name in (EAGER, AOT_EAGER, REGIONAL, FULL) for row in total_rows(name)]
        return [replace(first, note=problem), *others]
    rows = [*total_rows(EAGER), *gap_rows(WRAPPER, AOT_EAGER, EAGER), *total_rows(AOT_EAGER)]
    if AOT_EAGER in variants and REGIONAL in variants:
        dispatch_rows = _dispatch_rows(phase, cut, confidence)
        gains = [_region_gain_row(phase, region) for region in regions]
        known_rows = [*dispatch_rows, *[row for row in gains if row is not None]]
        whole_s = float(np.median(_gap_by_round(variants[REGIONAL].samples_s, variants[AOT_EAGER].samples_s)))
        no_gain = [region.region for region, row in zip(regions, gains, strict=True) if row is None]
        note = _ROW_NOTES[REST] + (f"; and {', '.join(no_gain)}, of which no gain is known" if no_gain else "")
        rest_s = whole_s - sum(row.seconds for row in known_rows)
        rows += [*known_rows, Reconciled(phase, REST, rest_s, note=note)]
    return [*rows, *total_rows(REGIONAL), *gap_rows(BORDERS, FULL, REGIONAL), *total_rows(FULL)]


def _parts_exceed_whole(variants: Mapping[str, Timing], regions: Sequence[RegionTiming], confidence: float) -> str:
    """Return why the parts cannot be added up, or an empty text: alone they may take longer than the whole call."""
    aot_eager, regions_s = variants.get(AOT_EAGER), sum(region.eager_s for region in regions)
    if aot_eager is None or REGIONAL not in variants:
        return ""
    _, most_s = bootstrap_interval(np.asarray(aot_eager.samples_s), confidence, 0) or (0.0, aot_eager.median_s)
    if regions_s <= most_s:
        return ""
    return (
        f"parts withheld: alone, the regions take {regions_s / aot_eager.median_s:.2f} times as long eagerly as the "
        "whole of aot_eager: they find other caches there, or the machine was busier"
    )


def _gap_by_round(later: Sequence[float], earlier: Sequence[float]) -> Floats:
    """Return by how many seconds the later variant takes longer, by round."""
    rounds = min(len(later), len(earlier))
    return np.asarray(later[:rounds], dtype=np.float64) - np.asarray(earlier[:rounds], dtype=np.float64)


def _gap_row(phase: Phase, row_name: str, gap: Floats, confidence: float) -> Reconciled:
    low, high = bootstrap_interval(gap, confidence, 0) or (None, None)
    return Reconciled(phase, row_name, float(np.median(gap)), low, high, note=_ROW_NOTES[row_name])


def _dispatch_rows(phase: Phase, cut: RoundsResult | None, confidence: float) -> list[Reconciled]:
    if cut is None:
        return []
    samples = [cut.samples.get(name, {}).get(phase) for name in (CUT_GRAPH, AOT_EAGER)]
    if samples[0] is None or samples[1] is None:
        return []
    return [_gap_row(phase, DISPATCH, _gap_by_round(samples[0], samples[1]), confidence)]


def _region_gain_row(phase: Phase, region: RegionTiming) -> Reconciled | None:
    """Return the row of a region: by how much it takes longer compiled than eager, negative if it gains."""
    if region.compiled_s is None:
        return Reconciled(phase, region.region, 0.0, region=region.region, note="runs eagerly")
    if region.gain_s is None:
        return None
    low, high = (
        None if ratio is None else region.eager_s / ratio - region.eager_s
        for ratio in (region.speedup_high, region.speedup_low)
    )
    note = f"{region.partitions} alone, {region.measured} of them measured"
    return Reconciled(phase, region.region, -region.gain_s, low, high, region=region.region, note=note)
