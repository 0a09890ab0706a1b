"""Reports what the call assigned in Python and what stays assigned."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.regions.checks.evidence import Evidence

NAMED = 16
"""So many attributes are named."""


def check_state(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``state-kept`` for values that the first call assigned and that are not put back."""
    if evidence.kept_state:
        yield Diagnostic(
            DiagnosticCode.STATE_KEPT,
            f"The first call assigned what later calls find and leave as it is: "
            f"{listing(evidence.kept_state, most=NAMED)}. It was not taken back, so that what is traced and measured "
            "is a later call.",
            Severity.INFO,
            upstream="any first call of yours leaves the same behind.",
            remedy="Nothing, if it is a cache; else assign it before rx.explore, or outside of the call.",
        )
