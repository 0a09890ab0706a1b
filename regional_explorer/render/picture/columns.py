"""Cuts the tall sections of a layout into columns side by side: moves boxes, groups, titles and curves of edges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import sqrt

from regional_explorer.render.picture.placement import GAP, Placement, Point, Rect
from regional_explorer.render.picture.scene import Scene

ASPECT = 1.8
"""The ratio of width to height that columns aim at."""
TALLEST = 900
"""A graph up to this height, in points, stays in one column."""
BETWEEN = 3 * GAP
"""Space between columns."""


def columns(scene: Scene, placement: Placement) -> Placement:
    """Return ``placement`` of ``scene`` with each graph cut between its rows.

    Edges that run from one column to another lose their curves.
    """
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    curves: dict[tuple[str, str], tuple[Point, ...]] = {}
    found = dict(zip(placement.ends, placement.edges, strict=True))
    left = low = 0.0
    for section in scene.sections:
        inside = {box.id: placement.boxes[box.id] for box in section.boxes}
        frames = {group.id: placement.groups[group.id] for group in section.groups}
        cut = _Cut([*inside.values(), *frames.values()], left)
        boxes |= {name: cut.moved(rect) for name, rect in inside.items()}
        groups |= {name: cut.moved(rect) for name, rect in frames.items()}
        titles[section.id] = (left, 0.0)
        curves |= {edge: cut.curve(found[edge]) for edge in section.edges if edge in found}
        left, low = cut.right + 2 * BETWEEN, max(low, cut.bottom)
    return Placement(
        max(left - 2 * BETWEEN, 1.0), low + GAP, boxes, groups, titles, tuple(curves.values()), tuple(curves)
    )


class _Cut:
    """Where one graph is cut, and where its parts go: the first column begins at ``left``."""

    def __init__(self, rects: list[Rect], left: float) -> None:
        start = min((rect.x for rect in rects), default=0.0)
        width = max((rect.x + rect.width for rect in rects), default=0.0) - start
        height = max((rect.y + rect.height for rect in rects), default=0.0)
        count = round(sqrt(ASPECT * height / max(width + BETWEEN, 1.0))) if height > TALLEST else 1
        self.cuts = list(_cuts(_gaps(rects), height / count)) if count > 1 else []
        self.tops = [0.0, *(cut - 2 * GAP for cut in self.cuts)]
        self.step = width + BETWEEN
        self.shift = left - start
        self.right = left + width + self.step * len(self.cuts)
        self.bottom = max(end - top for top, end in zip(self.tops, [*self.cuts, height], strict=True))

    def moved(self, rect: Rect) -> Rect:
        x, y = self._at((rect.x, rect.y), bisect_right(self.cuts, rect.y))
        return Rect(x, y, rect.width, rect.height)

    def curve(self, points: tuple[Point, ...]) -> tuple[Point, ...]:
        column = bisect_right(self.cuts, points[0][1])
        if any(bisect_right(self.cuts, y) != column for _, y in points):
            return ()
        return tuple(self._at(point, column) for point in points)

    def _at(self, point: Point, column: int) -> Point:
        return (point[0] + self.shift + column * self.step, point[1] - self.tops[column])


def _gaps(rects: Iterable[Rect]) -> Iterator[float]:
    """Yield the heights at which a line across the graph meets no rectangle, from the top down."""
    low = 0.0
    for rect in sorted(rects, key=lambda rect: rect.y):
        if rect.y > low > 0:
            yield (low + rect.y) / 2
        low = max(low, rect.y + rect.height)


def _cuts(gaps: Iterable[float], height: float) -> Iterator[float]:
    """Yield the first gap after each ``height``, counted from the cut before."""
    last = 0.0
    for gap in gaps:
        if gap - last >= height:
            yield gap
            last = gap
