"""The profile of a session as a pandas DataFrame."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S
from regional_explorer.render.report.shown_frame import ShownFrame

if TYPE_CHECKING:
    import pandas as pd

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
