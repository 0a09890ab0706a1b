"""A placed picture as SVG, and as the graphviz.Digraph that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Any

from regional_explorer.picture.layout import (
    Box,
    BoxGroup,
    BoxLook,
    PlacedScene,
    Point,
    Rect,
    Scene,
    dot_lines,
    place,
    text_width,
)
from regional_explorer.picture.layout import graphviz as lay_out
from regional_explorer.picture.open_folds import compose
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.style.css import PICTURE, paint, picture_css
from regional_explorer.style.element import LONG, markup

if TYPE_CHECKING:
    import graphviz


PICTURE_MARGIN = 8
LEGEND_LINE = 18
LEAST_SCALE = 0.6
"""The space around the picture, the height of a legend line, and the smallest scale on a narrow page."""

_LOOK_CLASSES = {BoxLook.MODULE: "k", BoxLook.VIEW: "v", BoxLook.INPUT: "i", BoxLook.BAD: "x", BoxLook.PIECE: "f"}
_DASH_CLASSES = {"dashed": "n", "dotted": "o"}


def session_svg(session: Session) -> str:
    """Return a picture of all graphs of ``session`` that run, side by side."""
    scene = compose(session)
    return draw(scene, place(scene))


def draw(scene: Scene, placement: PlacedScene) -> str:
    """Return ``scene`` drawn at the places of ``placement``, with its legend below."""
    legend, legend_width, legend_height = _legend_svg(scene, max(placement.width, 320), placement.height + LEGEND_LINE)
    width = round(max(placement.width, legend_width) + 2 * PICTURE_MARGIN)
    height = round(max(placement.height, LEGEND_LINE) + legend_height + 2 * PICTURE_MARGIN)
    view_box = f"{-PICTURE_MARGIN} {-PICTURE_MARGIN} {width} {height}"
    size = f"width:100%;min-width:{round(width * LEAST_SCALE)}px;max-width:{width}px;height:auto"
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{PICTURE}" role="img" aria-label="{markup(scene.title)}"',
        f' width="{width}" height="{height}" viewBox="{view_box}" style="{size}">',
        f"<style>{picture_css(paint(entry.region) for entry in scene.entries)}</style>",
        *_title_elements(scene, placement),
        "" if scene.boxes else f'<text class="l" y="{LEGEND_LINE}">Nothing to draw: the graph has no op.</text>',
        *(
            _group_element(group, placement.groups[group.id])
            for section in scene.sections
            for group in section.groups
            if group.id in placement.groups
        ),
        *_edge_elements(placement),
        *_box_elements(scene, placement),
        *legend,
        "</svg>",
    ]
    return "".join(elements)


def _title_elements(scene: Scene, placement: PlacedScene) -> Iterator[str]:
    y = min((top for _, top in placement.titles.values()), default=0.0)
    for section in scene.sections:
        x, _ = placement.titles.get(section.id, (0.0, 0.0))
        yield f'<text class="h" x="{x + 8:.0f}" y="{y + 14:.0f}">{markup(section.title)}</text>'


def _group_element(group: BoxGroup, rect: Rect) -> str:
    colours = paint(group.region)
    classes = f"c f r{colours.hue} {_DASH_CLASSES.get(colours.line, '')}".rstrip() + (" x" if group.failed else "")
    title = f"<title>{markup(group.tooltip)}</title>" if group.tooltip else ""
    label = f'<text class="l" x="{rect.x + 8:.0f}" y="{rect.y + 14:.0f}">{markup(group.title)}</text>'
    return f'<g class="{classes}">{title}{_rect(rect, 7)}{label}</g>'


def _edge_elements(placement: PlacedScene) -> Iterator[str]:
    if placement.curves:
        yield f'<path class="e" d="{"".join(map(_curve_path, placement.curves.values()))}"/>'
        yield f'<path class="a" d="{"".join(map(_arrow_path, placement.curves.values()))}"/>'


def _box_elements(scene: Scene, placement: PlacedScene) -> Iterator[str]:
    grouped = {box for section in scene.sections for g in section.groups if g.id in placement.groups for box in g.boxes}
    for box in scene.boxes:
        if box.id in placement.boxes:
            yield _box_element(box, placement.boxes[box.id], alone=box.id not in grouped)


def _box_element(box: Box, rect: Rect, *, alone: bool) -> str:
    classes, letter = ["b", _LOOK_CLASSES.get(box.look, "")], ""
    if box.region is not None:
        colours = paint(box.region)
        classes += [f"r{colours.hue}", _DASH_CLASSES.get(colours.line, "")]
        if alone and box.look is not BoxLook.PIECE:
            # An op outside of its region's frame shows the region by colour and letter.
            classes.append("f")
            letter = f"{colours.letter} "
    classes += ["w"] if box.look in {BoxLook.RUN, BoxLook.STACK} else []
    classes += ["x"] if box.failed else []
    middle = rect.x + rect.width / 2
    shift = 3 if box.look is BoxLook.VIEW else 3.5
    base = rect.y + rect.height / 2 + shift - (5.5 if box.detail else 0)
    signs = f'<tspan class="m" dx="3">{"".join(box.marks)}</tspan>' if box.marks else ""
    detail = f'<text class="d" x="{middle:.0f}" y="{base + 10.5:.0f}">{markup(box.detail)}</text>' if box.detail else ""
    tooltip = "\n".join(markup(line, LONG) for line in box.tooltip.split("\n"))
    title = f"<title>{tooltip}</title>" if tooltip else ""
    text = f'<text x="{middle:.0f}" y="{base:.0f}">{letter}{markup(box.title)}{signs}</text>'
    return f'<g class="{" ".join(filter(None, classes))}">{title}{_rect(rect, 4)}{_bars(box, rect)}{text}{detail}</g>'


def _bars(box: Box, rect: Rect) -> str:
    """Return a bar at the bottom of a box with the share of each region in its ops."""
    bars, x = [], rect.x + 4
    for region, ops in box.shares:
        width = max((rect.width - 8) * ops / len(box.nodes), 2)
        bar = f'<rect x="{x:.0f}" y="{rect.y + rect.height - 3:.0f}" width="{width:.0f}" height="3"/>'
        bars.append(f'<g class="s r{paint(region).hue}">{bar}</g>')
        x += width
    return "".join(bars)


def _rect(rect: Rect, radius: int) -> str:
    sides = f'x="{rect.x:.0f}" y="{rect.y:.0f}" width="{rect.width:.0f}" height="{rect.height:.0f}"'
    return f'<rect {sides} rx="{radius}"/>'


def _curve_path(points: tuple[Point, ...]) -> str:
    """Return the path of a curve in relative integer coordinates, which are short."""
    rounded = [(round(x), round(y)) for x, y in points]
    (x, y), *tail = rounded
    text = f"M{x} {y}"
    while tail:
        # Three points are one curve; a line leads to the remaining point, the arrow's tip.
        segment, tail = (tail[:3], tail[3:]) if len(tail) >= 3 else (tail[:1], tail[1:])  # noqa: PLR2004
        text += ("c" if len(segment) > 1 else "l") + " ".join(f"{px - x} {py - y}" for px, py in segment)
        x, y = segment[-1]
    return re.sub(r" -", "-", text)


def _arrow_path(points: tuple[Point, ...]) -> str:
    (x0, y0), (x1, y1) = points[-2:]
    length = hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    left, right = (x1 - 4 * dx - 2 * dy, y1 - 4 * dy + 2 * dx), (x1 - 4 * dx + 2 * dy, y1 - 4 * dy - 2 * dx)
    corners = [(round(x, 1), round(y, 1)) for x, y in ((x1, y1), left, right)]
    return "M{:g} {:g}L{:g} {:g} {:g} {:g}z".format(*(side for corner in corners for side in corner))


@dataclass(slots=True)
class _LegendPen:
    """Writes legend entries from left to right, in as many lines as they need."""

    width: float
    x: float
    y: float
    right: float = 0.0

    def step(self, room: float) -> Point:
        if self.x > 0 and self.x + room > self.width:
            self.x, self.y = 0.0, self.y + LEGEND_LINE
        start = (self.x, self.y)
        self.x += room + 2 * PICTURE_MARGIN
        self.right = max(self.right, self.x)
        return start


def _legend_svg(scene: Scene, width: float, top: float) -> tuple[list[str], float, float]:
    pen, elements = _LegendPen(width, 0.0, top), []
    for entry in scene.entries:
        colours, text = paint(entry.region), entry.text
        x, y = pen.step(text_width(text, 10) + 22)
        failed = " x" if entry.state is State.FAILED else ""
        classes = f"c f r{colours.hue} {_DASH_CLASSES.get(colours.line, '')}".rstrip() + failed
        chip = f'{_rect(Rect(x, y, 15, 13), 3)}<text x="{x + 7.5:.1f}" y="{y + 10:.0f}">{colours.letter}</text>'
        elements.append(
            f'<g class="{classes}">{chip}<text class="l" x="{x + 20:.0f}" y="{y + 10:.0f}">{markup(text)}</text></g>'
        )
    if elements:
        pen.x, pen.y = 0.0, pen.y + LEGEND_LINE
    for badge in scene.marks:
        text = f"{badge} {badge.meaning}"
        x, y = pen.step(text_width(text, 8))
        elements.append(f'<text class="l m" x="{x:.0f}" y="{y + 9:.0f}">{markup(text)}</text>')
    return elements, pen.right, pen.y - top + 2 * LEGEND_LINE if elements else 0.0


def picture_html(picture: str) -> str:
    """Return ``picture``, an SVG, in a box that scrolls if the picture is larger than the page."""
    # An inline style, because a notebook that is not trusted yet drops style sheets.
    return f'<div class="rx-scroll" style="max-height:40rem;overflow:auto">{picture}</div>'


def digraph(session: Session, graph_id: str | None = None) -> graphviz.Digraph:
    """Return one graph of ``session``, or all graphs that run, side by side, as a ``graphviz.Digraph``.

    Jupyter displays it with the layout of pygraphviz, or with our own layout if pygraphviz is missing or too slow.
    ``render`` and ``pipe`` are graphviz's own and need its ``dot`` executable.
    """
    import graphviz

    scene = compose(session, graph_id)

    class RegionDigraph(graphviz.Digraph):  # type: ignore[misc] # graphviz is not annotated
        """A graphviz.Digraph that is drawn as ``scene`` until its DOT text is changed, and then from the text."""

        def _repr_svg_(self) -> str | None:
            if self.source == original_source:
                return draw(scene, place(scene))
            svg = lay_out(self.source, "svg")
            # The prolog has a document type declaration, which is not allowed inside a page.
            return None if svg is None else svg.decode()[svg.decode().index("<svg") :]

        def _repr_mimebundle_(
            self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None, **_: Any
        ) -> dict[str, str]:
            picture = self._repr_svg_()
            bundle = {"text/plain": self.source}
            if picture is not None:
                bundle |= {"text/html": picture_html(picture), "image/svg+xml": picture}
            # A notebook shows bare SVG without tooltips and theme: HTML replaces it, as both would be twice the size.
            mime_types = set(include) if include else set(bundle) - {"image/svg+xml"}
            return {mime: text for mime, text in bundle.items() if mime in mime_types - set(exclude or ())}

    region_digraph = RegionDigraph("regional_explorer", body=[f"\t{line}\n" for line in dot_lines(scene, legend=True)])
    original_source = region_digraph.source
    return region_digraph
