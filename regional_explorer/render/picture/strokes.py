"""The styles with which the page draws boxes and hulls on its canvas, in both themes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from regional_explorer.record.partition import State
from regional_explorer.render.picture.arrays import Payload, TabGraph
from regional_explorer.render.picture.scene import Look
from regional_explorer.render.style.palette import DARK, LIGHT, Ground, Tone, paint

THEMES: Mapping[str, Ground] = {"light": LIGHT, "dark": DARK}
LINE_DASHES: Mapping[str, Sequence[float]] = {"solid": (), "dashed": (6, 3), "dotted": (1.5, 2.5)}
FOLD_DASH = (3, 2)
"""The dashes of a box with several ops."""

BoxStyle = tuple[Look, int | None, bool]
"""Look, region, and whether it failed."""
HullStyle = tuple[int, State | None]
"""Region, and the state of its piece."""


def stroke_arrays(tab_graphs: Sequence[TabGraph], regions: int) -> Payload:
    """Return the style number of each box and piece, and the styles of boxes, pieces and ``regions`` in each theme.

    An empty ``fill`` is transparent; the fill ``"paper"`` is the background of the page.
    """
    box_styles: dict[BoxStyle, int] = {}
    hull_styles: dict[HullStyle, int] = {}
    style_of_box, style_of_piece = array("I"), array("I")
    for tab_graph in tab_graphs:
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            failed = box.look is Look.BAD or (box.failed and leaf is not None and leaf.fold.opens)
            style_of_box.append(box_styles.setdefault((box.look, box.region, failed), len(box_styles)))
        for piece in tab_graph.pieces:
            style_of_piece.append(hull_styles.setdefault((piece.region, piece.state), len(hull_styles)))
    styles = {
        theme: {
            "ground": asdict(ground),
            "boxes": [_box_stroke(style, ground, _region_tone(style[1], theme)) for style in box_styles],
            "hulls": [_hull_stroke(style, ground, _region_tone(style[0], theme)) for style in hull_styles],
            "regions": [getattr(paint(region), theme).stroke for region in range(regions)],
        }
        for theme, ground in THEMES.items()
    }
    return {"styles": styles, "box_styles": style_of_box.tobytes(), "piece_styles": style_of_piece.tobytes()}


def _region_tone(region: int | None, theme: str) -> Tone | None:
    return None if region is None else getattr(paint(region), theme)


def _box_stroke(style: BoxStyle, ground: Ground, tone: Tone | None) -> dict[str, Any]:
    look, region, failed = style
    stroke: dict[str, Any] = {
        "look": str(look),
        "fill": ground.box,
        "stroke": ground.edge,
        "text": ground.ink,
        "quiet": ground.quiet,
        "line": 0.8,
        "dash": [],
        "size": 10,
    }
    if tone is not None:
        stroke |= {"fill": "paper", "stroke": tone.stroke, "text": tone.text}
    match look:
        case Look.PIECE if tone is not None and region is not None:
            stroke |= {"fill": tone.fill, "dash": list(LINE_DASHES[paint(region).line])}
        case Look.RUN | Look.STACK:
            stroke |= {"dash": list(FOLD_DASH), "deep": look is Look.STACK}
        case Look.MODULE:
            stroke |= {"line": 1.2}
        case Look.VIEW:
            stroke |= {"line": 0.5, "size": 8}
        case Look.INPUT:
            stroke |= {"fill": "", "stroke": "", "text": ground.quiet}
    if failed:
        stroke |= {"stroke": ground.bad, "text": ground.bad, "line": 1.6}
    return stroke


def _hull_stroke(style: HullStyle, ground: Ground, tone: Tone | None) -> dict[str, Any]:
    region, state = style
    assert tone is not None  # noqa: S101 - every hull belongs to a region
    eager, failed = state is State.EAGER, state is State.FAILED
    return {
        "fill": "paper" if eager else tone.fill,
        "ground": tone.fill,
        "stroke": ground.bad if failed else tone.stroke,
        "text": ground.bad if failed else tone.text,
        "line": 1.8 if failed else 1.1,
        "dash": list(LINE_DASHES["dotted" if eager else paint(region).line]),
        "hatch": {State.FAILED: 8, State.STALE: 10}.get(state) if state else None,
        "crossed": failed,
    }
