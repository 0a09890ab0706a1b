"""Which nodes make one partition: connected, convex, and free of cycles with all others.

The level of a node is how often a path to it has left and re-entered its group. Nodes of one level never have a path
through foreign ops between them, so each connected piece of a level can run as one call. One pass over the graph
finds them, where a general partitioner searches.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from regional_explorer.regions.select import Claim
from regional_explorer.torch_api import propose_partitions


@dataclass
class Group:
    """The nodes of one instance in one graph, in the order they run."""

    claim: Claim
    nodes: list[fx.Node]


@dataclass
class Proposal:
    """The partitions of one graph, in the order of the plan, and which groups had to be split to avoid cycles."""

    parts: list[Group]
    cyclic: list[frozenset[str]] = field(default_factory=list)


Edges = Mapping[fx.Node, Sequence[fx.Node]]


def propose(graph: fx.Graph, claim_of: Callable[[fx.Node], Claim | None], order: Sequence[str]) -> Proposal:
    """Return the partitions of ``graph``: one per connected, convex piece of an instance.

    Args:
        graph: the graph to cut.
        claim_of: who has a node, or None for ops that stay eager.
        order: names of the regions; where regions feed each other both ways, those named first stay whole.
    """
    before = dependencies(graph)
    groups = [part for group in _groups(graph, claim_of, order) for part in _connected(group)]
    nodes = list(graph.nodes)
    parts = [part for group in groups for part in _convex(group, nodes, before, {})]
    cycles = _cycles(nodes, before, parts)
    if not cycles:
        return Proposal(parts)
    settled: list[Group] = []
    for group in groups:
        home = _home(settled)
        settled += _convex(group, _in_order(nodes, before, settled), before, home)
    return Proposal(settled, [frozenset(parts[index].claim.region for index in cycle) for cycle in cycles])


def propose_upstream(
    gm: fx.GraphModule, claim_of: Callable[[fx.Node], Claim | None], order: Sequence[str]
) -> Proposal:
    """Return the partitions that upstream's regional_inductor would cut, one partitioner per region."""
    parts = []
    for group in _groups(gm.graph, lambda node: _whole(claim_of(node)), order):
        parts += [Group(group.claim, nodes) for nodes in propose_partitions(gm, group.nodes)]
    before: Edges = {node: list(node.all_input_nodes) for node in gm.graph.nodes}
    if _cycles(list(gm.graph.nodes), before, parts):
        return propose(gm.graph, claim_of, order)
    return Proposal(parts)


def _whole(claim: Claim | None) -> Claim | None:
    return Claim(claim.region) if claim is not None else None


def dependencies(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return what each node has to wait for: its inputs, and whatever an effect orders it after.

    Ops that draw random numbers keep their order, or a cut graph would draw others. A write waits for every earlier
    read of its storage, and later reads for it.
    """
    before = {node: list(node.all_input_nodes) for node in graph.nodes}
    last_random: fx.Node | None = None
    touched: dict[int, list[fx.Node]] = {}
    written: dict[int, fx.Node] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if _draws(node):
            if last_random is not None:
                before[node].append(last_random)
            last_random = node
        targets = {_storage(argument) for argument in written_arguments(node)}
        for source in (*node.all_input_nodes, node):
            key = _storage(source)
            if key is None:
                continue
            if key in targets:
                before[node] += [reader for reader in touched.get(key, []) if reader is not node]
                written[key] = node
            elif key in written and written[key] is not node:
                before[node].append(written[key])
            touched.setdefault(key, []).append(node)
    return before


def _draws(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def written_arguments(node: fx.Node) -> list[fx.Node]:
    """Return the inputs that ``node`` writes to in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    return [
        value
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for value in [node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)]
        if isinstance(value, fx.Node)
    ]


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return int(value.untyped_storage()._cdata)
    return None


def _groups(
    graph: fx.Graph, claim_of: Callable[[fx.Node], Claim | None], order: Sequence[str]
) -> list[Group]:
    rank = {name: index for index, name in enumerate(order)}
    found: dict[Claim, Group] = {}
    claims: dict[fx.Node, Claim] = {}
    for node in graph.nodes:
        claim = claims.get(node.args[0]) if _is_getitem(node) else claim_of(node) if _can_move(node) else None
        if claim is not None:
            claims[node] = claim
            found.setdefault(claim, Group(claim, [])).nodes.append(node)
    return sorted(found.values(), key=lambda group: rank[group.claim.region])


def _is_getitem(node: fx.Node) -> bool:
    """Tell whether a node only takes one of several results: it goes where these are made, marked or not."""
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node)


def _can_move(node: fx.Node) -> bool:
    """Tell whether an op can be put behind a call that takes and returns tensors and sizes."""
    if node.op != "call_function" or written_arguments(node):
        return False
    if isinstance(node.meta.get("val"), (list, tuple)) and not all(_is_getitem(user) for user in node.users):
        return False
    sources = [source for source in node.all_input_nodes if source.op != "get_attr"]
    return all(_passable(source) or isinstance(source.meta.get("val"), (list, tuple)) for source in sources)


def _passable(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.Tensor, torch.SymInt, torch.SymFloat, int, float))


def _connected(group: Group) -> list[Group]:
    """Split a group where no op feeds another: what is not connected is never merged sideways."""
    inside = set(group.nodes)
    root = {node: node for node in group.nodes}

    def find(node: fx.Node) -> fx.Node:
        while root[node] is not node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for node in group.nodes:
        for source in node.all_input_nodes:
            if source in inside:
                root[find(node)] = find(source)
    pieces: dict[fx.Node, list[fx.Node]] = {}
    for node in group.nodes:
        pieces.setdefault(find(node), []).append(node)
    return [Group(group.claim, nodes) for nodes in pieces.values()]


def _convex(
    group: Group, order: Sequence[fx.Node], before: Edges, home: Mapping[fx.Node, Group]
) -> list[Group]:
    """Split a group by level. ``home`` holds settled partitions, which count as one op each."""
    inside = set(group.nodes)
    level: dict[fx.Node, int] = {}
    whole: dict[int, int] = {}
    for node in order:
        settled = home.get(node)
        if settled is not None and id(settled) in whole:
            continue
        unit = settled.nodes if settled is not None else [node]
        reached = 0
        for member in unit:
            for source in before[member]:
                if source in level:
                    leaves = source in inside and node not in inside
                    reached = max(reached, level[source] + leaves)
        for member in unit:
            level[member] = reached
        if settled is not None:
            whole[id(settled)] = reached
    levels: dict[int, list[fx.Node]] = {}
    for node in group.nodes:
        levels.setdefault(level[node], []).append(node)
    return [part for key in sorted(levels) for part in _connected(Group(group.claim, levels[key]))]


def _home(parts: Iterable[Group]) -> dict[fx.Node, Group]:
    return {node: part for part in parts for node in part.nodes}


def condense(
    nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Group]
) -> tuple[list[list[fx.Node]], list[set[int]]]:
    """Return the units of the cut graph (single ops and partitions), and which units each has to wait for."""
    home = _home(parts)
    units: list[list[fx.Node]] = []
    number: dict[fx.Node, int] = {}
    for node in nodes:
        if node in number:
            continue
        unit = home[node].nodes if node in home else [node]
        number.update(dict.fromkeys(unit, len(units)))
        units.append(unit)
    waits: list[set[int]] = [set() for _ in units]
    for node in nodes:
        mine = number[node]
        waits[mine].update(number[source] for source in before[node] if number[source] != mine)
    return units, waits


def schedule(nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Group]) -> list[list[fx.Node]]:
    """Return the units in an order that respects every dependency, else as late as the program had them.

    Raises:
        ValueError: the units feed each other in a circle.
    """
    units, waits = condense(nodes, before, parts)
    position = {node: index for index, node in enumerate(nodes)}
    key = [max(position[node] for node in unit) for unit in units]
    left = [len(wait) for wait in waits]
    users: list[list[int]] = [[] for _ in units]
    for index, wait in enumerate(waits):
        for source in wait:
            users[source].append(index)
    ready = [(key[index], index) for index, count in enumerate(left) if count == 0]
    heapq.heapify(ready)
    done = []
    while ready:
        _, index = heapq.heappop(ready)
        done.append(units[index])
        for user in users[index]:
            left[user] -= 1
            if left[user] == 0:
                heapq.heappush(ready, (key[user], user))
    if len(done) != len(units):
        raise ValueError("the partitions feed each other in a circle")
    return done


def _in_order(nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Group]) -> list[fx.Node]:
    return [node for unit in schedule(nodes, before, parts) for node in unit]


def _cycles(nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Group]) -> list[list[int]]:
    """Return the circles among partitions as lists of their indices (Tarjan, without recursion)."""
    units, waits = condense(nodes, before, parts)
    part_of = {id(part.nodes): index for index, part in enumerate(parts)}
    found = []
    for component in _strongly_connected(waits):
        if len(component) > 1:
            found.append(sorted(part_of[id(units[unit])] for unit in component if id(units[unit]) in part_of))
    return found


def _strongly_connected(edges: Sequence[Iterable[int]]) -> list[list[int]]:
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    components: list[list[int]] = []
    for start in range(len(edges)):
        if start in index:
            continue
        work: list[tuple[int, Any]] = [(start, iter(edges[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    components.append(component)
    return components
