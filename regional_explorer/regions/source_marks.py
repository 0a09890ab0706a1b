"""Regions that the source marks: blocks, and bodies of nested_compile_region."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regional_explorer.record.graph import Graph, GraphKind, Node, marked_region, short_name, subgraph_names, subgraphs
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind, is_name
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


def annotation_key(annotation: Any) -> str:
    """Return the key of a region that is marked in the source: its id, or the config of a mark without one.

    Upstream puts all marks without an id into one default region and compiles it under the first config it meets. Here
    they are one region if their configs are equal.
    """
    if (marked := marked_region(annotation)) is not None:
        return f"id:{marked[0]}"
    return f"default:{json.dumps(annotated_config(annotation), sort_keys=True)}"


def annotation_name(annotation: Any) -> str | None:
    """Return the name of the region that a mark belongs to, or None for a mark without an id."""
    if (marked := marked_region(annotation)) is None:
        return None
    name = str(marked[0])
    return name if is_name(name) else repr(name)  # an id may be empty or have line breaks, a region's name must not


def annotated_config(annotation: Any) -> dict[str, Any]:
    """Return the Inductor configs in an annotation, empty if it has none."""
    config = annotation.get("inductor_configs") if isinstance(annotation, Mapping) else None
    return dict(config) if isinstance(config, Mapping) else {}


def source_regions(graphs: Sequence[Graph]) -> list[Region]:
    """Return the regions marked in the source, in the order in which their first op runs.

    Bodies of ``nested_compile_region`` with options come last: their ops do not belong to a marked block around them.
    """
    regions: dict[str, Region] = {}
    defaults = 0
    for node in marked_nodes(graphs):
        key = annotation_key(node.annotation)
        if key in regions:
            continue
        if (named := annotation_name(node.annotation)) is not None:
            name = named
        else:
            defaults += 1
            name = "default" if defaults == 1 else f"default-{defaults}"
        selector = Selector(SelectorKind.ANNOTATION, (key,))
        regions[key] = Region(_free_name(name, regions), (selector,), annotated_config(node.annotation))
    for region in subgraph_regions(graphs):
        regions[region.selectors[0].patterns[0]] = replace(region, name=_free_name(region.name, regions))
    return list(regions.values())


def _free_name(name: str, regions: Mapping[str, Region]) -> str:
    """Return ``name``, with apostrophes if other regions have it."""
    names = {region.name for region in regions.values()}
    while name in names:
        name += "'"
    return name


def marked_nodes(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Yield the ops of the Dynamo graphs that carry a mark, then marked ops of other graphs that have no origin."""
    graphs = list(graphs)
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            yield from (node for node in graph.ops if node.annotated)
    for graph in graphs:
        if graph.kind is not GraphKind.DYNAMO:
            yield from (node for node in graph.ops if node.annotated and node.origin is None)
