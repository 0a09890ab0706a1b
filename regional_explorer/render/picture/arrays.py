"""Encodes the boxes, nodes and edges of a picture as flat arrays, which are fast to send and to read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regional_explorer.errors.texts import sendable
from regional_explorer.record.graph import Graph, Node
from regional_explorer.render.picture.columns import columns
from regional_explorer.render.picture.opening import ShownFold
from regional_explorer.render.picture.outline import Fold
from regional_explorer.render.picture.pieces import RegionPiece
from regional_explorer.render.picture.placement import Placement
from regional_explorer.render.picture.scene import Badge, Scene, Section
from regional_explorer.render.style.untrusted import LONG, SHORT, clean

Payload = dict[str, Any]
UNSET = -1
MOST_VALUES = 4
"""How many results of a node are listed at most."""


@dataclass(frozen=True)
class TabGraph:
    """One graph of a tab.

    ``folds`` are its outline; ``leaves`` has the fold of each box of ``section``, None for an input. ``home`` and
    ``piece_of`` map a node to the number of its box and of its piece in this graph, ``facts`` to its ``NODE_FACTS``;
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

    def crumb(self, fold: Fold) -> str:
        """Return what an open fold is called: its title, or the name of its piece or its first op."""
        name = self.piece_names[self.pieces.index(fold.piece)] if fold.piece else fold.nodes[0]
        return clean(fold.title or name, SHORT)


class Texts:
    """Collects texts, so that each is cleaned and sent once and referred to by its number; the empty text is 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}
        self._raw_numbers: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)

    def number(self, text: str) -> int:
        """Return the number of a text to be shown."""
        if text not in self._raw_numbers:
            self._raw_numbers[text] = self.exact(clean(text, LONG))
        return self._raw_numbers[text]

    def exact(self, text: str) -> int:
        """Return the number of a text that is sent unchanged: a clean one, or a key that the page only sends back."""
        return self._numbers.setdefault(text, len(self._numbers))


def box_arrays(tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the arrays of boxes; ``box_texts`` has five texts of each.

    They are title, detail, signs, the key of the fold that the box opens, and that of the open fold around it.
    ``box_shares`` has pairs of a region and the number of its ops in the box.
    """
    box_texts, box_pieces, group_pieces, box_shares, ends = array("I"), array("i"), array("I"), array("I"), array("I")
    for tab_graph in tab_graphs:
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            around_key = tab_graph.scope + leaf.inside[-1].key if leaf and leaf.inside else ""
            opens_key = tab_graph.scope + leaf.fold.key if leaf and leaf.fold.opens else ""
            signs = "".join(badge for badge in Badge if badge in box.marks)
            box_texts.extend((texts.number(box.title), texts.number(box.detail), texts.number(signs)))
            box_texts.extend((texts.exact(opens_key), texts.exact(around_key)))
            box_shares.extend(number for share in box.shares for number in share)
            ends.append(len(box_shares))
        piece_numbers = {piece.id: tab_graph.first_piece + number for number, piece in enumerate(tab_graph.pieces)}
        piece_of_box: dict[str, int] = {}
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            if leaf and leaf.fold.piece:
                piece_of_box[box.id] = piece_numbers[leaf.fold.piece.id]
            box_pieces.append(UNSET if box.region is None else piece_of_box[box.id])
        group_pieces.extend(piece_of_box[group.boxes[0]] for group in tab_graph.section.groups)
    return {
        "box_texts": box_texts.tobytes(),
        "box_pieces": box_pieces.tobytes(),
        "group_pieces": group_pieces.tobytes(),
        "box_shares": box_shares.tobytes(),
        "box_share_ends": ends.tobytes(),
    }


def node_arrays(tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the arrays of nodes; ``node_facts`` has five texts of each, in the order of ``NODE_FACTS``."""
    node_facts, node_boxes, node_pieces = array("I"), array("I"), array("i")
    node_names: list[str] = []
    for tab_graph in tab_graphs:
        for node in tab_graph.nodes:
            node_facts.extend(map(texts.exact, tab_graph.facts[node.name].values()))
            node_boxes.append(tab_graph.first_box + tab_graph.home[node.name])
            piece = tab_graph.piece_of.get(node.name)
            node_pieces.append(UNSET if piece is None else tab_graph.first_piece + piece)
            node_names.append(sendable(node.name))
    return {
        "node_names": node_names,
        "node_facts": node_facts.tobytes(),
        "node_boxes": node_boxes.tobytes(),
        "node_pieces": node_pieces.tobytes(),
    }


def facts_of_nodes(graph: Graph) -> dict[str, dict[str, str]]:
    """Return the ``NODE_FACTS`` of each node by its name, cleaned."""
    return {node.name: {fact: _node_fact(node, fact) for fact in NODE_FACTS} for node in graph.nodes}


def _node_fact(node: Node, fact: str) -> str:
    try:
        return clean(NODE_FACTS[fact](node), LONG)
    except Exception:  # noqa: BLE001 - the other facts and nodes stand
        return "?"


def _node_source(node: Node) -> str:
    line = node.source
    return ": ".join(filter(None, (line.numbered, line.text.strip()))) if line else ""


NODE_FACTS: Mapping[str, Callable[[Node], object]] = {
    "name": lambda node: node.name,
    "target": lambda node: node.target,
    "value": lambda node: ", ".join(map(str, node.values[:MOST_VALUES])),
    "module": lambda node: node.module_path or "",
    "source": _node_source,
}
"""The facts of a node that are shown and can be searched; each is ``?`` if the node is malformed."""


def edge_array(tab_graphs: Sequence[TabGraph]) -> bytes:
    """Return the edges between boxes, in the order of the scene, as pairs of numbers."""
    edges = array("I")
    for tab_graph in tab_graphs:
        box_numbers = {box.id: tab_graph.first_box + number for number, box in enumerate(tab_graph.section.boxes)}
        edges.extend(box_numbers[end] for edge in tab_graph.section.edges for end in edge)
    return edges.tobytes()


def places(scene: Scene, placement: Placement) -> Payload:
    """Return the rectangles of boxes and groups of ``scene`` as left, top, width, height, and the curves of its edges.

    ``curve_ends`` says for each edge where its numbers end in ``curves``; one without any is drawn from box to box.
    """
    in_columns = columns(scene, placement)
    rects, group_rects, curve_points, curve_ends = array("f"), array("f"), array("f"), array("I")
    for box in scene.boxes:
        rect = in_columns.boxes[box.id]
        rects.extend((rect.x, rect.y, rect.width, rect.height))
    for section in scene.sections:
        for group in section.groups:
            rect = in_columns.groups[group.id]
            group_rects.extend((rect.x, rect.y, rect.width, rect.height))
        for edge in section.edges:
            for point in in_columns.curves.get(edge, ()):
                curve_points.extend(point)
            curve_ends.append(len(curve_points))
    return {
        "size": [in_columns.width, in_columns.height],
        "titles": [list(in_columns.titles[section.id]) for section in scene.sections],
        "rects": rects.tobytes(),
        "groups": group_rects.tobytes(),
        "curves": curve_points.tobytes(),
        "curve_ends": curve_ends.tobytes(),
    }
