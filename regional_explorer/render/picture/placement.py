"""Places the boxes, groups and edges of a scene: by Graphviz if it finishes in time, else in simple layers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.render.picture.dot import scene_dot
from regional_explorer.render.picture.graphviz_process import TIME_LIMIT_S, graphviz
from regional_explorer.render.picture.scene import Box, Scene, Section
from regional_explorer.render.picture.text_size import TITLE, box_size, text_width

Point = tuple[float, float]

GAP = 14
LAYER = 16
WIDEST = 1000
EDGE = 7
HEAD = 20
"""Space between boxes and between layers, where a wide layer is broken, and margins inside a group, in points."""


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

    ``ends`` names the two boxes of each edge.
    """

    width: float
    height: float
    boxes: Mapping[str, Rect]
    groups: Mapping[str, Rect] = field(default_factory=dict)
    titles: Mapping[str, Point] = field(default_factory=dict)
    edges: tuple[tuple[Point, ...], ...] = ()
    ends: tuple[tuple[str, str], ...] = ()


def place(
    scene: Scene, *, time_limit_s: float = TIME_LIMIT_S, lay_out: Callable[..., bytes | None] = graphviz
) -> Placement:
    """Return the placement of ``scene``: Graphviz's if it finishes in time, else that of ``layers``."""
    return arranged(scene, time_limit_s=time_limit_s, lay_out=lay_out) or layers(scene)


def arranged(
    scene: Scene,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    stop: threading.Event | None = None,
    lay_out: Callable[..., bytes | None] = graphviz,
) -> Placement | None:
    """Return Graphviz's placement of ``scene``; None if it fails, takes too long or is stopped by ``stop``."""
    if not scene.boxes:
        return None
    found = lay_out(scene_dot(scene, legend=False), "json0", time_limit_s=time_limit_s, stop=stop)
    try:
        return None if found is None else read_json(found)
    except (ValueError, KeyError, TypeError):
        return None


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
    drawn = [edge for edge in facts.get("edges", []) if "pos" in edge]
    edges = tuple(tuple(_curve(edge["pos"], height)) for edge in drawn)
    names = {item["_gvid"]: item["name"] for item in facts.get("objects", [])}
    ends = tuple((names[edge["tail"]], names[edge["head"]]) for edge in drawn)
    return Placement(width, height, boxes, groups, titles, edges, ends)


def layers(scene: Scene) -> Placement:
    """Return a placement in layers: each box below its inputs and near their middle; groups stay together.

    It takes time in proportion to the size of the scene.
    """
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    edges: dict[tuple[str, str], tuple[Point, ...]] = {}
    left = low = 0.0
    for section in scene.sections:
        placed, frames = _section_layers(section, left)
        boxes |= placed
        groups |= frames
        titles[section.id] = (left, 0.0)
        edges |= {(tail, head): _drop(placed[tail], placed[head]) for tail, head in section.edges}
        extent = [*placed.values(), *frames.values()]
        left = max((rect.x + rect.width for rect in extent), default=left) + 3 * GAP
        low = max(low, *(rect.y + rect.height for rect in extent), 0.0)
    return Placement(left, low + GAP, boxes, groups, titles, tuple(edges.values()), tuple(edges))


def _section_layers(section: Section, left: float) -> tuple[dict[str, Rect], dict[str, Rect]]:
    sizes = {box.id: room(box) for box in section.boxes}
    home = {name: group.id for group in section.groups for name in group.boxes}
    within: dict[str, list[tuple[str, str]]] = {group.id: [] for group in section.groups}
    between: dict[tuple[str, str], None] = {}
    for tail, head in section.edges:
        outer = (home.get(tail, tail), home.get(head, head))
        if outer[0] == outer[1]:
            within[outer[0]].append((tail, head))
        else:
            between[outer] = None
    inner: dict[str, dict[str, Rect]] = {}
    outside = {home.get(name, name): sizes[name] for name in sizes}
    for group in section.groups:
        inner[group.id] = _rows({name: sizes[name] for name in group.boxes}, within[group.id])
        right = max(rect.x + rect.width for rect in inner[group.id].values())
        bottom = max(rect.y + rect.height for rect in inner[group.id].values())
        outside[group.id] = (max(right, text_width(group.title, TITLE)) + 2 * EDGE, bottom + HEAD + EDGE)
    placed: dict[str, Rect] = {}
    frames: dict[str, Rect] = {}
    for name, rect in _rows(outside, between).items():
        x, y = rect.x + left, rect.y + 2 * GAP
        if name not in inner:
            placed[name] = Rect(x, y, rect.width, rect.height)
            continue
        frames[name] = Rect(x, y, rect.width, rect.height)
        margin = (rect.width - max(part.x + part.width for part in inner[name].values())) / 2
        placed |= {
            box: Rect(x + margin + part.x, y + HEAD + part.y, part.width, part.height)
            for box, part in inner[name].items()
        }
    return placed, frames


def _rows(sizes: Mapping[str, tuple[float, float]], edges: Iterable[tuple[str, str]]) -> dict[str, Rect]:
    """Return boxes of these ``sizes`` placed in rows, with the upper left corner at (0, 0)."""
    rows, feeds = in_rows(sizes, edges)
    placed: dict[str, Rect] = {}
    top = 0.0
    for row in rows:
        wanted = {name: _middle([placed[tail] for tail in feeds[name]]) for name in row}
        for line in _lines(sorted(row, key=wanted.__getitem__), sizes):
            ends, x = [], 0.0
            for name in line:
                x = max(x, wanted[name] - sizes[name][0] / 2)
                ends.append(x)
                x += sizes[name][0] + GAP
            # Boxes were pushed to the right by their neighbours: the row is moved back by the average.
            pushed = sum(x + sizes[name][0] / 2 - wanted[name] for name, x in zip(line, ends, strict=True)) / len(line)
            for name, x in zip(line, ends, strict=True):
                placed[name] = Rect(x - pushed, top, *sizes[name])
            top += max(sizes[name][1] for name in line) + LAYER
    left = min((rect.x for rect in placed.values()), default=0.0)
    return {name: Rect(rect.x - left, rect.y, rect.width, rect.height) for name, rect in placed.items()}


def in_rows(names: Iterable[str], edges: Iterable[tuple[str, str]]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Return ``names``, given in the order they run, in rows from the top, and the inputs of each."""
    order = {name: number for number, name in enumerate(names)}
    feeds: dict[str, list[str]] = {name: [] for name in order}
    users: dict[str, list[str]] = {name: [] for name in order}
    for tail, head in edges:
        if order[tail] < order[head]:  # no cycle is left
            feeds[head].append(tail)
            users[tail].append(head)
    level: dict[str, int] = {}
    rows: dict[int, list[str]] = {}
    for name in order:
        level[name] = 1 + max((level[tail] for tail in feeds[name]), default=-1)
    for name in order:
        # A box without inputs is placed right above its first user, not at the top.
        late = level[name] if feeds[name] else max(min((level[head] for head in users[name]), default=1) - 1, 0)
        rows.setdefault(late, []).append(name)
    return [rows[number] for number in sorted(rows)], feeds


def _lines(row: list[str], sizes: Mapping[str, tuple[float, float]]) -> Iterator[list[str]]:
    """Yield ``row`` broken into lines that are no wider than ``WIDEST``."""
    line: list[str] = []
    width = 0.0
    for name in row:
        if line and width + sizes[name][0] > WIDEST:
            yield line
            line, width = [], 0.0
        line.append(name)
        width += sizes[name][0] + GAP
    if line:
        yield line


def room(box: Box) -> tuple[float, float]:
    """Return the width and height that a box takes."""
    width, height = box_size(box)
    return (width + (GAP if box.region is not None else 0), height)  # room for the region's letter


def _middle(rects: list[Rect]) -> float:
    return sum(rect.x + rect.width / 2 for rect in rects) / len(rects) if rects else 0.0


def _drop(tail: Rect, head: Rect) -> tuple[Point, ...]:
    x0, y0 = tail.x + tail.width / 2, tail.y + tail.height
    x1, y1 = head.x + head.width / 2, head.y
    bend = (y1 - y0) / 2
    widest = max(tail.width, head.width)
    # A long edge straight down would cross the boxes in between: it is bent around them.
    around = widest * 0.7 + GAP if abs(x1 - x0) < widest / 2 and y1 - y0 > 3 * LAYER else 0.0
    return ((x0, y0), (x0 + around, y0 + bend), (x1 + around, y1 - bend), (x1, y1))


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
