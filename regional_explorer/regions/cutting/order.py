"""Dependencies between the parts of a graph: a valid order, and dependency cycles."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import fx

from regional_explorer.torch_api import draws_random

Edges = Mapping[fx.Node, Sequence[fx.Node]]
"""What each node has to wait for."""

Unit = list[fx.Node]
"""Nodes that run as one."""


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
        if draws_random(node):
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


def home_of(parts: Iterable[Unit]) -> dict[fx.Node, Unit]:
    """Return the unit of each node that is in one."""
    return {node: part for part in parts for node in part}


def condense(
    nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Unit]
) -> tuple[list[list[fx.Node]], list[set[int]]]:
    """Return the units of the cut graph (single ops and partitions), and which units each has to wait for."""
    home = home_of(parts)
    units: list[list[fx.Node]] = []
    number: dict[fx.Node, int] = {}
    for node in nodes:
        if node in number:
            continue
        unit = home.get(node, [node])
        number.update(dict.fromkeys(unit, len(units)))
        units.append(unit)
    waits: list[set[int]] = [set() for _ in units]
    for node in nodes:
        mine = number[node]
        waits[mine].update(number[source] for source in before[node] if number[source] != mine)
    return units, waits


def schedule(nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Unit]) -> list[list[fx.Node]]:
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


def in_order(nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Unit]) -> list[fx.Node]:
    """Return all nodes in an order in which the parts can run, each part together."""
    return [node for unit in schedule(nodes, before, parts) for node in unit]


def cycles(nodes: Sequence[fx.Node], before: Edges, parts: Sequence[Unit]) -> list[list[int]]:
    """Return the circles among partitions as lists of their indices (Tarjan, without recursion)."""
    units, waits = condense(nodes, before, parts)
    part_of = {id(part): index for index, part in enumerate(parts)}
    return [
        sorted(part_of[id(units[unit])] for unit in component if id(units[unit]) in part_of)
        for component in _strongly_connected(waits)
        if len(component) > 1
    ]


def _strongly_connected(edges: Sequence[Iterable[int]]) -> list[list[int]]:
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    components: list[list[int]] = []
    for start in range(len(edges)):
        if start in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(start, iter(edges[start]))]
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
