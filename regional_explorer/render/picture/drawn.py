"""Selects the nodes of a graph that are drawn (no getitem), and finds the sources of their inputs behind the others."""

from __future__ import annotations

from regional_explorer.record.graph import Graph, Node, Role


def drawn(node: Node) -> bool:
    """Return whether a node gets a place in a box: ``getitem`` is drawn as a part of its producer."""
    return node.role is Role.OP and node.op != "getitem"


def sources(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the inputs of each node, with each ``getitem`` replaced by its producer."""
    producer_of: dict[str, str] = {}
    for node in graph.nodes:
        if node.role is Role.OP and not drawn(node) and node.inputs:
            producer_of[node.name] = producer_of.get(node.inputs[0], node.inputs[0])
    return {node.name: tuple(producer_of.get(name, name) for name in node.inputs) for node in graph.nodes}
