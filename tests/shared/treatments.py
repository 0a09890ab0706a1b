"""Passes and backends that tests give to regions, from a module that other processes can import."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def replaced(gm: fx.GraphModule, target: Any, new: Any) -> int:
    """Replace the op of each node with ``target``; return how many there were."""
    nodes = gm.graph.find_nodes(op="call_function", target=target)
    for node in nodes:
        node.target = new
    return len(nodes)


def sin_to_cos(gm: fx.GraphModule) -> None:
    """Change results: a wrong pass."""
    replaced(gm, aten.sin.default, aten.cos.default)


def negate_twice(gm: fx.GraphModule) -> fx.GraphModule:
    """Change no result, and add two ops after each sine, without metadata."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.sin.default):
        with gm.graph.inserting_after(node):
            first = gm.graph.call_function(aten.neg.default, (node,))
        with gm.graph.inserting_after(first):
            second = gm.graph.call_function(aten.neg.default, (first,))
        node.replace_all_uses_with(second, delete_user_cb=lambda user, first=first: user is not first)
    return gm


class CountingBackend:
    """Run a piece as it is; count the pieces, the calls, and the ops of each piece."""

    def __init__(self) -> None:
        self.pieces: list[list[str]] = []
        self.calls = 0

    def __call__(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """Return a function that counts its calls."""
        assert all(type(value) is torch.Tensor for value in examples)
        gm(*examples)
        self.pieces.append([str(node.target) for node in gm.graph.nodes if node.op == "call_function"])

        def run(*args: Any) -> Any:
            self.calls += 1
            return gm(*args)

        return run


COUNTING = CountingBackend()


def counting(gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Compile by ``COUNTING``."""
    return COUNTING(gm, examples)
