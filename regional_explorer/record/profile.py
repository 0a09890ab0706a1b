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
    """The kind of a profile's row: the ops of a module, line or operator, or the time around the graphs."""

    MODULE = "module"
    LINE = "line"
    OP = "op"
    AROUND = "around"


class Bandwidth(Record, frozen=True):
    """The bandwidth of a plain copy, counting reads and writes."""

    bytes_per_s: Figure
    """Bytes per second."""
    how: str
    """How it was measured."""


class OpTime(Record, frozen=True):
    """Eager time of one op, in seconds per call of the function."""

    graph: str
    """The id of the graph."""
    node: str
    """The name of the op."""
    seconds: Figure
    """Its time."""
    too_short: bool = False
    """Whether most of its time is overhead of measuring, so that it counts in sums but means little alone."""


class ProfileRow(Record, frozen=True):
    """The sum over the ops of one module (with the modules inside), source line or operator, per call."""

    kind: ProfileKind
    """The kind of the row."""
    name: str
    """The module, line or operator."""
    seconds: Figure
    """The time."""
    forward_s: Seconds
    """The part in the forward."""
    backward_s: Seconds
    """The part in the backward."""
    share: Quantity
    """Its part of the whole call."""
    ops: Count
    """The number of ops summed; 0 for the time around the graphs."""
    moved_bytes: Count
    """The least bytes that they read and write."""
    copy_s: Seconds
    """The sum over the ops of the least time in which as many bytes were copied."""

    @property
    def valid_bound_s(self) -> float | None:
        """``copy_s``; None if the ops take less time, so that it is no bound."""
        return self.copy_s if self.copy_s <= self.seconds.value else None


class Profile(Record, frozen=True):
    """Eager time of every op of one call, each the mean over the middle half of the rounds.

    An op's time is from the end of the op before it to its own end, so the times add up to that of the graphs.
    """

    ops: tuple[OpTime, ...]
    """The time of each op."""
    rows: tuple[ProfileRow, ...]
    """The sums by module, line and operator."""
    seconds: Figure
    """The time of the graphs."""
    step: Figure
    """The time of an unmodified ``aot_eager`` in the same rounds."""
    with_marks: Figure
    """The factor by which measuring slowed the call."""
    overhead_s: Seconds
    """The measured cost of timing one op, which is subtracted from each."""
    rounds: Count
    """How many interleaved rounds were measured."""
    stopped: str
    """Why it ended."""
    bandwidth: Bandwidth
    """The bandwidth of a copy."""
    noise: Noise = QUIET
    """What else the machine did."""

    @property
    def around_s(self) -> float:
        """Seconds of the code around the graphs: guards, wrappers, autograd's engine, untraced Python."""
        return sum(row.seconds.value for row in self.by(ProfileKind.AROUND))

    @property
    def whole_s(self) -> float:
        """Seconds of the call: its ops, and the code around the graphs."""
        return self.seconds.value + self.around_s

    @property
    def short_ops(self) -> tuple[OpTime, ...]:
        """The ops that are too short for their own figures to mean much."""
        return tuple(op for op in self.ops if op.too_short)

    def by(self, kind: ProfileKind) -> tuple[ProfileRow, ...]:
        """Return the rows of one kind, the longest first."""
        return tuple(row for row in self.rows if row.kind is kind)
