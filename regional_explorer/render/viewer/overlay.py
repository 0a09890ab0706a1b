"""Overlays on the graph, as fills and labels of boxes: figures of partitions, or shares of time, cold to warm."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from regional_explorer.record.region_timing import current_timings
from regional_explorer.record.session import Session
from regional_explorer.record.time_shares import TimeShares
from regional_explorer.record.timing import US_PER_S, NumericsVerdict, PartitionTiming
from regional_explorer.render.picture.payload import Picture
from regional_explorer.render.style.formats import duration, percent
from regional_explorer.render.style.palette import contrast, mix
from regional_explorer.render.style.untrusted import clean, sendable

SHARE = "share of the time"
"""The title of the overlay of a profile."""
SHADES = 16
"""How many steps of colour shares of the time are rounded to."""

_PARTITION_FIGURES: tuple[tuple[str, str, Callable[[PartitionTiming], float | None]], ...] = (
    (
        "compiled time",
        "µs",
        lambda times: None if (call_s := times.compiled_s) is None else call_s * times.runs * US_PER_S,
    ),
    ("eager time", "µs", lambda times: times.eager_s * times.runs * US_PER_S),
    ("speedup", "×", lambda times: None if times.numerics is NumericsVerdict.NOT_COMPARABLE else times.speedup),
)


Overlay = Mapping[str, Any]
"""``title``, ``unit`` and ``values`` by partition; or ``shares`` of the time in place of ``values``."""


def overlays(session: Session) -> list[dict[str, Any]]:
    """Return the available overlays, each with numbers by partition; empty before regions were measured."""
    measured = current_timings(session)
    available = []
    for title, unit, figure in _PARTITION_FIGURES:
        values = {sendable(timing.partition): value for timing in measured if (value := figure(timing)) is not None}
        if values:
            available.append({"title": title, "unit": unit, "values": values})
    shares = TimeShares.of(session)
    return [*available, {"title": SHARE, "unit": "%", "shares": shares}] if shares else available


def titled(available: Sequence[Overlay], title: str) -> Overlay | None:
    """Return the overlay with this title, or None."""
    return next((overlay for overlay in available if title and overlay.get("title") == title), None)


def next_title(available: Sequence[Overlay], title: str) -> str:
    """Return the title of the overlay after this one; empty, for no overlay, after the last one."""
    titles = ["", *(str(overlay.get("title", "")) for overlay in available), ""]
    return titles[titles.index(title) + 1] if title in titles else titles[1]


def heat(overlay: Overlay | None, picture: Picture | None, tab: str, number: int) -> dict[str, Any]:
    """Return the fills and labels of an overlay: by partition, or for the boxes of the picture with this number."""
    if overlay is None:
        return {}
    if "shares" not in overlay:
        return partition_heat(overlay)
    return {"of": number, **box_heat(overlay["shares"], picture, tab)} if picture else {}


def box_heat(shares: TimeShares, picture: Picture, tab: str) -> dict[str, Any]:
    """Return for each box of a picture its share of the time: the step on the colour scale, a label and a tooltip.

    A box has the time of its ops, forward and backward; in the backward graph, the backward alone.
    """
    whole_s, backward = shares.profile.whole_s or 1.0, shares.is_backward(tab)
    seconds_of = shares.own_seconds if backward else shares.seconds
    boxes: list[list[str]] = [[] for _ in range(len(picture.facts["box_pieces"]) // 4)]
    for name, box in zip(picture.reads, array("I", picture.facts["node_boxes"]), strict=True):
        boxes[box].append(name)
    seconds = [sum(map(seconds_of, nodes)) for nodes in boxes]
    most_s = max(seconds, default=0.0) or 1.0
    where = " in the backward" if backward else ""
    return {
        "steps": [round(SHADES * time / most_s) if nodes else -1 for time, nodes in zip(seconds, boxes, strict=True)],
        "labels": [percent(time / whole_s) for time in seconds],
        "tooltips": [f"{percent(time / whole_s)} of the call, {duration(time)}{where}" for time in seconds],
        **{
            theme: [_readable_fill(mix(cold, warm, _SCALE_REACH * step / SHADES)) for step in range(SHADES + 1)]
            for theme, (cold, warm) in _SCALE_COLOURS.items()
        },
    }


def _readable_fill(fill: str) -> dict[str, str]:
    """Return a fill, and the colour in which text on it is readable."""
    return {"fill": fill, "text": max("#000000", "#ffffff", key=partial(contrast, fill))}


_SCALE_COLOURS = {"light": ("#f3f6fa", "#08306b"), "dark": ("#22303f", "#9ecbff")}
"""The colours of the lowest and the highest value by theme; they differ in lightness, for colour-blind people."""
_SCALE_REACH = 0.8
"""How far towards the second colour the scale goes."""


def partition_heat(overlay: Overlay) -> dict[str, Any]:
    """Return for each partition of ``overlay`` its label, and its colours in each theme."""
    values = _finite_values(overlay)
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    heats: dict[str, Any] = {}
    for partition, value in values.items():
        share = (value - low) / (high - low) if high > low else 0.5
        label = _figure_text(value, overlay)
        heats[partition] = {
            theme: {"label": label, **_readable_fill(mix(cold, warm, share * _SCALE_REACH))}
            for theme, (cold, warm) in _SCALE_COLOURS.items()
        }
    return heats


def scale(overlay: Overlay) -> tuple[str, str, dict[str, str]] | None:
    """Return the labels of the lowest and highest value, and a CSS gradient by theme; None without values."""
    values = _finite_values(overlay).values()
    if not values and "shares" not in overlay:
        return None
    ends = {theme: (cold, mix(cold, warm, _SCALE_REACH)) for theme, (cold, warm) in _SCALE_COLOURS.items()}
    bars = {theme: f"linear-gradient(90deg, {low}, {high})" for theme, (low, high) in ends.items()}
    if not values:
        return "none", "most", bars
    return _figure_text(min(values), overlay), _figure_text(max(values), overlay), bars


def _finite_values(overlay: Overlay) -> dict[str, float]:
    return {sendable(name): value for name, value in overlay.get("values", {}).items() if math.isfinite(value)}


def _figure_text(value: float, overlay: Overlay) -> str:
    return clean(f"{float(f'{value:.3g}'):.15g} {overlay.get('unit', '')}")
