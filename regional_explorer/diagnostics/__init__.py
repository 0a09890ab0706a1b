"""The diagnostics that follow from records only: about regions, their configs, the trace, and measured results.

``docs/diagnostics.md`` explains every code with the smallest program that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from regional_explorer.diagnostics import configs, regions, trace
from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.record.diagnostic import Diagnostic

CHECKS: Sequence[Callable[[Evidence], Iterator[Diagnostic]]] = (
    regions.check_failed,
    trace.check_repaired,
    trace.check_breaks,
    regions.check_empty,
    regions.check_cycles,
    regions.check_split,
    regions.check_joined,
    regions.check_left_to_eager,
    regions.check_merged,
    regions.check_shared,
    regions.check_moved,
    trace.check_backward,
    configs.check_conflicts,
    configs.check_nested,
    configs.check_falsy,
    trace.check_state,
    trace.check_guarded_state,
    trace.check_source,
    configs.check_subgraph_options,
)


def check(evidence: Evidence) -> list[Diagnostic]:
    """Return the differences between the requested regions and the partitions, one diagnostic per region and cause."""
    return [diagnostic for run_check in CHECKS for diagnostic in run_check(evidence)]
