"""Maps the nodes of a partition to the kernels that Inductor makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

POSITION = "regional_explorer_position"
"""The key in ``meta["custom"]``, which AOTAutograd propagates, for the position of a node in its partition."""


@dataclass(frozen=True)
class Structure:
    """The nodes of a partition by position: inputs, readers, equal nodes (``twins``), and ``views``."""

    inputs: Mapping[int, tuple[int, ...]]
    readers: Mapping[int, tuple[int, ...]]
    twins: Mapping[int, tuple[int, ...]]
    views: tuple[int, ...]

    @classmethod
    def of(cls, gm: fx.GraphModule, positions: Mapping[str, int]) -> Structure:
        """Return the structure of ``gm``, and write the position of each node into its metadata."""
        inputs: dict[int, tuple[int, ...]] = {}
        readers: dict[int, tuple[int, ...]] = {}
        equal_nodes: dict[Any, list[int]] = {}
        views = []
        for node in gm.graph.nodes:
            if (position := positions.get(node.name)) is None:
                continue
            node.meta["custom"] = {**(node.meta.get("custom") or {}), POSITION: position}
            inputs[position] = tuple(positions[arg.name] for arg in node.all_input_nodes if arg.name in positions)
            readers[position] = tuple(positions[user.name] for user in node.users if user.name in positions)
            equal_nodes.setdefault((node.target, repr((node.args, node.kwargs))), []).append(position)
            if computes_nothing(node):
                views.append(position)
        twins = {member: tuple(group) for group in equal_nodes.values() if len(group) > 1 for member in group}
        return cls(inputs, readers, twins, tuple(sorted(views)))

    def inferred(self, named: Sequence[set[int]]) -> list[set[int]]:
        """Return per kernel the nodes that it must compute although no kernel names them.

        The replacement of a pattern names only some of its nodes (``mm`` and ``add`` become an ``addmm`` that names
        ``add``), and of equal nodes one is computed. Any other node is computed in the kernels that read it, or, at the
        end of a partition, in those that compute its inputs.
        """
        kernels: dict[int, set[int]] = {}
        for index, nodes in enumerate(named):
            for node in nodes:
                kernels.setdefault(node, set()).add(index)
        named_nodes = set(kernels)
        for node in sorted(self.inputs, reverse=True):
            if node not in kernels:
                self._assign_kernels(kernels, node, [*self.twins.get(node, ()), *self.readers[node]])
        for node in sorted(self.inputs):
            if node not in kernels:
                self._assign_kernels(kernels, node, self.inputs[node])
        inferred: list[set[int]] = [set() for _ in named]
        for node in kernels.keys() - named_nodes - set(self.views):
            for index in kernels[node]:
                inferred[index].add(node)
        return inferred

    @staticmethod
    def _assign_kernels(kernels: dict[int, set[int]], node: int, neighbours: Iterable[int]) -> None:
        if numbers := set[int]().union(*(kernels.get(neighbour, set()) for neighbour in neighbours)):
            kernels[node] = numbers


def computes_nothing(node: fx.Node) -> bool:
    """Return whether a node is a view, a ``getitem`` or arithmetic on sizes."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return True
    if target._schema.name in ("aten::_unsafe_view", "aten::detach", "aten::alias", "aten::lift_fresh_copy"):
        return True
    aliases = [result.alias_info for result in target._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def positions_of(origins: Iterable[fx.Node]) -> set[int]:
    """Return the positions of the partition's nodes that ``origins`` descend from."""
    positions = ((origin.meta.get("custom") or {}).get(POSITION) for origin in origins)
    return {position for position in positions if position is not None}


def positions_downstream(origins: Iterable[fx.Node]) -> set[int]:
    """Return the positions of the nearest users of nodes that Inductor inserted, such as those that draw seeds."""
    frontier = list(origins)
    while frontier and not (positions := positions_of(frontier)):
        frontier = list(dict.fromkeys(user for node in frontier for user in node.users))
    return positions if frontier else set()
