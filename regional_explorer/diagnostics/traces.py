"""Diagnostics about what runs but cannot be seen: values that the first call assigned, source that was edited since."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.errors import listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode

MOST_ATTRIBUTES = 16
"""The maximum number of attributes that are named."""


def check_state(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``state-kept`` for values that the first call assigned and that are not restored."""
    if evidence.not_restored:
        yield DiagnosticCode.STATE_KEPT.found(
            f"The first call assigned values that later calls use and do not change: "
            f"{listing(evidence.not_restored, most=MOST_ATTRIBUTES)}. They were not restored, so that what is traced "
            "and measured is a later call.",
            remedy="Nothing, if it is a cache; else assign it before rx.explore, or outside of the call.",
        )


def check_source(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``source-changed`` for functions whose file was edited after it was loaded."""
    # The lines of comprehensions and lambdas are those of the function around them.
    functions = {(line.file, line.scope.partition(".<")[0]): line for line in reversed(evidence.outdated)}
    if functions:
        first_lines = tuple(reversed(functions.values()))
        yield DiagnosticCode.SOURCE_CHANGED.found(
            f"The source was edited after it was loaded, and what runs is the code from before: "
            f"{listing(list(map(str, first_lines)), most=MOST_ATTRIBUTES)}. Numbers of lines are those from before; "
            "the text of the lines is not known any more.",
            where=first_lines[:MOST_ATTRIBUTES],
            remedy="Load the source again (importlib.reload, %autoreload or a new kernel), make objects of its classes "
            "anew, and explore again.",
        )
