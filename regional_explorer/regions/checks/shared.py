"""Diagnostics about regions in bodies of higher-order ops that several calls share."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Node
from regional_explorer.record.partition import Partition
from regional_explorer.regions.checks.evidence import Evidence, lines
from regional_explorer.regions.subgraphs import KINDS, calls_of


def check_shared(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-merged`` per region with partitions in a body that several calls share."""
    inside = {(part.graph, name) for part in evidence.partitions for name in part.nodes}
    found: dict[str, list[tuple[Partition, list[Node]]]] = {}
    by_body = {one.name for one in evidence.plan.regions if any(sel.kind in KINDS for sel in one.selectors)}
    for part in evidence.partitions:
        if part.region in by_body:  # the body itself was marked
            continue
        body = evidence.by_id[part.graph]
        around = body.parent[0] if body.parent is not None else ""
        calls = [call for call in calls_of(body, evidence.graphs) if (around, call.name) not in inside]
        if len(calls) > 1:
            found.setdefault(part.region, []).append((part, calls))
    for region, cases in found.items():
        part, calls = cases[0]
        who = dict.fromkeys(call.module_path or call.name for call in calls)
        yield Diagnostic(
            DiagnosticCode.REGION_MERGED,
            f"{count(len(cases), 'partition')} of region {region!r} in a body that {len(calls)} calls share "
            f"({listing(who)}): torch traces a nested_compile_region once for all calls that are alike.",
            Severity.INFO,
            region=region,
            graph=part.graph,
            nodes=part.nodes,
            where=lines(calls),
            upstream="the same: one body, with its pieces, for all calls.",
            remedy="Nothing, if all are to run compiled; a mark on the call itself holds for that call only.",
        )
