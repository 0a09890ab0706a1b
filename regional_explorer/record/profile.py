"""Where the time of a call goes: eager time of every op, sums by module, line and op, and what runs around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

OUTSIDE = "(outside modules)"
"""Stands for ops that belong to no module."""

UNKNOWN_LINE = "(no source line)"
"""Stands for ops that no line of the program is known for, such as sums of gradients."""


class ProfileKind(StrEnum):
    """What the ops of a row of a profile have in common; ``AROUND`` is no op, but what runs around the graphs."""

    MODULE = "module"
    LINE = "line"
    OP = "op"
    AROUND = "around"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second that a plain copy moves, reads and writes counted; ``how`` says how it was measured."""

    bytes_per_s: float
    low: float
    high: float
    how: str


@dataclass(frozen=True, slots=True)
class OpTime:
    """Eager time of one op, in seconds per call of the whole, with the ends of its CI.

    ``moved_bytes`` is what it reads and writes at least. ``too_short`` says that most of what was measured is the
    measuring itself: the op counts in sums, but its own figure means little.
    """

    graph: str
    node: str
    seconds: float
    low_s: float
    high_s: float
    moved_bytes: int = 0
    too_short: bool = False


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The ops of one module (with the modules inside it), source line or operator, summed; in seconds per call.

    A row of what runs around the graphs has no ops.

    ``low_s`` and ``high_s`` are the ends of the CI of the sum. ``share`` is its part of the whole call,
    ``copy_s`` the time that the measured copy bandwidth needs for ``moved_bytes``.
    """

    kind: ProfileKind
    name: str
    seconds: float
    low_s: float
    high_s: float
    forward_s: float
    backward_s: float
    share: float
    ops: int
    moved_bytes: int
    copy_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Eager time of every op of one call, each the mean over the middle half of ``rounds`` interleaved rounds.

    An op's time is that from the end of the op before it to its own, so they add up to what the graphs take:
    ``seconds``. With what runs around the graphs that is ``whole_s``, the measured call; ``step_s`` is what
    ``aot_eager`` took untouched in the same rounds.
    ``overhead_s`` is the measured cost of timing one op, which has been taken off each. ``stopped`` says why it ended.
    """

    ops: tuple[OpTime, ...]
    rows: tuple[ProfileRow, ...]
    seconds: float
    low_s: float
    high_s: float
    step_s: float
    overhead_s: float
    rounds: int
    budget_s: float
    stopped: str
    confidence: float
    bandwidth: Bandwidth

    @property
    def around_s(self) -> float:
        """Seconds of what runs around the graphs: guards, wrappers, autograd's engine, Python that was not traced."""
        return sum(row.seconds for row in self.by(ProfileKind.AROUND))

    @property
    def whole_s(self) -> float:
        """Seconds of the call: its ops, and what runs around the graphs."""
        return self.seconds + self.around_s

    @property
    def short_ops(self) -> tuple[OpTime, ...]:
        """The ops that are too short for figures of their own."""
        return tuple(op for op in self.ops if op.too_short)

    def by(self, kind: ProfileKind) -> tuple[ProfileRow, ...]:
        """Return the rows of one kind, the longest first."""
        return tuple(row for row in self.rows if row.kind is kind)

    def module_shares(self) -> Mapping[str, float]:
        """Return the part of the time that each module takes, those inside it included."""
        return {row.name: row.share for row in self.by(ProfileKind.MODULE)}
