"""Diagnostics about failures: regions that cannot run compiled, and ops of captured graphs that were repaired."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.grouping import grouped
from regional_explorer.regions.checks.evidence import Evidence, lines


def check_failures(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-failed`` per region and error."""
    failures = grouped(((part.region, part.error), part) for part in evidence.partitions if part.error is not None)
    for (region, error), parts in failures.items():
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


def check_repaired(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``aot-eager-failed`` where ops of the captured graphs failed and had to be repaired."""
    if not evidence.failed_ops:
        return
    first = evidence.failed_ops[0]
    failed_names = [op.node for op in evidence.failed_ops if op.graph == first.graph]
    nodes = [evidence.nodes[op.graph][op.node] for op in evidence.failed_ops]
    yield Diagnostic(
        DiagnosticCode.AOT_EAGER_FAILED,
        f"The captured graph does not run as torch made it: {first.node} ({first.target}, "
        f"{count(len(nodes), 'such op')}) raises '{first.error}' In the trace, its input has other strides than the "
        "kernel before it returns. Here the op gets a copy, so that regions and the rest run; the variant aot_eager is "
        "left out.",
        graph=first.graph,
        nodes=tuple(failed_names),
        where=lines(nodes),
        upstream="aot_eager fails with this error, and so do regions that leave this op outside; plain torch.compile "
        "runs.",
        remedy="Nothing has to be done. If the code is to run under upstream's regional backend, include the op and "
        "the one before it in a region.",
    )
