"""Tables of a profile: where the time of a call goes."""

from __future__ import annotations

from dataclasses import replace

from regional_explorer.errors import count
from regional_explorer.record.figure import Figure
from regional_explorer.record.profile import Profile, ProfileKind, ProfileRow
from regional_explorer.record.session import Session
from regional_explorer.style.element import clean
from regional_explorer.style.formats import NONE, duration, interval, percent, size
from regional_explorer.tables.table import Column, Number, Table, bound_columns

MOST_PROFILE_ROWS = 12
"""How many rows of each kind are shown at most; ``ex.op_times`` has all."""

AROUND_THE_GRAPHS = "Compiled regions leave this time as it is: it is spent outside of the captured graphs."

_KIND_TITLES = {
    ProfileKind.MODULE: "Where the time goes: modules",
    ProfileKind.LINE: "Where the time goes: source lines",
    ProfileKind.OP: "Where the time goes: ops",
    ProfileKind.AROUND: "Where the time goes: around the graphs",
}


def profile_tables(session: Session) -> list[Table[ProfileRow]]:
    """Return a table for each kind of row; none if nothing was profiled."""
    return [] if session.profile is None else [_kind_table(session, session.profile, kind) for kind in ProfileKind]


def op_times_table(session: Session) -> Table[ProfileRow]:
    """One row per module (including those inside it), source line and op (``by``), the longest of each first.

    Then come rows ``by`` ``around``: what runs around the graphs. Together with these, the rows of all lines add up to
    the call, and so do the rows of all ops. ``low_us`` and ``high_us`` bound the CI of ``eager_us``, ``share`` is its
    part of the call, and ``copy_us`` the least time in which this machine copied ``moved_bytes``, op by op; NaN where
    the ops take less, so that it bounds nothing. Filled by ``ex.profile()``; the bounds are NaN if it had fewer than 8
    rounds, or if the machine was too busy.
    """
    return Table(
        "Where the time goes",
        (
            Column("by", lambda row: row.kind),
            Column("name", lambda row: row.name),
            Number("eager_us", lambda row: row.seconds),
            *bound_columns(
                *("low_us", "high_us"), lambda row: row.seconds, lambda row: interval(row.seconds, duration) or NONE
            ),
            Number("share", lambda row: row.share, write=percent),
            Number("forward_us", lambda row: row.forward_s, text=lambda row: duration(row.forward_s or None)),
            Number("backward_us", lambda row: row.backward_s, text=lambda row: duration(row.backward_s or None)),
            Number("ops", lambda row: row.ops, text=lambda row: f"{row.ops:,}" if row.ops else NONE),
            Number(
                "moved_bytes",
                lambda row: row.moved_bytes,
                "moves",
                text=lambda row: size(row.moved_bytes) if row.moved_bytes else NONE,
            ),
            Number(
                "copy_us",
                lambda row: row.least_s,
                "copying that takes",
                text=lambda row: duration(row.least_s) if row.moved_bytes else NONE,
                tone="quiet",
            ),
        ),
        session.profile.rows if session.profile else (),
        fold="long",
    )


def _kind_table(session: Session, profile: Profile, kind: ProfileKind) -> Table[ProfileRow]:
    rows, table = profile.by(kind), op_times_table(session)
    return replace(
        table,
        title=_KIND_TITLES[kind],
        columns=tuple(replace(column, head=kind) if column.name == "name" else column for column in table.columns),
        heads=(kind, "share", "eager", "CI", "forward", "backward", "ops", "moves", "copying that takes"),
        shown=rows[:MOST_PROFILE_ROWS],
        notes=lambda: [
            profile_conditions(profile) if kind is ProfileKind.MODULE else "",
            AROUND_THE_GRAPHS if kind is ProfileKind.AROUND else "",
            f"The longest {MOST_PROFILE_ROWS} of {len(rows)}; ex.op_times has all."
            if len(rows) > MOST_PROFILE_ROWS
            else "",
        ],
    )


_SLOWED_BY_TIMING = "the call takes {:.2f} times as long when its ops are timed: read the shares, not the times"


def _is_near_one(ratio: Figure) -> bool:
    """Return whether a ratio may be less than a tenth away from 1."""
    low, high = ratio.bounds or (ratio.value, ratio.value)
    return low <= 1.1 and high >= 1.0 / 1.1  # noqa: PLR2004 - the tenth


def profile_conditions(profile: Profile, *, brief: bool = False) -> str:
    """Return how the ops and the time around the graphs add up to the call, and how they were timed."""
    bandwidth, short_ops, with_marks = profile.bandwidth, profile.short_ops, profile.with_marks
    facts = [
        f"All ops take {duration(profile.seconds.value)}, what runs around the graphs {duration(profile.around_s)}:",
        f"together {duration(profile.whole_s)}; aot_eager took {duration(profile.step.value)} in the same rounds.",
        "" if _is_near_one(with_marks) else f"They are not the same, {_SLOWED_BY_TIMING.format(with_marks.value)}.",
        f"{count(profile.rounds, 'round')}{'' if brief else f', stopped: {clean(profile.stopped)}'}.",
        "" if brief else f"Timing an op costs {duration(profile.overhead_s)}, which has been subtracted.",
        f"{count(len(short_ops), 'op')} too short to be measured individually are combined in one row."
        if short_ops
        else "",
        "" if brief else f"Copy bandwidth {bandwidth.bytes_per_s.value / 1e9:.1f} GB/s ({clean(bandwidth.how)}).",
        "A module's row includes the modules inside it.",
    ]
    return " ".join(filter(None, facts))
