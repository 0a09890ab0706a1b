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
    own = {origin for origin, claim in owners.items() if claim.region == name}
    held = [(owners[node.origin].instance, node) for node in _in_order(graphs) if node.origin in own]
    instances = list(grouped((instance, node) for instance, node in held if instance is not None).values())
    if at is None:
        parts, rest = _each(name, instances, graphs), list[Node]()
    else:
        parts, rest = _cut(name, instances, _origin(graphs, name, own, at), at)
    free = (called for number in itertools.count(1) if (called := f"{name}.{number}") not in plan)
    regions = [_part(region, graphs, part, called) for part, called in zip(parts, free, strict=False)]
    return plan.replaced({name}, *([_part(region, graphs, rest, name)] if rest else []), *regions)


def _in_order(graphs: Sequence[Graph]) -> Iterator[Node]:
    """Yield the ops of Dynamo's graphs in the order of the program: those of a body where the op that runs it is."""
    dynamo = [graph for graph in graphs if graph.kind is GraphKind.DYNAMO]
    inner = grouped((graph.parent, graph) for graph in dynamo)

    def ops(graph: Graph) -> Iterator[Node]:
        for node in graph.nodes:
            for body in inner.get((graph.id, node.name), ()):
                yield from ops(body)
            if node.role is Role.OP:
                yield node

    for graph in inner.get(None, ()):
        yield from ops(graph)


def _each(name: str, parts: list[list[Node]], graphs: Sequence[Graph]) -> list[list[Node]]:
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


def _cut(name: str, instances: Sequence[list[Node]], origin: int, at: str) -> tuple[list[list[Node]], list[Node]]:
    """Return the nodes before ``origin`` and those from it on, in all equal instances, and the nodes of the others."""
    whole = next(nodes for nodes in instances if any(node.origin == origin for node in nodes))
    place = next(index for index, node in enumerate(whole) if node.origin == origin)
    if place == 0:
        raise PlanError(f"Region {name!r} begins with {at!r}: none of its ops runs before. Give a later node.")
    ops = [node.target for node in whole]
    alike = [nodes for nodes in instances if [node.target for node in nodes] == ops]
    others = [node for nodes in instances if nodes not in alike for node in nodes]
    halves = [[node for nodes in alike for node in nodes[:place]], [node for nodes in alike for node in nodes[place:]]]
    return halves, others


def _origin(graphs: Sequence[Graph], name: str, own: Collection[int], at: str) -> int:
    """Return the origin of the node called ``at``."""
    nodes = [(f"{graph.id}:{node.name}", node) for graph in graphs for node in graph.ops if node.origin in own]
    found = {node.origin: known for known, node in nodes if at in (node.name, known)}
    if not found:
        near = (
            did_you_mean(at, {node.name for _, node in nodes})
            or f" It has {', '.join(known for known, _ in nodes[:8])}."
        )
        raise SelectorError(f"Region {name!r} has no node {at!r}.{near}")
    if len(found) > 1:
        raise SelectorError(
            f"Several nodes of region {name!r} are called {at!r}. Say which: {', '.join(found.values())}."
        )
    return next(origin for origin in found if origin is not None)


def _part(region: Region, graphs: Sequence[Graph], nodes: Sequence[Node], name: str) -> Region:
    """Return the part of ``region`` with ``nodes`` as a region called ``name``."""
    origins = {node.origin for node in nodes if node.origin is not None}
    narrowed = (_narrowed(selector, graphs, origins) for selector in region.selectors)
    selectors = tuple(selector for selector in narrowed if selector is not None)
    return replace(
        region,
        name=name,
        selectors=selectors,
        joined=region.joined and len(selectors) > 1,
        carved=tuple(selector for selector in region.carved if origins & picks(selector, graphs).keys()),
    )


def _narrowed(selector: Selector, graphs: Sequence[Graph], origins: Collection[int]) -> Selector | None:
    """Return the selector narrowed to ``origins``, or None if it picks none of them."""
    found = picks(selector, graphs)
    mine = {origin: instance for origin, instance in found.items() if origin in origins}
    if not mine or len(mine) == len(found):
        return selector if mine else None
    paths = {instance[0] for instance in mine.values() if instance is not None}
    if selector.kind is SelectorKind.MODULES and len(paths) == 1:
        plain = Selector(SelectorKind.MODULES, tuple(paths))
        if picks(plain, graphs) == mine:
            return plain
    return replace(selector, only=node_names(graphs, mine))
