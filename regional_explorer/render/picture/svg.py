"""Draws a laid-out scene as a self-contained SVG.

It has no script, link or id, so two pictures in one page cannot interfere. All edges share one path and numbers are
integers, which keeps a picture of some hundred boxes at a few tens of kilobytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot

from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.render.picture.compose import compose
from regional_explorer.render.picture.graphviz_process import TIME_LIMIT_S
from regional_explorer.render.picture.opening import Detail
from regional_explorer.render.picture.placement import Placement, Point, Rect, place
from regional_explorer.render.picture.scene import Box, BoxGroup, Look, Scene
from regional_explorer.render.picture.text_size import text_width
from regional_explorer.render.style.css import PICTURE, picture_css
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import LONG, markup

MARGIN = 8
LINE = 18
SMALLEST = 0.6
"""Space around the picture, height of a legend line, and how far a narrow page may shrink the picture."""

_LOOKS = {Look.MODULE: "k", Look.VIEW: "v", Look.INPUT: "i", Look.BAD: "x", Look.PIECE: "f"}
_LINES = {"dashed": "n", "dotted": "o"}


def session_svg(
    session: Session,
    graph_id: str | None = None,
    *,
    detail: Detail | str = Detail.MODULES,
    time_limit_s: float = TIME_LIMIT_S,
) -> str:
    """Return a picture of ``session``; the arguments are those of ``graph_dot``, with a limit on the layout's time."""
    scene = compose(session, graph_id, detail=detail)
    return draw(scene, place(scene, time_limit_s=time_limit_s))


def draw(scene: Scene, placement: Placement) -> str:
    """Return ``scene`` drawn at the places of ``placement``, with its legend below."""
    legend, legend_width, legend_height = _legend(scene, max(placement.width, 320), placement.height + LINE)
    width = round(max(placement.width, legend_width) + 2 * MARGIN)
    height = round(max(placement.height, LINE) + legend_height + 2 * MARGIN)
    box = f"{-MARGIN} {-MARGIN} {width} {height}"
    size = f"width:100%;min-width:{round(width * SMALLEST)}px;max-width:{width}px;height:auto"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{PICTURE}" role="img" aria-label="{markup(scene.title)}"',
        f' width="{width}" height="{height}" viewBox="{box}" style="{size}">',
        f"<style>{picture_css(paint(entry.region) for entry in scene.entries)}</style>",
        *_titles(scene, placement),
        "" if scene.boxes else f'<text class="l" y="{LINE}">Nothing to draw: the graph has no op.</text>',
        *_groups(scene, placement),
        *_edges(placement),
        *_boxes(scene, placement),
        *legend,
        "</svg>",
    ]
    return "".join(parts)


def _titles(scene: Scene, placement: Placement) -> Iterator[str]:
    y = min((top for _, top in placement.titles.values()), default=0.0)
    for section in scene.sections:
        x, _ = placement.titles.get(section.id, (0.0, 0.0))
        yield f'<text class="h" x="{x + 8:.0f}" y="{y + 14:.0f}">{markup(section.title)}</text>'


def _groups(scene: Scene, placement: Placement) -> Iterator[str]:
    for section in scene.sections:
        for group in section.groups:
            if group.id in placement.groups:
                yield _group(group, placement.groups[group.id])


def _group(group: BoxGroup, rect: Rect) -> str:
    colours = paint(group.region)
    names = f"c f r{colours.hue} {_LINES.get(colours.line, '')}".rstrip() + (" x" if group.failed else "")
    title = f"<title>{markup(group.tooltip)}</title>" if group.tooltip else ""
    label = f'<text class="l" x="{rect.x + 8:.0f}" y="{rect.y + 14:.0f}">{markup(group.title)}</text>'
    return f'<g class="{names}">{title}{_rect(rect, 7)}{label}</g>'


def _edges(placement: Placement) -> Iterator[str]:
    if placement.edges:
        yield f'<path class="e" d="{"".join(map(_path, placement.edges))}"/>'
        yield f'<path class="a" d="{"".join(map(_arrow, placement.edges))}"/>'


def _boxes(scene: Scene, placement: Placement) -> Iterator[str]:
    grouped = {box for section in scene.sections for g in section.groups if g.id in placement.groups for box in g.boxes}
    for box in scene.boxes:
        if box.id in placement.boxes:
            yield _box(box, placement.boxes[box.id], alone=box.id not in grouped)


def _box(box: Box, rect: Rect, *, alone: bool) -> str:
    names, letter = ["b", _LOOKS.get(box.look, "")], ""
    if box.region is not None:
        colours = paint(box.region)
        names += [f"r{colours.hue}", _LINES.get(colours.line, "")]
        if alone and box.look is not Look.PIECE:
            # An op outside of its region's frame shows the region by colour and letter.
            names.append("f")
            letter = f"{colours.letter} "
    names += ["w"] if box.look in {Look.RUN, Look.STACK} else []
    names += ["x"] if box.failed else []
    middle = rect.x + rect.width / 2
    small = 3 if box.look is Look.VIEW else 3.5
    base = rect.y + rect.height / 2 + small - (5.5 if box.detail else 0)
    signs = f'<tspan class="m" dx="3">{"".join(box.marks)}</tspan>' if box.marks else ""
    detail = f'<text class="d" x="{middle:.0f}" y="{base + 10.5:.0f}">{markup(box.detail)}</text>' if box.detail else ""
    title = f"<title>{markup_lines(box.tooltip)}</title>" if box.tooltip else ""
    text = f'<text x="{middle:.0f}" y="{base:.0f}">{letter}{markup(box.title)}{signs}</text>'
    return f'<g class="{" ".join(filter(None, names))}">{title}{_rect(rect, 4)}{_shares(box, rect)}{text}{detail}</g>'


def _shares(box: Box, rect: Rect) -> str:
    """Return a bar at the bottom of a box with the share of each region in its ops."""
    parts, x = [], rect.x + 4
    for region, ops in box.shares:
        width = max((rect.width - 8) * ops / len(box.nodes), 2)
        bar = f'<rect x="{x:.0f}" y="{rect.y + rect.height - 3:.0f}" width="{width:.0f}" height="3"/>'
        parts.append(f'<g class="s r{paint(region).hue}">{bar}</g>')
        x += width
    return "".join(parts)


def markup_lines(text: str) -> str:
    """Return the lines of ``text`` cleaned and escaped."""
    return "\n".join(markup(line, LONG) for line in text.split("\n"))


def _rect(rect: Rect, radius: int) -> str:
    sides = f'x="{rect.x:.0f}" y="{rect.y:.0f}" width="{rect.width:.0f}" height="{rect.height:.0f}"'
    return f'<rect {sides} rx="{radius}"/>'


def _path(points: tuple[Point, ...]) -> str:
    """Return the path of a curve in relative integer coordinates, which are short."""
    whole = [(round(x), round(y)) for x, y in points]
    (x, y), *rest = whole
    text = f"M{x} {y}"
    while rest:
        # Three points are one curve; the remaining point, the arrow's tip, is reached by a line.
        step, rest = (rest[:3], rest[3:]) if len(rest) >= 3 else (rest[:1], rest[1:])  # noqa: PLR2004
        text += ("c" if len(step) > 1 else "l") + " ".join(f"{px - x} {py - y}" for px, py in step)
        x, y = step[-1]
    return re.sub(r" -", "-", text)


def _arrow(points: tuple[Point, ...]) -> str:
    (x0, y0), (x1, y1) = points[-2:]
    length = hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    left, right = (x1 - 4 * dx - 2 * dy, y1 - 4 * dy + 2 * dx), (x1 - 4 * dx + 2 * dy, y1 - 4 * dy - 2 * dx)
    corners = [(round(x, 1), round(y, 1)) for x, y in ((x1, y1), left, right)]
    return "M{:g} {:g}L{:g} {:g} {:g} {:g}z".format(*(side for corner in corners for side in corner))


@dataclass(slots=True)
class _Pen:
    """Writes legend entries from left to right, in as many lines as they need."""

    width: float
    x: float
    y: float
    right: float = 0.0

    def step(self, room: float) -> Point:
        if self.x > 0 and self.x + room > self.width:
            self.x, self.y = 0.0, self.y + LINE
        here = (self.x, self.y)
        self.x += room + 2 * MARGIN
        self.right = max(self.right, self.x)
        return here


def _legend(scene: Scene, width: float, top: float) -> tuple[list[str], float, float]:
    pen, parts = _Pen(width, 0.0, top), []
    for entry in scene.entries:
        colours, text = paint(entry.region), entry.text
        x, y = pen.step(text_width(text, 10) + 22)
        failed = " x" if entry.state is State.FAILED else ""
        names = f"c f r{colours.hue} {_LINES.get(colours.line, '')}".rstrip() + failed
        chip = f'{_rect(Rect(x, y, 15, 13), 3)}<text x="{x + 7.5:.1f}" y="{y + 10:.0f}">{colours.letter}</text>'
        parts.append(
            f'<g class="{names}">{chip}<text class="l" x="{x + 20:.0f}" y="{y + 10:.0f}">{markup(text)}</text></g>'
        )
    if parts:
        pen.x, pen.y = 0.0, pen.y + LINE
    for mark in scene.marks:
        text = f"{mark} {mark.meaning}"
        x, y = pen.step(text_width(text, 8))
        parts.append(f'<text class="l m" x="{x:.0f}" y="{y + 9:.0f}">{markup(text)}</text>')
    return parts, pen.right, pen.y - top + 2 * LINE if parts else 0.0


def picture_html(picture: str) -> str:
    """Return ``picture``, an SVG, in a box that scrolls if the picture is larger than the page."""
    # An inline style, because a notebook that is not trusted yet drops style sheets.
    return f'<div class="rx-scroll" style="max-height:40rem;overflow:auto">{picture}</div>'
