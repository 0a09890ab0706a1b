"""One line of the table that ``make bench`` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Seconds of ours and of the other side, and the ratio that is wanted at most."""

    what: str
    against: str
    ours_s: float
    theirs_s: float
    goal: float

    @property
    def ratio(self) -> float:
        """Ours / theirs."""
        return self.ours_s / self.theirs_s
