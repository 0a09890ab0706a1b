"""Boxes, nodes, edges and places as flat arrays: ten thousand of them are some hundred kilobytes and quick to read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regional_explorer.record.graph import Graph, Node
from regional_explorer.render.columns import columns
from regional_explorer.render.outline import Shown
from regional_explorer.render.pieces import Piece
from regional_explorer.render.placement import Placement
from regional_explorer.render.scene import Look, Mark, Scene, Section
from regional_explorer.render.untrusted import LONG, clean, sendable

Payload = dict[str, Any]
NONE = -1
RECOMPUTE, RANDOM, CARVED = 1, 2, 4
"""Flags of a node."""
MOST_NAMED = 4
"""So many results, or tensors read, are named of a node."""


@dataclass(frozen=True)
class Part:
    """One graph of a tab.

    ``leaves`` tells for each box of ``section`` which fold it is; an input is none. ``home`` and ``piece_of`` give for
    a node the number of its box and of its piece; all numbers count on from those of the parts before.
    """

    graph: Graph
    section: Section
    scope: str
    leaves: tuple[Shown | None, ...]
    pieces: tuple[Piece, ...]
    piece_names: tuple[str, ...]
    home: Mapping[str, int]
    piece_of: Mapping[str, int]
    first_node: int
    first_box: int
    first_piece: int

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are in a box, in the order they run."""
        return tuple(node for node in self.graph.nodes if node.name in self.home)


class Texts:
    """Collects texts; each is cleaned and sent once, and known by its number. The empty text is number 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}
        self._seen: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)

    def number(self, value: object) -> int:
        """Return the number of a text to be shown."""
        raw = str(value)
        if raw not in self._seen:
            self._seen[raw] = self.exact(clean(raw, LONG))
        return self._seen[raw]

    def exact(self, key: str) -> int:
        """Return the number of a key: never shown, and sent as it is, for it has to come back as it was."""
        return self._numbers.setdefault(key, len(self._numbers))


def box_arrays(parts: Sequence[Part], texts: Texts) -> Payload:
    """Return the arrays of boxes; ``box_texts`` has five texts of each.

    They are title, detail, key, the key of the fold that it would open, and that of the open fold it lies in. A key
    names the same thing in every picture of one tab, so the page knows which boxes stay.
    """
    found, looks, regions, marks, groups = array("I"), array("B"), array("i"), array("I"), array("I")
    all_looks, all_marks = list(Look), list(Mark)
    for part in parts:
        for box, leaf in zip(part.section.boxes, part.leaves, strict=True):
            key = part.scope + (leaf.fold.key if leaf else box.id)
            around = part.scope + leaf.inside[-1].key if leaf and leaf.inside else ""
            opens = key if leaf and leaf.fold.parts else ""
            found.extend((texts.number(box.title), texts.number(box.detail)))
            found.extend((texts.exact(key), texts.exact(opens), texts.exact(around)))
            looks.append(all_looks.index(box.look))
            regions.append(NONE if box.region is None else box.region)
            marks.append(sum(1 << all_marks.index(mark) for mark in box.marks))
        piece_of_box = {
            box.id: leaf.fold.piece for box, leaf in zip(part.section.boxes, part.leaves, strict=True) if leaf
        }
        for group in part.section.groups:
            piece = piece_of_box[group.boxes[0]]
            groups.append(part.first_piece + part.pieces.index(piece))
    return {
        "box_texts": found.tobytes(),
        "box_looks": looks.tobytes(),
        "box_regions": regions.tobytes(),
        "box_marks": marks.tobytes(),
        "group_pieces": groups.tobytes(),
    }


def node_arrays(parts: Sequence[Part], texts: Texts) -> Payload:
    """Return the arrays of nodes; ``node_facts`` has seven texts of each, as ``_facts`` yields them."""
    facts, flags, boxes, pieces = array("I"), array("B"), array("I"), array("i")
    names: list[str] = []
    for part in parts:
        outside = {node.name: node for node in part.graph.nodes if node.name not in part.home}
        for node in part.nodes:
            facts.extend(_facts(node, outside, texts))
            flags.append(RECOMPUTE * node.recompute + RANDOM * node.random + CARVED * node.carved)
            boxes.append(part.first_box + part.home[node.name])
            piece = part.piece_of.get(node.name)
            pieces.append(NONE if piece is None else part.first_piece + piece)
            names.append(sendable(node.name))
    return {
        "node_names": names,
        "node_facts": facts.tobytes(),
        "node_flags": flags.tobytes(),
        "node_boxes": boxes.tobytes(),
        "node_pieces": pieces.tobytes(),
    }


def _facts(node: Node, outside: Mapping[str, Node], texts: Texts) -> Iterator[int]:
    """Yield name, target, op, values, module, source line, and what it reads of what is no box."""

    def source() -> str:
        line = node.source
        return f"{line}: {line.text.strip()}" if line and line.text else str(line or "")

    def reads() -> str:
        found = [outside[name] for name in node.inputs if name in outside]
        return ", ".join(f"{one.role} {one.name}" for one in found[:MOST_NAMED])

    questions: tuple[Callable[[], object], ...] = (
        lambda: node.name,
        lambda: node.target,
        lambda: node.op,
        lambda: ", ".join(map(str, node.values[:MOST_NAMED])),
        lambda: node.module_path or "",
        source,
        reads,
    )
    for question in questions:
        try:
            yield texts.number(question())
        except Exception:  # noqa: BLE001 - a bad node is told as far as it goes, the others stand
            yield texts.number("?")


def edge_arrays(parts: Sequence[Part]) -> Payload:
    """Return edges between boxes, in the order of the scene, and links between nodes, as pairs of numbers."""
    edges, links = array("I"), array("I")
    for part in parts:
        box = {box.id: part.first_box + number for number, box in enumerate(part.section.boxes)}
        edges.extend(box[end] for edge in part.section.edges for end in edge)
        index = {node.name: part.first_node + number for number, node in enumerate(part.nodes)}
        for node in part.nodes:
            for name in dict.fromkeys(node.inputs):
                if name in index:
                    links.extend((index[name], index[node.name]))
    return {"edges": edges.tobytes(), "links": links.tobytes()}


def places(scene: Scene, placement: Placement) -> Payload:
    """Return where boxes and groups of ``scene`` lie, as left, top, width, height, and the curves of its edges.

    ``curve_ends`` tells for each edge where its numbers end in ``curves``; one without any is drawn from box to box.
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
