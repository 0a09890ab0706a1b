"""Where the boxes of a scene lie: from Graphviz in time, else by our own simple layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.render.dot import scene_dot
from regional_explorer.render.layout import TIME_LIMIT_S, graphviz
from regional_explorer.render.measure_text import box_size
from regional_explorer.render.scene import Box, Scene, Section

Point = tuple[float, float]

GAP = 14
LAYER = 16
WIDEST = 1000
"""Space between boxes and between layers, and where a wide layer is broken, in points."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; ``x`` and ``y`` are its upper left corner, y grows downwards."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Placement:
    """Rectangles of boxes and groups, points of section titles, and each edge as the points of a cubic Bézier curve.

    ``groups`` is empty where boxes of one group do not lie together.
    """

    width: float
    height: float
    boxes: Mapping[str, Rect]
    groups: Mapping[str, Rect] = field(default_factory=dict)
    titles: Mapping[str, Point] = field(default_factory=dict)
    edges: tuple[tuple[Point, ...], ...] = ()


def place(scene: Scene, *, time_limit_s: float = TIME_LIMIT_S) -> Placement:
    """Return where the parts of ``scene`` lie: Graphviz's placement if it comes in time, else that of ``layers``."""
    found = graphviz(scene_dot(scene, legend=False), "json0", time_limit_s=time_limit_s) if scene.boxes else None
    if found is not None:
        try:
            return read_json(found)
        except (ValueError, KeyError, TypeError):
            pass
    return layers(scene)


def read_json(text: bytes) -> Placement:
    """Return the placement in Graphviz's ``json0`` output."""
    facts: dict[str, Any] = json.loads(text)
    _, _, width, height = map(float, facts["bb"].split(","))
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    for item in facts.get("objects", []):
        name = item["name"]
        if "bb" in item:
            left, low, right, high = map(float, item["bb"].split(","))
            groups[name.removeprefix("cluster_")] = Rect(left, height - high, right - left, high - low)
            titles[name.removeprefix("cluster_")] = (left, height - high)
        elif "pos" in item:
            x, y = map(float, item["pos"].split(","))
            wide, tall = float(item["width"]) * 72, float(item["height"]) * 72
            boxes[name] = Rect(x - wide / 2, height - y - tall / 2, wide, tall)
    edges = tuple(tuple(_curve(edge["pos"], height)) for edge in facts.get("edges", []) if "pos" in edge)
    return Placement(width, height, boxes, groups, titles, edges)


def layers(scene: Scene) -> Placement:
    """Return a placement in layers: each box below all that feed it, near the middle of them.

    It takes time in proportion to the size of the scene. Groups are not kept together.
    """
    boxes: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    edges: list[tuple[Point, ...]] = []
    left = low = 0.0
    for section in scene.sections:
        placed = _section_layers(section, left)
        boxes |= placed
        titles[section.id] = (left, 0.0)
        edges += [_drop(placed[tail], placed[head]) for tail, head in section.edges]
        left = max((rect.x + rect.width for rect in placed.values()), default=left) + 3 * GAP
        low = max(low, *(rect.y + rect.height for rect in placed.values()), 0.0)
    return Placement(left, low + GAP, boxes, titles=titles, edges=tuple(edges))


def _section_layers(section: Section, left: float) -> dict[str, Rect]:
    order = {box.id: number for number, box in enumerate(section.boxes)}
    feeds: dict[str, list[str]] = {name: [] for name in order}
    for tail, head in section.edges:
        if order[tail] < order[head]:  # boxes come in the order they run, so this leaves no circle
            feeds[head].append(tail)
    level: dict[str, int] = {}
    rows: dict[int, list[Box]] = {}
    for box in section.boxes:
        level[box.id] = 1 + max((level[tail] for tail in feeds[box.id]), default=-1)
    needed: dict[str, int] = {}
    for tail, head in section.edges:
        needed[tail] = min(needed.get(tail, level[head]), level[head])
    for box in section.boxes:
        # What nothing feeds stands right above its first user, not at the top.
        late = level[box.id] if feeds[box.id] else max(needed.get(box.id, 1) - 1, 0)
        rows.setdefault(late, []).append(box)
    placed: dict[str, Rect] = {}
    top = 2.0 * GAP
    for number in sorted(rows):
        wanted = {box.id: _middle([placed[tail] for tail in feeds[box.id]], left) for box in rows[number]}
        row = sorted(rows[number], key=lambda box: wanted[box.id])
        edge, tallest = left, 0.0
        for box in row:
            width, height = box_size(box)
            width += GAP if box.region is not None else 0  # room for the region's letter
            x = max(edge, wanted[box.id] - width / 2)
            if x + width > left + WIDEST and edge > left:
                x, edge, top, tallest = left, left, top + tallest + LAYER / 2, 0.0
            placed[box.id] = Rect(x, top, width, height)
            edge, tallest = x + width + GAP, max(tallest, height)
        top += tallest + LAYER
    return placed


def _middle(rects: list[Rect], otherwise: float) -> float:
    return sum(rect.x + rect.width / 2 for rect in rects) / len(rects) if rects else otherwise


def _drop(tail: Rect, head: Rect) -> tuple[Point, ...]:
    x0, y0 = tail.x + tail.width / 2, tail.y + tail.height
    x1, y1 = head.x + head.width / 2, head.y
    bend = (y1 - y0) / 2
    return ((x0, y0), (x0, y0 + bend), (x1, y1 - bend), (x1, y1))


def _curve(text: str, height: float) -> Iterator[Point]:
    """Yield the points of an edge; Graphviz writes the arrow's tip, marked with ``e``, before them."""
    tip: Point | None = None
    for word in text.split():
        mark, _, rest = word.rpartition("e,")
        x, y = map(float, (rest if mark or word.startswith("e,") else word).split(","))
        if word.startswith("e,"):
            tip = (x, height - y)
        else:
            yield (x, height - y)
    if tip:
        yield tip
