"""A source file parsed into functions and statements with their marks."""

from __future__ import annotations

import ast
import itertools
import linecache
import re
import symtable
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from regional_explorer.errors import fresh_names
from regional_explorer.record.graph import SourceLine

REGION_KEY = "compile_with_inductor"
"""The key of the annotations that upstream's regional inductor reads."""


@dataclass(eq=False, repr=False)
class Mark:
    """A call in the source that marks a region: of ``annotate``, ``annotate_fn`` or ``rx.region``.

    ``value`` is the value it gives to ``compile_with_inductor``, None if that is not a literal.
    """

    call: cst.Call
    value: Any = None
    by_region: bool = False


@dataclass(eq=False, repr=False)
class Suite:
    """The statements of one indented block, in order, and the function they are in."""

    node: cst.IndentedBlock
    function: Function
    parent: Statement | None
    statements: list[Statement] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Statement:
    """One statement, or one line of several; ``mark`` is set for a ``with`` that marks a region.

    ``yields`` says that its function may wait there: a ``with`` around it would be open meanwhile.
    """

    node: Any
    first: int
    last: int
    suite: Suite
    mark: Mark | None = None
    suites: list[Suite] = field(default_factory=list)
    yields: bool = False

    @property
    def around(self) -> Iterator[Statement]:
        """The compound statements around this one in its function, innermost first."""
        statement = self.suite.parent
        while statement is not None:
            yield statement
            statement = statement.suite.parent


@dataclass(eq=False, repr=False)
class Function:
    """One function: its lines from the ``def`` on, and its body.

    ``plain`` says that a decorator can mark its whole body: it is neither a generator nor ``async``, whose bodies run
    after the decorator has returned, nor nested in another function, where Dynamo would have to trace the decorator.
    """

    node: Any
    name: str
    scope: str
    first: int
    last: int
    body: Suite
    plain: bool
    mark: Mark | None = None


class SourceFile:
    """A parsed file. ``cell`` says that it is a cell of a notebook, which is not a file on disk.

    Raises:
        OSError, ValueError: the file cannot be read, or is not Python.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.cell = not Path(path).is_file()
        if self.cell:
            lines = linecache.getlines(path)
            if not lines:
                raise FileNotFoundError(path)
            content: bytes | str = "".join(lines)
        else:
            content = Path(path).read_bytes()
        try:
            self.module: Any = cst.parse_module(content)
        except (cst.ParserSyntaxError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path}: {error}") from error
        self.text = self.module.code
        self._lines = re.split(r"\r\n|\r|\n", self.text)  # as Python counts them: a form feed ends no line
        self._positions: Mapping[Any, Any] = MetadataWrapper(self.module, unsafe_skip_copy=True).resolve(
            PositionProvider
        )
        self.functions = list(self._functions_in(self.module, ""))

    def is_unchanged(self, line: SourceLine) -> bool:
        """Return whether the line has the same text as when the call was traced."""
        current = self._lines[line.line - 1].strip() if 0 < line.line <= len(self._lines) else ""
        return current == line.text.strip()

    def has_other_torch(self, function: Function) -> bool:
        """Return whether ``torch`` is a variable of ``function``, or of one around it, that no import makes."""
        around = {(func.name, func.first) for func in self.functions if func.first <= function.first <= func.last}
        tables = [symtable.symtable(self.text.removeprefix("\ufeff"), self.path, "exec")]
        for table in tables:
            tables += table.get_children()
            if (table.get_name(), table.get_lineno()) in around and "torch" in table.get_identifiers():
                symbol = table.lookup("torch")
                if symbol.is_local() and not symbol.is_imported():
                    return True
        return False

    def path_to(self, line: SourceLine) -> tuple[Function | None, list[Statement]]:
        """Return the innermost function around the line, by its name, and its statements there, outermost first."""
        named = (func for func in self.functions if func.name == line.function and func.first <= line.line <= func.last)
        function = max(named, key=lambda func: func.first, default=None)
        path: list[Statement] = []
        suites = [function.body] if function is not None else []
        while suites:
            inside = [stmt for suite in suites for stmt in suite.statements if stmt.first <= line.line <= stmt.last]
            path += inside[:1]
            suites = inside[0].suites if inside else []
        return function, path

    def _functions_in(self, node: Any, scope: str, *, nested: bool = False) -> Iterator[Function]:
        for child in node.children:
            inner_scope, is_function = scope, isinstance(child, cst.FunctionDef)
            if isinstance(child, (cst.FunctionDef, cst.ClassDef)):
                inner_scope = f"{scope}.{child.name.value}".lstrip(".")
            if is_function:
                yield self._parsed_function(child, inner_scope, nested=nested)
            yield from self._functions_in(child, inner_scope, nested=nested or is_function)

    def _parsed_function(self, node: Any, scope: str, *, nested: bool) -> Function:
        position = self._positions[node]
        plain = not nested and node.asynchronous is None and not _yields(node.body)
        marks = (_region_mark(decorator.decorator) for decorator in node.decorators)
        mark = next((mark for mark in marks if mark is not None), None)
        function = Function(node, node.name.value, scope, position.start.line, position.end.line, None, plain, mark)  # type: ignore[arg-type]
        function.body = self._parsed_suite(node.body, function, None)
        return function

    def _parsed_suite(self, block: Any, function: Function, parent: Statement | None) -> Suite:
        """Return the statements of a block; none if they are on the line of its header, where no mark fits."""
        suite = Suite(block, function, parent)
        if not isinstance(block, cst.IndentedBlock):
            return suite
        for node in block.body:
            position = self._positions[node]
            statement = Statement(node, position.start.line, position.end.line, suite)
            statement.yields = not isinstance(node, (cst.FunctionDef, cst.ClassDef)) and _yields(node)
            if isinstance(node, cst.With):
                marks = (_region_mark(item.item) for item in node.items)
                statement.mark = next((mark for mark in marks if mark is not None), None)
            if not isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                statement.suites = [self._parsed_suite(inner, function, statement) for inner in _indented_blocks(node)]
            suite.statements.append(statement)
        return suite


def _indented_blocks(node: Any) -> Iterator[Any]:
    """Yield the indented blocks of a compound statement, including those of ``else``, ``except`` and ``case``."""
    for child in node.children:
        if isinstance(child, cst.IndentedBlock):
            yield child
        elif isinstance(
            child, (cst.If, cst.Else, cst.Finally, cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase)
        ):
            yield from _indented_blocks(child)


def _yields(body: Any) -> bool:
    """Return whether a function's own body has a ``yield``, nested functions excluded."""
    if isinstance(body, cst.Yield):
        return True
    return any(
        _yields(child) for child in body.children if not isinstance(child, (cst.FunctionDef, cst.Lambda, cst.ClassDef))
    )


def dotted_name(node: Any) -> str:
    """Return a dotted name as text, such as ``torch.fx.traceback.annotate``; empty for any other expression."""
    if isinstance(node, cst.Name):
        return str(node.value)
    if isinstance(node, cst.Attribute):
        outer = dotted_name(node.value)
        return f"{outer}.{node.attr.value}" if outer else ""
    return ""


def literal(node: Any) -> Any:
    """Return the value of a literal expression.

    Raises:
        ValueError: it is not a literal.
    """
    try:
        return ast.literal_eval(cst.Module(body=[]).code_for_node(node).strip())
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _region_mark(node: Any) -> Mark | None:
    """Return the region mark that an item of a ``with`` or a decorator makes, or None."""
    if not isinstance(node, cst.Call) or not node.args:
        return None
    name = dotted_name(node.func)
    if name.rpartition(".")[2] in ("annotate", "annotate_fn"):
        try:
            argument = literal(node.args[0].value)
        except ValueError:
            return Mark(node)
        return Mark(node, argument[REGION_KEY]) if isinstance(argument, Mapping) and REGION_KEY in argument else None
    if name in ("rx.region", "regional_explorer.region", "region"):
        return Mark(node, _region_value(node.args), by_region=True)
    return None


def _region_value(arguments: Sequence[Any]) -> Any:
    """Return the value that ``rx.region(…)`` annotates with these arguments, None if they are not literals."""
    configs: dict[str, Any] = {}
    name = None
    try:
        for argument in arguments:
            value = literal(argument.value)
            if argument.star == "**":
                configs.update(value)
            elif argument.keyword is not None:
                configs[argument.keyword.value] = value
            else:
                name = value
    except (ValueError, TypeError):
        return None
    return {"inductor_region": name, "inductor_configs": configs}


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


EVALUATED_ONCE = (
    *(cst.Return, cst.Expr, cst.Assign, cst.AnnAssign, cst.AugAssign),
    *(cst.Call, cst.Arg, cst.Attribute, cst.Subscript, cst.BinaryOperation, cst.UnaryOperation),
    *(cst.Tuple, cst.List, cst.Element),
)
"""Syntax that evaluates all its parts once, from left to right; a condition or a comprehension does not."""


def can_be_hoisted(statement: cst.CSTNode, call: cst.Call) -> bool:
    """Return whether a call can run before the rest of its statement: only names are evaluated before it."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) > 1:
        return False
    path = _path_to(statement.body[0], call)
    if path is None or not all(isinstance(holder, EVALUATED_ONCE) for holder in path[:-1]):
        return False
    return all(
        _is_trivial(part) for holder, inner in itertools.pairwise(path) for part in _evaluated_before(holder, inner)
    )


def _path_to(node: cst.CSTNode, target: cst.CSTNode) -> list[cst.CSTNode] | None:
    if node is target:
        return [node]
    for child in node.children:
        if (below := _path_to(child, target)) is not None:
            return [node, *below]
    return None


def _evaluated_before(holder: cst.CSTNode, inner: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Return the parts of an expression that are evaluated before one of its parts."""
    if isinstance(holder, (cst.Assign, cst.AnnAssign)):
        return ()  # the value comes first
    return itertools.takewhile(lambda child: child is not inner, holder.children)


def _is_trivial(node: cst.CSTNode) -> bool:
    """Return whether an expression computes nothing: a name, a number, an attribute of ``self`` or of a module."""
    computing = (cst.Call, cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.Subscript, cst.Await, cst.Yield)
    if isinstance(node, computing):
        return False
    if isinstance(node, cst.Attribute):
        base: Any = node
        while isinstance(base, cst.Attribute):
            base = base.value
        return isinstance(base, cst.Name) and base.value in ("self", "torch", "nn", "F")  # x.T is an op
    return all(_is_trivial(child) for child in node.children)


@dataclass(frozen=True)
class Hoisted:
    """A call as separate statements: its inputs, then the call; ``name`` is the variable for its result."""

    inputs: list[cst.SimpleStatementLine]
    call: cst.SimpleStatementLine
    name: cst.Name


def hoisted(call: cst.Call, module: str, used: Collection[str]) -> Hoisted:
    """Return ``call`` of the submodule ``module`` as statements, with variable names that are not in ``used``."""
    base = next((part for part in reversed(module.split(".")) if part.isidentifier()), "module")
    output = cst.Name(next(fresh_names(f"{base}_output", used)))
    inputs, arguments = [], []
    fresh = fresh_names(f"{base}_input", used)
    for argument in call.args:
        if _is_trivial(argument.value):
            arguments.append(argument)
            continue
        name = cst.Name(next(fresh))
        inputs.append(_assignment(name, argument.value))
        arguments.append(argument.with_changes(value=name))
    return Hoisted(inputs, _assignment(output, call.with_changes(args=arguments)), output)


def _assignment(name: cst.Name, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    bare = value.with_changes(lpar=[], rpar=[])  # parentheses of an expression that no longer needs them
    spans_lines = bool(value.lpar) and "\n" in cst.Module([]).code_for_node(value)
    keep_parens = isinstance(value, cst.GeneratorExp) or spans_lines
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(name)], value if keep_parens else bare)])
