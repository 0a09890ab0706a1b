"""Splits a region at a node, or into its instances; walks the ops of graphs and bodies in the order of the program."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from regional_explorer.errors import PlanError, SelectorError, did_you_mean
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.grouping import connected, grouped
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.instances import direct_feeds
from regional_explorer.regions.required_match import require_one_op
from regional_explorer.regions.select import assign, node_names, picks


def split(plan: Plan, graphs: Sequence[Graph], name: str, at: str | None = None) -> Plan:
    """Return the plan with a region split into parts ``name.1``, ``name.2``, …, which keep its place and its config.

    Without ``at``, every instance becomes a region. With it, the instance that has this node, and every instance of the
    same ops, is cut in two: the ops that the program runs before the node, and the rest. Other instances stay in the
    region.

    Args:
        plan: the plan.
        graphs: the recorded graphs.
        name: the region.
        at: a node of the region in any graph, such as ``mul_1`` or ``0/forward:mul_1``. The second part begins with the
            operation of the program that it was traced from.

    Raises:
        UnknownRegionError, SelectorError: the region has no node ``at``.
        PlanError: there is nothing to split.
    """
    region = plan[name]
    owners = assign(graphs, plan).owners
    origins = {origin for origin, claim in owners.items() if claim.region == name}
    if not origins:
        raise PlanError(f"Region {name!r} has no op in this call: there is nothing to split.")
    instance_ops = [(owners[node.origin].instance, node) for node in _ops_in_order(graphs) if node.origin in origins]
    instances = list(grouped((instance, node) for instance, node in instance_ops if instance is not None).values())
    if at is None:
        parts, unsplit = _instance_parts(name, instances, graphs), list[Node]()
    else:
        parts, unsplit = _halves(name, instances, _origin_of_node(graphs, name, origins, at), at)
    new_names = (new_name for number in itertools.count(1) if (new_name := f"{name}.{number}") not in plan)
    regions = [_region_part(region, graphs, nodes, new_name) for nodes, new_name in zip(parts, new_names, strict=False)]
    return plan.replaced({name}, *([_region_part(region, graphs, unsplit, name)] if unsplit else []), *regions)


def _ops_in_order(graphs: Sequence[Graph]) -> Iterator[Node]:
    """Yield the ops of Dynamo's graphs in the order of the program: those of a body where the op that runs it is."""
    dynamo = [graph for graph in graphs if graph.kind is GraphKind.DYNAMO]
    children = grouped((graph.parent, graph) for graph in dynamo)

    def ops_of(graph: Graph) -> Iterator[Node]:
        for node in graph.nodes:
            for body in children.get((graph.id, node.name), ()):
                yield from ops_of(body)
            if node.role is Role.OP:
                yield node

    for graph in children.get(None, ()):
        yield from ops_of(graph)


def _instance_parts(name: str, parts: list[list[Node]], graphs: Sequence[Graph]) -> list[list[Node]]:
    """Return the nodes of each instance, or of each connected piece if there is only one instance."""
    if len(parts) == 1:
        nodes = {node.origin: node for node in parts[0] if node.origin is not None}
        feeds = direct_feeds(graphs)
        links = [(origin, source) for origin in nodes for source in feeds.get(origin, ()) if source in nodes]
        parts = [[nodes[origin] for origin in piece] for piece in connected(list(nodes), links)]
    if len(parts) < 2:  # noqa: PLR2004 - one part is the whole
        example = f" For example at={parts[0][len(parts[0]) // 2].name!r}." if parts and len(parts[0]) > 1 else ""
        raise PlanError(f"Region {name!r} is one connected piece: say at which node to split it.{example}")
    return parts


def _halves(name: str, instances: Sequence[list[Node]], origin: int, at: str) -> tuple[list[list[Node]], list[Node]]:
    """Return the nodes before ``origin`` and those from it on, in all equal instances, and the nodes of the others."""
    instance = next(nodes for nodes in instances if any(node.origin == origin for node in nodes))
    start = next(index for index, node in enumerate(instance) if node.origin == origin)
    if start == 0:
        raise PlanError(f"Region {name!r} begins with {at!r}: none of its ops runs before. Give a later node.")
    targets = [node.target for node in instance]
    equal = [nodes for nodes in instances if [node.target for node in nodes] == targets]
    unsplit = [node for nodes in instances if nodes not in equal for node in nodes]
    halves = [[node for nodes in equal for node in nodes[:start]], [node for nodes in equal for node in nodes[start:]]]
    return halves, unsplit


def _origin_of_node(graphs: Sequence[Graph], name: str, origins: Collection[int], at: str) -> int:
    """Return the origin of the node called ``at``."""
    nodes = [(f"{graph.id}:{node.name}", node) for graph in graphs for node in graph.ops if node.origin in origins]
    matches = [node.origin for full_name, node in nodes if at in (node.name, full_name)]
    if not matches:
        hint = (
            did_you_mean(at, {node.name for _, node in nodes})
            or f" It has {', '.join(full_name for full_name, _ in nodes[:8])}."
        )
        raise SelectorError(f"Region {name!r} has no node {at!r}.{hint}")
    require_one_op(at, graphs, origins.__contains__)
    return next(origin for origin in matches if origin is not None)


def _region_part(region: Region, graphs: Sequence[Graph], nodes: Sequence[Node], name: str) -> Region:
    """Return the part of ``region`` with ``nodes`` as a region called ``name``."""
    origins = {node.origin for node in nodes if node.origin is not None}
    narrowed = (_narrowed_selector(selector, graphs, origins) for selector in region.selectors)
    selectors = tuple(selector for selector in narrowed if selector is not None)
    return replace(
        region,
        name=name,
        selectors=selectors,
        joined=region.joined and len(selectors) > 1,
        carved=tuple(selector for selector in region.carved if origins & picks(selector, graphs).keys()),
    )


def _narrowed_selector(selector: Selector, graphs: Sequence[Graph], origins: Collection[int]) -> Selector | None:
    """Return the selector narrowed to ``origins``, or None if it picks none of them."""
    picked = picks(selector, graphs)
    narrowed = {origin: instance for origin, instance in picked.items() if origin in origins}
    if not narrowed or len(narrowed) == len(picked):
        return selector if narrowed else None
    paths = {instance[0] for instance in narrowed.values() if instance is not None}
    if selector.kind is SelectorKind.MODULES and len(paths) == 1:
        plain = Selector(SelectorKind.MODULES, tuple(paths))
        if picks(plain, graphs) == narrowed:
            return plain
    return replace(selector, only=node_names(graphs, narrowed))
