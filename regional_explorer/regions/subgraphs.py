"""Bodies of ``nested_compile_region`` as regions: their selectors, their calls, and regions made from their options."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterator, Mapping, Sequence

from regional_explorer.record.graph import Graph, GraphKind, Node
from regional_explorer.record.named_subgraphs import short_name, subgraph_names, subgraphs
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.instances import Claim, Instance

SUBGRAPH_KINDS = (SelectorKind.SUBGRAPH, SelectorKind.SUBGRAPHS)
"""The selectors that pick whole bodies."""


def body_regions(plan: Plan) -> set[str]:
    """Return the names of the regions that select whole bodies."""
    return {region.name for region in plan.regions if any(sel.kind in SUBGRAPH_KINDS for sel in region.selectors)}


def subgraph_key(graph: Graph) -> str:
    """Return the key of a body with options: the function's name and its configs, which closures may change."""
    options = graph.options
    configs = (options.config, options.backward_config) if options is not None else ()
    return f"{graph.name}:{json.dumps(configs, sort_keys=True, default=repr)}"


def subgraph_regions(graphs: Sequence[Graph]) -> Iterator[Region]:
    """Yield a region for each function with options; its bodies for different shapes are instances of the region."""
    bodies = {
        subgraph_key(graph): (graph.name, graph.options) for graph in subgraphs(graphs) if graph.options is not None
    }
    for key, (name, options) in bodies.items():
        yield Region(
            short_name(name),
            (Selector(SelectorKind.SUBGRAPH, (key,)),),
            options.config,
            backward_config=options.backward_config,
        )


def pick_subgraphs(selector: Selector, graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins of the ops in the bodies that ``selector`` picks, and of the calls of these bodies."""
    instances: dict[int, Instance] = {}
    for graph in subgraphs(graphs):
        if _is_picked(selector, graph):
            for node in (*graph.ops, *calls_of(graph, graphs)):
                if node.origin is not None:
                    instances[node.origin] = graph.id, 0
    return instances


def _is_picked(selector: Selector, graph: Graph) -> bool:
    if selector.kind is SelectorKind.SUBGRAPH:
        return graph.options is not None and subgraph_key(graph) in selector.patterns
    return any(fnmatch.fnmatchcase(name, pattern) for name in subgraph_names(graph) for pattern in selector.patterns)


def calls_of(body: Graph, graphs: Sequence[Graph]) -> list[Node]:
    """Return the ops that run ``body``; several may share it."""
    if body.parent is None:
        return []
    outer = next(graph for graph in graphs if graph.id == body.parent[0])
    holders = outer.holding(body.parent[1])
    return [op for op in outer.ops if holders.intersection(op.inputs)]


def call_origins(graphs: Sequence[Graph]) -> set[int]:
    """Return the origins of all calls of bodies."""
    calls = (call for graph in subgraphs(graphs) for call in calls_of(graph, graphs))
    return {call.origin for call in calls if call.origin is not None}


def whole_bodies(
    graphs: Sequence[Graph], owners: Mapping[int, Claim], regions: Collection[str], calls: Collection[int]
) -> dict[str, Claim]:
    """Return, by graph, the claim on a whole body that AOTAutograd traced, its ops without an origin included.

    Upstream compiles such a body as a whole: sums of gradients, and what the body's own partitioner or decompositions
    made of its ops. Only ``regions`` that select bodies count; ``calls`` run inner bodies, which are separate.
    """
    body_claims: dict[str, Claim] = {}
    for graph in graphs:
        if graph.kind is not GraphKind.DYNAMO and graph.parent is not None:
            claims = {owners.get(op.origin) for op in graph.ops if op.origin is not None and op.origin not in calls}
            claim = claims.pop() if len(claims) == 1 else None
            if claim is not None and claim.region in regions:
                body_claims[graph.id] = claim
    return body_claims
