"""The scripts and styles of the page: their bundling, their results in Node.js, and the placement of boxes."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from regional_explorer.page import static
from regional_explorer.page.graph import PALETTE
from regional_explorer.style.css import mix
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.widget import SessionView
from tests.shared.pages import contrast
from tests.ui_graph.reading import NODE, needs_node, run_node

BUDGET = 100_000
"""The bytes that a notebook keeps of each view: its scripts and styles, without comments and indents."""
FILES = sorted(path for path in static.FOLDER.iterdir() if path.suffix in {".js", ".css"})


def test_one_view_sends_few_bytes() -> None:
    for view in (SessionView, Panel):
        assert len(f"{view._esm}{view._css}".encode()) <= BUDGET


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_scripts_fetch_nothing_and_make_no_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")  # a name, never fetched
    found = re.findall(
        r"https?:|//\w+\.|fetch\(|XMLHttp|WebSocket|@import|url\(|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(",
        text,
    )
    assert found == []
    rules = re.findall(r"^([^\s@}][^{]*)\{", text, re.MULTILINE) if path.suffix == ".css" else []
    assert all(re.search(r"\.rx[gs]|\.rx-panel", one) for rule in rules for one in rule.split(","))


@pytest.mark.parametrize("name", ["view", "panel", "page"])
def test_modules_are_bundled_into_one_script(name: str) -> None:
    text = static.script(name)
    assert text.count("export default") == (name != "page")
    assert not re.search(r"^\s*(import|export (?!default))", text, re.MULTILINE)
    if NODE:
        run_node("--check", program=text)


def test_comments_and_indents_are_stripped_from_scripts() -> None:
    assert static._stripped("/** @type {x} gone */ a;\n  /** gone */\n") == "a;"
    assert static._stripped('// gone\nif (a) {\n  b = " // c";\n\n}\n') == 'if (a) {\nb = " // c";\n}'


# ------------------------------------------------------------------------------------------------------ run by Node.js

LARGE = """
const count = 200_000, zeros = Array(count).fill(0), keys = [...zeros.keys()];
const texts = "targets values modules sources looks titles signs outside flags".split(" ");
const columns = Object.fromEntries(texts.map((name) => [name, zeros]));
const facts = { ...columns, groups: {}, names: zeros, ops: keys, reads: keys.map(() => []), texts: [""], title: "g" };
const folds = { parents: [], homes: zeros.map(() => -1), node_pieces: zeros.map(() => -1), texts: [""] };
const outline = new Outline({ id: "g" }, [{ id: "g", names: keys, facts, folds, pieces: [] }], []);
const picture = new Picture(outline, {}, () => 1);
console.log(JSON.stringify([picture.range(0, count - 1).length, picture.rects.length]));
"""
FAILING = """
const context = () => ({ setTransform() {} });
globalThis.OffscreenCanvas = class { getContext = context; };
const pen = context(), painter = new Painter({ getContext: () => pen });
painter.scene = () => { throw new Error("no luck"); };
try { painter.copy({ x0: 0, y0: 0, x1: 1, y1: 1 }, 1, {}); } catch ({ message }) { console.log(message); }
console.log(painter.pen === pen, painter.letters.pen === pen);
"""
SHADES = """
import { readFileSync } from "node:fs";
const scales = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(scales.map((scale) => [...Array(61).keys()].map((place) => shade(scale, place / 60)))));
"""
GROUPS = """
const nodes = [{ op: 0 }, { op: 1 }, { op: 1 }], groups = { stage: ["1", "2", ""] };
const picture = { outline: { nodes, groups }, nodesIn: (box) => [[0], [1, 2], [0, 1]][box] ?? [] };
const tint = heatOf({ title: "stage", groups: ["2", "1"] }, picture, { tones: ["of 2", "of 1"] });
console.log(JSON.stringify([0, 1, 2, undefined].map((box) => tint({}, box) ?? "")));
"""
PLACES = """
import { readFileSync } from "node:fs";
const placed = ({ graphs, sizes, homes, titles, edges }) => place(graphs, sizes, homes, titles, edges);
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(placed)));
"""


@needs_node
def test_large_pictures_are_drawn() -> None:
    assert json.loads(run_node(program=static.script("picture") + LARGE)) == [200_000, 200_000]


@needs_node
def test_a_frame_is_drawn_after_one_that_failed() -> None:
    assert run_node(program=static.script("painter") + FAILING).splitlines() == ["no luck", "true true"]


@needs_node
def test_overlay_texts_are_readable_on_their_colours() -> None:
    scales: list[Any] = [colours["scale"] for colours in PALETTE.values()]
    found = json.loads(run_node(program=static.script("colours") + SHADES, given=scales))
    for (cold, warm), shades in zip(scales, found, strict=True):
        assert all(contrast(one["text"], one["fill"]) >= 4.5 for one in shades)
        assert [shades[0]["fill"], shades[30]["fill"], shades[-1]["fill"]] == [cold, mix(cold, warm, 0.5), warm]


@needs_node
def test_a_box_has_the_colour_of_its_ops_group() -> None:
    own, with_a_result, mixed, hull = json.loads(run_node(program=static.script("colours") + GROUPS))
    assert (own, with_a_result) == ("of 1", "of 2")
    assert mixed == hull == "", "they keep the colour of their region"


# ----------------------------------------------------------------------------------------------- where boxes are placed

Boxes = dict[str, Any]
Rect = tuple[float, float, float, float]


def place_boxes(*inputs: Boxes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_node(program=static.script("layout") + PLACES, given=inputs))
    return found


def equal_boxes(*counts: int, edges: list[list[int]]) -> Boxes:
    """Return graphs with these numbers of boxes, all of one size and in no hull."""
    boxes = sum(counts)
    return {
        "graphs": [{"boxes": count} for count in counts],
        "sizes": [{"w": 60, "h": 17}] * boxes,
        "homes": [-1] * boxes,
        "titles": [],
        "edges": edges,
    }


def random_boxes(chance: random.Random) -> Boxes:
    """Return one or two graphs of boxes, some of them in hulls, with edges forward and a few back."""
    graphs: list[Any] = []
    sizes: list[Any] = []
    homes: list[int] = []
    edges: list[Any] = []
    hulls = 0
    for _ in range(chance.choice([1, 1, 2])):
        first, count, left = len(sizes), chance.randrange(1, 120), 0
        for box in range(first, first + count):
            sizes.append({"w": chance.uniform(22, 140), "h": chance.choice([12, 17, 28])})
            if not left and chance.random() < 0.15:
                hulls, left = hulls + 1, chance.randrange(1, 7)
            homes.append(hulls - 1 if left else -1)
            left = max(0, left - 1)
            edges += [[max(first, box - chance.randrange(1, 25)), box] for _ in range(3) if box > first]
        edges += [[chance.randrange(first, first + count) for _ in "ab"] for _ in range(chance.randrange(3))]
        graphs.append({"boxes": count})
    edges = [edge for edge in edges if edge[0] != edge[1]]
    titles = [chance.uniform(20, 200) for _ in range(hulls)]
    return {"graphs": graphs, "sizes": sizes, "homes": homes, "titles": titles, "edges": edges}


def rects(found: list[dict[str, float]]) -> list[Rect]:
    return [(rect["x"], rect["y"], rect["w"], rect["h"]) for rect in found]


def overlaps(one: Rect, other: Rect) -> bool:
    (x, y, w, h), (x1, y1, w1, h1), slack = one, other, 0.01
    return x + w > x1 + slack and x1 + w1 > x + slack and y + h > y1 + slack and y1 + h1 > y + slack


def contains(outer: Rect, inner: Rect) -> bool:
    (x, y, w, h), (x1, y1, w1, h1), slack = outer, inner, 0.01
    return x1 >= x - slack and y1 >= y - slack and x1 + w1 <= x + w + slack and y1 + h1 <= y + h + slack


@needs_node
def test_boxes_do_not_overlap() -> None:
    chance = random.Random(0)  # noqa: S311 - nothing is secret
    inputs = [random_boxes(chance) for _ in range(100)]
    for given, found in zip(inputs, place_boxes(*inputs), strict=True):
        boxes, hulls, whole = rects(found["rects"]), rects(found["groups"]), (0, 0, *found["size"])
        assert [(w, h) for _, _, w, h in boxes] == [pytest.approx((size["w"], size["h"])) for size in given["sizes"]]
        for box, rect in enumerate(boxes):
            assert contains(whole, rect)
            assert not any(overlaps(rect, other) for other in boxes[box + 1 :])
            for hull, outer in enumerate(hulls):
                assert contains(outer, rect) if given["homes"][box] == hull else not overlaps(outer, rect)


@needs_node
def test_an_edge_over_several_rows_runs_beside_the_boxes_between() -> None:
    count = 12
    chain = [[box, box + 1] for box in range(count - 1)]
    (found,) = place_boxes(equal_boxes(count, edges=[*chain, [0, count - 1]]))
    *straight, points = found["curves"]
    assert [len(one) for one in straight] == [8] * (count - 1), "from one row to the next: from box to box"
    xs, ys = points[4:-4:2], points[5:-4:2]  # without its ends at its own boxes
    for x, y, w, h in rects(found["rects"])[1:-1]:
        assert not any(x < px < x + w and y < py < y + h for px, py in zip(xs, ys, strict=True))


@needs_node
def test_tall_graph_is_laid_out_in_columns() -> None:
    count = 200
    tall, empty = place_boxes(
        equal_boxes(count, 1, edges=[[box, box + 1] for box in range(count - 1)]), equal_boxes(0, edges=[])
    )
    wide, high = tall["size"]
    assert 0.5 < wide / high < 4
    *columns, last = rects(tall["rects"])
    assert len({x for x, *_ in columns}) > 1
    assert all(x + w < last[0] for x, _, w, _ in columns)
    assert [x for x, _ in tall["titles"]] == [0, pytest.approx(last[0])]
    assert empty["rects"] == []
    assert min(empty["size"]) > 0
