"""Where in the source ops come from, and which statements, functions and calls hold just the ops of a region."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regional_explorer.export.patch.source_file import Function, SourceFile, Statement, Suite, parser
from regional_explorer.record.graph import Chain, Graph, GraphBreak, GraphKind, ModuleCall, Node, SourceLine


@dataclass(frozen=True)
class Block:
    """Statements ``first`` to ``last`` of a suite, counted from 0."""

    suite: Suite
    first: int
    last: int

    @property
    def statements(self) -> Sequence[Statement]:
        """The statements, in order."""
        return self.suite.statements[self.first : self.last + 1]


@dataclass(frozen=True)
class Whole:
    """All that a function does."""

    function: Function


@dataclass(frozen=True)
class Calls:
    """The calls of one submodule in a statement: ``self.mlp(…)``, whatever stands around them."""

    statement: Statement
    attribute: str


Unit = Block | Whole | Calls
"""What one mark in the source can be put around."""


@dataclass(frozen=True)
class Frame:
    """One function on the way to an op, with the statements around the line it is at, outermost first.

    ``depth`` counts the functions around it.
    """

    file: str
    function: Function
    path: Sequence[Statement]
    library: bool
    depth: int = 0

    @property
    def around(self) -> list[Function | Statement]:
        """The function, and the statements around the line it is at, outermost first."""
        return [self.function, *self.path]


class Sites:
    """The frames of ops, and the ops of functions and statements, in the files that have a part in ``wanted`` ops.

    Graph breaks count as ops of nobody's, with numbers below 0: a marked block with a break in it runs in plain Python.
    """

    def __init__(self, graphs: Sequence[Graph], breaks: Sequence[GraphBreak], wanted: Collection[int]) -> None:
        nodes = (node for graph in graphs if graph.kind is GraphKind.DYNAMO for node in graph.ops)
        self.ops: dict[int, Node] = {node.origin: node for node in nodes if node.origin is not None}
        self.unread: dict[str, str] = {}
        self.files: dict[str, SourceFile] = {}
        self._read(line.file for origin in wanted for line in self.ops[origin].stack)
        self._forget_changed(line for node in self.ops.values() for line in node.stack)
        located = functools.cache(self._located)
        stacks = {origin: node.stack for origin, node in self.ops.items()}
        stacks |= {-number: found.stack for number, found in enumerate(breaks, start=1)}
        self.frames: dict[int, list[Frame]] = {}
        self.held: dict[Any, set[int]] = defaultdict(set)
        self._calls: dict[Statement, dict[str, set[int]]] = {}
        self._blocks: dict[Block, set[int]] = {}
        self._once: dict[Block, bool] = {}
        for origin, stack in stacks.items():
            found = enumerate(map(located, stack))
            self.frames[origin] = [replace(frame, depth=depth) for depth, frame in found if frame is not None]
            for frame in self.frames[origin]:
                for unit in frame.around:
                    self.held[unit].add(origin)

    def _read(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys(names):
            try:
                self.files[name] = SourceFile(name)
            except (OSError, ValueError) as error:
                self.unread[name] = str(error)

    def _forget_changed(self, lines: Iterable[SourceLine]) -> None:
        """Leave out files that read otherwise than they did: what stands at a line now is anybody's guess."""
        for line in set(lines):
            if (file := self.files.get(line.file)) is not None and not file.shows(line):
                self.unread[line.file] = f"{line.file} has changed since the call was traced: explore again"
                del self.files[line.file]

    def _located(self, line: SourceLine) -> Frame | None:
        file = self.files.get(line.file)
        if file is None:
            return None
        function, path = file.path_to(line)
        return None if function is None else Frame(line.file, function, path, is_library(line.file))

    # -------------------------------------------------------------------------------------------------------- covering

    def cover(
        self,
        wanted: AbstractSet[int],
        allowed: AbstractSet[int],
        *,
        through: AbstractSet[int] = frozenset(),
        in_loops: bool = False,
        innermost: bool = False,
    ) -> list[Unit] | None:
        """Return the outermost units that hold all ``wanted`` ops and none but ``allowed`` ones, None without any.

        The user's own files come before those of libraries, and statements and functions before single calls. With
        ``in_loops`` only statements of loops will do, with ``innermost`` those of inner loops first. Statements that
        follow each other are one unit, what computes no more than ops of ``through`` between them included.
        """
        found: dict[Any, Unit] = {}
        missing = sorted(wanted)
        while missing:
            chosen = next(
                (
                    self._in_loops(missing[0], allowed, innermost=innermost)
                    if in_loops
                    else self._units(missing[0], allowed)
                ),
                None,
            )
            if chosen is None:
                return None
            unit, held = chosen
            found[unit] = unit
            missing = [origin for origin in missing if origin not in held]
        blocks = [unit for unit in found.values() if isinstance(unit, Block)]
        return [*self._joined(blocks, through), *(unit for unit in found.values() if not isinstance(unit, Block))]

    def _units(self, origin: int, allowed: AbstractSet[int]) -> Iterator[tuple[Unit, AbstractSet[int]]]:
        for library in (False, True):
            frames = [frame for frame in self.frames[origin] if frame.library is library]
            for frame in frames:
                if frame.function.plain and self.held[frame.function] <= allowed:
                    yield Whole(frame.function), self.held[frame.function]
                for statement in frame.path:
                    if self.held[statement] <= allowed:
                        yield _alone(statement), self.held[statement]
            for frame in frames:
                for attribute, held in self.calls(frame.path[-1]).items() if frame.path else ():
                    if origin in held and held <= allowed:
                        yield Calls(frame.path[-1], attribute), held

    def _in_loops(
        self, origin: int, allowed: AbstractSet[int], *, innermost: bool
    ) -> Iterator[tuple[Unit, AbstractSet[int]]]:
        for library in (False, True):
            found = [
                (_alone(statement), self.held[statement])
                for frame in self.frames[origin]
                if frame.library is library
                for statement in frame.path
                if self.held[statement] <= allowed and any(map(is_loop, statement.around))
            ]
            yield from reversed(found) if innermost else found

    def calls(self, statement: Statement) -> dict[str, set[int]]:
        """Return the ops of each submodule that a statement calls as ``self.name(…)``, by that name.

        Only of calls that can be taken out of the statement.
        """
        from regional_explorer.export.patch.hoist import can_be_hoisted  # imports libcst

        if (known := self._calls.get(statement)) is not None:
            return known
        found = self._calls[statement] = {}
        for name, calls in submodule_calls(statement).items():
            if len(calls) > 1 or not can_be_hoisted(statement.node, calls[0]):
                continue
            inside = {origin for origin in self.held[statement] if origin >= 0 and _calls(self.ops[origin], name)}
            if inside:
                found[name] = inside
        return found

    def _joined(self, blocks: Iterable[Block], through: AbstractSet[int]) -> list[Unit]:
        found: list[Block] = []
        for block in sorted(blocks, key=lambda one: (id(one.suite), one.first)):
            last = found[-1] if found else None
            between = block.suite.statements[last.last + 1 : block.first] if last else ()
            if last and last.suite is block.suite and all(self.held[one] <= through for one in between):
                found[-1] = replace(last, last=block.last)
            else:
                found.append(block)
        return list(found)

    def ops_of(self, unit: Unit) -> AbstractSet[int]:
        """Return the ops that a unit holds."""
        if isinstance(unit, Whole):
            return self.held[unit.function]
        if isinstance(unit, Calls):
            return self.calls(unit.statement).get(unit.attribute, set())
        if unit not in self._blocks:
            self._blocks[unit] = set().union(*(self.held[one] for one in unit.statements))
        return self._blocks[unit]

    def runs_once(self, unit: Block) -> bool:
        """Tell whether the ops of statements come from one run of their function, as far as the record shows."""
        if unit not in self._once:
            self._once[unit] = self._from_one_run(unit.suite.function, self.ops_of(unit))
        return self._once[unit]

    def _from_one_run(self, function: Function, origins: Collection[int]) -> bool:
        ways = {
            tuple(self.ops[origin].stack[: frame.depth])
            for origin in origins
            for frame in self.frames[origin]
            if frame.function is function
        }
        if ways == {()}:
            return True
        method_of, _, name = function.scope.rpartition(".")
        holder = method_of.rpartition(".")[2]
        chains = [self.ops[origin].modules for origin in origins]
        if any(call.class_name == holder for call in _common(chains)):
            return True
        # Of the calls of modules only the root's has no entry: its forward may lie below wrappers, called on one way.
        is_root = name == "forward" and not any(call.class_name == holder for chain in chains for call in chain)
        return is_root and len(ways) == 1

    def turn(self, function: Function, origin: int) -> int | None:
        """Return the turn of a loop over a list of modules that an op of a method comes from: the module's number.

        None where the method called no such module for it.
        """
        holder = function.scope.rpartition(".")[0].rpartition(".")[2]
        chain = self.ops[origin].modules
        inside = [place for place, call in enumerate(chain) if call.class_name == holder]
        below = chain[inside[0] + 1 :] if inside else chain  # the root has no entry of its own
        if len(inside) > 1 or not below:
            return None
        outer, called = f"{chain[inside[0]].path}." if inside else "", below[0]
        parts = called.path.removeprefix(outer).split(".") if called.path.startswith(outer) else ()
        return next((int(part) for part in parts if part.isdecimal()), None)


def _alone(statement: Statement) -> Block:
    number = statement.suite.statements.index(statement)
    return Block(statement.suite, number, number)


def _common(chains: Sequence[Chain]) -> Sequence[ModuleCall]:
    first, *others = chains
    length = len(first)
    for chain in others:
        with contextlib.suppress(StopIteration):
            length = next(n for n in range(length) if n >= len(chain) or chain[n] != first[n])
    return first[:length]


def _calls(node: Node, attribute: str) -> bool:
    """Tell whether an op is below a call of the submodule ``attribute`` of one of the modules around it."""
    outer = {""}  # the root has no entry of its own
    for call in node.modules:
        names = {call.path, *call.aliases}
        if any((f"{name}.{attribute}" if name else attribute) in names for name in outer):
            return True
        outer = names
    return False


def is_loop(statement: Statement) -> bool:
    """Tell whether a statement is a ``for`` loop with its body on lines of its own."""
    return isinstance(statement.node, parser().For) and statement.node.asynchronous is None and bool(statement.suites)


def submodule_calls(statement: Statement) -> Mapping[str, list[Any]]:
    """Return the calls of ``self.name(…)`` in a statement, by the name of the submodule."""
    cst = parser()
    found: dict[str, list[Any]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, cst.Call) and (name := _below_self(node.func)):
            found.setdefault(name, []).append(node)
        for child in node.children:
            if not isinstance(child, (cst.FunctionDef, cst.ClassDef, cst.IndentedBlock)):
                visit(child)

    visit(statement.node)
    return found


def _below_self(node: Any) -> str:
    """Return ``blocks.0.mlp`` for the expression ``self.blocks[0].mlp``, and an empty text for any other."""
    cst = parser()
    if isinstance(node, cst.Attribute):
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            return str(node.attr.value)
        outer = _below_self(node.value)
        return f"{outer}.{node.attr.value}" if outer else ""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        outer, index = _below_self(node.value), node.slice[0].slice.value
        return f"{outer}.{index.value}" if outer and isinstance(index, cst.Integer) else ""
    return ""


def is_library(file: str) -> bool:
    """Tell whether a file belongs to an installed library."""
    return any(part in ("site-packages", "dist-packages") for part in Path(file).parts)
