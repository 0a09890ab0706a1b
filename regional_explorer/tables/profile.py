"""Tables of a profile: where the time of a call goes."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from regional_explorer.errors import count
from regional_explorer.record.profile import Profile, ProfileKind, ProfileRow
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S
from regional_explorer.style.element import clean
from regional_explorer.style.formats import NONE, duration, percent, size
from regional_explorer.tables.frame import ShownFrame
from regional_explorer.tables.table import Cell, Table

if TYPE_CHECKING:
    import pandas as pd


MOST_PROFILE_ROWS = 12
"""How many rows of each kind are shown at most; ``ex.op_times`` has all."""

AROUND_THE_GRAPHS = "Compiled regions leave this time as it is: it is spent outside of the captured graphs."

_KIND_TITLES = {
    ProfileKind.MODULE: "Where the time goes: modules",
    ProfileKind.LINE: "Where the time goes: source lines",
    ProfileKind.OP: "Where the time goes: ops",
    ProfileKind.AROUND: "Where the time goes: around the graphs",
}


def profile_tables(session: Session) -> list[Table]:
    """Return a table for each kind of row; none if nothing was profiled."""
    return [] if session.profile is None else [_profile_table(session.profile, kind) for kind in ProfileKind]


def _profile_table(profile: Profile, kind: ProfileKind) -> Table:
    rows = profile.by(kind)
    notes = {ProfileKind.MODULE: [_profile_conditions(profile)], ProfileKind.AROUND: [AROUND_THE_GRAPHS]}.get(kind, [])
    if len(rows) > MOST_PROFILE_ROWS:
        notes.append(f"The longest {MOST_PROFILE_ROWS} of {len(rows)}; ex.op_times has all.")
    return Table(
        _KIND_TITLES[kind],
        (str(kind), "share", "eager", "CI", "forward", "backward", "ops", "moves", "copying that takes"),
        tuple(_profile_row(row, has_interval=profile.has_intervals) for row in rows[:MOST_PROFILE_ROWS]),
        "Not profiled yet. ex.profile() measures every op.",
        "\n".join(notes),
        figures=frozenset({"share", "eager", "CI", "forward", "backward", "ops", "moves", "copying that takes"}),
    )


def _profile_row(row: ProfileRow, *, has_interval: bool) -> tuple[Cell, ...]:
    return (
        Cell(clean(row.name)),
        Cell(percent(row.share)),
        Cell(duration(row.seconds)),
        Cell(f"{duration(row.low_s)} to {duration(row.high_s)}" if has_interval else NONE, "quiet"),
        Cell(duration(row.forward_s) if row.forward_s else NONE),
        Cell(duration(row.backward_s) if row.backward_s else NONE),
        Cell(f"{row.ops:,}" if row.ops else NONE),
        Cell(size(row.moved_bytes) if row.moved_bytes else NONE),
        Cell(duration(row.copy_s) if row.moved_bytes else NONE, "quiet"),
    )


def sums(profile: Profile) -> str:
    """Return the sentence on how the ops and the time around the graphs add up to the call."""
    return (
        f"All ops take {duration(profile.seconds)}, what runs around the graphs {duration(profile.around_s)}: together "
        f"{duration(profile.whole_s)}; aot_eager took {duration(profile.step_s)} in the same rounds."
    )


def _profile_conditions(profile: Profile) -> str:
    bandwidth, short_ops = profile.bandwidth, profile.short_ops
    facts = [
        sums(profile),
        f"{count(profile.rounds, 'round')}, stopped: {clean(profile.stopped)}.",
        f"Timing an op costs {duration(profile.overhead_s)}, which has been subtracted.",
        f"{count(len(short_ops), 'op')} too short to be measured individually are combined in one row."
        if short_ops
        else "",
        f"Copy bandwidth {bandwidth.bytes_per_s / 1e9:.1f} GB/s ({clean(bandwidth.how)}).",
        "A module's row includes the modules inside it.",
    ]
    return " ".join(filter(None, facts))


PROFILE_COLUMNS = (
    "by",
    "name",
    "eager_us",
    "low_us",
    "high_us",
    "share",
    "forward_us",
    "backward_us",
    "ops",
    "moved_bytes",
    "copy_us",
)


def profile_frame(session: Session) -> pd.DataFrame:
    """Return one row per module (including those inside it), source line and op (``by``), the longest of each first.

    Then come rows ``by`` ``around``: what runs around the graphs. Together with these, the rows of all lines add up to
    the call, and so do the rows of all ops. ``low_us`` and ``high_us`` bound the CI of ``eager_us``, ``share`` is its
    part of the call, and ``copy_us`` the time that the measured copy bandwidth needs to move ``moved_bytes``. Filled by
    ``ex.profile()``; the bounds are NaN if it had fewer than 20 rounds.
    """
    has_intervals = session.profile is not None and session.profile.has_intervals
    rows = [
        {
            "by": str(row.kind),
            "name": row.name,
            "eager_us": row.seconds * US_PER_S,
            "low_us": row.low_s * US_PER_S if has_intervals else nan,
            "high_us": row.high_s * US_PER_S if has_intervals else nan,
            "share": row.share,
            "forward_us": row.forward_s * US_PER_S,
            "backward_us": row.backward_s * US_PER_S,
            "ops": row.ops,
            "moved_bytes": row.moved_bytes,
            "copy_us": row.copy_s * US_PER_S,
        }
        for row in (session.profile.rows if session.profile else ())
    ]
    return ShownFrame(rows, columns=list(PROFILE_COLUMNS))
