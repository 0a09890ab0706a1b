"""Diagnostics from the timings of regions: which are worth compiling, and which cost more than they gain."""

from __future__ import annotations

import math
from collections.abc import Iterable

from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.region_timing import RegionTiming, standing, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import FAILED, NOT_COMPARABLE, Verdict
from regional_explorer.render.style.figures import duration, listing

MOST = 6
NUMERICS = DiagnosticCode.REGION_NUMERICS


def still_true(session: Session, found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return what was found of partitions alone, without checks whose code no longer runs."""
    failed = {timing.region for timing in standing(session) if timing.numerics == FAILED}
    return [item for item in found if item.code != NUMERICS or item.region in failed]


def region_findings(session: Session) -> list[Diagnostic]:
    """Return one ``region-slower`` per region that loses time compiled, and one ``region-worth`` for all that gain."""
    rows = sorted(whole_region_timings(session).values(), key=lambda row: -(row.gain_s or 0.0))
    return [*map(_slower, (row for row in rows if row.verdict is Verdict.SLOWER)), *_worth(rows)]


def _slower(row: RegionTiming) -> Diagnostic:
    return Diagnostic(
        DiagnosticCode.REGION_SLOWER,
        f"Region {row.region!r} takes {duration(-(row.gain_s or 0.0))} longer in each call compiled than eager "
        f"({row.speedup:.2f}×{_unchecked(row)}, measured alone).",
        Severity.INFO,
        region=row.region,
        upstream="compiles it all the same.",
        remedy=f"ex.disable({row.region!r}), or a larger region: borders cost fusion, and each call a dispatch.",
    )


def _worth(rows: list[RegionTiming]) -> list[Diagnostic]:
    gaining = [row for row in rows if row.verdict is Verdict.FASTER]
    same = [repr(row.region) for row in rows if row.verdict is Verdict.SAME]
    unsure = [repr(row.region) for row in rows if row.verdict is Verdict.UNKNOWN and row.speedup is not None]
    if not gaining and not same:
        return []
    total = sum(row.gain_s or 0.0 for row in gaining)
    told = [f"{row.region!r} saves {duration(row.gain_s)} in each call{_paid(row)}{_unchecked(row)}" for row in gaining]
    parts = [
        f"Worth compiling: {listing(told, MOST)}" if gaining else "No region gains anything measurable by compiling",
        f" ({duration(total)} together)" if len(gaining) > 1 else "",
        f"; no difference: {listing(same, MOST)}" if same else "",
        f"; not enough data, a larger budget_s helps: {listing(unsure, MOST)}" if unsure else "",
    ]
    return [Diagnostic(DiagnosticCode.REGION_WORTH, f"{''.join(parts)}. Each was measured alone.", Severity.INFO)]


def _unchecked(row: RegionTiming) -> str:
    return f" (numerics {NOT_COMPARABLE})" if NOT_COMPARABLE in row.numerics else ""


def _paid(row: RegionTiming) -> str:
    calls = row.pays_off_after_calls
    if calls is None or math.isinf(calls):
        return ""
    if calls == 0:
        return ", its compile is shared"
    return f", its {row.cache} compile of {duration(row.compile_s)} is paid for after {calls:,.0f} calls"
