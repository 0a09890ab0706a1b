"""Diagnostics about regions, from the record alone; one module per family.

``docs/diagnostics.md`` explains every code with the smallest program that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from regional_explorer.diagnostics.backward import check_backward, check_recompute
from regional_explorer.diagnostics.configs import (
    check_conflicts,
    check_directions,
    check_eager_subgraphs,
    check_falsy,
    check_neighbours,
    check_nested,
    check_subgraph_options,
    global_config,
)
from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.diagnostics.regions import (
    check_breaks,
    check_cycles,
    check_empty,
    check_failures,
    check_joined,
    check_left_to_eager,
    check_merged,
    check_moved,
    check_repaired,
    check_shared,
    check_split,
)
from regional_explorer.diagnostics.traces import check_source, check_state
from regional_explorer.record.diagnostic import Diagnostic

__all__ = ["Evidence", "check", "global_config"]

CHECKS: Sequence[Callable[[Evidence], Iterator[Diagnostic]]] = (
    check_failures,
    check_repaired,
    check_breaks,
    check_empty,
    check_cycles,
    check_split,
    check_joined,
    check_left_to_eager,
    check_merged,
    check_shared,
    check_moved,
    check_backward,
    check_recompute,
    check_conflicts,
    check_nested,
    check_falsy,
    check_directions,
    check_neighbours,
    check_state,
    check_source,
    check_eager_subgraphs,
    check_subgraph_options,
)


def check(evidence: Evidence) -> list[Diagnostic]:
    """Return the differences between the requested regions and the partitions, one diagnostic per region and cause."""
    return [diagnostic for run_check in CHECKS for diagnostic in run_check(evidence)]
