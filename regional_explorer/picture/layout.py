"""A picture: its boxes, groups and edges, and their places: by Graphviz, or in rows if that is late or missing."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from html import escape
from typing import Any, Self

from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import State
from regional_explorer.style.css import LIGHT, paint
from regional_explorer.style.formats import word

# ------------------------------------------------------------------------------------------------------------ the scene


class Look(StrEnum):
    """The look of a box.

    An op, an op that only changes a view, a module or function, other ops in one box, a repeated pattern, a piece of a
    region, an input, or a malformed node.
    """

    OP = "op"
    VIEW = "view"
    MODULE = "module"
    RUN = "run"
    STACK = "stack"
    PIECE = "piece"
    INPUT = "input"
    BAD = "bad"


class Badge(StrEnum):
    """A small sign on a box, which replaces an input or output node with long edges."""

    meaning: str

    def __new__(cls, sign: str, meaning: str) -> Self:
        """Return the sign with its ``meaning``, for the legend."""
        member = str.__new__(cls, sign)
        member._value_, member.meaning = sign, meaning
        return member

    INPUT = "▷", "reads an input"
    PARAMETER = "◆", "reads a parameter"
    READS_SAVED = "▲", "reads a saved tensor"
    SAVED = "▼", "saved for the backward"
    OUTPUT = "●", "output"
    RECOMPUTE = "↻", "recomputed"
    RANDOM = "~", "random"


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a picture: its first line is ``title``, its second ``detail``.

    ``region`` is the region's index in the plan, None for unmarked ops. ``nodes`` are the nodes in the box, in order.
    ``shares`` has pairs of a region and the number of its nodes, unless all belong to one region. ``opens`` says
    whether the box can be opened.
    """

    id: str
    look: Look
    title: str
    nodes: tuple[str, ...]
    detail: str = ""
    marks: tuple[Badge, ...] = ()
    tooltip: str = ""
    region: int | None = None
    failed: bool = False
    shares: tuple[tuple[int, int], ...] = ()
    opens: bool = False


@dataclass(frozen=True, slots=True)
class BoxGroup:
    """The boxes of one partition, drawn with a frame and a label."""

    id: str
    title: str
    region: int
    boxes: tuple[str, ...]
    tooltip: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One graph of the session."""

    id: str
    title: str
    boxes: tuple[Box, ...]
    groups: tuple[BoxGroup, ...]
    edges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A line of the legend about a region: its name, config and state; other sets of nodes have no state."""

    region: int
    title: str
    detail: str
    state: State | None

    @property
    def text(self) -> str:
        """The whole line."""
        return " · ".join(filter(None, (self.title, self.detail, word(self.state or ""))))


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole picture; boxes, groups and sections have ids that are unique in it."""

    title: str
    sections: tuple[Section, ...]
    entries: tuple[LegendEntry, ...] = ()
    marks: tuple[Badge, ...] = ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes of all sections."""
        return tuple(box for section in self.sections for box in section.boxes)


HEADING_PT = 11
TITLE_PT = 10
SMALL_PT = 8
"""The font sizes in points of a graph's title, a box's title, and a second line or an op that only changes a view."""

PLUS = 12
"""The room for the sign of a box that can be opened, in points."""

_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/ \"-`")
_WIDE = frozenset("mwMWQOGD@%—…")


@lru_cache(maxsize=20_000)
def text_width(text: str, size: float) -> float:
    """Return the approximate width of ``text`` in a sans-serif font, rather too wide than too narrow."""
    return size * sum(_width_em(character) for character in text)


def box_size(box: Box) -> tuple[float, float]:
    """Return width and height of a box in points."""
    is_view = box.look is Look.VIEW
    signs = f" {' '.join(box.marks)}" if box.marks else ""
    first_line = text_width(box.title, SMALL_PT if is_view else TITLE_PT) + text_width(signs, SMALL_PT)
    width = max(first_line, text_width(box.detail, SMALL_PT)) + (8 if is_view else 12) + (PLUS if box.opens else 0)
    height = 28 if box.detail else 12 if is_view else 17
    return max(width, 22), height


def _width_em(character: str) -> float:
    if character in _NARROW:
        return 0.36
    if character in _WIDE or character.isupper():
        return 0.82
    return 1.05 if unicodedata.east_asian_width(character) in "WF" else 0.6


# ------------------------------------------------------------------------------------------------------------- Graphviz

LAYOUT_LIMIT_S = 10.0
"""The default time limit of a layout, in seconds."""
MOST_DRAWINGS = 16
"""The number of cached drawings; the same text is not laid out twice."""

_CHILD = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot"))
"""
"""The child's program: lay out DOT from stdin and write it to stdout, in the format named by its argument."""


def graphviz(
    dot: str, form: str, *, time_limit_s: float = LAYOUT_LIMIT_S, command: tuple[str, ...] | None = None
) -> bytes | None:
    """Return ``dot`` laid out and written as ``form``; None if the layout fails or takes too long.

    The libraries of pygraphviz are used; without pygraphviz, an installed ``dot`` executable.

    Args:
        dot: Text in the DOT language.
        form: An output format of Graphviz, such as ``svg`` or ``json0``.
        time_limit_s: The child is ended after this many seconds.
        command: The command to run; by default the result of ``layout_command``.
    """
    command = command or layout_command(form)
    if command is None:
        return None
    try:
        return _drawing(command, dot, time_limit_s) or None
    except (OSError, subprocess.SubprocessError):
        return None


@functools.lru_cache(MOST_DRAWINGS)
def _drawing(command: tuple[str, ...], dot: str, time_limit_s: float) -> bytes:
    # Our own interpreter or `dot`; the DOT text goes through stdin.
    child = subprocess.run(command, input=dot.encode(), capture_output=True, check=True, timeout=time_limit_s)  # noqa: S603
    return child.stdout


def layout_command(form: str) -> tuple[str, ...] | None:
    """Return the command that lays out and writes as ``form``; None if neither pygraphviz nor dot is installed."""
    if sys.executable and importlib.util.find_spec("pygraphviz"):
        # -P keeps the current folder off the child's path: its modules could shadow those of the standard library.
        return (sys.executable, "-P", "-c", _CHILD, form)
    dot = shutil.which("dot")
    return (dot, f"-T{form}") if dot else None


FONT = "Helvetica,Arial,sans-serif"
POINTS_PER_INCH = 72


def scene_dot(scene: Scene) -> str:
    """Return the DOT text of ``scene`` for its layout, without a legend."""
    lines = (f"  {line}" for line in dot_lines(scene, legend=False))
    return "\n".join(["digraph regional_explorer {", *lines, "}", ""])


def dot_lines(scene: Scene, *, legend: bool) -> Iterator[str]:
    """Yield the statements of the DOT text, with or without the legend that explains colours and signs."""
    font = quoted(FONT)
    yield f"graph [fontname={font} fontsize=10 bgcolor={quoted(LIGHT.paper)} nodesep=0.12 ranksep=0.17 pad=0.1]"
    yield f"graph [tooltip={quoted(scene.title)} labelloc=b]"
    yield f"node [fontname={font} fontsize=10 fontcolor={quoted(LIGHT.ink)} margin={quoted('0.06,0.02')} height=0.22]"
    yield (
        f"node [shape=box style={quoted('rounded,filled')} color={quoted(LIGHT.edge)} fillcolor={quoted(LIGHT.box)}"
        " penwidth=0.7]"
    )
    yield f"edge [color={quoted(LIGHT.edge)} arrowsize=0.4 penwidth=0.8]"
    if legend and (scene.entries or scene.marks):
        yield f"label=<{_legend_table(scene)}>"
    for section in scene.sections:
        yield from _section_statements(section)


def quoted(text: str) -> str:
    """Return ``text`` as a quoted DOT string that shows exactly ``text``."""
    # Graphviz interprets entities and backslash escapes inside quotes: both are escaped, to be taken literally.
    literal = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{literal}"'.replace("\n", "\\n")


def _section_statements(section: Section) -> Iterator[str]:
    yield f"subgraph cluster_{section.id} {{"
    yield f"  label={quoted(section.title)} labeljust=l labelloc=t peripheries=0 fontsize={HEADING_PT}"
    yield f"  fontcolor={quoted(LIGHT.quiet)}"
    grouped = {box for group in section.groups for box in group.boxes}
    boxes = {box.id: box for box in section.boxes}
    yield from (f"  {_box_statement(box)}" for box in section.boxes if box.id not in grouped)
    for group in section.groups:
        yield from (f"  {line}" for line in _cluster_statements(group, boxes))
    yield from (f"  {tail} -> {head}" for tail, head in section.edges)
    yield "}"


def _cluster_statements(group: BoxGroup, boxes: dict[str, Box]) -> Iterator[str]:
    colours = paint(group.region)
    stroke = LIGHT.bad if group.failed else colours.light.stroke
    yield f"subgraph cluster_{group.id} {{"
    yield f"  label={quoted(group.title)} labeljust=l labelloc=t fontsize=10 margin=6"
    yield f"  tooltip={quoted(group.tooltip or group.title)}"
    yield (
        f"  style={quoted('rounded,filled,' + colours.line)} color={quoted(stroke)}"
        f" fillcolor={quoted(colours.light.fill)} fontcolor={quoted(LIGHT.bad if group.failed else colours.light.text)}"
    )
    yield from (f"  {_box_statement(boxes[box_id])}" for box_id in group.boxes)
    yield "}"


def _box_statement(box: Box) -> str:
    width, height = (side / POINTS_PER_INCH for side in box_size(box))
    title = " ".join(filter(None, (box.title, " ".join(box.marks))))
    attrs = {
        "label": quoted(f"{title}\n{box.detail}" if box.detail else title),
        "tooltip": quoted(box.tooltip or title),
    }
    attrs |= {"width": f"{width:.2f}", "height": f"{height:.2f}"}
    if box.region is not None:
        tone = paint(box.region).light
        attrs |= {
            "color": quoted(tone.stroke),
            "fillcolor": quoted(tone.fill if box.look is Look.PIECE else LIGHT.paper),
            "fontcolor": quoted(tone.text),
        }
    if box.look is Look.VIEW:
        attrs |= {"fontsize": "8", "margin": quoted("0.04,0"), "penwidth": "0.4"}
    if box.look is Look.INPUT:
        attrs |= {"shape": "plaintext", "margin": quoted("0"), "style": quoted(""), "fontcolor": quoted(LIGHT.quiet)}
    if box.look is Look.BAD or box.failed:
        attrs |= {"color": quoted(LIGHT.bad), "fontcolor": quoted(LIGHT.bad)}
    return f"{box.id} [{' '.join(f'{key}={value}' for key, value in attrs.items())}]"


def _legend_table(scene: Scene) -> str:
    rows = []
    for entry in scene.entries:
        colours = paint(entry.region)
        cell = f'<td bgcolor="{colours.light.fill}" color="{colours.light.stroke}" border="1">{colours.letter}</td>'
        text = escape(entry.text)
        rows.append(f'<tr>{cell}<td align="left"><font color="{colours.light.text}">{text}</font></td></tr>')
    if scene.marks:
        text = escape("    ".join(f"{badge} {badge.meaning}" for badge in scene.marks))
        rows.append(f'<tr><td></td><td align="left"><font color="{LIGHT.quiet}">{text}</font></td></tr>')
    return f'<table border="0" cellborder="0" cellspacing="3">{"".join(rows)}</table>'


# ----------------------------------------------------------------------------------------------------------- the places

Point = tuple[float, float]

BOX_GAP = 14
LAYER_GAP = 16
WIDEST_LINE = 1000
BORDER = 7
HEADER = 20
"""The space between boxes and layers, the width at which a layer is broken, and the margins of a group, in points."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; ``x`` and ``y`` are its upper left corner, y grows downwards."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PlacedScene:
    """Rectangles of boxes and groups, points of section titles, and edges as the points of cubic Bézier curves.

    An edge is named by the boxes at its two ends.
    """

    width: float
    height: float
    boxes: Mapping[str, Rect]
    groups: Mapping[str, Rect]
    titles: Mapping[str, Point]
    curves: Mapping[tuple[str, str], tuple[Point, ...]]


def place(
    scene: Scene, *, time_limit_s: float = LAYOUT_LIMIT_S, lay_out: Callable[..., bytes | None] = graphviz
) -> PlacedScene:
    """Return the placement of ``scene``: Graphviz's if it finishes in time and can be read, else by ``layers``."""
    output = lay_out(scene_dot(scene), "json0", time_limit_s=time_limit_s) if scene.boxes else None
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if output is not None:
            return read_json(output)
    return layers(scene)


def read_json(text: bytes) -> PlacedScene:
    """Return the placement in Graphviz's ``json0`` output."""
    drawing: dict[str, Any] = json.loads(text)
    _, _, width, height = map(float, drawing["bb"].split(","))
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    for item in drawing.get("objects", []):
        name = item["name"]
        if "bb" in item:
            left, low, right, high = map(float, item["bb"].split(","))
            groups[name.removeprefix("cluster_")] = Rect(left, height - high, right - left, high - low)
            titles[name.removeprefix("cluster_")] = (left, height - high)
        elif "pos" in item:
            x, y = map(float, item["pos"].split(","))
            wide, tall = float(item["width"]) * 72, float(item["height"]) * 72
            boxes[name] = Rect(x - wide / 2, height - y - tall / 2, wide, tall)
    name_of_id = {item["_gvid"]: item["name"] for item in drawing.get("objects", [])}
    curves = {
        (name_of_id[edge["tail"]], name_of_id[edge["head"]]): tuple(_graphviz_curve(edge["pos"], height))
        for edge in drawing.get("edges", [])
        if "pos" in edge
    }
    return PlacedScene(width, height, boxes, groups, titles, curves)


def layers(scene: Scene) -> PlacedScene:
    """Return a placement in layers: each box below its inputs and near their middle; groups stay together.

    It takes time in proportion to the size of the scene.
    """
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    curves: dict[tuple[str, str], tuple[Point, ...]] = {}
    left = bottom = 0.0
    for section in scene.sections:
        box_rects, group_rects = _section_layers(section, left)
        boxes |= box_rects
        groups |= group_rects
        titles[section.id] = (left, 0.0)
        curves |= {(tail, head): _layer_curve(box_rects[tail], box_rects[head]) for tail, head in section.edges}
        rects = [*box_rects.values(), *group_rects.values()]
        titled = left + 2 * BORDER + text_width(section.title, HEADING_PT)
        left = max([titled, *(rect.x + rect.width for rect in rects)]) + 3 * BOX_GAP
        bottom = max(bottom, *(rect.y + rect.height for rect in rects), 0.0)
    return PlacedScene(left, bottom + BOX_GAP, boxes, groups, titles, curves)


def _section_layers(section: Section, left: float) -> tuple[dict[str, Rect], dict[str, Rect]]:
    sizes = {box.id: room(box) for box in section.boxes}
    outer = {name: name for name in sizes} | {name: group.id for group in section.groups for name in group.boxes}
    inner_edges = grouped((outer[edge[0]], edge) for edge in section.edges if outer[edge[0]] == outer[edge[1]])
    outer_edges = dict.fromkeys(
        (outer[tail], outer[head]) for tail, head in section.edges if outer[tail] != outer[head]
    )
    inner_rects: dict[str, dict[str, Rect]] = {}
    outer_sizes = {outer[name]: sizes[name] for name in sizes}
    for group in section.groups:
        inner_sizes = {name: sizes[name] for name in group.boxes}
        inner_rects[group.id] = _placed_in_rows(inner_sizes, inner_edges.get(group.id, ()))
        right = max(rect.x + rect.width for rect in inner_rects[group.id].values())
        bottom = max(rect.y + rect.height for rect in inner_rects[group.id].values())
        outer_sizes[group.id] = (max(right, text_width(group.title, TITLE_PT)) + 2 * BORDER, bottom + HEADER + BORDER)
    box_rects: dict[str, Rect] = {}
    group_rects: dict[str, Rect] = {}
    for name, rect in _placed_in_rows(outer_sizes, outer_edges).items():
        x, y = rect.x + left, rect.y + 2 * BOX_GAP
        if name not in inner_rects:
            box_rects[name] = Rect(x, y, rect.width, rect.height)
            continue
        group_rects[name] = Rect(x, y, rect.width, rect.height)
        margin = (rect.width - max(inner_rect.x + inner_rect.width for inner_rect in inner_rects[name].values())) / 2
        box_rects |= {
            box: Rect(x + margin + inner_rect.x, y + HEADER + inner_rect.y, inner_rect.width, inner_rect.height)
            for box, inner_rect in inner_rects[name].items()
        }
    return box_rects, group_rects


def _placed_in_rows(sizes: Mapping[str, tuple[float, float]], edges: Iterable[tuple[str, str]]) -> dict[str, Rect]:
    """Return boxes of these ``sizes`` placed in rows, with the upper left corner at (0, 0)."""
    rows, feeds = in_rows(sizes, edges)
    placed: dict[str, Rect] = {}
    top = 0.0
    for row in rows:
        middles = {name: _mean_middle([placed[tail] for tail in feeds[name]]) for name in row}
        for line in _broken_row(sorted(row, key=middles.__getitem__), sizes):
            lefts, x = [], 0.0
            for name in line:
                x = max(x, middles[name] - sizes[name][0] / 2)
                lefts.append(x)
                x += sizes[name][0] + BOX_GAP
            # Boxes have pushed their neighbours to the right: the row is moved back by the average.
            push = sum(x + sizes[name][0] / 2 - middles[name] for name, x in zip(line, lefts, strict=True)) / len(line)
            for name, x in zip(line, lefts, strict=True):
                placed[name] = Rect(x - push, top, *sizes[name])
            top += max(sizes[name][1] for name in line) + LAYER_GAP
    left = min((rect.x for rect in placed.values()), default=0.0)
    return {name: Rect(rect.x - left, rect.y, rect.width, rect.height) for name, rect in placed.items()}


def in_rows(names: Iterable[str], edges: Iterable[tuple[str, str]]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Return ``names``, given in the order they run, in rows from the top, and the inputs of each name.

    A group may have inputs that run after its first box. A cycle begins with the name that runs first.
    """
    feeds: dict[str, list[str]] = {name: [] for name in names}
    users: dict[str, list[str]] = {name: [] for name in feeds}
    for tail, head in edges:
        feeds[head].append(tail)
        users[tail].append(head)
    missing = {name: len(tails) for name, tails in feeds.items()}
    ready = [name for name in feeds if not missing[name]]
    unplaced = iter(feeds)
    level: dict[str, int] = {}
    top_user: dict[str, int] = {}
    while len(level) < len(feeds):
        name = ready.pop() if ready else next(name for name in unplaced if name not in level)
        feeds[name] = [tail for tail in feeds[name] if tail in level]  # no cycle is left
        level[name] = 1 + max((level[tail] for tail in feeds[name]), default=-1)
        for tail in feeds[name]:
            top_user[tail] = min(level[name], top_user.get(tail, level[name]))
        for head in users[name]:
            missing[head] -= 1
            if not missing[head] and head not in level:
                ready.append(head)
    # A box without inputs is placed right above its first user, not at the top.
    rows = grouped((level[name] if tails else top_user.get(name, 1) - 1, name) for name, tails in feeds.items())
    return [rows[number] for number in sorted(rows)], feeds


def _broken_row(row: list[str], sizes: Mapping[str, tuple[float, float]]) -> Iterator[list[str]]:
    """Yield ``row`` broken into lines that are no wider than ``WIDEST_LINE``."""
    line: list[str] = []
    width = 0.0
    for name in row:
        if line and width + sizes[name][0] > WIDEST_LINE:
            yield line
            line, width = [], 0.0
        line.append(name)
        width += sizes[name][0] + BOX_GAP
    if line:
        yield line


def room(box: Box) -> tuple[float, float]:
    """Return the width and height that a box takes."""
    width, height = box_size(box)
    return (width + (BOX_GAP if box.region is not None else 0), height)  # room for the region's letter


def _mean_middle(rects: list[Rect]) -> float:
    return sum(rect.x + rect.width / 2 for rect in rects) / len(rects) if rects else 0.0


def _layer_curve(tail: Rect, head: Rect) -> tuple[Point, ...]:
    x0, y0 = tail.x + tail.width / 2, tail.y + tail.height
    x1, y1 = head.x + head.width / 2, head.y
    bend = (y1 - y0) / 2
    widest = max(tail.width, head.width)
    # A long edge straight down would cross the boxes in between, so it is bent around them.
    detour = widest * 0.7 + BOX_GAP if abs(x1 - x0) < widest / 2 and y1 - y0 > 3 * LAYER_GAP else 0.0
    return ((x0, y0), (x0 + detour, y0 + bend), (x1 + detour, y1 - bend), (x1, y1))


def _graphviz_curve(text: str, height: float) -> Iterator[Point]:
    """Yield the points of an edge; Graphviz writes the arrow's tip, marked with ``e``, before them."""
    for point in sorted(text.split(), key=lambda point: point.startswith("e,")):
        x, y = map(float, point.removeprefix("e,").split(","))
        yield (x, height - y)
