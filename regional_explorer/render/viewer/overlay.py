"""Overlays on the graph, as fills and labels of boxes: figures of partitions, or shares of time, cold to warm."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from regional_explorer.errors.texts import sendable
from regional_explorer.record.region import Direction
from regional_explorer.record.region_timing import current_timings
from regional_explorer.record.session import Session
from regional_explorer.record.time_shares import TimeShares
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming
from regional_explorer.render.picture.arrays import Payload
from regional_explorer.render.picture.fold_records import record_and_outer
from regional_explorer.render.picture.payload import Picture
from regional_explorer.render.style.formats import duration, percent, ratio
from regional_explorer.render.style.palette import contrast, mix

SHARE = "share of the time"
"""The title of the overlay of a profile."""
SHADES = 16
"""How many steps of colour shares of the time are rounded to."""


@dataclass(frozen=True)
class Overlay:
    """``values`` by partition, which ``text`` writes; or ``shares`` of the time, in which case there are no values."""

    title: str
    text: Callable[[float], str]
    values: Mapping[str, float] = field(default_factory=dict)
    shares: TimeShares | None = None


_PARTITION_FIGURES: tuple[tuple[str, Callable[[float], str], Callable[[PartitionTiming], float | None]], ...] = (
    ("compiled time", duration, lambda times: None if (call_s := times.compiled_s) is None else call_s * times.runs),
    ("eager time", duration, lambda times: times.eager_s * times.runs),
    (
        "speedup",
        partial(ratio, numerics=None),
        lambda times: None if times.numerics is NumericsVerdict.NOT_COMPARABLE else times.speedup,
    ),
)


def overlays(session: Session) -> list[Overlay]:
    """Return the available overlays; empty before regions were measured and the call was profiled."""
    measured = current_timings(session)
    available = []
    for title, text, figure in _PARTITION_FIGURES:
        values = {sendable(timing.partition): value for timing in measured if (value := figure(timing)) is not None}
        if values:
            available.append(Overlay(title, text, values))
    shares = TimeShares.of(session)
    return [*available, Overlay(SHARE, percent, shares=shares)] if shares else available


def titled(available: Sequence[Overlay], title: str) -> Overlay | None:
    """Return the overlay with this title, or None."""
    return next((overlay for overlay in available if overlay.title == title), None)


def next_title(available: Sequence[Overlay], title: str) -> str:
    """Return the title of the overlay after this one; empty, for no overlay, after the last one."""
    titles = ["", *(overlay.title for overlay in available), ""]
    return titles[titles.index(title) + 1] if title in titles else titles[1]


def heat(overlay: Overlay | None, picture: Picture | None, tab: str, number: int) -> dict[str, Any]:
    """Return the fills and labels of an overlay: by partition, or for the boxes of the picture with this number."""
    if overlay is None:
        return {}
    if overlay.shares is None:
        return partition_heat(overlay)
    return {"of": number, **box_heat(overlay.shares, picture, tab)} if picture else {}


def box_heat(shares: TimeShares, picture: Picture, tab: str) -> dict[str, Any]:
    """Return for each box of a picture its share of the time: the step on the colour scale, a label and a tooltip.

    A box has the time of its ops, forward and backward; in the backward graph, the backward alone.
    """
    boxes: list[list[str]] = [[] for _ in range(len(picture.facts["box_pieces"]) // 4)]
    for name, box in zip(picture.reads, array("I", picture.facts["node_boxes"]), strict=True):
        boxes[box].append(name)
    seconds_of = _seconds_of(shares, tab)
    seconds = [sum(map(seconds_of, nodes)) for nodes in boxes]
    most_s = max(seconds, default=0.0) or 1.0
    return {
        "steps": [round(SHADES * time / most_s) if nodes else -1 for time, nodes in zip(seconds, boxes, strict=True)],
        "labels": [_label(shares, time) for time in seconds],
        "tooltips": [_tooltip(shares, tab, time) for time in seconds],
        **share_fills(),
    }


def fold_times(shares: TimeShares, tab: str, nodes: Iterable[str], payload: Payload) -> Iterator[list[Any] | None]:
    """Yield for each fold of a saved page its time, label and tooltip; None for one without nodes.

    ``nodes`` are those of the tab. The page colours them: the steps depend on which folds are open.
    """
    folds, seconds_of = payload["folds"], _seconds_of(shares, tab)
    seconds: dict[int, float] = {}
    for name, innermost in zip(nodes, payload["nodes"], strict=True):
        for fold in record_and_outer(folds, innermost):
            seconds[fold] = seconds.get(fold, 0.0) + seconds_of(name)
    for time in map(seconds.get, range(len(folds))):
        yield None if time is None else [float(f"{time:.3g}"), _label(shares, time), _tooltip(shares, tab, time)]


def share_fills() -> dict[str, list[dict[str, str]]]:
    """Return the fills of the steps of shares in each theme."""
    return {
        theme: [_readable_fill(mix(cold, warm, _SCALE_REACH * step / SHADES)) for step in range(SHADES + 1)]
        for theme, (cold, warm) in _SCALE_COLOURS.items()
    }


def _seconds_of(shares: TimeShares, tab: str) -> Callable[[str], float]:
    return shares.own_seconds if Direction.of_graph(tab) is Direction.BACKWARD else shares.seconds


def _label(shares: TimeShares, seconds: float) -> str:
    return percent(seconds / (shares.profile.whole_s or 1.0))


def _tooltip(shares: TimeShares, tab: str, seconds: float) -> str:
    where = " in the backward" if Direction.of_graph(tab) is Direction.BACKWARD else ""
    return f"{_label(shares, seconds)} of the call, {duration(seconds)}{where}"


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
        heats[partition] = {
            theme: {"label": overlay.text(value), **_readable_fill(mix(cold, warm, share * _SCALE_REACH))}
            for theme, (cold, warm) in _SCALE_COLOURS.items()
        }
    return heats


def scale(overlay: Overlay) -> tuple[str, str, dict[str, str]] | None:
    """Return the labels of the lowest and highest value, and a CSS gradient by theme; None without values."""
    values = _finite_values(overlay).values()
    if not values and overlay.shares is None:
        return None
    ends = {theme: (cold, mix(cold, warm, _SCALE_REACH)) for theme, (cold, warm) in _SCALE_COLOURS.items()}
    bars = {theme: f"linear-gradient(90deg, {low}, {high})" for theme, (low, high) in ends.items()}
    if not values:
        return "none", "most", bars
    return overlay.text(min(values)), overlay.text(max(values)), bars


def _finite_values(overlay: Overlay) -> dict[str, float]:
    return {sendable(name): value for name, value in overlay.values.items() if math.isfinite(value)}
