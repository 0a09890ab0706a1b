"""Summarizes the result of a benchmark in one line."""

from __future__ import annotations

from regional_explorer.errors.texts import listing
from regional_explorer.record.region_summary import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing, Verdict
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.style.formats import bounds, failed_numerics, ratio, speedup
from regional_explorer.render.style.untrusted import SHORT, clean

MOST_REGIONS = 3


def headline(session: Session) -> str:
    """Return which variants are faster than eager, by how much, and which regions alone; empty before a benchmark."""
    whole = session.whole_timings
    parts = [_variant(whole[name]) for name in (VariantName.REGIONAL, VariantName.FULL) if name in whole]
    if not parts:
        return ""
    text = f"{', '.join(parts)}{_regions(session)}"
    return f"Measured for an earlier plan: {text}" if session.is_outdated else text


def _variant(timing: Timing) -> str:
    if failed_numerics(timing):
        return f"{timing.variant}: numerics failed"
    low, high, middle = timing.speedup_low, timing.speedup_high, timing.speedup
    if middle is None:
        return f"{timing.variant}: {timing.verdict}"
    between = f" ({found})" if (found := bounds(low, high)) else ""
    if timing.verdict is Verdict.FASTER:
        return f"{timing.variant} {speedup(timing)} faster than eager{between}"
    if timing.verdict is Verdict.SLOWER and low and high:
        slower = ratio(1 / middle, timing.numerics)
        return f"{timing.variant} {slower} slower than eager ({bounds(1 / high, 1 / low)})"
    return f"{timing.variant} {speedup(timing)} against eager{between}: {timing.verdict}"


def _regions(session: Session) -> str:
    measured = [(clean(one.region.name, SHORT), one.timing.verdict) for one in region_summaries(session) if one.timing]
    found = [
        (f"{listing(names, MOST_REGIONS)} {'is' if len(names) == 1 else 'are'} {verdict}")
        for verdict in (Verdict.FASTER, Verdict.SLOWER)
        if (names := [name for name, one in measured if one is verdict])
    ]
    return f". Measured alone, {' and '.join(found)} compiled" if found else ""
