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
DASHES: Mapping[str, Sequence[float]] = {"solid": (), "dashed": (6, 3), "dotted": (1.5, 2.5)}
BROKEN = (3, 2)
"""The dashes of a box with several ops."""

BoxStyle = tuple[Look, int | None, bool]
"""Look, region, and whether it failed."""
HullStyle = tuple[int, State | None]
"""Region, and the state of its piece."""


def stroke_arrays(parts: Sequence[TabGraph], regions: int) -> Payload:
    """Return the style number of each box and piece, and the styles of boxes, pieces and ``regions`` in each theme.

    An empty ``fill`` is transparent; the fill ``"paper"`` is the background of the page.
    """
    boxes: dict[BoxStyle, int] = {}
    hulls: dict[HullStyle, int] = {}
    of_boxes, of_pieces = array("I"), array("I")
    for part in parts:
        for box, leaf in zip(part.section.boxes, part.leaves, strict=True):
            failed = box.look is Look.BAD or (box.failed and leaf is not None and leaf.fold.opens)
            of_boxes.append(boxes.setdefault((box.look, box.region, failed), len(boxes)))
        for piece in part.pieces:
            of_pieces.append(hulls.setdefault((piece.region, piece.state), len(hulls)))
    styles = {
        theme: {
            "ground": asdict(ground),
            "boxes": [_box(style, ground, _tone(style[1], theme)) for style in boxes],
            "hulls": [_hull(style, ground, _tone(style[0], theme)) for style in hulls],
            "regions": [getattr(paint(region), theme).stroke for region in range(regions)],
        }
        for theme, ground in THEMES.items()
    }
    return {"styles": styles, "box_styles": of_boxes.tobytes(), "piece_styles": of_pieces.tobytes()}


def _tone(region: int | None, theme: str) -> Tone | None:
    return None if region is None else getattr(paint(region), theme)


def _box(style: BoxStyle, ground: Ground, tone: Tone | None) -> dict[str, Any]:
    look, region, failed = style
    found: dict[str, Any] = {
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
        found |= {"fill": "paper", "stroke": tone.stroke, "text": tone.text}
    match look:
        case Look.PIECE if tone is not None and region is not None:
            found |= {"fill": tone.fill, "dash": list(DASHES[paint(region).line])}
        case Look.RUN | Look.STACK:
            found |= {"dash": list(BROKEN), "deep": look is Look.STACK}
        case Look.MODULE:
            found |= {"line": 1.2}
        case Look.VIEW:
            found |= {"line": 0.5, "size": 8}
        case Look.INPUT:
            found |= {"fill": "", "stroke": "", "text": ground.quiet}
    if failed:
        found |= {"stroke": ground.bad, "text": ground.bad, "line": 1.6}
    return found


def _hull(style: HullStyle, ground: Ground, tone: Tone | None) -> dict[str, Any]:
    region, state = style
    assert tone is not None  # noqa: S101 - every hull belongs to a region
    eager, failed = state is State.EAGER, state is State.FAILED
    return {
        "fill": "paper" if eager else tone.fill,
        "ground": tone.fill,
        "stroke": ground.bad if failed else tone.stroke,
        "text": ground.bad if failed else tone.text,
        "line": 1.8 if failed else 1.1,
        "dash": list(DASHES["dotted" if eager else paint(region).line]),
        "hatch": {State.FAILED: 8, State.STALE: 10}.get(state) if state else None,
        "crossed": failed,
    }
