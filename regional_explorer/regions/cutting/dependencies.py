"""The dependencies of each node of a live graph: its inputs, earlier random draws, and writes to what it reads."""

from __future__ import annotations

import torch
from torch import fx

from regional_explorer.torch_api import draws_random, written_arguments


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
        if draws_random(node):
            if last_random is not None:
                before[node].append(last_random)
            last_random = node
        written_storages = {_storage_id(source) for source in written_inputs(node)}
        for source in (*node.all_input_nodes, node):
            storage = _storage_id(source)
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


def _storage_id(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return int(value.untyped_storage()._cdata)
    return None
