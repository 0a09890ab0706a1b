"""Measured figures of partitions, as the graph shows them on its hulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regional_explorer.record.region_timing import standing
from regional_explorer.record.session import Session
from regional_explorer.record.timing import PartitionTiming
from regional_explorer.render.untrusted import sendable

MICRO = 1e6

_FIGURES: tuple[tuple[str, str, Callable[[PartitionTiming], float | None]], ...] = (
    ("compiled time", "µs", lambda one: None if one.compiled_s is None else one.compiled_s * one.runs * MICRO),
    ("eager time", "µs", lambda one: one.eager_s * one.runs * MICRO),
    ("speedup", "×", lambda one: one.speedup),
)


def overlays(session: Session) -> list[dict[str, Any]]:
    """Return what can be laid over the graph, each as numbers by partition; nothing before regions were measured."""
    measured = standing(session)
    found = []
    for title, unit, figure in _FIGURES:
        values = {sendable(one.partition): value for one in measured if (value := figure(one)) is not None}
        if values:
            found.append({"title": title, "unit": unit, "values": values})
    return found
