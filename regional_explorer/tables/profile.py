"""Tables of a profile: where the time of a call goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regional_explorer.errors import count
from regional_explorer.record.profile import Profile, ProfileKind, TimeShare, TimeShares
from regional_explorer.record.session import Session
from regional_explorer.style.element import clean
from regional_explorer.style.formats import NONE, between, duration, percent, size
from regional_explorer.tables.table import Column, Number, Table, bound_columns

MOST_PROFILE_ROWS = 12
"""The maximum number of rows shown of each kind; ``ex.op_times`` has all."""

AROUND_THE_GRAPHS = "Compiled regions do not change this time: it is spent outside of the captured graphs."

_TITLE = "Where the time goes"
_KIND_TITLES = {
    ProfileKind.MODULE: "modules",
    ProfileKind.LINE: "source lines",
    ProfileKind.OP: "ops",
    ProfileKind.AROUND: "around the graphs",
}


def profile_tables(session: Session) -> list[Table[TimeShare]]:
    """Return a table for each kind of row, with equal layers in one row; empty if nothing was profiled."""
    shares = session.time_shares
    return [] if shares is None else [_kind_table(session, shares, kind) for kind in ProfileKind]


_LAYERS: Column[TimeShare] = Number("layers", lambda s: s.times)
_COLUMNS: tuple[Column[TimeShare], ...] = (
    Column("by", lambda s: s.row.kind),
    Column("name", lambda s: s.row.name, text=lambda s: clean(s.row.name) + (f" × {s.times}" if s.times > 1 else "")),
    Number("eager_us", lambda s: s.row.seconds),
    *bound_columns("low_us", "high_us", lambda s: s.row.seconds, lambda s: between(s.row.seconds, duration) or NONE),
    Number("share", lambda s: s.row.share, write=percent),
    Number("forward_us", lambda s: s.row.forward_s, write=lambda seconds: duration(seconds or None)),
    Number("backward_us", lambda s: s.row.backward_s, write=lambda seconds: duration(seconds or None)),
    Number("ops", lambda s: s.row.ops, write=lambda ops: f"{ops:,}" if ops else NONE),
    Number("moved_bytes", lambda s: s.row.moved_bytes, "moves", write=lambda moved: size(moved) if moved else NONE),
    Number(
        "copy_us",
        lambda s: s.row.valid_bound_s,
        "copying that takes",
        text=lambda s: duration(s.row.valid_bound_s) if s.row.moved_bytes else NONE,
        tone="quiet",
    ),
)


def op_times_table(session: Session) -> Table[TimeShare]:
    """One row per module (including those inside it), source line and op (``by``), the longest of each first.

    Then come rows ``by`` ``around``: the code around the graphs. Together with these, the rows of all lines add up to
    the call, and so do the rows of all ops. ``low_us`` and ``high_us`` bound the CI of ``eager_us``, and ``share`` is
    the part of the call that ``eager_us`` takes. ``copy_us`` is the least time in which this machine copied
    ``moved_bytes``, op by op; it is NaN where the ops take less, so that it bounds nothing. ``ex.profile()`` fills the
    table; the bounds are NaN if it had fewer than 8 rounds, or if the machine was too busy.
    """
    rows = session.profile.rows if session.profile else ()
    return Table(_TITLE, _COLUMNS, tuple(map(TimeShare, rows)), fold="unless bad")


def profile_table(session: Session) -> Table[TimeShare]:
    """The rows of ``ex.op_times``; modules that are equal in all layers share one row, such as ``layers.*.mlp``.

    ``layers`` counts the modules that a row sums.
    """
    shares = session.time_shares
    rows = [] if shares is None else [share for kind in ProfileKind for share in shares.by(kind)]
    by, name, *figures = _COLUMNS
    return Table(_TITLE, (by, name, _LAYERS, *figures), rows, fold="unless bad")


def _kind_table(session: Session, shares: TimeShares, kind: ProfileKind) -> Table[TimeShare]:
    rows = shares.by(kind)
    return Table(
        f"{_TITLE}: {_KIND_TITLES[kind]}",
        tuple(replace(column, head=kind) if column.name == "name" else column for column in _COLUMNS),
        rows,
        heads=(kind, "share", "eager", "CI", "forward", "backward", "ops", "moves", "copying that takes"),
        shown=rows[:MOST_PROFILE_ROWS],
        notes=lambda: [
            profile_conditions(shares.profile, session.profile_outdated_by) if kind is ProfileKind.MODULE else "",
            AROUND_THE_GRAPHS if kind is ProfileKind.AROUND else "",
            f"The longest {MOST_PROFILE_ROWS} of {len(rows)}; ex.op_times has all, each layer by itself."
            if len(rows) > MOST_PROFILE_ROWS
            else "",
        ],
        fold="unless bad",
    )


NEARLY = 0.1
"""The shares and the time of the whole call need no word on their difference if it is less than this part."""


def profile_conditions(profile: Profile, outdated_by: Sequence[str] = (), *, brief: bool = False) -> str:
    """Return how the times of the ops and around the graphs add up to the call, and how they were measured.

    ``outdated_by`` is what has changed since.
    """
    bandwidth, short_ops, whole_s, step_s = profile.bandwidth, profile.short_ops, profile.whole_s, profile.step.value
    untimed = f"untimed, the trace took {duration(step_s)} in the same rounds"
    facts = [
        f"Measured before a change: {', '.join(outdated_by)}." if outdated_by else "",
        f"All ops take {duration(profile.seconds.value)}, the code around the graphs {duration(profile.around_s)}:",
        f"together {duration(whole_s)}, of which each share is a part; {untimed}.",
        "Timing each op changes the time of the call: read the shares, not the times."
        if abs(whole_s - step_s) > NEARLY * step_s
        else "",
        f"{count(profile.rounds, 'round')}{'' if brief else f', stopped: {clean(profile.stopped)}'}.",
        "" if brief else f"Timing an op costs {duration(profile.overhead_s)}, which has been subtracted.",
        f"{count(len(short_ops), 'op')} too short to be measured individually are combined in one row."
        if short_ops
        else "",
        "" if brief else f"Copy bandwidth {bandwidth.bytes_per_s.value / 1e9:.1f} GB/s ({clean(bandwidth.how)}).",
        "A module's row includes the modules inside it.",
    ]
    return " ".join(filter(None, facts))
