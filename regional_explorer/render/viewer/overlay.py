"""Overlays: measured figures of partitions drawn on the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from regional_explorer.record.region_timing import current_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming
from regional_explorer.render.style.palette import contrast, mix
from regional_explorer.render.style.untrusted import clean, sendable

MICRO = 1e6

_FIGURES: tuple[tuple[str, str, Callable[[PartitionTiming], float | None]], ...] = (
    ("compiled time", "µs", lambda one: None if one.compiled_s is None else one.compiled_s * one.runs * MICRO),
    ("eager time", "µs", lambda one: one.eager_s * one.runs * MICRO),
    ("speedup", "×", lambda one: None if one.numerics is NumericsVerdict.NOT_COMPARABLE else one.speedup),
)


def overlays(session: Session) -> list[dict[str, Any]]:
    """Return the available overlays, each with numbers by partition; empty before regions were measured."""
    measured = current_timings(session)
    found = []
    for title, unit, figure in _FIGURES:
        values = {sendable(one.partition): value for one in measured if (value := figure(one)) is not None}
        if values:
            found.append({"title": title, "unit": unit, "values": values})
    return found


_SCALES = {"light": ("#f3f6fa", "#08306b"), "dark": ("#22303f", "#9ecbff")}
"""The colours of the lowest and the highest value by theme; they differ in lightness, for colour-blind people."""
_REACH = 0.8
"""The part of the way to the second colour that the scale covers."""


def heat(overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each partition of ``overlay`` its label, and its colours in each theme."""
    values = _finite(overlay)
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    found: dict[str, Any] = {}
    for partition, value in values.items():
        share = (value - low) / (high - low) if high > low else 0.5
        label = _figure(value, overlay)
        found[partition] = {
            theme: {
                "label": label,
                "fill": (fill := mix(cold, warm, share * _REACH)),
                "text": max("#000000", "#ffffff", key=partial(contrast, fill)),
            }
            for theme, (cold, warm) in _SCALES.items()
        }
    return found


def scale(overlay: Mapping[str, Any]) -> tuple[str, str, dict[str, str]] | None:
    """Return the labels of the lowest and highest value, and a CSS gradient by theme; None without values."""
    values = _finite(overlay).values()
    if not values:
        return None
    ends = {theme: (cold, mix(cold, warm, _REACH)) for theme, (cold, warm) in _SCALES.items()}
    bars = {theme: f"linear-gradient(90deg, {low}, {high})" for theme, (low, high) in ends.items()}
    return _figure(min(values), overlay), _figure(max(values), overlay), bars


def _finite(overlay: Mapping[str, Any]) -> dict[str, float]:
    return {sendable(name): value for name, value in overlay.get("values", {}).items() if math.isfinite(value)}


def _figure(value: float, overlay: Mapping[str, Any]) -> str:
    return clean(f"{float(f'{value:.3g}'):.15g} {overlay.get('unit', '')}")
