"""Orders partitions and single ops by their dependencies; finds cycles, and how often a path leaves and enters one."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
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
        CycleError: the units feed each other in a cycle.
    """
    units, waits = condense(nodes, before, parts)
    position = {node: index for index, node in enumerate(nodes)}
    key = [max(position[node] for node in unit) for unit in units]
    sorter = TopologicalSorter(dict(enumerate(waits)))
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    done = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, (key[index], index))
        _, index = heapq.heappop(ready)
        done.append(units[index])
        sorter.done(index)
    return done


def in_order(nodes: Sequence[T], before: Edges[T], parts: Sequence[list[T]]) -> list[T]:
    """Return all nodes in an order in which the parts can run, each part together."""
    return [node for unit in schedule(nodes, before, parts) for node in unit]


def cycles(nodes: Sequence[T], before: Edges[T], parts: Sequence[list[T]]) -> list[list[int]]:
    """Return the cycles among partitions as lists of their indices."""
    units, waits = condense(nodes, before, parts)
    try:
        TopologicalSorter(dict(enumerate(waits))).prepare()
    except CycleError:
        number = {id(part): index for index, part in enumerate(parts)}
        return _cycles([number.get(id(unit)) for unit in units], waits)
    return []


def _cycles(numbers: Sequence[int | None], waits: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the cycles among units as lists of their ``numbers``: those of partitions, None for single ops."""
    own = [0 if number is None else 1 << number for number in numbers]
    above = [0] * len(own)  # the partitions that each unit depends on, as bit sets
    known: list[int] = []
    while above != known:
        known = list(above)
        for unit, sources in enumerate(waits):
            for source in sources:
                above[unit] |= above[source] | own[source]
    # A partition that depends on itself is in a cycle, and all of a cycle depend on the same ones.
    found: dict[int, list[int]] = {}
    for number, mine, reached in zip(numbers, own, above, strict=True):
        if number is not None and mine & reached:
            found.setdefault(reached, []).append(number)
    return [sorted(cycle) for cycle in found.values()]
