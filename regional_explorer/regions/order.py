"""Orders ops by their dependencies: schedules, convex parts, cycles.

The level of a node is how often a path to it has left and re-entered its instance. No path between nodes of one level
runs through ops outside of the instance, so they can run as one call. One pass over the graph finds the levels; a
general partitioner has to search.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from torch import fx

from regional_explorer.record.graph import Graph
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api.graphs import runs_random_op, written_arguments
from regional_explorer.torch_api.hidden_state import storage_id

T = TypeVar("T", bound=Hashable)
"""A node of a live graph, or the name of a recorded one."""

K = TypeVar("K")
"""The key of an instance or a partition."""

Edges = Mapping[T, Sequence[T]]
"""The dependencies of each node."""


def recorded_dependencies(graph: Graph) -> dict[str, list[str]]:
    """Return the dependencies of each recorded node: its inputs and, for one that draws random numbers, the last draw.

    The dependencies that ``dependencies`` adds for writes are left out: the record does not contain writes.
    """
    dependencies: dict[str, list[str]] = {}
    last_random: str | None = None
    for node in graph.nodes:
        dependencies[node.name] = [*node.inputs, *([last_random] if node.random and last_random is not None else [])]
        last_random = node.name if node.random else last_random
    return dependencies


def split_by_level(
    instance: Sequence[T], order: Sequence[T], before: Edges[T], settled: Iterable[list[T]] = ()
) -> list[list[T]]:
    """Split the nodes of an instance by level; ``settled`` parts of other instances count as one op each."""
    inside = set(instance)
    part_of = {node: part for part in settled for node in part}
    level: dict[T, int] = {}
    for node in order:
        if node not in level:
            unit = part_of.get(node, [node])
            sources = [source for member in unit for source in before[member] if source in level]
            reached = [level[source] + (source in inside and node not in inside) for source in sources]
            level.update(dict.fromkeys(unit, max(reached, default=0)))
    parts = grouped((level[node], node) for node in instance)
    return [parts[number] for number in sorted(parts)]


def convex_parts(instances: Iterable[tuple[K, Sequence[T]]], before: Edges[T]) -> Iterator[tuple[K, list[T]]]:
    """Yield the convex parts of each instance by itself, with its key; ``before`` has all nodes in their order."""
    nodes = list(before)
    position = {node: index for index, node in enumerate(nodes)}
    for key, instance in instances:
        # Every path between two of its nodes lies within the part of the graph that they span.
        for part in split_by_level(instance, nodes[position[instance[0]] : position[instance[-1]] + 1], before):
            yield key, part


def condense(before: Edges[T], parts: Iterable[list[T]]) -> tuple[list[list[T]], list[set[int]]]:
    """Return the units of the cut graph (single ops and partitions), and the units that each depends on."""
    part_of = {node: part for part in parts for node in part}
    units: list[list[T]] = []
    unit_index: dict[T, int] = {}
    for node in before:
        if node in unit_index:
            continue
        unit = part_of.get(node, [node])
        unit_index.update(dict.fromkeys(unit, len(units)))
        units.append(unit)
    waits: list[set[int]] = [set() for _ in units]
    for node, sources in before.items():
        index = unit_index[node]
        waits[index].update(unit_index[source] for source in sources if unit_index[source] != index)
    return units, waits


def schedule(before: Edges[T], parts: Iterable[list[T]]) -> list[list[T]]:
    """Return the units in an order that respects every dependency, otherwise in the order of their last nodes.

    ``before`` has all nodes in their order.

    Raises:
        CycleError: the units feed each other in a cycle.
    """
    units, waits = condense(before, parts)
    position = {node: index for index, node in enumerate(before)}
    last_position = [max(position[node] for node in unit) for unit in units]
    sorter = TopologicalSorter(dict(enumerate(waits)))
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    scheduled = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, (last_position[index], index))
        _, index = heapq.heappop(ready)
        scheduled.append(units[index])
        sorter.done(index)
    return scheduled


def cycles(before: Edges[T], parts: Sequence[tuple[K, list[T]]]) -> list[frozenset[K]]:
    """Return the cycles among partitions, each as the set of the keys of its partitions."""
    units, waits = condense(before, [part for _, part in parts])
    with contextlib.suppress(CycleError):
        TopologicalSorter(dict(enumerate(waits))).prepare()
        return []
    part_number = {id(part): number for number, (_, part) in enumerate(parts)}
    numbers = [part_number.get(id(unit)) for unit in units]
    unit_bits = [0 if number is None else 1 << number for number in numbers]
    ancestors = [0] * len(units)  # the partitions that each unit depends on, as bit sets
    previous: list[int] = []
    while ancestors != previous:
        previous = list(ancestors)
        for unit, sources in enumerate(waits):
            for source in sources:
                ancestors[unit] |= ancestors[source] | unit_bits[source]
    # A partition that depends on itself is in a cycle, and all partitions of a cycle have the same dependencies.
    by_ancestors = grouped(
        (reached, parts[number][0])
        for number, reached in zip(numbers, ancestors, strict=True)
        if number is not None and reached >> number & 1
    )
    return [frozenset(keys) for keys in by_ancestors.values()]


def dependencies(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return the dependencies of each node: its inputs, and nodes that must run before it because of side effects.

    Ops that draw random numbers keep their order, or the cut graph would draw other numbers. A write depends on every
    earlier read of its storage, and later reads depend on the write.
    """
    before = {node: list(node.all_input_nodes) for node in graph.nodes}
    last_random: fx.Node | None = None
    touching: dict[int, list[fx.Node]] = {}
    last_write: dict[int, fx.Node] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if runs_random_op(node):
            if last_random is not None:
                before[node].append(last_random)
            last_random = node
        written_storages = {storage_id(source) for source in written_inputs(node)}
        for source in (*node.all_input_nodes, node):
            storage = storage_id(source)
            if storage is None:
                continue
            if storage in written_storages:
                before[node] += [reader for reader in touching.get(storage, []) if reader is not node]
                last_write[storage] = node
            elif storage in last_write and last_write[storage] is not node:
                before[node].append(last_write[storage])
            touching.setdefault(storage, []).append(node)
    return before


def written_inputs(node: fx.Node) -> list[fx.Node]:
    """Return the inputs that ``node`` writes to in place."""
    written = written_arguments(node.target, node.args, node.kwargs)
    return [source for source in written if isinstance(source, fx.Node)]
