"""Diagnostics about regions that could not be compiled, or whose compiled code raised."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.partition import Partition
from regional_explorer.regions.checks.evidence import Evidence, lines


def check_failures(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-failed`` per region and error."""
    found: dict[tuple[str, str], list[Partition]] = {}
    for part in evidence.partitions:
        if part.error is not None:
            found.setdefault((part.region, part.error), []).append(part)
    for (region, error), parts in found.items():
        nodes = evidence.nodes[parts[0].graph]
        yield Diagnostic(
            DiagnosticCode.REGION_FAILED,
            f"Region {region!r} cannot run compiled and runs eagerly ({listing(part.id for part in parts)}): {error}",
            Severity.ERROR,
            region=region,
            graph=parts[0].graph,
            nodes=parts[0].nodes,
            where=lines(nodes[name] for name in parts[0].nodes)[:1],
            upstream="the whole call would fail.",
            remedy=f"Try another config, or ex.disable({region!r}).",
        )
