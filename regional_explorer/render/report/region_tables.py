"""Tables of the timings of single regions, of how these add up to the whole call, and of memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf

from regional_explorer.errors.texts import count
from regional_explorer.record.region_summary import region_summaries
from regional_explorer.record.region_timing import RegionTiming
from regional_explorer.record.session import Session
from regional_explorer.record.timing import MemoryPeak, NumericsVerdict, Reconciled
from regional_explorer.render.report.result_tables import warning_lines
from regional_explorer.render.report.table import Cell, Table, of_measured_plan
from regional_explorer.render.style.formats import NONE, bounds, duration, ratio, signed, size
from regional_explorer.render.style.tones import TONES
from regional_explorer.render.style.untrusted import SHORT, clean


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
