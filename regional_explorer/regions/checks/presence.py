"""Diagnostics about regions without the ops that were marked: lost, empty, shrunk or grown; and graph breaks."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph, GraphKind, Node
from regional_explorer.record.grouping import grouped
from regional_explorer.regions.checks.evidence import Evidence, lines
from regional_explorer.regions.required_match import broken_at
from regional_explorer.torch_api import Folded

PASSING_OPS = frozenset({"clone", "copy", "alias", "lift_fresh_copy", "add", "sub"})
"""Ops that pass a gradient on unchanged: the backward has no op for them."""


def check_breaks(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-lost`` per region with a graph break inside, and one ``graph-break`` per other break."""
    lost = grouped((mark.region, break_) for break_ in evidence.breaks for mark in break_.blocks)
    for region, breaks in lost.items():
        blocks = [mark.source for break_ in breaks for mark in break_.blocks if mark.region == region and mark.source]
        break_lines = [break_.source for break_ in breaks if break_.source]
        yield Diagnostic(
            DiagnosticCode.REGION_LOST,
            f"A graph break inside the block of region {region!r} makes the whole function around it run as plain "
            f"Python: {breaks[0].reason}",
            Severity.ERROR,
            region=region,
            where=tuple(dict.fromkeys((*break_lines, *blocks))),
            upstream="the same, without a warning.",
            remedy="Move this line out of the block, or end the block before it and begin another after it.",
        )
    for break_ in evidence.breaks:
        if not break_.blocks:
            yield Diagnostic(
                DiagnosticCode.GRAPH_BREAK,
                f"Dynamo stopped the graph here: {break_.reason}",
                Severity.INFO,
                where=break_.stack[-1:],
                upstream="the same, without a warning; this line runs as plain Python.",
                remedy="Move this line out of the call if a region should reach across it."
                + (f" Torch's own hint: {break_.hint}." if break_.hint else ""),
            )


def check_empty(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-empty`` per region without ops in any graph, or without any in the backward."""
    places_by_region: dict[str, set[tuple[int, GraphKind]]] = {region.name: set() for region in evidence.plan.regions}
    for graph in evidence.graphs:
        for claim in evidence.claims.get(graph.id, {}).values():
            places_by_region[claim.region].add((graph.frame, graph.kind))
    trained_frames = {graph.frame for graph in evidence.of_kind(GraphKind.BACKWARD)}
    for region, places in places_by_region.items():
        if not places:
            yield _empty_everywhere(evidence, region)
            continue
        forward_frames = {frame for frame, kind in places if kind is GraphKind.FORWARD and frame in trained_frames}
        if forward_frames and not any(kind is GraphKind.BACKWARD for _, kind in places):
            yield _without_backward(evidence, region)


def _without_backward(evidence: Evidence, region: str) -> Diagnostic:
    requested = _requested_ops(evidence, region)
    retraced = _ops_traced_again(evidence, region)
    unmarked = any(node.origin is None for graph in evidence.of_kind(GraphKind.BACKWARD) for node in graph.ops)
    passing = [node.op for node in _forward_ops(evidence, region) if node.op in PASSING_OPS]
    why, remedy = "no gradient flows through it", "Nothing, if its results need no gradient."
    if retraced:
        why = f"torch traces the backward of {listing(retraced)} again, and marks inside do not reach it"
        remedy = (
            f"Mark the whole op to have its backward compiled, for example ex.mark({region!r}, nodes={retraced[0]!r})."
        )
    elif unmarked and any(node.op.endswith("_") or node.op == "setitem" for node in requested):
        why = "what writes in place leave in the backward belongs to no region"
        remedy = "Avoid the write in place, as x = x.mul(2) for x.mul_(2), or leave its backward to eager."
    elif passing:
        why = (
            f"a gradient that comes to {listing(dict.fromkeys(passing))} passes unchanged, so there is nothing to "
            "compute"
        )
        remedy = "Nothing: a copy or a sum has no backward of its own."
    return Diagnostic(
        DiagnosticCode.REGION_EMPTY,
        f"Region {region!r} has no op in the backward: {why}.",
        Severity.INFO,
        region=region,
        where=lines(requested)[:1],
        upstream="the same.",
        remedy=remedy,
    )


def _forward_ops(evidence: Evidence, region: str) -> list[Node]:
    return [
        evidence.nodes[graph.id][name]
        for graph in evidence.of_kind(GraphKind.FORWARD)
        for name, claim in evidence.claims[graph.id].items()
        if claim.region == region
    ]


def _ops_traced_again(evidence: Evidence, region: str) -> list[str]:
    """Return the higher-order ops that hold all of a region, and whose backward was traced without origins: cond."""

    def holder(graph: Graph) -> Node | None:
        return evidence.nodes[graph.parent[0]][graph.parent[1]] if graph.parent else None

    retraced = {
        holding_op.origin
        for graph in evidence.of_kind(GraphKind.BACKWARD)
        if (holding_op := holder(graph)) and graph.ops and all(node.origin is None for node in graph.ops)
    }
    names: list[str] = []
    for graph in evidence.of_kind(GraphKind.FORWARD):
        if any(claim.region == region for claim in evidence.claims[graph.id].values()):
            holding_op = holder(graph)
            if graph.parent is None or holding_op is None or holding_op.origin not in retraced:
                return []
            names += [f"{graph.parent[0]}:{user}" for user in evidence.users(graph.parent[0])[holding_op.name]]
    return list(dict.fromkeys(names))


def _empty_everywhere(evidence: Evidence, region: str) -> Diagnostic:
    overruled = evidence.assignment.overruled
    winners = [winner for loser, winner in overruled if loser == region]
    requested = _requested_ops(evidence, region)
    if winners:
        lost_origins = [origin for (loser, _), origins in overruled.items() if loser == region for origin in origins]
        requested = [evidence.origins[origin] for origin in lost_origins if origin in evidence.origins]
        why = f"all its ops belong to {', '.join(map(repr, winners))}, later in the plan"
        remedy = "If two regions claim an op, the later one has it: unmark one of them, or reorder the plan."
    elif requested:
        why = f"{listing(node.name for node in requested)} left no op when AOTAutograd traced the graph"
        remedy = "Include ops that compute something in the region; a view or a copy that changes nothing is dropped."
    else:
        causes = (broken_at(selector, evidence.breaks) for selector in evidence.plan[region].selectors)
        cause = next(filter(None, causes), "").rstrip(".")
        why = f"its selectors match nothing in this call{f'.{cause}' if cause else ''}"
        remedy = f"Mark it again, or ex.unmark({region!r})."
    return Diagnostic(
        DiagnosticCode.REGION_EMPTY,
        f"Region {region!r} has no op in any graph: {why}.",
        region=region,
        where=lines(requested),
        upstream="the same, without a warning.",
        remedy=remedy,
    )


def _requested_ops(evidence: Evidence, region: str) -> list[Node]:
    owners = evidence.assignment.owners
    return [evidence.origins[o] for o, claim in owners.items() if claim.region == region and o in evidence.origins]


def check_moved(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield ``region-shrunk`` and ``region-grown``: ops folded into equal ones, or claimed by a later mark."""
    region_of: dict[int | None, str] = {o: claim.region for o, claim in evidence.assignment.owners.items()}
    moved = [fold for fold in evidence.folded if region_of.get(fold.origin) != region_of.get(fold.into_origin)]
    shrunk = grouped((region_of[fold.origin], fold) for fold in moved if fold.origin in region_of)
    grown = grouped((region_of[fold.into_origin], fold) for fold in moved if fold.into_origin in region_of)
    for region, folds in shrunk.items():
        yield _moved_by_folding(evidence, region, folds, grown=False)
    for region, folds in grown.items():
        yield _moved_by_folding(evidence, region, folds, grown=True)
    remaining = set(region_of.values())
    for (loser, winner), origins in evidence.assignment.overruled.items():
        nodes = [evidence.origins[origin] for origin in origins if origin in evidence.origins]
        if loser in remaining and nodes:
            yield Diagnostic(
                DiagnosticCode.REGION_SHRUNK,
                f"{count(len(nodes), 'op')} that region {loser!r} requested belong to {winner!r}, later in the plan: "
                f"{listing(node.name for node in nodes)}.",
                Severity.INFO,
                region=loser,
                where=lines(nodes),
                upstream="an inner annotation replaces the outer one in the same way.",
                remedy="If two regions claim an op, the later one has it: reorder the plan, or mark less.",
            )


def _moved_by_folding(evidence: Evidence, region: str, folds: list[Folded], *, grown: bool) -> Diagnostic:
    names = {fold.into for fold in folds}
    graph = next(
        (g for g in evidence.graphs if g.kind is not GraphKind.DYNAMO and names & set(evidence.nodes[g.id])), None
    )
    folded_nodes = [
        evidence.origins[origin]
        for fold in folds
        for origin in (fold.origin, fold.into_origin)
        if origin is not None and origin in evidence.origins
    ]
    pairs = listing(f"{fold.name} into {fold.into}" for fold in folds)
    what = (
        f"Region {region!r} also computes {count(len(folds), 'op')} for other code: equal ops were folded into its own"
        if grown
        else f"Region {region!r} lost {count(len(folds), 'op')} to equal ones outside"
    )
    return Diagnostic(
        DiagnosticCode.REGION_GROWN if grown else DiagnosticCode.REGION_SHRUNK,
        f"{what} ({pairs}), since the min-cut partitioner removes common subexpressions and the first occurrence wins.",
        Severity.INFO if grown else Severity.WARNING,
        region=region,
        graph=graph.id if graph else None,
        nodes=tuple(sorted(names & set(evidence.nodes[graph.id]))) if graph else (),
        where=lines(folded_nodes),
        upstream="the same under this partitioner; its regional path uses the default one, which folds nothing.",
        remedy="Explore with partitioner='default', or compute the shared value once, where it should belong.",
    )
