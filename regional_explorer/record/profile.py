"""The profile of a call: time, bytes and range of every op, sums by module, line and op, time around graphs."""

from __future__ import annotations

from enum import StrEnum

from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.record import Count, Quantity, Record, Seconds

OUTSIDE = "(outside modules)"
"""The name of the row for ops that belong to no module."""

UNKNOWN_LINE = "(no source line)"
"""The name of the row for ops without a known source line, such as sums of gradients."""


class ProfileKind(StrEnum):
    """What a row of a profile sums: the ops of a module, line or operator, or the time around the graphs."""

    MODULE = "module"
    LINE = "line"
    OP = "op"
    AROUND = "around"


class Bandwidth(Record, frozen=True):
    """Bytes per second that a plain copy moves, reads and writes counted; ``how`` says how it was measured."""

    bytes_per_s: Figure
    how: str


class OpTime(Record, frozen=True):
    """Eager time of one op, in seconds per call of the whole.

    ``moved_bytes`` is the least that it reads and writes. ``too_short`` says that most of the measured time is overhead
    of measuring: the op counts in sums, but its own figure means little.
    """

    graph: str
    node: str
    seconds: Figure
    moved_bytes: Count = 0
    too_short: bool = False


class ProfileRow(Record, frozen=True):
    """The ops of one module (with the modules inside it), source line or operator, summed; in seconds per call.

    A row for the time around the graphs has no ops. ``share`` is its part of the whole call, ``copy_s`` the least time
    in which ``moved_bytes`` were copied, op by op.
    """

    kind: ProfileKind
    name: str
    seconds: Figure
    forward_s: Seconds
    backward_s: Seconds
    share: Quantity
    ops: Count
    moved_bytes: Count
    copy_s: Seconds

    @property
    def least_s(self) -> float | None:
        """``copy_s``; None if the ops take less, so that it bounds nothing."""
        return self.copy_s if self.copy_s <= self.seconds.value else None


class Profile(Record, frozen=True):
    """Eager time of every op of one call, each the mean over the middle half of ``rounds`` interleaved rounds.

    An op's time is from the end of the op before it to its own end, so the times add up to that of the graphs:
    ``seconds``. Together with what runs around the graphs that is ``whole_s``, the measured call; ``step`` is the time
    of an unmodified ``aot_eager`` in the same rounds, ``with_marks`` how many times as long the measured call took.
    ``overhead_s`` is the measured cost of timing one op, which has been subtracted from each. ``stopped`` says why the
    profile ended; ``noise`` how many more rounds were left out.
    """

    ops: tuple[OpTime, ...]
    rows: tuple[ProfileRow, ...]
    seconds: Figure
    step: Figure
    with_marks: Figure
    overhead_s: Seconds
    rounds: Count
    budget_s: Seconds
    stopped: str
    bandwidth: Bandwidth
    noise: Noise = QUIET

    @property
    def around_s(self) -> float:
        """Seconds of what runs around the graphs: guards, wrappers, autograd's engine, Python that was not traced."""
        return sum(row.seconds.value for row in self.by(ProfileKind.AROUND))

    @property
    def whole_s(self) -> float:
        """Seconds of the call: its ops, and what runs around the graphs."""
        return self.seconds.value + self.around_s

    @property
    def short_ops(self) -> tuple[OpTime, ...]:
        """The ops that are too short for their own figures to mean much."""
        return tuple(op for op in self.ops if op.too_short)

    def by(self, kind: ProfileKind) -> tuple[ProfileRow, ...]:
        """Return the rows of one kind, the longest first."""
        return tuple(row for row in self.rows if row.kind is kind)
