"""The tensors that a forward keeps for its backward, and the ops that are recomputed instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.session import Session, derived


@dataclass(frozen=True)
class Kept:
    """One tensor that a forward keeps for its backward; views of one tensor count once."""

    graph: str
    """The id of the forward."""
    node: Node
    """The op of the forward that computes it."""
    region: str | None
    """The region of the op, or None."""
    size_bytes: int | None
    """Its size; None if it is dynamic."""


@derived
def kept_for_backward(session: Session) -> tuple[Kept, ...]:
    """Return the tensors that forwards keep for their backward, largest first.

    Parameters, inputs and views of them are left out: they are in memory anyway.
    """
    graphs = {graph.id: graph for graph in session.graphs if graph.parent is None}
    kept = [
        tensor
        for graph in graphs.values()
        if graph.kind is GraphKind.BACKWARD
        and (forward := graphs.get(f"{graph.frame}/{GraphKind.FORWARD}")) is not None
        for tensor in _kept_of(session, graph, forward)
    ]
    return tuple(sorted(kept, key=lambda tensor: -(tensor.size_bytes or 0)))


def _kept_of(session: Session, backward: Graph, forward: Graph) -> Iterator[Kept]:
    regions = {name: region for region, members in session.members.items() for name in members.get(forward.id, ())}
    saved = (forward.by_name.get(node.name) for node in backward.nodes if node.role is Role.SAVED)
    bases = (_view_base(node, forward) for node in saved if node)
    computed = {base.name: base for base in bases if base.role is Role.OP and base.values}  # a number has no values
    for node in computed.values():
        sizes = [spec.size_bytes for spec in node.values]
        yield Kept(forward.id, node, regions.get(node.name), None if None in sizes else sum(filter(None, sizes)))


_SPLITS = frozenset(("split", "split_with_sizes", "unbind"))
_SHAPED = ("expand", "permute", "squeeze", "t", "transpose", "unsqueeze", "view", "_unsafe_view")
_PARTS = ("as_strided", "diagonal", "select", "slice", "unfold", "view_as_complex", "view_as_real")
_VIEWS = frozenset((*_SPLITS, *_SHAPED, *_PARTS, "alias", "detach"))
"""The ops whose result is a view of their first input; ``getitem`` is one for an op that splits."""


def _is_view(node: Node, graph: Graph) -> bool:
    return node.op in _VIEWS or (node.op == "getitem" and graph.by_name[node.inputs[0]].op in _SPLITS)


def _view_base(node: Node, graph: Graph) -> Node:
    """Return the op or input that a view is a view of."""
    while node.role is Role.OP and _is_view(node, graph):
        node = graph.by_name[node.inputs[0]]
    return node


@derived
def recomputed_ops(session: Session) -> Mapping[str, Node]:
    """Return the ops of the forward that the backward repeats instead of keeping their results, by ``graph:name``."""
    backwards = (graph for graph in session.graphs if graph.kind is GraphKind.BACKWARD)
    ops = ((graph, node) for graph in backwards for node in graph.ops)
    return {f"{graph.id}:{node.name}": node for graph, node in ops if node.recompute and not _is_view(node, graph)}
