"""Builds the data from which a saved page folds and draws a graph without a kernel: all folds with their boxes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from regional_explorer.record.session import Session
from regional_explorer.render.picture.arrays import NONE, Payload, TabGraph, Texts, places
from regional_explorer.render.picture.opening import Opening, all_folds, turn_of
from regional_explorer.render.picture.outline import FoldKind
from regional_explorer.render.picture.outlines import Outlines
from regional_explorer.render.picture.payload import Picture, facts_of, parts_of, picture, tab_opening
from regional_explorer.render.picture.placement import in_rows, place, room
from regional_explorer.render.picture.text_size import TITLE, text_width

NEVER = 9
"""The turn of a fold that is opened only by the user."""
ALWAYS = -2
"""The turn of a fold that cannot be closed: the hull around the single op of a piece."""
TIME_LIMIT_S = 3.0
"""How long Graphviz may take for a graph; if it takes longer, the simple layout in layers is used."""

Record = dict[str, Any]
Edge = tuple[int, int]


def folded(session: Session, tab: str, outlines: Outlines) -> tuple[Payload, Picture]:
    """Return ``tab`` with a record for each fold, parents before their parts, and the picture that is shown first.

    A record has the number of its parent, its parts, their rows from the top, its key, its turn, how its box is drawn,
    and for the hull around the parts of a piece the width of its title. ``nodes`` and ``edges`` refer to innermost
    folds, ``places`` are those of the picture shown first.
    """
    opening = tab_opening(tab, Opening())
    texts = Texts()
    parts = parts_of(session, tab, lambda _scope, folds: list(all_folds(folds)), outlines)
    facts = facts_of(session, parts, texts)
    drawn = _drawn(facts)
    records: list[Record] = []
    of_box: list[int] = []
    spans = [_add(part, opening, drawn, records, of_box) for part in parts]
    ends = [of_box[box] for box in _numbers(facts["edges"])]
    edges = list(zip(ends[::2], ends[1::2], strict=True))
    between = _give_rows(records, edges).get(NONE, {})
    now = picture(session, tab, outlines=outlines)
    numbers = {name: number for number, name in enumerate(now.reads)}
    found: Payload = {
        **{name: facts[name] for name in ("regions", "pieces", "styles", "node_names")},
        **{name: _numbers(facts[name]) for name in ("piece_styles", "node_facts")},
        "node_pieces": _numbers(facts["node_pieces"], "i"),
        "graphs": [
            {**graph, **_tops(records, span, between)} for graph, span in zip(facts["graphs"], spans, strict=True)
        ],
        "tab": tab,
        "texts": texts.all,
        "folds": records,
        "nodes": [of_box[box] for box in _numbers(facts["node_boxes"])],
        "edges": edges,
        "reads": [[numbers[name] for name in read] for read in now.reads.values()],
        "budget": opening.budget,
        "chosen": {},
        "places": _as_lists(places(now.scene, place(now.scene, time_limit_s=TIME_LIMIT_S))),
    }
    return found, now


def _drawn(facts: Payload) -> list[Record]:
    """Return how each box is drawn: its texts, style, piece, tooltip and shares of regions."""
    texts, tooltips, shares = (_numbers(facts[name]) for name in ("box_texts", "box_tooltips", "box_shares"))
    ends = ([0, *_numbers(facts[name])] for name in ("box_tooltip_ends", "box_share_ends"))
    found = zip(_numbers(facts["box_styles"]), _numbers(facts["box_pieces"], "i"), *map(pairwise, ends), strict=True)
    return [
        {
            "texts": texts[5 * box : 5 * box + 5],
            "style": style,
            "piece": piece,
            "tooltip": tooltips[slice(*of_tooltips)],
            "shares": shares[slice(*of_shares)],
        }
        for box, (style, piece, of_tooltips, of_shares) in enumerate(found)
    ]


def _add(part: TabGraph, opening: Opening, drawn: Sequence[Record], records: list[Record], of_box: list[int]) -> range:
    """Add the records of one graph and return their numbers; add the number of each box's record to ``of_box``."""
    start = len(records)
    ops = sum(len(fold.nodes) for fold in part.folds)
    leaf_of = dict(zip((box.id for box in part.section.boxes), part.leaves, strict=True))
    hulls: dict[str, float] = {}
    for group in part.section.groups:
        leaf = leaf_of[group.boxes[0]]
        if leaf and leaf.fold.piece:
            hulls[leaf.fold.piece.id] = round(text_width(group.title, TITLE))
    known: dict[str, int] = {}
    for box, leaf in zip(part.section.boxes, part.leaves, strict=True):
        own = drawn[len(of_box)]
        record: Record = {"parent": NONE, "parts": [], "rows": [], "key": "", "turn": NEVER, **own, "size": room(box)}
        if leaf:
            fold, piece = leaf.fold, leaf.fold.piece
            record["key"] = part.scope + fold.key
            turn = turn_of(fold, opening, ops)
            record["turn"] = NEVER if turn is None else turn
            record["parent"] = known[leaf.inside[-1].key] if leaf.inside else NONE
            if piece and fold.kind is FoldKind.PIECE:
                record["hull"] = hulls.get(piece.id, 0.0)
            elif piece and not any(one.piece for one in leaf.inside):
                hull = {"turn": ALWAYS, "hull": hulls[piece.id], "piece": own["piece"], "key": ""}
                records.append({"parent": record["parent"], "parts": [], "rows": [], **hull})
                record["parent"] = len(records) - 1
            known[fold.key] = len(records)
        of_box.append(len(records))
        records.append(record)
    return range(start, len(records))


def _give_rows(records: Sequence[Record], edges: Iterable[Edge]) -> dict[int, dict[tuple[str, str], None]]:
    """Set the parts and rows of each record; return the edges between the parts of each, by its number."""
    between: dict[int, dict[tuple[str, str], None]] = {}
    for edge in edges:
        above, below = (list(_around(records, end)) for end in edge)
        while above[-1] == below[-1]:
            above.pop()
            below.pop()
        between.setdefault(records[above[-1]]["parent"], {})[str(above[-1]), str(below[-1])] = None
    for number, record in enumerate(records):
        if record["parent"] != NONE:
            records[record["parent"]]["parts"].append(number)
    for number, record in enumerate(records):
        record["rows"] = _rows(record["parts"], between.get(number, {}))
    return between


def _around(records: Sequence[Record], number: int) -> Iterator[int]:
    """Yield a record and those around it, from the inside out."""
    while number != NONE:
        yield number
        number = records[number]["parent"]


def _rows(names: Sequence[int], edges: Iterable[tuple[str, str]]) -> list[list[int]]:
    known = {str(name) for name in names}
    rows, _ = in_rows(map(str, names), [edge for edge in edges if known.issuperset(edge)])
    return [[int(name) for name in row] for row in rows]


def _tops(records: Sequence[Record], span: range, between: Iterable[tuple[str, str]]) -> Payload:
    """Return the top-level folds of a graph, and the rows of these and of its inputs."""
    tops = [number for number in span if records[number]["parent"] == NONE]
    folds = [number for number in tops if records[number]["parts"] or records[number]["key"]]
    return {"tops": folds, "rows": _rows(tops, between)}


def _numbers(found: bytes, kind: str = "I") -> list[int]:
    flat: array[int] = array(kind)
    flat.frombytes(found)
    return flat.tolist()


def _as_lists(found: Payload) -> Payload:
    """Return places with their arrays as lists, for JSON."""
    kinds = {"rects": "f", "groups": "f", "curves": "f", "curve_ends": "I"}
    return {
        name: [round(one, 1) for one in _numbers(value, kinds[name])] if name in kinds else value
        for name, value in found.items()
    }
