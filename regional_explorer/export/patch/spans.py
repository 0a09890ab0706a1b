"""The parts of source code that one mark can surround: statements, a whole function, or calls of a submodule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from regional_explorer.export.patch.source_file import Function, Statement, Suite


@dataclass(frozen=True)
class StatementRange:
    """Statements ``first`` to ``last`` of a suite, counted from 0."""

    suite: Suite
    first: int
    last: int

    @property
    def function(self) -> Function:
        """The function that they are in."""
        return self.suite.function

    @property
    def statements(self) -> Sequence[Statement]:
        """The statements, in order."""
        return self.suite.statements[self.first : self.last + 1]


@dataclass(frozen=True)
class WholeFunction:
    """A function, with everything that it calls."""

    function: Function


@dataclass(frozen=True)
class SubmoduleCalls:
    """The calls of one submodule in a statement: ``self.mlp(…)``, whatever the rest of the statement is."""

    statement: Statement
    attribute: str

    @property
    def function(self) -> Function:
        """The function that the statement is in."""
        return self.statement.suite.function


Span = StatementRange | WholeFunction | SubmoduleCalls
"""What one mark in the source can surround."""


def span_of(statement: Statement) -> StatementRange:
    """Return the span of one statement."""
    index = statement.suite.statements.index(statement)
    return StatementRange(statement.suite, index, index)


def is_loop(statement: Statement) -> bool:
    """Return whether a statement is a ``for`` loop with its body on lines of its own."""
    return isinstance(statement.node, cst.For) and statement.node.asynchronous is None and bool(statement.suites)


def submodule_calls(statement: Statement) -> Mapping[str, list[Any]]:
    """Return the calls of ``self.name(…)`` in a statement, by the name of the submodule."""
    calls: dict[str, list[Any]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, cst.Call) and (name := _submodule_path(node.func)):
            calls.setdefault(name, []).append(node)
        for child in node.children:
            if not isinstance(child, (cst.FunctionDef, cst.ClassDef, cst.IndentedBlock)):
                visit(child)

    visit(statement.node)
    return calls


def _submodule_path(node: Any) -> str:
    """Return ``blocks.0.mlp`` for the expression ``self.blocks[0].mlp``, and an empty text for any other."""
    if isinstance(node, cst.Attribute):
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            return str(node.attr.value)
        outer = _submodule_path(node.value)
        return f"{outer}.{node.attr.value}" if outer else ""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        outer, index = _submodule_path(node.value), node.slice[0].slice.value
        return f"{outer}.{index.value}" if outer and isinstance(index, cst.Integer) else ""
    return ""
