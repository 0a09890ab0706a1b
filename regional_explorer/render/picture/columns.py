"""Cuts the tall sections of a layout into columns side by side: moves boxes, groups, titles and curves of edges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import sqrt

from regional_explorer.render.picture.placement import BOX_GAP, Placement, Point, Rect
from regional_explorer.render.picture.scene import Scene

ASPECT = 1.8
"""The ratio of width to height that columns aim at."""
TALLEST_COLUMN = 900
"""A graph up to this height, in points, stays in one column."""
COLUMN_GAP = 3 * BOX_GAP
"""Space between columns."""


def columns(scene: Scene, placement: Placement) -> Placement:
    """Return ``placement`` of ``scene`` with each graph cut between its rows.

    Edges that run from one column to another lose their curves.
    """
    boxes: dict[str, Rect] = {}
    groups: dict[str, Rect] = {}
    titles: dict[str, Point] = {}
    curves: dict[tuple[str, str], tuple[Point, ...]] = {}
    left = bottom = 0.0
    for section in scene.sections:
        box_rects = {box.id: placement.boxes[box.id] for box in section.boxes}
        group_rects = {group.id: placement.groups[group.id] for group in section.groups}
        cut = _ColumnCut([*box_rects.values(), *group_rects.values()], left)
        boxes |= {box_id: cut.moved_rect(rect) for box_id, rect in box_rects.items()}
        groups |= {group_id: cut.moved_rect(rect) for group_id, rect in group_rects.items()}
        titles[section.id] = (left, 0.0)
        curves |= {edge: cut.moved_curve(placement.curves[edge]) for edge in section.edges if edge in placement.curves}
        left, bottom = cut.right + 2 * COLUMN_GAP, max(bottom, cut.bottom)
    return Placement(max(left - 2 * COLUMN_GAP, 1.0), bottom + BOX_GAP, boxes, groups, titles, curves)


class _ColumnCut:
    """Where one graph is cut, and where its parts go: the first column begins at ``left``."""

    def __init__(self, rects: list[Rect], left: float) -> None:
        start = min((rect.x for rect in rects), default=0.0)
        width = max((rect.x + rect.width for rect in rects), default=0.0) - start
        height = max((rect.y + rect.height for rect in rects), default=0.0)
        column_count = round(sqrt(ASPECT * height / max(width + COLUMN_GAP, 1.0))) if height > TALLEST_COLUMN else 1
        self.cuts = list(_cut_heights(_gap_heights(rects), height / column_count)) if column_count > 1 else []
        self.tops = [0.0, *(cut - 2 * BOX_GAP for cut in self.cuts)]
        self.step = width + COLUMN_GAP
        self.shift = left - start
        self.right = left + width + self.step * len(self.cuts)
        self.bottom = max(end - top for top, end in zip(self.tops, [*self.cuts, height], strict=True))

    def moved_rect(self, rect: Rect) -> Rect:
        x, y = self._moved_point((rect.x, rect.y), bisect_right(self.cuts, rect.y))
        return Rect(x, y, rect.width, rect.height)

    def moved_curve(self, points: tuple[Point, ...]) -> tuple[Point, ...]:
        column = bisect_right(self.cuts, points[0][1])
        if any(bisect_right(self.cuts, y) != column for _, y in points):
            return ()
        return tuple(self._moved_point(point, column) for point in points)

    def _moved_point(self, point: Point, column: int) -> Point:
        return (point[0] + self.shift + column * self.step, point[1] - self.tops[column])


def _gap_heights(rects: Iterable[Rect]) -> Iterator[float]:
    """Yield the heights at which a line across the graph meets no rectangle, from the top down."""
    bottom = 0.0
    for rect in sorted(rects, key=lambda rect: rect.y):
        if rect.y > bottom > 0:
            yield (bottom + rect.y) / 2
        bottom = max(bottom, rect.y + rect.height)


def _cut_heights(gaps: Iterable[float], column_height: float) -> Iterator[float]:
    """Yield the first gap after each ``column_height``, counted from the cut before."""
    last_cut = 0.0
    for gap in gaps:
        if gap - last_cut >= column_height:
            yield gap
            last_cut = gap
