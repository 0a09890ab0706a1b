"""Finds where in the source ops come from, and which statements, functions and calls contain only given ops."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from regional_explorer.export.patch.hoist import can_be_hoisted
from regional_explorer.export.patch.source_file import Function, SourceFile, Statement
from regional_explorer.export.patch.spans import (
    Span,
    StatementRange,
    SubmoduleCalls,
    WholeFunction,
    is_loop,
    span_of,
    submodule_calls,
)
from regional_explorer.record.graph import Chain, Graph, GraphBreak, GraphKind, ModuleCall, Node, SourceLine, is_library


@dataclass(frozen=True)
class Frame:
    """One function on the stack of an op, with the statements around the current line, outermost first.

    ``depth`` counts the functions above it on the stack.
    """

    file: str
    function: Function
    path: Sequence[Statement]
    library: bool
    depth: int = 0

    @property
    def around(self) -> list[Function | Statement]:
        """The function, and the statements around the current line, outermost first."""
        return [self.function, *self.path]


class Sites:
    """The stack frames of ops, and the ops of functions and statements, in the files that ops of ``origins`` come from.

    Graph breaks count as ops of no region, with negative numbers: a marked block with a break runs in plain Python.
    """

    def __init__(self, graphs: Sequence[Graph], breaks: Sequence[GraphBreak], origins: Collection[int]) -> None:
        nodes = (node for graph in graphs if graph.kind is GraphKind.DYNAMO for node in graph.ops)
        self.ops: dict[int, Node] = {node.origin: node for node in nodes if node.origin is not None}
        self.unread: dict[str, str] = {}
        self.files: dict[str, SourceFile] = {}
        self._read_files(line.file for origin in origins for line in self.ops[origin].stack)
        self._drop_changed_files(line for node in self.ops.values() for line in node.stack)
        frame_of = functools.cache(self._frame_of_line)
        stacks = {origin: node.stack for origin, node in self.ops.items()}
        stacks |= {-number: graph_break.stack for number, graph_break in enumerate(breaks, start=1)}
        self.frames: dict[int, list[Frame]] = {}
        self.origins: dict[Any, set[int]] = defaultdict(set)
        self._call_origins: dict[Statement, dict[str, set[int]]] = {}
        self._range_origins: dict[StatementRange, set[int]] = {}
        for origin, stack in stacks.items():
            numbered = enumerate(map(frame_of, stack))
            self.frames[origin] = [replace(frame, depth=depth) for depth, frame in numbered if frame is not None]
            for frame in self.frames[origin]:
                for site in frame.around:
                    self.origins[site].add(origin)

    def _read_files(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys(names):
            try:
                self.files[name] = SourceFile(name)
            except (OSError, ValueError) as error:
                self.unread[name] = str(error)

    def _drop_changed_files(self, lines: Iterable[SourceLine]) -> None:
        """Drop files that have changed since the trace: their line numbers may be wrong."""
        for line in set(lines):
            if (file := self.files.get(line.file)) is not None and not file.is_unchanged(line):
                self.unread[line.file] = f"{line.file} has changed since the call was traced: explore again"
                del self.files[line.file]

    def _frame_of_line(self, line: SourceLine) -> Frame | None:
        file = self.files.get(line.file)
        if file is None:
            return None
        function, path = file.path_to(line)
        return None if function is None else Frame(line.file, function, path, is_library(line.file))

    # -------------------------------------------------------------------------------------------------------- covering

    def cover(
        self,
        required: AbstractSet[int],
        allowed: AbstractSet[int],
        *,
        through: AbstractSet[int] = frozenset(),
        in_loops: bool = False,
        innermost: bool = False,
    ) -> list[Span] | None:
        """Return the outermost spans that contain all ``required`` ops and only ``allowed`` ones, or None.

        The user's own files come before those of libraries, and statements and functions before single calls. With
        ``in_loops`` only statements in loops are considered, with ``innermost`` those of inner loops first. Consecutive
        statements are one span, and so are those with nothing but ops of ``through`` between them.
        """
        spans: dict[Any, Span] = {}
        missing = sorted(required)
        while missing:
            candidate = next(
                (
                    self._spans_in_loops(missing[0], allowed, innermost=innermost)
                    if in_loops
                    else self._candidate_spans(missing[0], allowed)
                ),
                None,
            )
            if candidate is None:
                return None
            span, contained = candidate
            spans[span] = span
            missing = [origin for origin in missing if origin not in contained]
        blocks = [span for span in spans.values() if isinstance(span, StatementRange)]
        return [
            *self._joined_ranges(blocks, through),
            *(span for span in spans.values() if not isinstance(span, StatementRange)),
        ]

    def _candidate_spans(self, origin: int, allowed: AbstractSet[int]) -> Iterator[tuple[Span, AbstractSet[int]]]:
        for library in (False, True):
            frames = [frame for frame in self.frames[origin] if frame.library is library]
            for frame in frames:
                if frame.function.plain and self.origins[frame.function] <= allowed:
                    yield WholeFunction(frame.function), self.origins[frame.function]
                for statement in frame.path:
                    if self.origins[statement] <= allowed and not statement.yields:
                        yield span_of(statement), self.origins[statement]
            for frame in frames:
                for attribute, origins in self.calls(frame.path[-1]).items() if frame.path else ():
                    if origin in origins and origins <= allowed:
                        yield SubmoduleCalls(frame.path[-1], attribute), origins

    def _spans_in_loops(
        self, origin: int, allowed: AbstractSet[int], *, innermost: bool
    ) -> Iterator[tuple[Span, AbstractSet[int]]]:
        for library in (False, True):
            candidates = [
                (span_of(statement), self.origins[statement])
                for frame in self.frames[origin]
                if frame.library is library
                for statement in frame.path
                if self.origins[statement] <= allowed and not statement.yields and any(map(is_loop, statement.around))
            ]
            yield from reversed(candidates) if innermost else candidates

    def calls(self, statement: Statement) -> dict[str, set[int]]:
        """Return the ops of each submodule that a statement calls as ``self.name(…)``, by that name.

        Calls that cannot be moved out of the statement are left out.
        """
        if (cached := self._call_origins.get(statement)) is not None:
            return cached
        origins_by_name = self._call_origins[statement] = {}
        for name, calls in submodule_calls(statement).items():
            if len(calls) > 1 or not can_be_hoisted(statement.node, calls[0]):
                continue
            inside = {origin for origin in self.origins[statement] if origin >= 0 and _in_call(self.ops[origin], name)}
            if inside:
                origins_by_name[name] = inside
        return origins_by_name

    def _joined_ranges(self, blocks: Iterable[StatementRange], through: AbstractSet[int]) -> list[Span]:
        ranges: list[StatementRange] = []
        for block in sorted(blocks, key=lambda span: (id(span.suite), span.first)):
            previous = ranges[-1] if ranges else None
            between = block.suite.statements[previous.last + 1 : block.first] if previous else ()
            joins = all(self.origins[stmt] <= through and not stmt.yields for stmt in between)
            if previous and previous.suite is block.suite and joins:
                ranges[-1] = replace(previous, last=block.last)
            else:
                ranges.append(block)
        return list(ranges)

    def ops_of(self, span: Span) -> AbstractSet[int]:
        """Return the ops that a span contains."""
        if isinstance(span, WholeFunction):
            return self.origins[span.function]
        if isinstance(span, SubmoduleCalls):
            return self.calls(span.statement).get(span.attribute, set())
        if span not in self._range_origins:
            self._range_origins[span] = set().union(*(self.origins[statement] for statement in span.statements))
        return self._range_origins[span]

    def runs_once(self, span: StatementRange) -> bool:
        """Return whether the ops of statements come from one run of their function, as far as the record shows."""
        origins = self.ops_of(span)
        paths = {
            tuple(self.ops[origin].stack[: frame.depth])
            for origin in origins
            for frame in self.frames[origin]
            if frame.function is span.function
        }
        if paths == {()}:
            return True
        method_of, _, name = span.function.scope.rpartition(".")
        class_name = method_of.rpartition(".")[2]
        chains = [self.ops[origin].modules for origin in origins]
        if any(call.class_name == class_name for call in _common_calls(chains)):
            return True
        # The root is the only module whose call has no entry: wrappers may call its forward, on one path.
        is_root = name == "forward" and not any(call.class_name == class_name for chain in chains for call in chain)
        return is_root and len(paths) == 1

    def iteration(self, function: Function, origin: int) -> int | None:
        """Return which iteration of a method's loop over a list of modules an op comes from: the module's number.

        None if the method called no such module for it.
        """
        class_name = function.scope.rpartition(".")[0].rpartition(".")[2]
        chain = self.ops[origin].modules
        inside = [index for index, call in enumerate(chain) if call.class_name == class_name]
        inner_calls = chain[inside[0] + 1 :] if inside else chain  # the root has no entry of its own
        if len(inside) > 1 or not inner_calls:
            return None
        outer_path, called = f"{chain[inside[0]].path}." if inside else "", inner_calls[0]
        parts = called.path.removeprefix(outer_path).split(".") if called.path.startswith(outer_path) else ()
        return next((int(part) for part in parts if part.isdecimal()), None)


def _common_calls(chains: Sequence[Chain]) -> Sequence[ModuleCall]:
    in_step = itertools.takewhile(lambda calls: len(set(calls)) == 1, zip(*chains, strict=False))
    return [calls[0] for calls in in_step]


def _in_call(node: Node, attribute: str) -> bool:
    """Return whether an op is inside a call of the submodule ``attribute`` of one of the modules around it."""
    outer = {""}  # the root has no entry of its own
    for call in node.modules:
        names = {call.path, *call.aliases}
        if any((f"{name}.{attribute}" if name else attribute) in names for name in outer):
            return True
        outer = names
    return False
