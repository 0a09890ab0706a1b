"""Where forward and backward disagree about a region, and what the backward repeats of the forward."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.regions.checks.evidence import Evidence, counted, lines, listed

FORWARDS = (GraphKind.FORWARD, GraphKind.INFERENCE)


def check_backward(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield ``backward-unmarked`` and ``backward-only``: where forward and backward disagree about a region."""
    stray: dict[str, list[tuple[Graph, Node, bool]]] = {}
    alone: dict[str, list[tuple[Graph, Node]]] = {}
    for graph in evidence.of_kind(GraphKind.BACKWARD):
        claims, nodes = evidence.claims[graph.id], evidence.nodes[graph.id]
        for node in graph.ops:
            if node.origin is None and not node.annotated:
                users = {claims.get(user) for user in evidence.users(graph.id).get(node.name, ())}
                sources = [claims.get(name) for name in node.inputs if nodes[name].role is Role.OP]
                inside = next((claim for claim in sources if claim in users and claim is not None), None)
                if inside is None and sources and len(set(sources)) == 1:
                    inside = sources[0]
                if inside is not None:
                    stray.setdefault(inside.region, []).append((graph, node, inside in users))
            elif node.annotated and not (node.origin in evidence.origins and evidence.origins[node.origin].annotated):
                alone.setdefault(_marked_as(node), []).append((graph, node))
    for region, cases in stray.items():
        yield _unmarked(evidence, region, cases)
    for region, found in alone.items():
        yield _backward_only(evidence, region, found)


def _marked_as(node: Node) -> str:
    named = isinstance(node.annotation, dict) and "inductor_region" in node.annotation
    return str(node.annotation["inductor_region"]) if named else "default"


def _unmarked(evidence: Evidence, region: str, cases: list[tuple[Graph, Node, bool]]) -> Diagnostic:
    feeding = [evidence.nodes[graph.id][name] for graph, node, _ in cases for name in node.inputs]
    splits = sum(inside for _, _, inside in cases)
    effect = (
        f"; {splits} of them stand{'s' if splits == 1 else ''} between ops of the region and cut its backward apart"
    )
    return Diagnostic(
        "backward-unmarked",
        f"{counted(len(cases), 'op')} amid the backward of region {region!r} have no forward op behind them (sums of "
        f"gradients and the like), belong to no region and run eagerly: {listed(node.name for _, node, _ in cases)}"
        f"{effect if splits else ''}.",
        Severity.INFO,
        region=region,
        graph=cases[0][0].id,
        nodes=tuple(node.name for graph, node, _ in cases if graph is cases[0][0]),
        where=lines(feeding),
        upstream="the same, without a word.",
        remedy="Nothing has to be done; a value used once in the region needs no such sum.",
    )


def _backward_only(evidence: Evidence, region: str, found: list[tuple[Graph, Node]]) -> Diagnostic:
    forward = [evidence.origins[node.origin] for _, node in found if node.origin in evidence.origins]
    return Diagnostic(
        "backward-only",
        f"{counted(len(found), 'op')} of the backward carry the mark of region {region!r}, the forward ops behind them "
        f"do not ({listed(node.name for _, node in found)}): so does a graph break in a function that the block calls. "
        "What has a forward op behind it follows that one and runs eagerly.",
        region=region,
        graph=found[0][0].id,
        nodes=tuple(node.name for graph, node in found if graph is found[0][0]),
        where=lines(forward),
        upstream="it compiles the backward of such a region, and not its forward.",
        remedy="Remove the graph break from what the block calls.",
    )


def check_recompute(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``recompute-partial`` per region whose backward repeats a part of its forward.

    All of it repeated is what a checkpoint asks for; where the min-cut partitioner did so, that is a ``region-grown``.
    """
    forward: dict[str, dict[tuple[int, str], Node]] = {}
    repeated: dict[str, dict[tuple[int, str], Node]] = {}
    graphs: dict[str, str] = {}
    for graph in evidence.graphs:
        for name, claim in evidence.claims.get(graph.id, {}).items():
            node = evidence.nodes[graph.id][name]
            if graph.kind in FORWARDS:
                forward.setdefault(claim.region, {})[graph.frame, name] = node
            elif node.recompute:
                repeated.setdefault(claim.region, {})[graph.frame, name] = node
                graphs.setdefault(claim.region, graph.id)
    for region, nodes in repeated.items():
        whole = {**forward.get(region, {}), **nodes}
        partial = len(nodes) < len(whole)
        if partial or evidence.min_cut:
            kept = [node for key, node in whole.items() if key not in nodes]
            yield Diagnostic(
                "recompute-partial" if partial else "region-grown",
                f"The backward repeats {len(nodes)} of {counted(len(whole), 'forward op')} of region {region!r} "
                f"({listed(node.name for node in nodes.values())})"
                + (f", and takes {listed(node.name for node in kept)} as saved." if partial else "."),
                Severity.INFO,
                region=region,
                graph=graphs[region],
                nodes=tuple(node.name for node in nodes.values()),
                where=lines(nodes.values()),
                upstream="the same: what is repeated is a smaller region of its own, compiled for itself.",
                remedy=(
                    "Nothing, if the checkpoint policy or the min-cut partitioner is wanted; else let it save all of "
                    "the region, or none."
                ),
            )
