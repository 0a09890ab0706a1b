"""Diagnostics that advise on regions by their timings and numerics: worth compiling, slower compiled, or wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from regional_explorer.errors import listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.regions import RegionTiming, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Numerics, NumericsVerdict, Verdict
from regional_explorer.style.formats import duration

MOST_ADVISED = 6
UNSURE_VERDICTS = (Verdict.UNKNOWN, Verdict.INCONCLUSIVE)


def numerics_diagnostics(session: Session, cures: Mapping[str, Mapping[str, Any] | None]) -> list[Diagnostic]:
    """Return a ``region-numerics`` for each partition whose output is wrong, with the config that corrects it."""
    wrong = (row for row in session.partition_numerics if row.verdict is NumericsVerdict.FAILED)
    partitions = {part.id: part for part in session.partitions}
    return [
        _numerics_diagnostic(partitions[name], max(rows, key=lambda row: row.share), cures.get(name))
        for name, rows in grouped((row.partition, row) for row in wrong).items()
    ]


def _numerics_diagnostic(part: Partition, worst: Numerics, cure: Mapping[str, Any] | None) -> Diagnostic:
    against = (
        f"{worst.variant_error:.2g} from float64, where eager is {worst.eager_error:.2g}"
        if worst.variant_error is not None and worst.eager_error is not None
        else f"{worst.error:.2g} from eager"
    )
    return DiagnosticCode.REGION_NUMERICS.found(
        f"Region {part.region!r}: {worst.tensor}, an output of {part.id}, is {against} "
        f"({worst.tolerance:.2g} is allowed), so no speedup is shown.",
        region=part.region,
        graph=part.graph,
        remedy=f"No config was found that corrects it: ex.disable({part.region!r})."
        if cure is None
        else f"ex.configure({part.region!r}, {dict(cure)!r}) passes the check.",
    )


def region_diagnostics(session: Session) -> list[Diagnostic]:
    """Return a ``region-slower`` for each region that is slower compiled, and a ``region-worth`` for the others."""
    timings = sorted(whole_region_timings(session).values(), key=lambda timing: -(timing.gain_s or 0.0))
    slower = [timing for timing in timings if timing.verdict is Verdict.SLOWER]
    return [*map(_slower_diagnostic, slower), *_worth_diagnostic(timings)]


def _slower_diagnostic(row: RegionTiming) -> Diagnostic:
    return DiagnosticCode.REGION_SLOWER.found(
        f"Region {row.region!r} takes {duration(-(row.gain_s or 0.0))} longer in each call compiled than eager "
        f"({row.speedup:.2f}×{_numerics_note(row)}, measured alone).",
        region=row.region,
        remedy=f"ex.disable({row.region!r}), or mark a larger region: borders prevent fusion, calls cost a dispatch.",
    )


def _worth_diagnostic(rows: list[RegionTiming]) -> list[Diagnostic]:
    faster = [row for row in rows if row.verdict is Verdict.FASTER]
    same = [repr(row.region) for row in rows if row.verdict is Verdict.SAME]
    unsure = [repr(row.region) for row in rows if row.verdict in UNSURE_VERDICTS and row.speedup is not None]
    if not faster and not same:
        return []
    total_s = sum(row.gain_s or 0.0 for row in faster)
    gains = [
        f"{row.region!r} saves {duration(row.gain_s)} in each call{_pay_off_text(row)}{_numerics_note(row)}"
        for row in faster
    ]
    clauses = [
        f"Worth compiling: {listing(gains, MOST_ADVISED)}" if faster else "No region is measurably faster compiled",
        f" ({duration(total_s)} together)" if len(faster) > 1 else "",
        f"; no difference: {listing(same, MOST_ADVISED)}" if same else "",
        f"; inconclusive (try a larger budget_s): {listing(unsure, MOST_ADVISED)}" if unsure else "",
    ]
    return [
        DiagnosticCode.REGION_WORTH.found(
            f"{''.join(clauses)}. Each was measured alone, without the wrappers that a step with regions has around "
            "its graphs (ex.reconciliation)."
        )
    ]


def _numerics_note(row: RegionTiming) -> str:
    return f" (numerics {NumericsVerdict.NOT_COMPARABLE})" if row.numerics is NumericsVerdict.NOT_COMPARABLE else ""


def _pay_off_text(row: RegionTiming) -> str:
    calls = row.pays_off_after_calls
    if calls is None or math.isinf(calls):
        return ""
    if calls == 0:
        return ", its compile is shared"
    return f", its {row.cache} compile of {duration(row.compile_s)} pays off after {calls:,.0f} calls"
