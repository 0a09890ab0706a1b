"""Pictures of a session as the page makes them, in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from regional_explorer.page import static
from regional_explorer.page.graph import graph_traits
from regional_explorer.picture.page_records import Payload, Records
from regional_explorer.record.session import Session

NODE = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node.js")
EVERYTHING = {"all": True}
NOTHING = {"all": False}

PROGRAM = """
import { readFileSync } from "node:fs";
const read = ({ tab, graphs, regions, opening, from }) => {
  const outline = new Outline(tab, graphs, regions), picture = new Picture(outline, opening, (text) => 6 * text.length);
  const reached = from.map((name) => outline.byId.get(name));
  const boxes = [...Array(picture.boxes).keys()];
  const nameOf = (number) => outline.ids[number].slice(outline.ids[number].indexOf(":") + 1);
  const namesOf = (numbers) => numbers.sort((a, b) => a - b).map(nameOf);
  return {
    names: outline.ids.map((_, number) => nameOf(number)),
    facts: outline.nodes.map(({ name, target, value, module, source }) => [name, target, value, module, source]),
    node_boxes: [...picture.nodeBoxes],
    node_pieces: outline.nodes.map(({ piece }) => outline.pieces.indexOf(piece)),
    titles: boxes.map(picture.title),
    details: boxes.map(picture.detail),
    signs: boxes.map(picture.signs),
    looks: boxes.map(picture.look),
    failed: boxes.map(picture.failed),
    opens: boxes.map((box) => picture.opens(box)?.key ?? ""),
    around: boxes.map((box) => picture.around(box)?.key ?? ""),
    regions: boxes.map((box) => picture.piece(box)?.region ?? -1),
    times: boxes.map((box) => picture.owners[box].time ?? null),
    shares: boxes.map((box) => (picture.shared.includes(box) ? picture.shares(box) : [])),
    rows: boxes.map((box) => picture.about(box)),
    edges: picture.edges,
    groups: picture.boxHulls,
    group_pieces: picture.hulls.map((piece) => outline.pieces.indexOf(piece)),
    graphs: picture.graphs,
    used: [...outline.used],
    up: namesOf(outline.reach(reached, true)),
    down: namesOf(outline.reach(reached, false)),
  };
};
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(read)));
"""


def run_node(*options: str, program: str, given: object = None) -> str:
    """Run a JavaScript module in Node.js with ``given`` as its input; return what it prints."""
    assert NODE
    done = subprocess.run(
        [NODE, "--input-type=module", *options, *([] if "--check" in options else ["-e", program])],
        input=program if "--check" in options else json.dumps(given),
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class PagePicture(SimpleNamespace):
    """The picture of one tab: the output of ``PROGRAM``, lists with an entry for each box or node.

    ``state`` is the input of the page, ``sent`` the number of bytes of its graphs. Asserts that all numbers are valid.
    """

    names: list[str]
    node_boxes: list[int]
    sent: int

    def __init__(self, state: Payload, graphs: list[Payload], found: Payload) -> None:
        edges = list(map(tuple, found.pop("edges")))
        sent = len(json.dumps(graphs, separators=(",", ":")).encode())
        super().__init__(**found, state=state, edges=edges, sent=sent)
        boxes, pieces = len(self.titles), len(self.pieces)
        assert len(self.groups) == boxes == sum(graph["boxes"] for graph in self.graphs)
        assert set(self.groups) - {-1} == set(range(len(self.group_pieces)))
        assert all(end < boxes for edge in self.edges for end in edge)
        assert all(-1 <= piece < pieces for piece in self.node_pieces)
        assert set(self.node_boxes) == set(range(boxes))
        for box, piece in zip(self.node_boxes, self.node_pieces, strict=True):
            assert self.groups[box] < 0 or self.group_pieces[self.groups[box]] == piece

    @property
    def pieces(self) -> list[Payload]:
        return [piece for rows in self.state["look"]["pieces"] for piece in rows]

    @property
    def legend(self) -> list[Any]:
        """The elements of the legend that the page shows."""
        return [part for when, part in self.state["look"]["legend"] if not when or when in self.used]

    def box_of(self, name: str) -> int:
        return self.node_boxes[self.names.index(name)]


class PictureRequest(NamedTuple):
    """A tab of a session, with the folds opened and closed as ``opening`` says.

    ``up`` and ``down`` of its picture are the nodes that ``reached`` depend on, and the nodes that depend on them.
    """

    session: Session
    tab: str
    opening: Mapping[str, Any] | None = None
    reached: Sequence[str] = ()


def read_pictures(*requests: PictureRequest) -> list[PagePicture]:
    """Return the pictures, all made by one process."""
    states, given = [], []
    for session, tab, opening, reached in requests:
        records = Records()
        state = graph_traits(session, records)
        nothing: Payload = {"id": "", "title": "", "graphs": [], "pieces": False}
        shown = next((one for one in state["tabs"] if one["id"] == tab), nothing)
        graphs = []
        for number in shown["graphs"]:
            known = records.of(session, session.graphs[number])
            pieces = state["look"]["pieces"][number]
            graphs.append({**state["graphs"][number], "facts": known.facts, "folds": known.folds, "pieces": pieces})
        regions = state["look"]["regions"]
        states.append(state)
        given.append({"tab": shown, "graphs": graphs, "regions": regions, "opening": opening or {}, "from": reached})
    found = json.loads(run_node(program=static.script("picture") + PROGRAM, given=given))
    return [PagePicture(state, one["graphs"], two) for state, one, two in zip(states, given, found, strict=True)]


def read_picture(session: Session, tab: str, opening: Mapping[str, Any] | None = None, *reached: str) -> PagePicture:
    """Return the picture of one tab; see ``PictureRequest``."""
    (found,) = read_pictures(PictureRequest(session, tab, opening, reached))
    return found
