"""Groups the nodes of a graph into partitions: each of one instance, convex, and free of dependency cycles.

The level of a node is how often a path to it has left and re-entered its instance. No path between nodes of one level
runs through ops outside of the instance, so they can run as one call. One pass over the graph finds the levels; a
general partitioner has to search.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from regional_explorer.record.grouping import connected, grouped
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.order import Edges, cycles, dependencies, in_order, levels, part_of_node, written_inputs
from regional_explorer.torch_api.graphs import propose_partitions

_SYMBOLIC_SCALARS = (torch.SymFloat, torch.SymBool)


@dataclass
class NodeGroup:
    """The nodes of one instance in one graph, in the order they run."""

    claim: Claim
    nodes: list[fx.Node]


@dataclass
class Proposal:
    """The partitions of one graph, in the order of the plan, and the sets of regions that fed each other in a cycle.

    ``before`` has the nodes that must run before each node.
    """

    parts: list[NodeGroup]
    before: Edges[fx.Node]
    cyclic: list[frozenset[str]] = field(default_factory=list)


def propose(graph: fx.Graph, claim_of: Callable[[fx.Node], Claim | None], order: Sequence[str]) -> Proposal:
    """Return the partitions of ``graph``: one per convex piece of an instance.

    Args:
        graph: the graph to cut.
        claim_of: returns the claim on a node, or None for ops that stay eager.
        order: names of the regions; if regions feed each other both ways, those named first stay whole.
    """
    before = dependencies(graph)
    groups = [part for group in _node_groups(graph, claim_of, order) for part in _connected_groups(group)]
    nodes = list(graph.nodes)
    position = {node: index for index, node in enumerate(nodes)}
    parts = []
    for group in groups:
        # Every path between two of its nodes lies within the part of the graph that they span.
        span = nodes[position[group.nodes[0]] : position[group.nodes[-1]] + 1]
        parts += _convex_groups(group, span, before, [])
    cyclic = cycles(nodes, before, [part.nodes for part in parts])
    if not cyclic:
        return Proposal(parts, before)
    settled: list[NodeGroup] = []
    for group in groups:
        settled += _convex_groups(group, in_order(nodes, before, [part.nodes for part in settled]), before, settled)
    return Proposal(settled, before, [frozenset(parts[index].claim.region for index in cycle) for cycle in cyclic])


def propose_upstream(gm: fx.GraphModule, claim_of: Callable[[fx.Node], Claim | None], order: Sequence[str]) -> Proposal:
    """Return the partitions that upstream's regional_inductor would cut, one partitioner per region."""
    parts = []
    for group in _node_groups(gm.graph, lambda node: _region_claim(claim_of(node)), order):
        parts += [NodeGroup(group.claim, nodes) for nodes in propose_partitions(gm, group.nodes)]
    before = {node: list(node.all_input_nodes) for node in gm.graph.nodes}
    if cycles(list(gm.graph.nodes), before, [part.nodes for part in parts]):
        return propose(gm.graph, claim_of, order)
    return Proposal(parts, before)


def _region_claim(claim: Claim | None) -> Claim | None:
    return Claim(claim.region) if claim is not None else None


def _node_groups(graph: fx.Graph, claim_of: Callable[[fx.Node], Claim | None], order: Sequence[str]) -> list[NodeGroup]:
    rank = {name: index for index, name in enumerate(order)}
    groups: dict[Claim, NodeGroup] = {}
    claims: dict[fx.Node, Claim] = {}
    for node in graph.nodes:
        claim = claims.get(node.args[0]) if _is_getitem(node) else claim_of(node) if _can_move(node) else None
        if claim is not None:
            claims[node] = claim
            groups.setdefault(claim, NodeGroup(claim, [])).nodes.append(node)
    return sorted(groups.values(), key=lambda group: rank[group.claim.region])


def _is_getitem(node: fx.Node) -> bool:
    """Return whether a node only takes one of several results: it stays with the op that makes them, marked or not."""
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node)


def _can_move(node: fx.Node) -> bool:
    """Return whether an op can move into a call that takes and returns only tensors and sizes."""
    if node.op != "call_function" or isinstance(node.meta.get("val"), _SYMBOLIC_SCALARS):
        return False
    if written_inputs(node) or _addresses_storage(node):
        return False
    if isinstance(node.meta.get("val"), (list, tuple)) and not all(_is_getitem(user) for user in node.users):
        return False
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    return all(
        _passable(source) or computed_from_sizes(source) or isinstance(source.meta.get("val"), (list, tuple))
        for source in sources
    )


def _passable(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.Tensor, torch.SymInt, int, float))


def _addresses_storage(node: fx.Node) -> bool:
    """Return whether an op addresses the storage of a tensor that does not start where the storage does.

    Inductor compiles a piece for inputs that do (torch 2.13: the offset is not part of its cache's key either).
    """
    if "as_strided" not in str(node.target):
        return False
    offsets = [source.meta["val"].storage_offset() for source in node.all_input_nodes if _is_strided(source)]
    return any(isinstance(offset, torch.SymInt) or offset for offset in offsets)


def _is_strided(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def computed_from_sizes(node: fx.Node) -> bool:
    """Return whether a node is a symbolic float or bool that follows from sizes, as in ``x / math.sqrt(x.shape[0])``.

    Inductor takes and returns no such numbers, so every partition that uses one computes it from the sizes.
    """
    if node.op != "call_function" or not isinstance(node.meta.get("val"), _SYMBOLIC_SCALARS):
        return False
    sources = node.all_input_nodes
    return all(isinstance(source.meta.get("val"), torch.SymInt) or computed_from_sizes(source) for source in sources)


def _connected_groups(group: NodeGroup) -> list[NodeGroup]:
    """Split a group whose instances are unknown into its connected components."""
    if group.claim.instance is not None:
        return [group]
    inside = set(group.nodes)
    links = [(node, source) for node in group.nodes for source in node.all_input_nodes if source in inside]
    return [NodeGroup(group.claim, nodes) for nodes in connected(group.nodes, links)]


def _convex_groups(
    group: NodeGroup, order: Sequence[fx.Node], before: Edges[fx.Node], settled: Sequence[NodeGroup]
) -> list[NodeGroup]:
    """Split a group by level; finished (``settled``) partitions count as one op each."""
    level_of = levels(order, before, set(group.nodes), part_of_node(part.nodes for part in settled))
    by_level = grouped((level_of[node], node) for node in group.nodes)
    return [NodeGroup(group.claim, by_level[level]) for level in sorted(by_level)]
