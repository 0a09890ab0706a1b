"""Tables of the timings of single regions, of how these add up to the whole call, and of memory."""

from __future__ import annotations

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
    measured = [(one.timing, one.number) for one in region_summaries(session) if one.timing]
    rows = sorted(measured, key=lambda row: -(row[0].gain_s or 0.0))
    whole = "forward + backward" if session.grad else "forward"
    note = f"{whole.capitalize()}, all partitions of a region together; ex.region_timings has each phase."
    if any(row.measured < row.partitions for row, _ in rows):
        note += " Equal partitions were measured once."
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
        tuple(_region_row(row, number) for row, number in rows),
        "Not measured yet. ex.benchmark() measures each region alone.",
        "\n".join(
            [note, *warning_lines([(timing.partition, timing.warnings) for timing in session.partition_timings])]
        ),
        figures=frozenset({"eager", "compiled", "gain per call", "speedup", "CI", "compile", "paid for after"}),
    )


def reconciliation_table(session: Session) -> Table:
    """Return how the gains of regions and the rest add up from eager to regional and full, for the whole call."""
    index = {region.name: number for number, region in enumerate(session.plan.regions)}
    table = Table(
        "How it adds up",
        ("part", "time", "CI", "what it is"),
        tuple(_part_row(row, index) for row in session.reconciliation if row.phase is session.whole_phase),
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
        "Above what was held before the call: outputs, gradients and what lies between.",
        figures=frozenset({"peak of one call"}),
    )
    return of_measured_plan(session, table)


def _region_row(row: RegionTiming, number: int) -> tuple[Cell, ...]:
    bad = row.numerics is NumericsVerdict.FAILED
    known = row.speedup is not None and not bad
    interval = bounds(row.speedup_low, row.speedup_high) if known else ""
    cost = f"{duration(row.compile_s)} {clean(row.cache, SHORT)}" if row.compile_s else NONE
    verdict = "numerics failed" if bad else "runs eagerly" if row.compiled_s is None else row.verdict
    return (
        Cell(clean(row.region), region=number),
        Cell(duration(row.eager_s)),
        Cell(duration(row.compiled_s)),
        Cell(signed(row.gain_s) if known else NONE),
        Cell(ratio(row.speedup, row.numerics)),
        Cell(f"{interval}×" if interval else NONE, "quiet"),
        Cell(verdict, "bad" if bad else TONES.get(row.verdict, "quiet")),
        Cell(row.numerics or "", "bad" if bad else "quiet"),
        Cell(clean(row.worst_tensor, SHORT), "quiet"),
        Cell(cost),
        Cell(paid_after(row)),
    )


def paid_after(row: RegionTiming) -> str:
    """Return after how many calls the compile time of a region is regained: ``1,200 calls``, ``never``, or a dash."""
    calls = row.pays_off_after_calls
    if calls is None or row.numerics is NumericsVerdict.FAILED:
        return NONE
    return "never" if isinf(calls) else count(int(calls), "call")


def _part_row(row: Reconciled, index: dict[str, int]) -> tuple[Cell, ...]:
    interval = NONE if row.low_s is None or row.high_s is None else f"{signed(row.low_s)} to {signed(row.high_s)}"
    return (
        Cell(f"= {clean(row.part)}" if row.total else clean(row.part), region=index.get(row.region or "")),
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
