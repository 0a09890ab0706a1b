"""Summarizes the result of a benchmark in one line."""

from __future__ import annotations

from regional_explorer.errors.texts import listing
from regional_explorer.record.region_summary import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, Timing, Verdict
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.style.formats import bounds, failed_numerics, speedup
from regional_explorer.render.style.untrusted import SHORT, clean

MOST_REGIONS = 3


def headline(session: Session) -> str:
    """Return which variants are faster than eager, by how much, and which regions alone; empty before a benchmark."""
    timings = session.whole_timings
    variants = [_variant_text(timings[name]) for name in (VariantName.REGIONAL, VariantName.FULL) if name in timings]
    if not variants:
        return ""
    result = f"{', '.join(variants)}{_regions_text(session)}"
    return f"Measured for an earlier plan: {result}" if session.is_outdated else result


def _variant_text(timing: Timing) -> str:
    if failed_numerics(timing):
        return f"{timing.variant}: numerics failed"
    low, high, middle = timing.speedup_low, timing.speedup_high, timing.speedup
    if middle is None:
        return f"{timing.variant}: {timing.verdict}"
    between = f" ({ci})" if (ci := bounds(low, high)) else ""
    if timing.numerics is NumericsVerdict.NOT_COMPARABLE:
        return f"{timing.variant} against eager: {timing.verdict}, {speedup(timing)}{between}"
    if timing.verdict is Verdict.FASTER:
        return f"{timing.variant} {speedup(timing)} faster than eager{between}"
    if timing.verdict is Verdict.SLOWER and low and high:
        return f"{timing.variant} {1 / middle:.2f}× slower than eager ({bounds(1 / high, 1 / low)})"
    return f"{timing.variant} {speedup(timing)} against eager{between}: {timing.verdict}"


def _regions_text(session: Session) -> str:
    summaries = region_summaries(session)
    measured = [(clean(summary.region.name, SHORT), summary.timing.verdict) for summary in summaries if summary.timing]
    clauses = [
        (f"{listing(names, MOST_REGIONS)} {'is' if len(names) == 1 else 'are'} {verdict}")
        for verdict in (Verdict.FASTER, Verdict.SLOWER)
        if (names := [name for name, measured_verdict in measured if measured_verdict is verdict])
    ]
    return f". Measured alone, {' and '.join(clauses)} compiled" if clauses else ""
