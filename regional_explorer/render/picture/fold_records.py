"""Builds the data from which a saved page folds and draws a graph without a kernel: all folds with their boxes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from regional_explorer.record.session import Session
from regional_explorer.render.picture.arrays import UNSET, Payload, TabGraph, Texts, places
from regional_explorer.render.picture.opening import Opening, Turn, all_folds, turn_of
from regional_explorer.render.picture.outline import FoldKind
from regional_explorer.render.picture.outlines import Outlines
from regional_explorer.render.picture.payload import Picture, facts_of, parts_of, picture, tab_opening
from regional_explorer.render.picture.placement import in_rows, place, room
from regional_explorer.render.picture.text_size import TITLE_PT, text_width

SAVED_LAYOUT_LIMIT_S = 3.0
"""How long Graphviz may take for a graph; if it takes longer, the simple layout in layers is used."""

Record = dict[str, Any]
Edge = tuple[int, int]


def folded(session: Session, tab: str, outlines: Outlines) -> tuple[Payload, Picture]:
    """Return ``tab`` with a record for each fold, parents before their parts, and the picture that is shown first.

    A record has the number of its parent, its parts, their rows from the top, its key, its turn, its crumb if it can be
    opened, how its box is drawn, and for the hull around the parts of a piece the width of its title. ``nodes`` and
    ``edges`` refer to innermost folds, ``places`` are those of the picture shown first.
    """
    opening = tab_opening(tab, Opening())
    texts = Texts()
    tab_graphs = parts_of(session, tab, lambda _scope, folds: list(all_folds(folds)), outlines)
    facts = facts_of(session, tab_graphs, texts)
    looks = _box_looks(facts)
    records: list[Record] = []
    record_of_box: list[int] = []
    spans = [_add_graph(tab_graph, opening, looks, records, record_of_box) for tab_graph in tab_graphs]
    edge_ends = [record_of_box[box] for box in _unpacked(facts["edges"])]
    edges = list(zip(edge_ends[::2], edge_ends[1::2], strict=True))
    top_edges = _set_parts_and_rows(records, edges).get(UNSET, {})
    first_picture = picture(session, tab, outlines=outlines)
    node_numbers = {name: number for number, name in enumerate(first_picture.reads)}
    payload: Payload = {
        **{array_name: facts[array_name] for array_name in ("regions", "pieces", "styles", "node_names")},
        **{array_name: _unpacked(facts[array_name]) for array_name in ("piece_styles", "node_facts")},
        "node_pieces": _unpacked(facts["node_pieces"], "i"),
        "graphs": [
            {**graph, **_tops(records, span, top_edges)} for graph, span in zip(facts["graphs"], spans, strict=True)
        ],
        "tab": tab,
        "texts": texts.all,
        "folds": records,
        "nodes": [record_of_box[box] for box in _unpacked(facts["node_boxes"])],
        "edges": edges,
        "reads": [[node_numbers[name] for name in inputs] for inputs in first_picture.reads.values()],
        "budget": opening.budget,
        "chosen": {},
        "places": _as_lists(places(first_picture.scene, place(first_picture.scene, time_limit_s=SAVED_LAYOUT_LIMIT_S))),
    }
    return payload, first_picture


def _box_looks(facts: Payload) -> list[Record]:
    """Return how each box is drawn: its texts, style, piece, tooltip and shares of regions."""
    texts, tooltips, shares = (_unpacked(facts[name]) for name in ("box_texts", "box_tooltips", "box_shares"))
    ends = ([0, *_unpacked(facts[name])] for name in ("box_tooltip_ends", "box_share_ends"))
    boxes = zip(_unpacked(facts["box_styles"]), _unpacked(facts["box_pieces"], "i"), *map(pairwise, ends), strict=True)
    return [
        {
            "texts": texts[5 * box : 5 * box + 5],
            "style": style,
            "piece": piece,
            "tooltip": tooltips[slice(*tooltip_span)],
            "shares": shares[slice(*share_span)],
        }
        for box, (style, piece, tooltip_span, share_span) in enumerate(boxes)
    ]


def _add_graph(
    tab_graph: TabGraph, opening: Opening, looks: Sequence[Record], records: list[Record], record_of_box: list[int]
) -> range:
    """Add the records of one graph and return their numbers; add that of each box's record to ``record_of_box``."""
    start = len(records)
    ops = sum(len(fold.nodes) for fold in tab_graph.folds)
    leaf_of = dict(zip((box.id for box in tab_graph.section.boxes), tab_graph.leaves, strict=True))
    hulls: dict[str, float] = {}
    for group in tab_graph.section.groups:
        leaf = leaf_of[group.boxes[0]]
        if leaf and leaf.fold.piece:
            hulls[leaf.fold.piece.id] = round(text_width(group.title, TITLE_PT))
    record_of_fold: dict[str, int] = {}
    for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
        look = looks[len(record_of_box)]
        record: Record = {
            "parent": UNSET,
            "parts": [],
            "rows": [],
            "key": "",
            "turn": Turn.NEVER,
            **look,
            "size": room(box),
        }
        if leaf:
            fold, piece = leaf.fold, leaf.fold.piece
            record["key"] = tab_graph.scope + fold.key
            record["turn"] = turn_of(fold, opening.detail, ops)
            record["parent"] = record_of_fold[leaf.inside[-1].key] if leaf.inside else UNSET
            if fold.opens:
                record["crumb"] = tab_graph.crumb(fold)
            if piece and fold.kind is FoldKind.PIECE:
                record["hull"] = hulls.get(piece.id, 0.0)
            elif piece and not any(outer.piece for outer in leaf.inside):
                hull = {"turn": Turn.FIXED, "hull": hulls[piece.id], "piece": look["piece"], "key": ""}
                records.append({"parent": record["parent"], "parts": [], "rows": [], **hull})
                record["parent"] = len(records) - 1
            record_of_fold[fold.key] = len(records)
        record_of_box.append(len(records))
        records.append(record)
    return range(start, len(records))


def _set_parts_and_rows(records: Sequence[Record], edges: Iterable[Edge]) -> dict[int, dict[tuple[str, str], None]]:
    """Set the parts and rows of each record; return the edges between the parts of each, by its number."""
    part_edges: dict[int, dict[tuple[str, str], None]] = {}
    for edge in edges:
        tail_chain, head_chain = (list(record_and_outer(records, end)) for end in edge)
        while tail_chain[-1] == head_chain[-1]:
            tail_chain.pop()
            head_chain.pop()
        part_edges.setdefault(records[tail_chain[-1]]["parent"], {})[str(tail_chain[-1]), str(head_chain[-1])] = None
    for number, record in enumerate(records):
        if record["parent"] != UNSET:
            records[record["parent"]]["parts"].append(number)
    for number, record in enumerate(records):
        record["rows"] = _rows_of_parts(record["parts"], part_edges.get(number, {}))
    return part_edges


def record_and_outer(records: Sequence[Record], number: int) -> Iterator[int]:
    """Yield a record and those around it, from the inside out."""
    while number != UNSET:
        yield number
        number = records[number]["parent"]


def _rows_of_parts(numbers: Sequence[int], edges: Iterable[tuple[str, str]]) -> list[list[int]]:
    names = {str(number) for number in numbers}
    rows, _ = in_rows(map(str, numbers), [edge for edge in edges if names.issuperset(edge)])
    return [[int(name) for name in row] for row in rows]


def _tops(records: Sequence[Record], span: range, top_edges: Iterable[tuple[str, str]]) -> Payload:
    """Return the top-level folds of a graph, and the rows of these and of its inputs."""
    tops = [number for number in span if records[number]["parent"] == UNSET]
    folds = [number for number in tops if records[number]["parts"] or records[number]["key"]]
    return {"tops": folds, "rows": _rows_of_parts(tops, top_edges)}


def _unpacked(packed: bytes, typecode: str = "I") -> list[int]:
    numbers: array[int] = array(typecode)
    numbers.frombytes(packed)
    return numbers.tolist()


def _as_lists(placed: Payload) -> Payload:
    """Return places with their arrays as lists, for JSON."""
    typecodes = {"rects": "f", "groups": "f", "curves": "f", "curve_ends": "I"}
    return {
        name: [round(number, 1) for number in _unpacked(packed, typecodes[name])] if name in typecodes else packed
        for name, packed in placed.items()
    }
