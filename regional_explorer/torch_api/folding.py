"""What AOTAutograd's partitioner folded: ops that common subexpression elimination (CSE) replaced by equal ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch import fx
from torch._functorch import partitioners

from regional_explorer.torch_api.versions import ORIGIN


@dataclass(frozen=True)
class Folded:
    """An op that common subexpression elimination replaced by an equal one: names and origins of both."""

    name: str
    origin: int | None
    into: str
    into_origin: int | None


@contextlib.contextmanager
def folding(on_fold: Callable[[list[Folded]], None]) -> Iterator[None]:
    """A block in which every elimination of common subexpressions is reported, graph by graph."""
    original = partitioners.fx_graph_cse  # type: ignore[attr-defined]  # a private module exports nothing by name

    def eliminate(graph: fx.Graph, *args: Any, **kwargs: Any) -> fx.Graph:
        result: fx.Graph = original(graph, *args, **kwargs)
        on_fold(_folded_nodes(graph, result))
        return result

    with mock.patch.object(partitioners, "fx_graph_cse", eliminate):
        yield


def _folded_nodes(before: fx.Graph, after: fx.Graph) -> list[Folded]:
    """Return the nodes missing in ``after``; nodes keep their names, so a user's argument shows the replacement."""
    replacement = {node.name: node for node in after.nodes}
    kept_names = set(replacement)
    for node in reversed(list(before.nodes)):
        user = next((user for user in node.users if user.name in replacement), None)
        if node.name not in replacement and user is not None:
            replacement[node.name] = _argument_nodes(replacement[user.name])[_argument_nodes(user).index(node)]
    return [
        Folded(node.name, _node_origin(node), replacement[node.name].name, _node_origin(replacement[node.name]))
        for node in before.nodes
        if node.name not in kept_names and node.name in replacement
    ]


def _argument_nodes(node: fx.Node) -> list[fx.Node]:
    nodes: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), nodes.append)
    return nodes


def _node_origin(node: fx.Node) -> int | None:
    origin: int | None = (node.meta.get("custom") or {}).get(ORIGIN)
    return origin
