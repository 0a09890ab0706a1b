"""Orders partitions and single ops of a graph by their dependencies, and finds dependency cycles."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
"""A node of a live graph, or the name of a recorded one."""

Edges = Mapping[T, Sequence[T]]
"""The dependencies of each node."""


def part_of_node(parts: Iterable[list[T]]) -> dict[T, list[T]]:
    """Return the part that each node belongs to, for nodes that belong to one."""
    return {node: part for part in parts for node in part}


def levels(order: Sequence[T], before: Edges[T], inside: Collection[T], home: Mapping[T, list[T]]) -> dict[T, int]:
    """Return, for each node, how often a path to it has left and re-entered the nodes ``inside``.

    ``home`` has the part of each node in a finished partition, which counts as one op.
    """
    level: dict[T, int] = {}
    done: set[int] = set()
    for node in order:
        unit = home.get(node)
        if unit is not None:
            if id(unit) in done:
                continue
            done.add(id(unit))
        reached = 0
        for member in unit or [node]:
            for source in before[member]:
                if source in level:
                    leaves = source in inside and node not in inside
                    reached = max(reached, level[source] + leaves)
        level.update(dict.fromkeys(unit or [node], reached))
    return level


def condense(nodes: Sequence[T], before: Edges[T], parts: Sequence[list[T]]) -> tuple[list[list[T]], list[set[int]]]:
    """Return the units of the cut graph (single ops and partitions), and the units that each depends on."""
    home = part_of_node(parts)
    units: list[list[T]] = []
    number: dict[T, int] = {}
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


def schedule(nodes: Sequence[T], before: Edges[T], parts: Sequence[list[T]]) -> list[list[T]]:
    """Return the units in an order that respects every dependency, and is otherwise that of their last nodes.

    Raises:
        ValueError: the units feed each other in a cycle.
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
        raise ValueError("the partitions feed each other in a cycle")
    return done


def in_order(nodes: Sequence[T], before: Edges[T], parts: Sequence[list[T]]) -> list[T]:
    """Return all nodes in an order in which the parts can run, each part together."""
    return [node for unit in schedule(nodes, before, parts) for node in unit]


def cycles(nodes: Sequence[T], before: Edges[T], parts: Sequence[list[T]]) -> list[list[int]]:
    """Return the cycles among partitions as lists of their indices (Tarjan, without recursion)."""
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
