"""The profile of a call: the time of every op, sums by module, line and op with their selectors, time around graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, reduce
from operator import add

from msgspec.structs import fields

from regional_explorer.record import Count, Quantity, Record, Seconds
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import QUIET, Figure, Noise
from regional_explorer.record.graph import Graph, Node, layer_glob
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Selector, SelectorKind

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
    seconds: Figure
    too_short: bool = False
    """Whether most of its time is overhead of measuring, so that it counts in sums but means little alone."""


class ProfileRow(Record, frozen=True):
    """The sum over the ops of one module (with the modules inside), source line or operator, per call."""

    kind: ProfileKind
    name: str
    """The module, line or operator."""
    seconds: Figure
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

    An op's time is from the end of the op before it to its own end, so the times add up to the time of the graphs.
    """

    ops: tuple[OpTime, ...]
    """The time of each op."""
    rows: tuple[ProfileRow, ...]
    """The sums by module, line and operator."""
    seconds: Figure
    """The time of the graphs."""
    step: Figure
    """The time of an unmodified ``aot_eager`` in the same rounds."""
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
    eager: Figure | None = None
    """The time of a plain eager call in the same rounds; None if it was not measured."""
    environment: Environment | None = None
    """The environment of the profile, to compare with a later one; None in an older file."""

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


# --------------------------------------------------------------------------------------------------- shares of the time


class TimeShare(Record, frozen=True):
    """A row of a profile with the selector that marks it."""

    row: ProfileRow
    selector: Selector | None = None
    """The selector that marks its ops; None if there is none."""
    modules: tuple[str, ...] = ()
    """The paths of the modules that the row sums."""

    @property
    def times(self) -> int:
        """The number of equal modules that the row sums."""
        return max(1, len(self.modules))


@dataclass(frozen=True)
class TimeShares:
    """The profile of a session, linked to the nodes of its graphs."""

    graphs: Sequence[Graph]
    profile: Profile

    def by(self, kind: ProfileKind) -> list[TimeShare]:
        """Return the rows of one kind, the longest first; modules that are equal in all layers share one row."""
        rows = self.profile.by(kind)
        if kind is ProfileKind.MODULE:
            return sorted(self._module_shares(rows), key=lambda share: -share.row.seconds.value)
        targets = {node.target for node in self._nodes_by_key.values()}
        shares = []
        for row in rows:
            selector = None
            if kind is ProfileKind.LINE and row.name != UNKNOWN_LINE:
                selector = Selector(SelectorKind.LINES, (row.name.partition(" in ")[0],), innermost=True)
            elif kind is ProfileKind.OP and row.name in targets:
                selector = Selector(SelectorKind.OPS, (row.name,))
            shares.append(TimeShare(row, selector))
        return shares

    def _module_shares(self, rows: Sequence[ProfileRow]) -> Iterable[TimeShare]:
        classes = {call.path: call.class_name for node in self._nodes_by_key.values() for call in node.modules}
        for equal_rows in grouped(((layer_glob(row.name), classes.get(row.name)), row) for row in rows).values():
            paths = tuple(row.name for row in equal_rows)
            levels = zip(*(path.split(".") for path in paths), strict=True)
            glob = ".".join(level[0] if len(set(level)) == 1 else "*" for level in levels)
            # If modules of another class also have paths of that form, the glob would select them too.
            exact = sum(_glob_matches(glob, row.name) for row in rows) == len(paths)
            selector = Selector(SelectorKind.MODULES, (glob,) if exact else paths)
            yield TimeShare(_summed_row(glob, equal_rows), None if glob == OUTSIDE else selector, paths)

    def seconds(self, node: str) -> float:
        """Return the time of a node, given as ``graph:name``, together with its backward.

        A backward that several nodes share, such as a matrix product and its transpose, counts only for the longest of
        them, so that the figures of all nodes of a graph add up.
        """
        return self._seconds_with_backward.get(node, 0.0)

    def own_seconds(self, node: str) -> float:
        """Return the time of a node alone."""
        return self._seconds_by_node.get(node, 0.0)

    def nodes_of(self, share: TimeShare) -> list[str]:
        """Return the nodes of a row as ``graph:name``."""
        name = share.row.name
        tests: Mapping[ProfileKind, Callable[[Node], bool]] = {
            ProfileKind.MODULE: lambda node: any(call.path in share.modules for call in node.modules),
            ProfileKind.LINE: lambda node: str(node.source) == name,
            ProfileKind.OP: lambda node: node.target == name,
            ProfileKind.AROUND: lambda _: False,
        }
        return [key for key, node in self._nodes_by_key.items() if tests[share.row.kind](node)]

    @cached_property
    def _nodes_by_key(self) -> Mapping[str, Node]:
        return {f"{graph.id}:{node.name}": node for graph in self.graphs for node in graph.ops}

    @cached_property
    def _seconds_by_node(self) -> Mapping[str, float]:
        return {f"{op.graph}:{op.node}": op.seconds.value for op in self.profile.ops}

    @cached_property
    def _seconds_with_backward(self) -> Mapping[str, float]:
        origins = [(node.origin, key) for key, node in self._nodes_by_key.items() if node.origin is not None]
        by_origin = grouped((origin, self.own_seconds(key)) for origin, key in origins)
        in_graph = grouped(((key.rpartition(":")[0], origin), key) for origin, key in origins)
        seconds = {key: self.own_seconds(key) for key in self._nodes_by_key}
        for (_, origin), keys in in_graph.items():
            seconds[max(keys, key=self.own_seconds)] += sum(by_origin[origin]) - sum(map(self.own_seconds, keys))
        return seconds


def _glob_matches(glob: str, path: str) -> bool:
    levels, parts = glob.split("."), path.split(".")
    return len(levels) == len(parts) and all(level in ("*", part) for level, part in zip(levels, parts, strict=True))


def _summed_row(name: str, rows: Sequence[ProfileRow]) -> ProfileRow:
    summed = {field.name: reduce(add, (getattr(row, field.name) for row in rows)) for field in fields(ProfileRow)[2:]}
    return ProfileRow(rows[0].kind, name, **summed)
