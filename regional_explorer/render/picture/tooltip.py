"""Builds the rows of the tooltips of boxes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import Node
from regional_explorer.render.picture.arrays import Payload, TabGraph, Texts
from regional_explorer.render.picture.scene import Box
from regional_explorer.render.style.untrusted import clean

MOST_NAMED = 4
"""How many tensors that a node reads are listed at most; none for a box with this many nodes."""
MOST_HALF = 110
"""Characters kept of a node's name, and of its target, where both are shown."""
NOTES: Mapping[str, str] = {
    "recompute": "recomputed in the backward",
    "random": "random",
    "carved": "taken out of its region: runs eagerly",
}
"""The note in the tooltip of a box that has a node with this flag."""


def tooltip_arrays(parts: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the tooltip rows of all boxes as one array of text numbers, and the index where each box ends in it."""
    rows, ends = array("I"), array("I")
    for part in parts:
        of_box = _nodes_of_boxes(part)
        outside = {node.name: node for node in part.graph.nodes if node.name not in part.home}
        for box, leaf in zip(part.section.boxes, part.leaves, strict=True):
            opens = leaf is not None and leaf.fold.opens
            nodes = [node for name in box.nodes for node in of_box[name]]
            for word, text in _tooltip_rows(box, nodes, part.facts, outside, opens=opens):
                if text:
                    rows.extend((texts.exact(word), texts.exact(text)))
            ends.append(len(rows))
    return {"box_tooltips": rows.tobytes(), "box_tooltip_ends": ends.tobytes()}


def _nodes_of_boxes(part: TabGraph) -> dict[str, list[Node]]:
    """Return the nodes of each op that boxes name: the op itself, then the nodes that belong to its box, as getitem."""
    own = {name for box in part.section.boxes for name in box.nodes}
    op: dict[str, str] = {}
    found: dict[str, list[Node]] = {name: [] for name in own}
    for node in part.nodes:
        op[node.name] = node.name if node.name in own else op[node.inputs[0]]
        found[op[node.name]].append(node)
    return found


def _tooltip_rows(
    box: Box, nodes: Sequence[Node], facts: Mapping[str, Mapping[str, str]], outside: Mapping[str, Node], *, opens: bool
) -> Iterator[tuple[str, str]]:
    """Yield words and texts, all of them clean, as the facts of nodes are."""
    first = facts[nodes[0].name] if nodes else {}
    if first and not opens:
        yield "node", f"{_half(first['name'])} = {_half(first['target'])}"
        yield "gives", first["value"]
    else:
        yield "", clean(box.detail)
        yield "holds", f"{count(len(nodes), 'node')} · + or double-click opens it"
    if first:
        yield "module", first["module"]
        yield "line", first["source"]
    if 0 < len(nodes) < MOST_NAMED:
        read = [outside[name] for name in nodes[0].inputs if name in outside]
        yield "reads", clean(", ".join(f"{one.role} {one.name}" for one in read[:MOST_NAMED]))
    for flag, note in NOTES.items():
        if any(getattr(node, flag) for node in nodes):
            yield "note", note


def _half(text: str) -> str:
    return text if len(text) <= MOST_HALF else clean(text, MOST_HALF)
