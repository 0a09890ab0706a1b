"""Reading a payload back, as the page does."""

from __future__ import annotations

import json
from array import array
from itertools import pairwise
from typing import Any

from regional_explorer.picture.compose import Opening
from regional_explorer.picture.records import Payload, picture
from regional_explorer.record.session import Session


class Read:
    """A payload with its arrays unpacked."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.texts: list[str] = payload["texts"]
        self.names: list[str] = payload["node_names"]
        self.boxes = unpack("I", payload["box_texts"], 5)
        self.titles = [self.texts[box[0]] for box in self.boxes]
        self.signs = [self.texts[box[2]] for box in self.boxes]
        self.opens = [self.texts[box[3]] for box in self.boxes]
        self.around = [self.texts[box[4]] for box in self.boxes]
        styles = payload["styles"]["light"]["boxes"]
        self.looks = [styles[style]["look"] for (style,) in unpack("I", payload["box_styles"], 1)]
        pieces = [piece for (piece,) in unpack("i", payload["box_pieces"], 1)]
        self.regions = [-1 if piece < 0 else payload["pieces"][piece]["region"] for piece in pieces]
        self.node_boxes: list[int] = [box for (box,) in unpack("I", payload["node_boxes"], 1)]
        self.node_pieces = [piece for (piece,) in unpack("i", payload["node_pieces"], 1)]
        self.facts = [[self.texts[at] for at in facts] for facts in unpack("I", payload["node_facts"], 5)]
        ends = [0, *(end for (end,) in unpack("I", payload["box_tooltip_ends"], 1))]
        rows = [self.texts[at] for (at,) in unpack("I", payload["box_tooltips"], 1)]
        self.rows = [list(zip(rows[a:b:2], rows[a + 1 : b : 2], strict=True)) for a, b in pairwise(ends)]
        self.edges = unpack("I", payload["edges"], 2)
        self.groups = [group for (group,) in unpack("i", payload["box_groups"], 1)]
        self.group_pieces = [piece for (piece,) in unpack("I", payload["group_pieces"], 1)]

    def box_of(self, name: str) -> int:
        return self.node_boxes[self.names.index(name)]


def unpack(kind: str, found: bytes, width: int) -> list[tuple[Any, ...]]:
    flat: array[Any] = array(kind)
    flat.frombytes(found)
    assert len(flat) % width == 0
    return [tuple(flat[at : at + width]) for at in range(0, len(flat), width)]


def read(session: Session, tab: str, opening: Opening | None = None) -> Read:
    """Return a tab of ``session``."""
    return Read(picture(session, tab, opening).facts)


def sent(payload: Payload) -> int:
    """Return how many bytes a payload is on its way to the page."""
    binary: dict[str, bytes] = {key: value for key, value in payload.items() if isinstance(value, bytes)}
    rest = {key: value for key, value in payload.items() if key not in binary}
    return sum(len(value) for value in binary.values()) + len(json.dumps(rest).encode())
