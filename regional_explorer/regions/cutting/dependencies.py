"""The dependencies of each node of a live graph: its inputs, earlier random draws, and writes to what it reads."""

from __future__ import annotations

import torch
from torch import fx

from regional_explorer.torch_api import draws_random


def dependencies(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return the dependencies of each node: its inputs, and nodes that must run before it because of side effects.

    Ops that draw random numbers keep their order, or the cut graph would draw other numbers. A write depends on every
    earlier read of its storage, and later reads depend on the write.
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
