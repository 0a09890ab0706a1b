"""``rx.compare``: sessions as runs in a table, one row each, with the change of the speedup and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from regional_explorer.errors import InvalidArgumentError, SessionError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.export.session_changes import (
    SpeedChange,
    changes,
    speed_change,
)
from regional_explorer.record.plan_differences import differences
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.report.shown_frame import ShownFrame

FIRST_COLUMNS = ("title", "differs", "changed")
LAST_COLUMNS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
    "slowdown",
    "slowdown_low",
    "slowdown_high",
    "difference",
    "numerics",
    "partitions",
    "compile_s",
)
"""The columns before and after the times of the variants."""


class SessionOwner(Protocol):
    """An object with a session: an exploration, or a session loaded from a file."""

    @property
    def session(self) -> Session:
        """The frozen record."""


def compare(*views: SessionOwner | Session) -> ShownFrame:
    """Return one row per exploration or saved session: step times, speedup, compile time, and what changed.

    Each speedup is against the eager samples of its own run, so sessions of other machines and versions of torch can be
    compared. ``changed`` says what differs from the first row besides the plan: torch, machine, shapes, ops,
    partitions, and generated code if both sessions have it. ``slowdown`` is the first speedup divided by this one, with
    its 99 % interval; ``difference`` says whether that is real. A session whose plan has changed since it was measured
    gives no times. ``rx.compare(*ex.runs)`` compares the plans that one exploration measured.
    """
    runs = [view if isinstance(view, Session) else getattr(view, "session", None) for view in views]
    for view, run in zip(views, runs, strict=True):
        if not isinstance(run, Session):
            raise InvalidArgumentError(
                f"{shown_value(view)} cannot be compared: give explorations, or sessions loaded with rx.load."
            )
    return compare_frame([run for run in runs if run is not None])


def compare_frame(runs: Sequence[Session]) -> ShownFrame:
    """Return one row per session with times of the whole call: the step, or the forward without gradients."""
    variants = list(dict.fromkeys(timing.variant for run in runs for timing in run.timings))
    columns = [*FIRST_COLUMNS, *(f"{name}_us" for name in variants), *LAST_COLUMNS]
    rows = []
    for run, differs in zip(runs, differences([run.plan for run in runs]), strict=True):
        times = {} if run.is_outdated else run.whole_timings
        regional = times.get(VariantName.REGIONAL)
        change = _change_since(runs[0], run)
        rows.append(
            {
                "title": run.title,
                "differs": "; ".join(differs),
                "changed": "; ".join(changes(runs[0], run)),
                **{f"{name}_us": times[name].median_s * US_PER_S if name in times else None for name in variants},
                "speedup": regional and regional.speedup,
                "speedup_low": regional and regional.speedup_low,
                "speedup_high": regional and regional.speedup_high,
                "verdict": regional and str(regional.verdict),
                "slowdown": change.slowdown,
                "slowdown_low": change.low,
                "slowdown_high": change.high,
                "difference": change.verdict,
                "numerics": regional and str(regional.numerics),
                "partitions": len(run.partitions),
                "compile_s": run.compile_s,
            }
        )
    return ShownFrame(rows, columns=columns)


def _change_since(first: Session, run: Session) -> SpeedChange:
    """Return how the speedup changed from the first session, or why it cannot be compared."""
    if run.is_outdated:
        return SpeedChange(problem="measured for another plan")
    if run is first:
        return SpeedChange(problem="first")
    try:
        return speed_change(first, run)
    except SessionError:
        return SpeedChange(problem="not comparable")
