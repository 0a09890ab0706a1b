"""Diagnostics about regions in bodies of higher-order ops that several calls share."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Node
from regional_explorer.record.partition import Partition
from regional_explorer.regions.checks.evidence import Evidence, lines
from regional_explorer.regions.subgraphs import body_regions, calls_of


def check_shared(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-merged`` per region with partitions in a body that several calls share."""
    partition_nodes = {(part.graph, name) for part in evidence.partitions for name in part.nodes}
    shared_by_region: dict[str, list[tuple[Partition, list[Node]]]] = {}
    regions_of_bodies = body_regions(evidence.plan)
    for part in evidence.partitions:
        if part.region in regions_of_bodies:  # the body itself was marked
            continue
        body = evidence.by_id[part.graph]
        outer_id = body.parent[0] if body.parent is not None else ""
        calls = [call for call in calls_of(body, evidence.graphs) if (outer_id, call.name) not in partition_nodes]
        if len(calls) > 1:
            shared_by_region.setdefault(part.region, []).append((part, calls))
    for region, cases in shared_by_region.items():
        part, calls = cases[0]
        callers = dict.fromkeys(call.module_path or call.name for call in calls)
        yield Diagnostic(
            DiagnosticCode.REGION_MERGED,
            f"{count(len(cases), 'partition')} of region {region!r} in a body that {len(calls)} calls share "
            f"({listing(callers)}): torch traces a nested_compile_region once for all calls that are alike.",
            Severity.INFO,
            region=region,
            graph=part.graph,
            nodes=part.nodes,
            where=lines(calls),
            upstream="the same: one body, with its pieces, for all calls.",
            remedy="Nothing, if all are to run compiled; a mark on the call itself holds for that call only.",
        )
