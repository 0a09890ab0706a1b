"""Encodes the boxes, nodes and edges of a picture as flat arrays, which are fast to send and to read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regional_explorer.record.graph import Graph, Node
from regional_explorer.render.picture.columns import columns
from regional_explorer.render.picture.opening import ShownFold
from regional_explorer.render.picture.outline import Fold
from regional_explorer.render.picture.pieces import RegionPiece
from regional_explorer.render.picture.placement import Placement
from regional_explorer.render.picture.scene import Badge, Scene, Section
from regional_explorer.render.style.untrusted import LONG, clean, sendable

Payload = dict[str, Any]
NONE = -1
MOST_VALUES = 4
"""How many results of a node are listed at most."""


@dataclass(frozen=True)
class TabGraph:
    """One graph of a tab.

    ``folds`` are its outline; ``leaves`` has the fold of each box of ``section``, None for an input. ``home`` and
    ``piece_of`` map a node to the number of its box and of its piece in this graph, ``facts`` to its ``FACTS``;
    ``first_node``, ``first_box`` and ``first_piece`` are the numbers at which those of this graph begin in the tab.
    """

    graph: Graph
    section: Section
    scope: str
    folds: tuple[Fold, ...]
    leaves: tuple[ShownFold | None, ...]
    pieces: tuple[RegionPiece, ...]
    piece_names: tuple[str, ...]
    home: Mapping[str, int]
    piece_of: Mapping[str, int]
    facts: Mapping[str, Mapping[str, str]]
    first_node: int
    first_box: int
    first_piece: int

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are in a box, in the order they run."""
        return tuple(node for node in self.graph.nodes if node.name in self.home)

    def named(self, fold: Fold) -> str:
        """Return the name of the fold's piece, or of its first op if it is no piece."""
        return self.piece_names[self.pieces.index(fold.piece)] if fold.piece else fold.nodes[0]


class Texts:
    """Collects texts, so that each is cleaned and sent once and referred to by its number; the empty text is 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}
        self._seen: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)

    def number(self, text: str) -> int:
        """Return the number of a text to be shown."""
        if text not in self._seen:
            self._seen[text] = self.exact(clean(text, LONG))
        return self._seen[text]

    def exact(self, text: str) -> int:
        """Return the number of a text that is sent unchanged: a clean one, or a key that the page only sends back."""
        return self._numbers.setdefault(text, len(self._numbers))


def box_arrays(parts: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the arrays of boxes; ``box_texts`` has five texts of each.

    They are title, detail, signs, the key of the fold that the box opens, and that of the open fold around it.
    ``box_shares`` has pairs of a region and the number of its ops in the box.
    """
    found, pieces, groups, shares, ends = array("I"), array("i"), array("I"), array("I"), array("I")
    for part in parts:
        for box, leaf in zip(part.section.boxes, part.leaves, strict=True):
            around = part.scope + leaf.inside[-1].key if leaf and leaf.inside else ""
            opens = part.scope + leaf.fold.key if leaf and leaf.fold.opens else ""
            signs = "".join(mark for mark in Badge if mark in box.marks)
            found.extend((texts.number(box.title), texts.number(box.detail), texts.number(signs)))
            found.extend((texts.exact(opens), texts.exact(around)))
            shares.extend(number for share in box.shares for number in share)
            ends.append(len(shares))
        numbers = {piece.id: part.first_piece + number for number, piece in enumerate(part.pieces)}
        piece_of_box: dict[str, int] = {}
        for box, leaf in zip(part.section.boxes, part.leaves, strict=True):
            if leaf and leaf.fold.piece:
                piece_of_box[box.id] = numbers[leaf.fold.piece.id]
            pieces.append(NONE if box.region is None else piece_of_box[box.id])
        groups.extend(piece_of_box[group.boxes[0]] for group in part.section.groups)
    return {
        "box_texts": found.tobytes(),
        "box_pieces": pieces.tobytes(),
        "group_pieces": groups.tobytes(),
        "box_shares": shares.tobytes(),
        "box_share_ends": ends.tobytes(),
    }


def node_arrays(parts: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the arrays of nodes; ``node_facts`` has five texts of each, in the order of ``FACTS``."""
    facts, boxes, pieces = array("I"), array("I"), array("i")
    names: list[str] = []
    for part in parts:
        for node in part.nodes:
            facts.extend(map(texts.exact, part.facts[node.name].values()))
            boxes.append(part.first_box + part.home[node.name])
            piece = part.piece_of.get(node.name)
            pieces.append(NONE if piece is None else part.first_piece + piece)
            names.append(sendable(node.name))
    return {
        "node_names": names,
        "node_facts": facts.tobytes(),
        "node_boxes": boxes.tobytes(),
        "node_pieces": pieces.tobytes(),
    }


def facts_of_nodes(graph: Graph) -> dict[str, dict[str, str]]:
    """Return the ``FACTS`` of each node by its name, cleaned."""
    return {node.name: {which: _fact(node, which) for which in FACTS} for node in graph.nodes}


def _fact(node: Node, which: str) -> str:
    try:
        return clean(FACTS[which](node), LONG)
    except Exception:  # noqa: BLE001 - the other facts and nodes stand
        return "?"


def _source(node: Node) -> str:
    line = node.source
    return ": ".join(filter(None, (line.numbered, line.text.strip()))) if line else ""


FACTS: Mapping[str, Callable[[Node], object]] = {
    "name": lambda node: node.name,
    "target": lambda node: node.target,
    "value": lambda node: ", ".join(map(str, node.values[:MOST_VALUES])),
    "module": lambda node: node.module_path or "",
    "source": _source,
}
"""The facts of a node that are shown and can be searched; each is ``?`` if the node is malformed."""


def edge_array(parts: Sequence[TabGraph]) -> bytes:
    """Return the edges between boxes, in the order of the scene, as pairs of numbers."""
    edges = array("I")
    for part in parts:
        box = {box.id: part.first_box + number for number, box in enumerate(part.section.boxes)}
        edges.extend(box[end] for edge in part.section.edges for end in edge)
    return edges.tobytes()


def places(scene: Scene, placement: Placement) -> Payload:
    """Return the rectangles of boxes and groups of ``scene`` as left, top, width, height, and the curves of its edges.

    ``curve_ends`` says for each edge where its numbers end in ``curves``; one without any is drawn from box to box.
    """
    placed = columns(scene, placement)
    rects, groups, curves, ends = array("f"), array("f"), array("f"), array("I")
    found = dict(zip(placed.ends, placed.edges, strict=True))
    for box in scene.boxes:
        rect = placed.boxes[box.id]
        rects.extend((rect.x, rect.y, rect.width, rect.height))
    for section in scene.sections:
        for group in section.groups:
            rect = placed.groups[group.id]
            groups.extend((rect.x, rect.y, rect.width, rect.height))
        for edge in section.edges:
            for point in found.get(edge, ()):
                curves.extend(point)
            ends.append(len(curves))
    return {
        "size": [placed.width, placed.height],
        "titles": [list(placed.titles[section.id]) for section in scene.sections],
        "rects": rects.tobytes(),
        "groups": groups.tobytes(),
        "curves": curves.tobytes(),
        "curve_ends": ends.tobytes(),
    }
