"""Where the page places the boxes of a picture: `layout.js`, run by Node.js on graphs drawn at random."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from regional_explorer.page import static
from tests.ui_graph.reading import needs_node, node

pytestmark = needs_node

PROGRAM = """
import { readFileSync } from "node:fs";
const placed = ({ graphs, sizes, homes, titles, edges }) => place(graphs, sizes, homes, titles, edges);
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(placed)));
"""
Drawn = dict[str, Any]
Rect = tuple[float, float, float, float]


def places(*drawn: Drawn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(node(program=static.script("layout") + PROGRAM, given=drawn))
    return found


def equal_boxes(*counts: int, edges: list[list[int]]) -> Drawn:
    """Return graphs of so many boxes, of one size and in no hull."""
    boxes = sum(counts)
    return {
        "graphs": [{"boxes": count} for count in counts],
        "sizes": [{"w": 60, "h": 17}] * boxes,
        "homes": [-1] * boxes,
        "titles": [],
        "edges": edges,
    }


def drawn_at_random(chance: random.Random) -> Drawn:
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


def meet(one: Rect, other: Rect) -> bool:
    (x, y, w, h), (x1, y1, w1, h1), slack = one, other, 0.01
    return x + w > x1 + slack and x1 + w1 > x + slack and y + h > y1 + slack and y1 + h1 > y + slack


def holds(outer: Rect, inner: Rect) -> bool:
    (x, y, w, h), (x1, y1, w1, h1), slack = outer, inner, 0.01
    return x1 >= x - slack and y1 >= y - slack and x1 + w1 <= x + w + slack and y1 + h1 <= y + h + slack


def test_boxes_do_not_overlap_and_hulls_hold_what_is_theirs() -> None:
    chance = random.Random(0)  # noqa: S311 - nothing is secret
    drawn = [drawn_at_random(chance) for _ in range(100)]
    for given, found in zip(drawn, places(*drawn), strict=True):
        boxes, hulls, whole = rects(found["rects"]), rects(found["groups"]), (0, 0, *found["size"])
        assert [(w, h) for _, _, w, h in boxes] == [pytest.approx((size["w"], size["h"])) for size in given["sizes"]]
        for box, rect in enumerate(boxes):
            assert holds(whole, rect)
            assert not any(meet(rect, other) for other in boxes[box + 1 :])
            for hull, outer in enumerate(hulls):
                assert holds(outer, rect) if given["homes"][box] == hull else not meet(outer, rect)


def test_an_edge_over_several_rows_runs_beside_the_boxes_between() -> None:
    count = 12
    chain = [[box, box + 1] for box in range(count - 1)]
    (found,) = places(equal_boxes(count, edges=[*chain, [0, count - 1]]))
    *straight, points = found["curves"]
    assert straight == [[]] * (count - 1)  # from one row to the next: from box to box
    xs, ys = points[4:-4:2], points[5:-4:2]  # without the ends, at the boxes that the edge belongs to
    for x, y, w, h in rects(found["rects"])[1:-1]:
        assert not any(x < px < x + w and y < py < y + h for px, py in zip(xs, ys, strict=True))


def test_a_tall_graph_stands_in_columns() -> None:
    count = 200
    (found,) = places(equal_boxes(count, 1, edges=[[box, box + 1] for box in range(count - 1)]))
    wide, high = found["size"]
    assert 0.5 < wide / high < 4
    *tall, last = rects(found["rects"])
    assert len({x for x, *_ in tall}) > 1
    assert all(x + w < last[0] for x, _, w, _ in tall)
    assert [x for x, _ in found["titles"]] == [0, pytest.approx(last[0])]


def test_nothing_is_placed_nowhere() -> None:
    (found,) = places(equal_boxes(0, edges=[]))
    assert found["rects"] == []
    assert min(found["size"]) > 0
