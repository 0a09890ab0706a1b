"""Tables of what was measured: the call, regions, partitions, how they add up, numerics, memory, compile costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isinf

from regional_explorer.errors import count, listing
from regional_explorer.record.grouping import grouped
from regional_explorer.record.regions import RegionTiming, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import (
    LEAST_SAMPLES,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    Phase,
    Reconciled,
    Timing,
)
from regional_explorer.style.css import TONES
from regional_explorer.style.element import SHORT, clean
from regional_explorer.style.formats import (
    NONE,
    bounds,
    duration,
    failed_numerics,
    interval,
    percent,
    ratio,
    signed,
    significant,
    size,
    speedup,
)
from regional_explorer.tables.table import Cell, Table, of_measured_plan

MOST_FAILED = 8
"""How many failed tensors of one variant are shown at most."""

MOST_NAMES = 4

_DIGITS = re.compile(r"\d+")


def timings_table(session: Session) -> Table:
    """Return one row per phase and variant; without a speedup if the numerics failed."""
    timings = sorted(session.timings, key=lambda timing: list(Phase).index(timing.phase))
    notes = [conditions(session)]
    if any(failed_numerics(timing) for timing in timings):
        notes.append("A variant whose numerics failed gets no speedup.")
    if any(0 < len(timing.samples_s) < LEAST_SAMPLES for timing in timings):
        notes.append(f"With fewer than {LEAST_SAMPLES} samples there is no ratio and no spread.")
    notes += warning_lines([(timing.variant, timing.warnings) for timing in timings])
    table = Table(
        "Run time",
        ("phase", "variant", "median", "IQR", "speedup", "CI", "against eager", "verdict", "numerics", "samples"),
        tuple(map(_timing_row, timings)),
        "Nothing measured yet. ex.benchmark(), or Compile & measure in the panel, compares eager, aot_eager, regional "
        "and full.",
        "\n".join(filter(None, notes)),
        figures=frozenset({"median", "IQR", "speedup", "CI", "samples"}),
    )
    return of_measured_plan(session, table)


def warning_lines(warned: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Return each kind of warning once, as the text of the first, with the names of all that have it."""
    kinds: dict[str, tuple[str, dict[str, None]]] = {}
    for name, warnings in warned:
        for warning in warnings:
            kind = _DIGITS.sub("", warning.partition(":")[0])
            _, names = kinds.setdefault(kind, (warning, {}))
            names[clean(name, SHORT)] = None
    return [f"{listing(list(names), MOST_NAMES)}: {clean(text)}" for text, names in kinds.values()]


def compile_table(session: Session) -> Table:
    """Return one row per compile; its cost is not part of any run time."""
    rows = tuple(
        (Cell(clean(cost.what, SHORT)), Cell(duration(cost.seconds)), Cell(clean(cost.cache, SHORT)))
        for cost in session.compile_costs
    )
    return Table("Compile time", ("what", "time", "cache"), rows, "Nothing compiled yet.", figures=frozenset({"time"}))


def numerics_table(session: Session) -> Table:
    """Return the tensors that failed, and for each variant without failures the tensor closest to failing."""
    by_variant = grouped((check.variant, check) for check in session.numerics)
    shown_checks = [
        check
        for checks in by_variant.values()
        for check in (
            [t for t in checks if t.verdict is NumericsVerdict.FAILED][:MOST_FAILED]
            or [max(checks, key=lambda t: t.share)]
        )
    ]
    note = ""
    if len(shown_checks) < len(session.numerics):
        checked = ", ".join(f"{clean(name, SHORT)} {count(len(t), 'tensor')}" for name, t in by_variant.items())
        note = f"Checked: {checked}. The closest to failing, and all that failed, are shown; ex.numerics has every one."
    opaque = dict.fromkeys(
        clean(f"{t.tensor} ({t.note})")
        for t in session.numerics
        if t.verdict in (NumericsVerdict.NOT_COMPARED, NumericsVerdict.NOT_CHECKED)
    )
    if opaque:
        note = f"{note} Not compared: {listing(list(opaque), MOST_NAMES)}.".strip()
    table = Table(
        "Numerics",
        (
            "variant",
            "tensor",
            "dtype",
            "bitwise",
            "− eager",
            "largest",
            "eager − f64",
            "variant − f64",
            "allowed",
            "verdict",
            "note",
        ),
        tuple(map(_numerics_row, shown_checks)),
        "Not checked yet. ex.benchmark() checks every output and gradient first.",
        note,
        figures=frozenset({"− eager", "largest", "eager − f64", "variant − f64", "allowed"}),
    )
    return of_measured_plan(session, table)


def conditions(session: Session) -> str:
    """Return under which conditions the benchmark ran, on one line."""
    benchmark = session.conditions
    if benchmark is None:
        return ""
    facts = [
        clean(benchmark.device),
        clean(benchmark.gpu),
        count(benchmark.threads, "thread"),
        f"torch {clean(benchmark.torch, SHORT)}",
        count(benchmark.rounds, "round"),
        f"{benchmark.confidence:.4g} confidence"
        if benchmark.confidence > 1
        else f"{benchmark.confidence:.4%} confidence".replace(".0000%", "%"),
        f"budget {duration(benchmark.budget_s)}",
        f"stopped: {clean(benchmark.stopped)}" if benchmark.stopped else "",
        f"differences below {percent(benchmark.smallest_difference)} cannot be detected here"
        if benchmark.smallest_difference
        else "",
    ]
    return " · ".join(filter(None, facts))


def _timing_row(timing: Timing) -> tuple[Cell, ...]:
    failed = failed_numerics(timing)
    calls = f" × {timing.calls_per_sample:,} calls" if timing.calls_per_sample > 1 else ""
    return (
        Cell(timing.phase),
        Cell(clean(timing.variant, SHORT)),
        Cell(duration(timing.median_s)),
        Cell(duration(timing.iqr_s), "quiet"),
        Cell(speedup(timing)),
        Cell(interval(timing), "quiet"),
        Cell("", timing=timing),
        Cell("numerics failed" if failed else timing.verdict, "bad" if failed else TONES.get(timing.verdict, "quiet")),
        Cell(timing.numerics, "bad" if failed else "quiet"),
        Cell(f"{len(timing.samples_s)}{calls}", "quiet"),
    )


def _numerics_row(check: Numerics) -> tuple[Cell, ...]:
    errors = (check.error, check.max_error, check.eager_error, check.variant_error, check.tolerance)
    return (
        Cell(clean(check.variant, SHORT)),
        Cell(clean(check.tensor)),
        Cell(clean(check.dtype, SHORT)),
        Cell("equal" if check.bitwise else "no"),
        *(Cell(NONE if error is None else significant(error, 2)) for error in errors),
        Cell(check.verdict, TONES.get(check.verdict, "")),
        Cell(clean(check.note), "quiet"),
    )


def region_times_table(session: Session) -> Table:
    """Return one row per region that was measured alone, for the whole call; the largest gain comes first."""
    measured = [(summary.timing, summary.number) for summary in region_summaries(session) if summary.timing]
    rows = sorted(measured, key=lambda row: -(row[0].gain_s or 0.0))
    phases = "forward + backward" if session.grad else "forward"
    note = f"{phases.capitalize()}, all partitions of a region together; ex.region_timings has each phase."
    if any(timing.measured < timing.partitions for timing, _ in rows):
        note += " Equal partitions were measured once."
    if any(timing.partitions > 1 for timing, _ in rows):
        note += (
            " The bounds of a region with several partitions take all of them at their bounds at once: they are wider "
            "than a CI of the sum."
        )
    return Table(
        "Regions alone",
        (
            "region",
            "eager",
            "compiled",
            "gain per call",
            "speedup",
            "CI",
            "verdict",
            "numerics",
            "worst",
            "compile",
            "paid for after",
        ),
        tuple(_region_timing_row(timing, number) for timing, number in rows),
        "Not measured yet. ex.benchmark() measures each region alone.",
        "\n".join(
            [note, *warning_lines([(timing.partition, timing.warnings) for timing in session.partition_timings])]
        ),
        figures=frozenset({"eager", "compiled", "gain per call", "speedup", "CI", "compile", "paid for after"}),
    )


def reconciliation_table(session: Session) -> Table:
    """Return how the gains of regions and the rest add up from eager to regional and full, for the whole call."""
    region_numbers = session.plan.numbers
    table = Table(
        "How it adds up",
        ("part", "time", "CI", "what it is"),
        tuple(_gain_row(row, region_numbers) for row in session.reconciliation if row.phase is session.whole_phase),
        "Not measured yet. ex.benchmark() measures each region alone.",
        figures=frozenset({"time", "CI"}),
    )
    return of_measured_plan(session, table)


def memory_table(session: Session) -> Table:
    """Return the memory peak of each variant."""
    table = Table(
        "Memory",
        ("variant", "peak of one call", "read from"),
        tuple(_memory_row(peak) for peak in session.memory),
        "Not read yet. ex.benchmark() reads the peak of each variant.",
        "Memory above what was in use before the call: outputs, gradients and intermediates.",
        figures=frozenset({"peak of one call"}),
    )
    return of_measured_plan(session, table)


def _region_timing_row(timing: RegionTiming, number: int) -> tuple[Cell, ...]:
    failed = timing.numerics is NumericsVerdict.FAILED
    has_speedup = timing.speedup is not None and not failed
    interval = bounds(timing.speedup_low, timing.speedup_high) if has_speedup else ""
    cost = f"{duration(timing.compile_s)} {clean(timing.cache, SHORT)}" if timing.compile_s else NONE
    verdict = "numerics failed" if failed else "runs eagerly" if timing.compiled_s is None else timing.verdict
    return (
        Cell(clean(timing.region), region=number),
        Cell(duration(timing.eager_s)),
        Cell(duration(timing.compiled_s)),
        Cell(signed(timing.gain_s) if has_speedup else NONE),
        Cell(ratio(timing.speedup, timing.numerics)),
        Cell(f"{interval}×" if interval else NONE, "quiet"),
        Cell(verdict, "bad" if failed else TONES.get(timing.verdict, "quiet")),
        Cell(timing.numerics or "", "bad" if failed else "quiet"),
        Cell(clean(timing.worst_tensor, SHORT), "quiet"),
        Cell(cost),
        Cell(paid_after(timing)),
    )


def paid_after(timing: RegionTiming) -> str:
    """Return after how many calls the compile time of a region is regained: ``1,200 calls``, ``never``, or a dash."""
    calls = timing.pays_off_after_calls
    if calls is None or timing.numerics is NumericsVerdict.FAILED:
        return NONE
    return "never" if isinf(calls) else count(int(calls), "call")


def _gain_row(row: Reconciled, region_numbers: Mapping[str, int]) -> tuple[Cell, ...]:
    interval = NONE if row.low_s is None or row.high_s is None else f"{signed(row.low_s)} to {signed(row.high_s)}"
    return (
        Cell(f"= {clean(row.part)}" if row.total else clean(row.part), region=region_numbers.get(row.region or "")),
        Cell(duration(row.seconds) if row.total else signed(row.seconds)),
        Cell(interval, "quiet"),
        Cell(clean(row.note), "quiet"),
    )


def _memory_row(peak: MemoryPeak) -> tuple[Cell, ...]:
    return (
        Cell(clean(peak.variant, SHORT)),
        Cell(f"below {size(peak.least_bytes)}" if peak.peak_bytes < peak.least_bytes else size(peak.peak_bytes)),
        Cell(clean(peak.how), "quiet"),
    )
