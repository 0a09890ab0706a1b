"""Diagnostics about values that the first call assigned in Python and that were not restored."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.regions.checks.evidence import Evidence

MOST_ATTRIBUTES = 16
"""The maximum number of attributes that are named."""


def check_state(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``state-kept`` for values that the first call assigned and that are not restored."""
    if evidence.not_restored:
        yield Diagnostic(
            DiagnosticCode.STATE_KEPT,
            f"The first call assigned values that later calls use and do not change: "
            f"{listing(evidence.not_restored, most=MOST_ATTRIBUTES)}. They were not restored, so that what is traced "
            "and measured is a later call.",
            Severity.INFO,
            upstream="any first call leaves the same values.",
            remedy="Nothing, if it is a cache; else assign it before rx.explore, or outside of the call.",
        )
