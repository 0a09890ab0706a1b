"""Diagnostics about a region's backward: stray ops that differ from the forward's, and ops that are recomputed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.errors import count, listing
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, marked_region
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Cut
from regional_explorer.regions.instances import Claim, claims_from_around


def check_backward(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield ``backward-unmarked`` and ``backward-only``, where forward and backward disagree about a region."""
    backward = list(evidence.of_kind(GraphKind.BACKWARD))
    by_region = grouped((stray.region, stray) for graph in backward for stray in _stray_ops(evidence, graph))
    only_backward = grouped(
        (evidence.region_of_mark(node.annotation) or _marked_region_name(node), (graph, node))
        for graph in backward
        for node in graph.ops
        if node.annotated and not (node.origin in evidence.origins and evidence.origins[node.origin].annotated)
    )
    for region, strays in by_region.items():
        yield _backward_unmarked(evidence, region, strays)
    for region, ops in only_backward.items():
        yield _backward_only(evidence, region, ops)


@dataclass(frozen=True)
class UnclaimedOp:
    """A backward op of no instance, and without a forward op, that takes its inputs from an instance.

    ``amid`` says whether the op also feeds the instance, ``reason`` why it does not belong to the instance.
    """

    graph: Graph
    node: Node
    region: str
    amid: bool
    reason: str


def _stray_ops(evidence: Evidence, graph: Graph) -> Iterator[UnclaimedOp]:
    claims, users = evidence.claims[graph.id], evidence.users(graph.id)
    loose = [node for node in graph.ops if node.origin is None and not node.annotated and node.name not in claims]
    op_names = {node.name for node in graph.ops}
    # A sum of three gradients is two sums: look through such sums at the ops on the other side.
    above: dict[str, set[Claim | None]] = {}
    below: dict[str, set[Claim | None]] = {}
    for node in loose:
        above[node.name] = {
            claim for name in node.inputs if name in op_names for claim in above.get(name, {claims.get(name)})
        }
    for node in reversed(loose):
        below[node.name] = {claim for name in users.get(node.name, ()) for claim in below.get(name, {claims.get(name)})}
    circular = functools.cache(lambda: claims_from_around(graph, claims))
    for node in loose:
        sources = above[node.name]
        amid = next((claim for claim in sources & below[node.name] if claim is not None), None)
        owner = amid or (next(iter(sources)) if len(sources) == 1 else None)
        if owner is not None:
            if evidence.plan.cut is not Cut.INSTANCES:
                reason = f"cut='{evidence.plan.cut}' takes only marked ops"
            elif node.name in circular():
                reason = "with them, instances would feed each other in a cycle"
            elif len(sources) > 1:
                reason = "they also take inputs from outside the instance"
            else:
                reason = "an op that draws random numbers, writes, or runs a body keeps its place"
            yield UnclaimedOp(graph, node, owner.region, amid is not None, reason)


def _marked_region_name(node: Node) -> str:
    marked = marked_region(node.annotation)
    return str(marked[0]) if marked is not None else "default"


def _backward_unmarked(evidence: Evidence, region: str, strays: list[UnclaimedOp]) -> Diagnostic:
    first_graph = strays[0].graph
    input_nodes = [evidence.nodes[stray.graph.id][name] for stray in strays for name in stray.node.inputs]
    amid = sum(stray.amid for stray in strays)
    places = {(region, stray.graph.id) for stray in strays}
    most = max((len(parts) for (name, _, at), parts in evidence.instances.items() if (name, at) in places), default=0)
    effect = (
        f"; {amid} of them {'lies' if amid == 1 else 'lie'} between ops of one instance, whose backward becomes "
        f"{'up to ' if len(strays) > 1 else ''}{count(most, 'partition')}"
    )
    run = "runs" if len(strays) == 1 else "run"
    return DiagnosticCode.BACKWARD_UNMARKED.found(
        f"{count(len(strays), 'op')} in the backward of region {region!r} without a forward op (sums of gradients and "
        f"the like) {run} eagerly, in no region: {listing(stray.node.name for stray in strays)}"
        f"{effect if amid and most else ''}. The reason: {'; '.join(dict.fromkeys(stray.reason for stray in strays))}.",
        region=region,
        graph=first_graph.id,
        at=(stray.node for stray in strays if stray.graph is first_graph),
        where=input_nodes,
        remedy="Nothing has to be done. Gradients are summed where a value of the region is used more than once."
        if evidence.plan.cut is Cut.INSTANCES
        else (Action(ActionKind.CUT), ": sums of gradients that one instance computes then belong to it."),
    )


def _backward_only(evidence: Evidence, region: str, ops: list[tuple[Graph, Node]]) -> Diagnostic:
    return DiagnosticCode.BACKWARD_ONLY.found(
        f"{count(len(ops), 'op')} of the backward carry the mark of region {region!r}, but their forward ops do not "
        f"({listing(node.name for _, node in ops)}). The cause is a graph break in a function that the block calls. "
        "A backward op with a forward op follows it and runs eagerly.",
        region=region,
        graph=ops[0][0].id,
        at=(node for graph, node in ops if graph is ops[0][0]),
        where=evidence.dynamo_nodes(node.origin for _, node in ops),
        remedy="Remove the graph break from what the block calls.",
    )


def check_recompute(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``recompute-partial`` per region whose backward repeats some forward ops and takes others as saved.

    If it takes none as saved, a checkpoint may have requested it: then only the min-cut partitioner gives a diagnostic,
    ``region-grown``.
    """
    claimed = [
        (claim.region, graph, evidence.nodes[graph.id][name])
        for graph in evidence.graphs
        for name, claim in evidence.claims.get(graph.id, {}).items()
        if evidence.nodes[graph.id][name].op != "detach"  # autograd's own copy of a reference: it computes nothing
    ]
    forward = grouped(
        (region, (_identity(graph, node), node))
        for region, graph, node in claimed
        if graph.kind is not GraphKind.BACKWARD
    )
    repeated = grouped((region, (graph, node)) for region, graph, node in claimed if node.recompute)
    taken = {
        (graph.frame, node.name)
        for graph in evidence.of_kind(GraphKind.BACKWARD)
        for node in graph.nodes
        if node.role is Role.SAVED
    }
    for region, ops in repeated.items():
        nodes = {_identity(graph, node): node for graph, node in ops}
        all_ops = dict(forward.get(region, ())) | nodes
        saved = [node for key, node in all_ops.items() if key not in nodes and (key[0], node.name) in taken]
        if saved or evidence.min_cut:
            yield (DiagnosticCode.RECOMPUTE_PARTIAL if saved else DiagnosticCode.REGION_GROWN).found(
                f"The backward repeats {len(nodes)} of {count(len(all_ops), 'forward op')} of region {region!r} "
                f"({listing(node.name for node in nodes.values())})"
                + (f", and takes {listing(node.name for node in saved)} as saved." if saved else "."),
                region=region,
                graph=ops[0][0].id,
                at=(node for graph, node in ops if graph is ops[0][0]),
                where=nodes.values(),
                remedy="No change is needed if the checkpoint policy or the min-cut partitioner is intended; otherwise "
                "make it save all of the region, or none.",
                upstream=DiagnosticCode.RECOMPUTE_PARTIAL.upstream,
            )


def _identity(graph: Graph, node: Node) -> tuple[int, int | None, str]:
    """Return a key that a forward op shares with its repetition in the backward, and with no other op."""
    return graph.frame, node.origin, node.name
