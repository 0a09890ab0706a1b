"""Builds the rows of the tooltips of boxes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import Node
from regional_explorer.render.picture.arrays import Payload, TabGraph, Texts
from regional_explorer.render.picture.scene import Box
from regional_explorer.render.style.untrusted import clean

MOST_READS = 4
"""How many tensors that a node reads are listed at most; none for a box with this many nodes."""
MOST_HALF = 110
"""Characters kept of a node's name, and of its target, where both are shown."""
FLAG_NOTES: Mapping[str, str] = {
    "recompute": "recomputed in the backward",
    "random": "random",
    "carved": "taken out of its region: runs eagerly",
}
"""The note in the tooltip of a box that has a node with this flag."""


def tooltip_arrays(tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the tooltip rows of all boxes as one array of text numbers, and the index where each box ends in it."""
    rows, ends = array("I"), array("I")
    for tab_graph in tab_graphs:
        nodes_of_op = _nodes_of_ops(tab_graph)
        outside = {node.name: node for node in tab_graph.graph.nodes if node.name not in tab_graph.home}
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            opens = leaf is not None and leaf.fold.opens
            nodes = [node for name in box.nodes for node in nodes_of_op[name]]
            for word, text in _tooltip_rows(box, nodes, tab_graph.facts, outside, opens=opens):
                if text:
                    rows.extend((texts.exact(word), texts.exact(text)))
            ends.append(len(rows))
    return {"box_tooltips": rows.tobytes(), "box_tooltip_ends": ends.tobytes()}


def _nodes_of_ops(tab_graph: TabGraph) -> dict[str, list[Node]]:
    """Return the nodes of each op that boxes name: the op itself, then the nodes that belong to its box, as getitem."""
    op_names = {name for box in tab_graph.section.boxes for name in box.nodes}
    op_of_node: dict[str, str] = {}
    nodes_of_op: dict[str, list[Node]] = {name: [] for name in op_names}
    for node in tab_graph.nodes:
        op_of_node[node.name] = node.name if node.name in op_names else op_of_node[node.inputs[0]]
        nodes_of_op[op_of_node[node.name]].append(node)
    return nodes_of_op


def _tooltip_rows(
    box: Box, nodes: Sequence[Node], facts: Mapping[str, Mapping[str, str]], outside: Mapping[str, Node], *, opens: bool
) -> Iterator[tuple[str, str]]:
    """Yield words and texts, all of them clean, as the facts of nodes are."""
    first = facts[nodes[0].name] if nodes else {}
    if first and not opens:
        yield "node", f"{_half_line(first['name'])} = {_half_line(first['target'])}"
        yield "gives", first["value"]
    else:
        yield "", clean(box.detail)
        yield "holds", f"{count(len(nodes), 'node')} · + or double-click opens it"
    if first:
        yield "module", first["module"]
        yield "line", first["source"]
    if 0 < len(nodes) < MOST_READS:
        outside_reads = [outside[name] for name in nodes[0].inputs if name in outside]
        yield "reads", clean(", ".join(f"{node.role} {node.name}" for node in outside_reads[:MOST_READS]))
    for flag, note in FLAG_NOTES.items():
        if any(getattr(node, flag) for node in nodes):
            yield "note", note


def _half_line(text: str) -> str:
    return text if len(text) <= MOST_HALF else clean(text, MOST_HALF)
