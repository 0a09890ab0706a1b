"""Tables of measurements: the call, regions, partitions, their sums, numerics, memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from typing import Any

from regional_explorer.errors import count, listing
from regional_explorer.record.benchmark import (
    AN_EARLIER_RUN,
    LEAST_SAMPLES,
    Comparison,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    Phase,
    ReconciliationRow,
    Timing,
    VariantName,
    Verdict,
)
from regional_explorer.record.grouping import grouped
from regional_explorer.record.regions import (
    RegionTiming,
)
from regional_explorer.record.session import Session, derived
from regional_explorer.style.css import LIGHT, TONES
from regional_explorer.style.element import Node, clean, node
from regional_explorer.style.formats import (
    NONE,
    Compared,
    against_trace,
    between,
    duration,
    interval,
    is_withheld,
    percent,
    signed,
    significant,
    size,
    speedup,
    word,
)
from regional_explorer.tables.table import Column, Number, Table, bound_columns, columns_of

MOST_FAILED = 8
"""The maximum number of failed tensors shown of one variant."""

MOST_NAMES = 4

MOST_DETECTABLE = 0.5
"""A larger detectable difference is not shown as a figure: it would be useless."""

_DIGITS = re.compile(r"\d+")


def _verdict_text(timing: Compared) -> str:
    return "runs eagerly" if isinstance(timing, RegionTiming) and timing.compiled_s is None else timing.verdict


def _interval_text(timing: Compared) -> str:
    if timing.speedup is None or is_withheld(timing) or timing.verdict is Verdict.BASELINE:
        return NONE
    return interval(timing.speedup) or NONE


def variant(name: str) -> VariantName | str:
    """Return the variant called ``name``, which tables show by its word; any other name unchanged."""
    return VariantName(name) if name in tuple(VariantName) else name


COMPARED: tuple[Column[Any], ...] = (
    Number("speedup", lambda t: t.speedup, text=speedup),
    *bound_columns("speedup_low", "speedup_high", lambda t: t.speedup, _interval_text),
    Column("verdict", lambda t: t.verdict, text=_verdict_text, tone=lambda t: TONES.get(t.verdict, "quiet")),
    Column("numerics", lambda t: t.numerics or "", tone=lambda t: "bad" if is_withheld(t) else "quiet"),
)
"""The columns of a comparison with eager."""


AGAINST_TRACE: tuple[Column[Comparison], ...] = (
    Number("trace_speedup", lambda c: c.speedup, "against trace", text=lambda c: against_trace(c) or NONE),
    Number("trace_speedup_low", lambda c: c.speedup.low),
    Number("trace_speedup_high", lambda c: c.speedup.high),
    Column("trace_verdict", lambda c: c.verdict, "verdict (trace)", tone=lambda c: TONES.get(c.verdict, "quiet")),
)
"""The columns of a comparison with the captured graphs, if these differ from eager."""


PEAKS: tuple[Column[MemoryPeak], ...] = (
    Number("peak_bytes", lambda peak: int(peak.peak_bytes.value), dtype="Int64"),
    Number("peak_low_bytes", lambda peak: peak.peak_bytes.map(int).low, dtype="Int64"),
    Number("peak_high_bytes", lambda peak: peak.peak_bytes.map(int).high, dtype="Int64"),
    Number("peak_least_bytes", lambda peak: peak.least_bytes, dtype="Int64"),
    Column("peak_read_from", lambda peak: peak.how),
)
"""The peak memory of one call of a variant, and how it was read; a peak below ``peak_least_bytes`` is noise."""


TRACE_NOTE = (
    "Against trace: traced ÷ variant in the same rounds, for variants with the results of the captured graphs, "
    "which differ from eager's (trace-differs)."
)


def timings_table(session: Session) -> Table[Timing]:
    """One row per variant and phase; there is no speedup if the numerics check failed.

    ``plan`` is ``current``, or what the last benchmark was of, such as ``another plan``. If the captured graphs
    differ from eager, the columns ``trace_…`` compare the variants that agree with these graphs against them. The
    columns ``peak_…`` are about the memory of a whole call above what was allocated before.
    """
    rows, whole = sorted(session.timings, key=lambda t: list(Phase).index(t.phase)), session.whole_phase
    peaks = {peak.variant: peak for peak in session.memory}
    return Table(
        "Run time",
        (
            Column("variant", lambda t: variant(t.variant), text=_timed_name),
            Column("phase", lambda t: t.phase),
            Number("median_us", lambda t: t.median_s),
            Number("iqr_us", lambda t: t.iqr_s, "IQR", tone="quiet"),
            *COMPARED,
            *columns_of(lambda t: t.against_trace, AGAINST_TRACE),
            *columns_of(lambda t: peaks.get(t.variant), PEAKS),
            Column("", lambda _: "", "against eager", nodes=Scale.of(rows).chart),
            Number("samples", lambda t: len(t.samples_s), text=_samples_text, tone="quiet"),
            Number("calls_per_sample", lambda t: t.calls_per_sample),
            Column("warnings", lambda t: "; ".join(t.warnings)),
        ),
        session.timings,
        "Nothing measured yet. ex.benchmark(), or Compile & measure in the panel, compares eager, the trace, "
        "your plan and torch.compile.",
        lambda: [
            conditions(session),
            f"{str(Verdict.WITHHELD).capitalize()}: wrong results get no speedup, nor do results that rounding decides."
            if any(map(is_withheld, rows))
            else "",
            TRACE_NOTE if any(t.against_trace for t in rows) else "",
            f"Fewer than {LEAST_SAMPLES} samples give no ratio and no spread."
            if any(0 < len(t.samples_s) < LEAST_SAMPLES for t in rows)
            else "",
            *warning_lines((f"{word(t.variant)}{'' if t.phase is whole else f' {t.phase}'}", t.warnings) for t in rows),
        ],
        heads=(
            *("phase", "variant", "median", "IQR", "speedup", "CI", "against eager"),
            *("verdict", "numerics"),
            *(("against trace", "verdict (trace)") if any(t.against_trace for t in rows) else ()),
            "samples",
        ),
        shown=rows,
        outdated=session.measured_for,
    )


def _timed_name(timing: Timing) -> str:
    """Return the name of a variant, with a note if an earlier run has timed it."""
    if timing.earlier:
        return clean(f"{word(timing.variant)} (of {AN_EARLIER_RUN})")
    name = variant(timing.variant)
    return name if isinstance(name, VariantName) else clean(name)


@derived
def run_time_tables(session: Session) -> list[Table[Timing]]:
    """Return the run times of the whole call, and in a fold the times of forward and backward if there are any."""
    table = timings_table(session)
    whole = [t for t in table.shown_rows if t.phase is session.whole_phase]
    phases = [t for t in table.shown_rows if t.phase is not session.whole_phase]
    parts = replace(table, title="Forward and backward", shown=phases, notes=tuple, empty="", fold="closed")
    return [replace(table, shown=whole), parts]


def _samples_text(timing: Timing) -> str:
    calls = f" × {timing.calls_per_sample:,} calls" if timing.calls_per_sample > 1 else ""
    return f"{len(timing.samples_s)}{calls}"


def warning_lines(warned: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield each kind of warning once: the text of the first, and the names of all that have it."""
    kinds: dict[str, dict[str, str]] = {}
    for name, warnings in warned:
        for warning in warnings:
            kinds.setdefault(_DIGITS.sub("", warning.partition(":")[0]), {}).setdefault(clean(name), clean(warning))
    for texts in kinds.values():
        first, *names = texts
        if len(set(texts.values())) == 1:
            yield f"{listing(texts, MOST_NAMES)}: {texts[first]}"
        else:  # the numbers in the texts differ
            yield f"{first}: {texts[first]}; likewise {listing(names, MOST_NAMES)}"


def conditions(session: Session) -> str:
    """Return the conditions of the benchmark, on one line."""
    benchmark = session.conditions
    if benchmark is None:
        return ""
    together = f" in {benchmark.benchmarks} benchmarks" if benchmark.benchmarks > 1 else ""
    facts = [
        clean(benchmark.device),
        clean(benchmark.gpu),
        count(benchmark.threads, "thread"),
        f"torch {clean(benchmark.torch)}",
        f"{count(benchmark.rounds, 'round')}{together}",
        f"{100 * benchmark.confidence:.4g}% confidence",
        f"budget {duration(benchmark.budget_s)}",
        f"stopped: {clean(benchmark.stopped)}" if benchmark.stopped else "",
        _detectable(benchmark.smallest_difference),
    ]
    return " · ".join(filter(None, facts))


def _detectable(difference: float | None) -> str:
    if difference is None:
        return ""
    if difference > MOST_DETECTABLE:
        return f"even differences of {100 * MOST_DETECTABLE:.0f} % may be missed"
    return f"differences below {percent(difference)} may be missed"


def reconciliation_table(session: Session) -> Table[ReconciliationRow]:
    """How the regions and the rest add up to the call: each ``total`` is a variant, the rows below lead to the next."""
    region_numbers = session.plan.numbers
    # The table of run times already has the totals without a note.
    has_parts = any(not row.total or row.note for row in session.reconciliation)
    return Table(
        "How it adds up",
        (
            Column("phase", lambda row: row.phase),
            Column(
                "part",
                lambda row: row.part,
                text=lambda row: f"= {clean(word(row.part))}" if row.total else clean(row.part),
                region=lambda row: region_numbers.get(row.region or ""),
            ),
            Column("total", lambda row: row.total),
            Number(
                "time_us",
                lambda row: row.seconds,
                text=lambda row: (duration if row.total else signed)(row.seconds.value),
            ),
            *bound_columns(
                *("low_us", "high_us"),
                lambda row: row.seconds,
                lambda row: (row.seconds.value and between(row.seconds, duration if row.total else signed)) or NONE,
            ),
            Column("note", lambda row: row.note, "what it is", tone="quiet"),
        ),
        session.reconciliation,
        heads=("part", "time", "CI", "what it is"),
        shown=[row for row in session.reconciliation if has_parts and row.phase is session.whole_phase],
        outdated=session.measured_for,
        fold="unless bad",
    )


def memory_table(session: Session) -> Table[MemoryPeak]:
    """One row per variant: the peak memory of one call above what was allocated before, and how it was measured."""
    left_out = listing(session.conditions.memory_left_out) if session.conditions else ""
    why = f"Not measured for {left_out}: one call takes too long for this budget_s." if left_out else ""
    meaning = "Memory above the amount in use before the call: outputs, gradients and intermediates."
    return Table(
        "Memory",
        (
            Column("variant", lambda peak: variant(peak.variant)),
            Number("peak_bytes", lambda peak: int(peak.peak_bytes.value), "peak of one call", text=_peak_text),
            Number("", _peak_interval, "CI", tone="quiet"),
            Column("how", lambda peak: peak.how, "read from", tone="quiet"),
        ),
        session.memory,
        why,
        lambda: [meaning, why],
        outdated=session.measured_for,
        fold="unless bad",
    )


def _peak_text(peak: MemoryPeak) -> str:
    value = peak.peak_bytes.value
    return f"below {size(peak.least_bytes)}" if value < peak.least_bytes else size(int(value))


def _peak_interval(peak: MemoryPeak) -> str:
    """Return the bounds of a peak's CI, or why it has none; a dash for a peak too small to measure."""
    if peak.peak_bytes.value < peak.least_bytes:
        return NONE
    return " to ".join(size(int(end)) for end in peak.peak_bytes.bounds or ()) or peak.peak_bytes.why


_two_digits = partial(significant, digits=2)

CHECKS: tuple[Column[Numerics], ...] = (
    Column("variant", lambda c: variant(c.variant)),
    Column("tensor", lambda c: c.tensor),
    Column("dtype", lambda c: c.dtype),
    Column("verdict", lambda c: c.verdict, tone=lambda c: TONES.get(c.verdict, "")),
    Column("bitwise", lambda c: c.bitwise, text=lambda c: "equal" if c.bitwise else "no"),
    Number("rms_error", lambda c: c.error, "− eager", write=_two_digits),
    Number("max_error", lambda c: c.max_error, "largest", write=_two_digits),
    Number("eager_rms_error_f64", lambda c: c.eager_error, "eager − f64", write=_two_digits),
    Number("variant_rms_error_f64", lambda c: c.variant_error, "variant − f64", write=_two_digits),
    Number("tolerance", lambda c: c.tolerance, "allowed", write=_two_digits),
    Number("element_share", lambda c: c.element_share),
    Column("note", lambda c: c.note, tone="quiet"),
)


def numerics_table(session: Session) -> Table[Numerics]:
    """One row per variant and tensor; errors are root mean squares in the tensor's own unit."""
    by_variant = grouped((check.variant, check) for check in session.numerics)
    failed = {name: [c for c in checks if c.verdict is NumericsVerdict.FAILED] for name, checks in by_variant.items()}
    more = any(len(checks) > MOST_FAILED for checks in failed.values())
    which_failed = f"the first {MOST_FAILED} that failed in each variant" if more else "all that failed"
    shown = [
        check
        for name, checks in by_variant.items()
        for check in (failed[name][:MOST_FAILED] or [max(checks, key=lambda c: (c.verdict.withholds_speedup, c.share))])
    ]

    def notes() -> Sequence[str]:
        checked = ", ".join(
            f"{clean(word(name))} {count(len(checks), 'tensor')}" for name, checks in by_variant.items()
        )
        opaque = dict.fromkeys(
            clean(f"{c.tensor} ({c.note})")
            for c in session.numerics
            if c.verdict in (NumericsVerdict.NOT_COMPARED, NumericsVerdict.NOT_CHECKED)
        )
        sentences = (
            f"Checked: {checked}. The table shows the closest to failing, and {which_failed}; ex.numerics has all."
            if len(shown) < len(session.numerics)
            else "",
            f"Not compared: {listing(opaque, MOST_NAMES)}." if opaque else "",
        )
        return [" ".join(filter(None, sentences))]

    return Table(
        "Numerics",
        CHECKS,
        session.numerics,
        "Not checked yet. ex.benchmark() checks every output and gradient first.",
        notes,
        heads=(
            *("variant", "tensor", "dtype", "bitwise", "− eager", "largest", "eager − f64", "variant − f64", "allowed"),
            *("verdict", "note"),
        ),
        shown=shown,
        outdated=session.measured_for,
        fold="unless bad",
    )


def region_numerics_table(session: Session) -> Table[Numerics]:
    """One row per output of each partition that was checked alone, on recorded inputs."""
    regions = {part.id: part.region for part in session.partitions}
    return Table(
        "Numerics of partitions alone",
        (Column("region", lambda c: regions.get(c.partition)), *CHECKS, Column("partition", lambda c: c.partition)),
        session.partition_numerics,
    )


# ----------------------------------------------------------------------------------------------- the chart of a speedup


CHART_WIDTH = 130
CHART_HEIGHT = 14
CHART_MARGIN = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of speedups that a column of charts shows, on a log axis: 2× is as far from 1 as 0.5×.

    It always includes 1, where a variant equals eager.
    """

    low: float
    high: float

    @classmethod
    def of(cls, timings: Iterable[Timing]) -> Scale:
        """Return a scale that includes all ``timings``."""
        ends = [end for t in timings if t.speedup and not is_withheld(t) for end in t.speedup.bounds or ()]
        low, high = min([1.0, *ends]), max([1.0, *ends])
        margin = max((high / low) ** 0.06, 1.02)
        return cls(low / margin, high * margin)

    def at(self, ratio: float) -> float:
        """Return the position of ``ratio``, in pixels from the left."""
        return CHART_MARGIN + log(ratio / self.low) / log(self.high / self.low) * (CHART_WIDTH - 2 * CHART_MARGIN)

    def chart(self, timing: Timing) -> list[Node]:
        """Return the chart of one timing as SVG; empty if it may show no speedup, or the speedup has no interval."""
        if timing.speedup is None or timing.speedup.bounds is None or is_withheld(timing):
            return []
        middle, (low, high) = timing.speedup.value, timing.speedup.bounds
        half = CHART_HEIGHT / 2
        ends = f"M{self.at(low):.1f} {half}H{self.at(high):.1f}M{self.at(low):.1f} 4v6M{self.at(high):.1f} 4v6"
        drawn = node(
            "svg",
            node("path", d=f"M{self.at(1):.1f} 0V{CHART_HEIGHT}", stroke=LIGHT.edge, stroke_dasharray="2 2"),
            node("path", d=ends, stroke="currentColor", stroke_width="1.5"),
            node("circle", cx=f"{self.at(middle):.1f}", cy=str(half), r="3", fill="currentColor"),
            class_=f"rx-chart rx-{TONES.get(timing.verdict, 'quiet')}",
            width=str(CHART_WIDTH),
            height=str(CHART_HEIGHT),
            viewBox=f"0 0 {CHART_WIDTH} {CHART_HEIGHT}",
            role="img",
            aria_label=f"{speedup(timing)}, CI {interval(timing.speedup)}",
        )
        return [drawn]
