"""Writes marks into a file with libcst: decorators, ``with`` blocks, indentation, imports; all else stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from regional_explorer.export.patch.hoist import Hoisted, hoisted
from regional_explorer.export.patch.new_marks import Placement, reused_mark
from regional_explorer.export.patch.source_file import SourceFile, dotted_name
from regional_explorer.export.patch.spans import StatementRange, SubmoduleCalls, WholeFunction, submodule_calls
from regional_explorer.export.patch.values import TRACEBACK, LoopIndices, changed_call, names_in, value_text

LONGEST_LINE = 100
"""A longer mark is split over several lines."""


@dataclass
class _Edits:
    """The changes of one file, by the ``id`` of the syntax nodes concerned."""

    wraps: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    decorators: dict[int, str] = field(default_factory=dict)
    hoists: dict[int, list[tuple[cst.Call, Hoisted, str]]] = field(default_factory=dict)
    values: dict[int, cst.Call] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    loops: dict[int, str] = field(default_factory=dict)


def rewritten(file: SourceFile, placement: Placement) -> str:
    """Return the text of ``file`` with the marks of ``placement`` in it."""
    file_marks = [new_mark for new_mark in placement.marks if new_mark.span.function in file.functions]
    indices = LoopIndices()
    edits = _Edits(gone={id(mark.call) for mark in placement.obsolete}, loops=indices.added)
    for new_mark in file_marks:
        value = value_text(new_mark, indices)
        if (mark := reused_mark(new_mark)) is not None:
            edits.values[id(mark.call)] = changed_call(mark, new_mark, value)
            continue
        match new_mark.span:
            case StatementRange(suite, first, last):
                edits.wraps.setdefault(id(suite.node), []).append((first, last, f"{TRACEBACK}.annotate({value})"))
            case WholeFunction(function):
                edits.decorators[id(function.node)] = f"{TRACEBACK}.annotate_fn({value})"
            case SubmoduleCalls(statement, attribute):
                call_node = submodule_calls(statement)[attribute][0]
                used_names = {name.value for name in names_in(statement.suite.function.node)}
                used_names |= {hoist.name.value for entries in edits.hoists.values() for _, hoist, _ in entries}
                entry = call_node, hoisted(call_node, attribute, used_names), f"{TRACEBACK}.annotate({value})"
                edits.hoists.setdefault(id(statement.node), []).append(entry)
    module: cst.Module = file.module.visit(_MarkWriter(edits))
    # A mark that was there before has its imports; a file without changes is returned as it is.
    uses_torch = edits.wraps or edits.decorators or edits.hoists or any(new_mark.instance for new_mark in file_marks)
    if uses_torch and not _imports_torch(file):
        module = _with_torch_import(module)
    return module.code


# ---------------------------------------------------------------------------------------------------------- the imports


def _imports_torch(file: SourceFile) -> bool:
    """Return whether a file imports ``torch``; of a cell, whether it uses it: another cell may import it."""
    if file.cell:
        return any(name.value == "torch" for name in names_in(file.module))
    return any(
        isinstance(statement, cst.Import)
        and any(alias.asname is None and dotted_name(alias.name).split(".")[0] == "torch" for alias in statement.names)
        for line in file.module.body
        if isinstance(line, cst.SimpleStatementLine)
        for statement in line.body
    )


def _with_torch_import(module: cst.Module) -> cst.Module:
    """Return the module with ``import torch`` after its first imports, or after its docstring."""
    position = 0
    for number, line in enumerate(module.body):
        statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        docstring = number == 0 and isinstance(statement, cst.Expr) and isinstance(statement.value, cst.SimpleString)
        if not docstring and not isinstance(statement, (cst.Import, cst.ImportFrom)):
            break
        position = number + 1
    line = cst.parse_statement("import torch\n")
    return module.with_changes(body=[*module.body[:position], line, *module.body[position:]])


# ----------------------------------------------------------------------------------------------------------- the writer


class _MarkWriter(cst.CSTTransformer):
    """Applies ``edits`` to a syntax tree."""

    def __init__(self, edits: _Edits) -> None:
        super().__init__()
        self._edits = edits

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Change the value of a mark."""
        return self._edits.values.get(id(original_node), updated_node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        """Add a decorator next to the ``def``, inside all others, or remove one."""
        decorators = [
            new
            for old, new in zip(original_node.decorators, updated_node.decorators, strict=True)
            if id(old.decorator) not in self._edits.gone
        ]
        text = self._edits.decorators.get(id(original_node))
        if text is not None:
            decorators.append(cst.Decorator(cst.parse_expression(text)))
        elif len(decorators) == len(updated_node.decorators):
            return updated_node
        return updated_node.with_changes(decorators=decorators)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        """Add an index to a loop with ``enumerate``."""
        name = self._edits.loops.get(id(original_node))
        if name is None:
            return updated_node
        target = updated_node.target
        if isinstance(target, cst.Tuple) and not target.lpar:
            target = target.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        counted = cst.Tuple([cst.Element(cst.Name(name)), cst.Element(target)], lpar=[], rpar=[])
        turns = cst.Call(cst.Name("enumerate"), [cst.Arg(updated_node.iter)])
        return updated_node.with_changes(target=counted, iter=turns)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        """Remove a mark among other context managers; ``leave_IndentedBlock`` removes a ``with`` of marks alone."""
        items = [
            new
            for old, new in zip(original_node.items, updated_node.items, strict=True)
            if id(old.item) not in self._edits.gone
        ]
        if len(items) == len(updated_node.items) or not items:
            return updated_node
        items[-1] = items[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(items=items)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Wrap statements in a new mark, and unwrap those whose mark is removed."""
        groups: list[list[Any]] = []
        carried: list[cst.EmptyLine] = []
        for old, new in zip(original_node.body, updated_node.body, strict=True):
            unwrapped, carried_on = self._unwrapped(old, new, updated_node.indent)
            groups.append(_with_leading_lines(unwrapped, carried))
            carried = carried_on
        wraps = sorted(self._edits.wraps.get(id(original_node), ()), key=lambda wrap: (wrap[0], -wrap[1]))
        body = _wrapped_statements(groups, 0, len(groups), wraps, updated_node.indent)
        return updated_node.with_changes(body=body, footer=[*carried, *updated_node.footer])

    def _unwrapped(self, old: Any, new: Any, indent: str | None) -> tuple[list[Any], list[cst.EmptyLine]]:
        """Return the statements that replace ``old``, and the comments that go below them."""
        if (hoists := self._edits.hoists.get(id(old))) is not None:
            return _with_hoists(old, hoists, indent), []
        marks_only = isinstance(old, cst.With) and all(id(item.item) in self._edits.gone for item in old.items)
        if not marks_only:
            return [new], []
        if not isinstance(new.body, cst.IndentedBlock):
            return [cst.SimpleStatementLine(new.body.body, leading_lines=new.leading_lines)], []
        above = list(new.leading_lines)
        if new.body.header.comment is not None:
            above.append(cst.EmptyLine(comment=new.body.header.comment))
        return _with_leading_lines(list(new.body.body), above), list(new.body.footer)


def _with_hoists(
    line: cst.SimpleStatementLine, hoists: Sequence[tuple[cst.Call, Hoisted, str]], indent: str | None
) -> list[Any]:
    """Return a line with calls moved out of it, each wrapped in its mark."""
    statements: list[Any] = []
    new_line: Any = line.with_changes(leading_lines=[])
    for call, hoist, text in hoists:
        statements += [*hoist.inputs, _with_block(text, [hoist.call], indent)]
        new_line = new_line.deep_replace(call, hoist.name)
    return _with_leading_lines([*statements, new_line], line.leading_lines)


def _with_leading_lines(statements: list[Any], above: Sequence[cst.EmptyLine]) -> list[Any]:
    """Return the statements with ``above`` added before the first."""
    if not above:
        return statements
    first, *later = statements
    return [first.with_changes(leading_lines=[*above, *first.leading_lines]), *later]


def _wrapped_statements(
    groups: Sequence[Sequence[Any]], start: int, end: int, wraps: Sequence[tuple[int, int, str]], indent: str | None
) -> list[Any]:
    """Return the statements from ``start`` up to ``end``, those of each wrap inside a ``with``; wraps may nest."""
    statements: list[Any] = []
    position = start
    for number, (first, last, text) in enumerate(wraps):
        if first < position:
            continue  # inside one that is already written
        inner_wraps = [wrap for wrap in wraps[number + 1 :] if wrap[1] <= last]
        statements += [statement for group in groups[position:first] for statement in group]
        statements.append(_with_block(text, _wrapped_statements(groups, first, last + 1, inner_wraps, indent), indent))
        position = last + 1
    return [*statements, *(statement for group in groups[position:end] for statement in group)]


def _with_block(text: str, body: Sequence[Any], indent: str | None) -> cst.With:
    head = f"with {text}:"
    if len(head) > LONGEST_LINE:
        name, _, value = text.partition("(")
        head = f"with {name}(\n    {value[:-1]}\n):"
    block = cst.parse_statement(f"{head}\n    pass\n")
    assert isinstance(block, cst.With)  # noqa: S101 - that is how it is written
    inside = [body[0].with_changes(leading_lines=[]), *body[1:]]
    return block.with_changes(leading_lines=body[0].leading_lines, body=cst.IndentedBlock(inside, indent=indent))
