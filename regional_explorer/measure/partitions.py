"""Partitions measured alone, the dispatch of the cut graph, and how both add up to the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.switch import Switch, standalone_call
from regional_explorer.errors import MeasureError, RegionCompileError
from regional_explorer.measure.alone import RecordedInputs, as_in_the_call, record_inputs, timed_call
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.reference import COMPILED, check_partition
from regional_explorer.measure.rounds import RoundsResult, StopReason, figure_of, run_rounds
from regional_explorer.measure.timings import MeasureContext, measure_rounds, timings_of
from regional_explorer.measure.turns import in_state_of_call
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import (
    PartitionTiming,
    Phase,
    ReconciliationRow,
    Timing,
    VariantName,
)
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.plan import Direction
from regional_explorer.record.regions import RegionTiming
from regional_explorer.record.statistics import median_figure, paired_gaps
from regional_explorer.style.formats import duration


def benchmark_partitions(
    variants: Variants, budget_s: float, context: MeasureContext, results: BenchmarkResults
) -> None:
    """Measure one partition of each of the ``distinct_kinds`` kinds alone, and the dispatch of the cut graph.

    The unused part of a kind's budget goes to the next kinds.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    program, run, untimed = variants.program, context.run, context.run.threads.run_untimed
    if not program.switches or run.cancelled():
        return
    kinds = untimed(lambda: distinct_kinds(program))
    dispatch_s = budget_s / (len(kinds) + 1)
    left_s = kinds_s = budget_s - dispatch_s
    try:
        inputs = untimed(lambda: _inputs_of(program, kinds, results))
        for index, switches in enumerate(kinds if inputs else ()):
            if run.cancelled():
                return
            name = switches[0].partition.name
            run.progress(f"{name} alone ({index + 1} of {len(kinds)})", index / len(kinds))
            kind_s = max(left_s, kinds_s / 100) / (len(kinds) - index)
            then_s = left_s - kind_s + dispatch_s
            kind_context = context.part(index / len(kinds), (index + 1) / len(kinds), f"{name} alone: ", then_s=then_s)
            try:
                rounds = _measure_kind(program, inputs.pop(0), kind_s, kind_context, results)
            except CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - an op of the user's may raise anything; the other kinds go on
                results.diagnostics.append(_kind_failed_diagnostic(switches[0], error))
                continue
            if rounds is not None:
                left_s -= rounds.spent_s
                rounds.stopped.raise_interrupt()
                if rounds.stopped is StopReason.CANCELLED:
                    return
        if not run.cancelled():
            run.progress("dispatch of the cut graph", 1.0)
            _measure_dispatch(variants, dispatch_s, context, results)
    finally:
        program.apply_artifacts()
        program.select_regional(on=True)


def distinct_kinds(program: Program) -> list[list[Switch]]:
    """Return the partitions by kind; partitions of one kind run equal code on inputs with equal layouts.

    Code compiled under different configs may be equal too; no code is measured twice.
    """
    program.record_layouts()
    program.apply_artifacts()
    kinds: dict[tuple[Any, ...], list[Switch]] = {}
    for switch in program.switches:
        kinds.setdefault(_kind(program, switch), []).append(switch)
    return list(kinds.values())


def _kind(program: Program, switch: Switch) -> tuple[Any, ...]:
    artifact, workpiece = switch.artifact, switch.workpiece
    if workpiece is None:  # the call does not run it, so its sizes are unknown and it has no fingerprint
        return (switch,)
    code_hash = None if artifact is None else program.store.code_hash(artifact.key) or artifact.key
    return code_hash, workpiece.fingerprint, workpiece.inputs


def _measure_kind(
    program: Program,
    recorded: RecordedInputs,
    budget_s: float,
    context: MeasureContext,
    results: BenchmarkResults,
) -> RoundsResult | None:
    """Check and measure one kind of partition; return its rounds, or None if the call does not run it."""
    switch, args, artifact = recorded.switch, recorded.args, recorded.switch.artifact
    if recorded.why_not:
        results.partition_timings += [_not_run_timing(other, recorded.why_not) for other in recorded.runs]
        return None
    name, workpiece, check = switch.partition.name, switch.known_workpiece, None
    untimed, cancelled = context.run.threads.run_untimed, context.run.cancelled
    twin = partial(program.twin, switch)
    # Not around the call itself: in another mode it would be traced again.
    with as_in_the_call():
        put_back = untimed(lambda: workpiece.restorer(args))
        calls = [timed_call(VariantName.EAGER, workpiece.piece.eager, args, put_back)]
        if artifact is not None:
            try:
                compiled = untimed(lambda: standalone_call(workpiece, artifact, args))
                check = untimed(lambda: check_partition(workpiece, args, artifact, twin, cancelled))
                calls.append(timed_call(COMPILED, compiled, args, put_back))
            except RegionCompileError as refused:
                switch.refuse(artifact, str(refused))
    if check is not None:
        results.partition_numerics += [replace(row, partition=name) for row in check.rows]
        results.cures[name] = check.cure
    numerics = {} if check is None else {COMPILED: check.verdict}
    with as_in_the_call():
        rounds = measure_rounds(calls, budget_s, context, baseline=VariantName.EAGER)
    results.add_noise(rounds.noise)
    timings = {timing.variant: replace(timing, phase=_phase(switch)) for timing in timings_of(rounds, numerics)}
    worst = None if check is None else check.worst
    if VariantName.EAGER in timings:
        results.partition_timings += [
            PartitionTiming(
                other.partition.name,
                timings[VariantName.EAGER],
                timings.get(COMPILED),
                runs,
                measured_as=None if other is switch else name,
                bitwise=None if check is None else check.bitwise,
                worst_tensor="" if worst is None or worst.bitwise else worst.tensor,
            )
            for other, runs in recorded.runs.items()
        ]
    return rounds


def _inputs_of(program: Program, kinds: Sequence[Sequence[Switch]], results: BenchmarkResults) -> list[RecordedInputs]:
    """Return the inputs of one partition of each kind; empty if the call raises."""
    try:
        return record_inputs(program, kinds)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything; what was measured before stays
        results.diagnostics += [_kind_failed_diagnostic(switches[0], error) for switches in kinds]
        return []


def _kind_failed_diagnostic(switch: Switch, error: Exception) -> Diagnostic:
    why = str(error) if isinstance(error, MeasureError) else f"{type(error).__name__}: {error}".splitlines()[0]
    return DiagnosticCode.VARIANT_FAILED.finding(
        f"Partition {switch.partition.name} raised alone",
        f": {why}",
        region=switch.piece.claim.region,
        graph=switch.piece.graph_id,
    )


def _phase(switch: Switch) -> Phase:
    return Phase(Direction.of_graph(switch.piece.graph_id))


def _not_run_timing(switch: Switch, why: str) -> PartitionTiming:
    eager = Timing(VariantName.EAGER, _phase(switch), (), exactly(0.0), 0.0, warnings=(why,))
    return PartitionTiming(switch.partition.name, eager, runs=0)


def _measure_dispatch(variants: Variants, budget_s: float, context: MeasureContext, results: BenchmarkResults) -> None:
    """Measure the cut graph with every region eager against the graph as captured."""
    for switch in variants.program.switches:
        switch.use_eager()
    calls = [variants.get(AOT_EAGER), dataclasses.replace(variants.get(REGIONAL), name=CUT_GRAPH)]
    try:
        run = context.run.silent()
        with in_state_of_call(variants, run) as turn:
            results.cut = run_rounds(calls, budget_s, baseline=AOT_EAGER, clock=context.clock, context=run, turn=turn)
    except MeasureError as error:
        found = DiagnosticCode.VARIANT_FAILED.finding("The cut graph with eager regions was not measured", f": {error}")
        results.diagnostics.append(found)
    else:
        results.add_noise(results.cut.noise)
        results.cut.stopped.raise_interrupt()


EAGER, AOT_EAGER, REGIONAL, FULL = VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL, VariantName.FULL
CUT_GRAPH = "cut"

WRAPPER = "AOT wrapper"
DISPATCH = "dispatch of the cut graph"
REST = "rest"
BORDERS = "borders"

_ROW_NOTES = {
    WRAPPER: "aot_eager − eager: guards, autograd and the traced ops instead of the program's own",
    DISPATCH: "the cut graph with all regions eager − aot_eager",
    REST: "the rest of regional − aot_eager: effects of regions on each other's caches, and the spread of all rows",
    BORDERS: "full − regional: fusion across the regions' borders, ops outside of regions, and what calls both",
}


def reconcile(
    timings: Sequence[Timing],
    regions: Sequence[RegionTiming],
    cut: RoundsResult | None,
) -> tuple[ReconciliationRow, ...]:
    """Return the rows that lead from eager to regional and full, phase by phase.

    ``timings`` are those of the variants, ``regions`` those of the regions alone. ``cut`` are rounds of ``aot_eager``
    against ``cut``, the cut graph with all regions eager. If the regions alone take longer than the whole call, only
    the totals are returned, the first with the reason.
    """
    return tuple(row for phase in Phase for row in _with_sums(_phase_rows(phase, timings, regions, cut)))


ADDS_UP = 0.02
"""Parts add up to a total if their sum differs from it by at most this fraction."""


def _with_sums(rows: Sequence[ReconciliationRow]) -> Iterator[ReconciliationRow]:
    """Yield the rows; a total that differs from the sum of the rows before it gets a note with the sum, and why.

    A total is the median of all rounds, and a difference is the median of the differences within rounds: if rounds are
    alike, they agree.
    """
    sum_s, parts = 0.0, False
    for row in rows:
        disagrees = parts and row.total and abs(sum_s / row.seconds.value - 1.0) > ADDS_UP
        note = f"the rows above add up to {duration(sum_s)}: the machine was not the same in all rounds"
        yield replace(row, note=note) if disagrees else row
        sum_s, parts = (row.seconds.value if row.total else sum_s + row.seconds.value), not row.total


def _phase_rows(
    phase: Phase, timings: Sequence[Timing], regions: Sequence[RegionTiming], cut: RoundsResult | None
) -> list[ReconciliationRow]:
    variants = {timing.variant: timing for timing in timings if timing.phase is phase}
    regions = [timing for timing in regions if timing.phase is phase and timing.eager_s.value > 0.0]

    def total_rows(name: str) -> list[ReconciliationRow]:
        timing = variants.get(name)
        return [] if timing is None else [ReconciliationRow(phase, name, timing.median_s, total=True)]

    def gap_rows(row_name: str, later: str, earlier: str) -> list[ReconciliationRow]:
        if later not in variants or earlier not in variants:
            return []
        timings = variants[later], variants[earlier]
        why = next((timing.median_s.why for timing in timings if timing.median_s.why), "")
        gap = paired_gaps(*(timing.samples_s for timing in timings))
        return [ReconciliationRow(phase, row_name, median_figure(gap, why), note=_ROW_NOTES[row_name])]

    if problem := _parts_exceed_whole(variants, regions):
        first, *others = [row for name in (EAGER, AOT_EAGER, REGIONAL, FULL) for row in total_rows(name)]
        return [replace(first, note=problem), *others]
    rows = [*total_rows(EAGER), *gap_rows(WRAPPER, AOT_EAGER, EAGER), *total_rows(AOT_EAGER)]
    if AOT_EAGER in variants and REGIONAL in variants:
        dispatch_rows = _dispatch_rows(phase, cut)
        region_rows = [_region_row(phase, region) for region in regions]
        known_rows = [*dispatch_rows, *[row for row in region_rows if row is not None]]
        whole_s = float(np.median(paired_gaps(variants[REGIONAL].samples_s, variants[AOT_EAGER].samples_s)))
        no_gain = [region.region for region, row in zip(regions, region_rows, strict=True) if row is None]
        note = _ROW_NOTES[REST] + (f"; and {', '.join(no_gain)}, whose gain is unknown" if no_gain else "")
        rest_s = Figure(whole_s - sum(row.seconds.value for row in known_rows), why="the rest of several runs")
        rows += [*known_rows, ReconciliationRow(phase, REST, rest_s, note=note)]
    return [*rows, *total_rows(REGIONAL), *gap_rows(BORDERS, FULL, REGIONAL), *total_rows(FULL)]


def _parts_exceed_whole(variants: Mapping[str, Timing], regions: Sequence[RegionTiming]) -> str:
    """Return why the parts cannot be added up, if regions alone take longer than the whole call; else an empty text."""
    aot_eager, regions_s = variants.get(AOT_EAGER), sum(region.eager_s.value for region in regions)
    if aot_eager is None or REGIONAL not in variants:
        return ""
    if regions_s <= max(aot_eager.median_s.bounds or (aot_eager.median_s.value,)):
        return ""
    times = regions_s / aot_eager.median_s.value
    return (
        f"parts withheld: alone, the regions take {times:.2f} times as long eagerly as the whole of aot_eager: they "
        "find other caches there, or the machine was busier"
    )


def _dispatch_rows(phase: Phase, cut: RoundsResult | None) -> list[ReconciliationRow]:
    gap = dispatch_s(phase, cut)
    return [] if gap is None else [ReconciliationRow(phase, DISPATCH, gap, note=_ROW_NOTES[DISPATCH])]


def dispatch_s(phase: Phase, cut: RoundsResult | None) -> Figure | None:
    """Return the seconds that the cut graph, all regions eager, takes beyond the captured graph; None if unknown."""
    samples = [cut.samples.get(name, {}).get(phase) for name in (CUT_GRAPH, AOT_EAGER)] if cut else [None, None]
    if cut is None or samples[0] is None or samples[1] is None:
        return None
    return figure_of(paired_gaps(samples[0], samples[1]), cut.noise)


def _region_row(phase: Phase, region: RegionTiming) -> ReconciliationRow | None:
    """Return the row of a region: its compiled minus its eager time; None if it is unknown."""
    if region.compiled_s is None:
        return ReconciliationRow(phase, region.region, exactly(0.0), region=region.region, note="runs eagerly")
    if region.gain_s is None:
        return None
    note = f"{region.partitions} alone, {region.measured} of them measured"
    return ReconciliationRow(phase, region.region, region.gain_s * -1.0, region=region.region, note=note)
