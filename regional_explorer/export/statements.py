"""The functions and statements of a source file with the marks around them, and edits of its lines."""

from __future__ import annotations

import ast
import functools
import io
import linecache
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regional_explorer.capture.swapped_functions import REGION_NAMES
from regional_explorer.errors import fresh_names
from regional_explorer.record.graph import SourceLine, is_library
from regional_explorer.torch_api.graphs import ANNOTATION

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
"""A function in Python's syntax tree."""


@dataclass(eq=False, repr=False)
class Mark:
    """A call in the source that marks a region: of ``annotate``, ``annotate_fn`` or ``rx.region``.

    ``value`` is the value that the mark gives to ``compile_with_inductor``. It is None if the mark must stay as it is;
    then ``stays`` says why.
    """

    call: ast.Call
    value: Any = None
    by_region: bool = False
    stays: str = "is computed, not written out"


@dataclass(eq=False, repr=False)
class Site:
    """A function or a statement that a mark can surround. Several statements on one line are one site.

    ``first`` and ``last`` are its lines. ``suite`` has the statements of its block in order, itself among them; for a
    function, only itself. ``above`` is the compound statement around it, if any. ``body`` has the statements in its
    blocks, ``ops`` the origins of all ops that it computes. ``scope`` is a function's name after the names of the
    classes and functions around it; it is empty for a statement.

    ``plain`` says whether a mark fits. A mark must not be open while a generator waits, so no statement with a
    ``yield`` is plain. Three kinds of function are not plain either: a generator; an ``async`` function, whose body
    runs after a decorator has returned; and a nested function, whose decorator Dynamo would have to trace.
    """

    file: SourceFile
    node: Any
    first: int
    last: int
    suite: list[Site]
    plain: bool
    above: Site | None = None
    scope: str = ""
    mark: Mark | None = None
    body: list[Site] = field(default_factory=list)
    ops: set[int] = field(default_factory=set)
    function: Site = field(init=False)

    @property
    def loops(self) -> list[Site]:
        """The ``for`` loops around the site in its function, outermost first."""
        outer = self.above
        if outer is None:
            return []
        return [*outer.loops, outer] if isinstance(outer.node, ast.For) else outer.loops

    def until(self, last: Site) -> Sequence[Site]:
        """Return the statements of the block from this statement to ``last``."""
        return self.suite[self.suite.index(self) : self.suite.index(last) + 1]


class SourceFile:
    """A parsed file. ``cell`` says whether it is a cell of a notebook, which is not a file on disk.

    Raises:
        OSError, ValueError: the file cannot be read, or is not Python.
    """

    def __init__(self, path: str) -> None:
        self.path, self.library = path, is_library(path)
        self.cell = not Path(path).is_file()
        try:
            content = "".join(linecache.getlines(path)).encode() if self.cell else Path(path).read_bytes()
            if self.cell and not content:
                raise FileNotFoundError(path)
            self.encoding = "utf-8" if self.cell else tokenize.detect_encoding(io.BytesIO(content).readline)[0]
            self.text = content.decode(self.encoding)
            self.lines = ["", *split_lines(self.text)]  # the first line has number 1
            self.tree = ast.parse(self.text)
            self.sites: list[Site] = []
            self.functions = list(self._functions_in(self.tree))
        except (SyntaxError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path}: {error}") from error

    def sites_of(self, line: SourceLine) -> list[Site]:
        """Return the innermost function of that name around a line, and its statements around it, outermost first."""
        named = (
            site
            for site in self.functions
            if site.scope.rpartition(".")[2] == line.function and site.first <= line.line <= site.last
        )
        function = max(named, key=lambda site: site.first, default=None)
        sites: list[Site] = []
        while function is not None:
            sites.append(function)
            function = next((site for site in function.body if site.first <= line.line <= site.last), None)
        return sites

    def _functions_in(self, node: ast.AST, scope: str = "", *, nested: bool = False) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FunctionNode):
                inner_scope = f"{scope}.{child.name}".lstrip(".")
                yield self._function(child, inner_scope, nested=nested)
                yield from self._functions_in(child, inner_scope, nested=True)
            elif isinstance(child, ast.ClassDef):
                yield from self._functions_in(child, f"{scope}.{child.name}".lstrip("."), nested=nested)
            else:
                yield from self._functions_in(child, scope, nested=nested)

    def _function(self, node: FunctionNode, scope: str, *, nested: bool) -> Site:
        plain = not nested and isinstance(node, ast.FunctionDef) and not any(map(_yields, node.body))
        function = Site(self, node, node.lineno, node.end_lineno or node.lineno, [], plain, scope=scope)
        self.sites.append(function)
        function.suite, function.function = [function], function
        function.mark = _first_mark(node.decorator_list)
        function.body = self._suite(node.body, function, None)
        return function

    def _suite(self, nodes: Sequence[ast.stmt], function: Site, above: Site | None) -> list[Site]:
        """Return the statements of a block; none if they are on the line of its header, where no mark fits."""
        suite: list[Site] = []
        for node in nodes:
            first, last = first_line(node), node.end_lineno or node.lineno
            if first == node.lineno and self.lines[first].encode()[: node.col_offset].strip():  # not first on its line
                if not suite:
                    return []
                suite[-1].last, suite[-1].plain = last, suite[-1].plain and not _yields(node)
                continue
            site = Site(self, node, first, last, suite, not _yields(node), above)
            self.sites.append(site)
            site.function = function
            if isinstance(node, ast.With):
                site.mark = _first_mark(item.context_expr for item in node.items)
            site.body = [inner for block in self._blocks(node) for inner in self._suite(block, function, site)]
            suite.append(site)
        return suite

    def _blocks(self, node: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
        """Yield the blocks of a compound statement, including those of ``else``, ``except`` and ``case``."""
        if isinstance(node, (FunctionNode, ast.ClassDef)):
            return
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, [])
            if name == "orelse" and block and self.lines[block[0].lineno][block[0].col_offset :].startswith("elif"):
                yield from self._blocks(block[0])
            else:
                yield block
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield part.body


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends, as Python counts them: a form feed does not end a line."""
    return io.StringIO(text, newline="").readlines()


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, its decorators included."""
    decorators = node.decorator_list if isinstance(node, (FunctionNode, ast.ClassDef)) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _yields(node: ast.AST) -> bool:
    """Return whether a function's own code has a ``yield`` in ``node``, nested functions excluded."""
    if isinstance(node, (FunctionNode, ast.Lambda, ast.ClassDef)):
        return False
    return isinstance(node, (ast.Yield, ast.YieldFrom)) or any(map(_yields, ast.iter_child_nodes(node)))


def _first_mark(nodes: Iterable[ast.expr]) -> Mark | None:
    return next((mark for mark in map(_region_mark, nodes) if mark is not None), None)


def _region_mark(node: ast.expr) -> Mark | None:
    """Return the region mark that an item of a ``with`` or a decorator makes, or None."""
    if not isinstance(node, ast.Call) or not (node.args or node.keywords):
        return None
    name = ast.unparse(node.func)
    by_region = name in REGION_NAMES
    if not by_region and name.rpartition(".")[2] not in ("annotate", "annotate_fn"):
        return None
    configs: dict[str, Any] = {}
    try:
        argument = ast.literal_eval(first_argument(node))
        for keyword in node.keywords if by_region else ():
            value = ast.literal_eval(keyword.value)
            configs.update(value if keyword.arg is None else {keyword.arg: value})
    except (ValueError, TypeError):
        return Mark(node, by_region=by_region)
    if by_region:
        has_presets = len(node.args) > 1
        return Mark(
            node, None if has_presets else {"inductor_region": argument, "inductor_configs": configs}, by_region
        )
    if not isinstance(argument, Mapping) or ANNOTATION not in argument:
        return None
    return Mark(node, argument[ANNOTATION]) if len(argument) == 1 else Mark(node, stays="has other annotations, too")


def first_argument(call: ast.Call) -> ast.expr:
    """Return the first argument of a call, by position or by keyword."""
    return call.args[0] if call.args else call.keywords[0].value


# ------------------------------------------------------------------------------------------------------------ the edits

LONGEST_LINE = 100
"""The maximum length of a mark's line; a longer mark is split over several lines."""

Position = tuple[int, int]
"""A line and a column, counted in bytes of UTF-8 as Python's syntax trees do."""


class LineEdits:
    """Changes of the lines of a file; all other bytes stay as they are."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._spans: list[tuple[Position, Position, str]] = []
        self._wraps: list[tuple[Site, Site, str]] = []
        self._unmarked: list[Site] = []
        self._indices: dict[Site, str] = {}
        self._lines = list(file.lines)
        self._above: dict[int, list[str]] = defaultdict(list)
        self._newline = (re.findall(r"\r\n|\r|\n", file.text) or ["\n"])[0]

    def wrap(self, first: Site, last: Site, manager: str) -> None:
        """Put statements of one block inside ``with manager:``."""
        self._wraps.append((first, last, manager))

    def decorate(self, function: Site, decorator: str) -> None:
        """Add a decorator next to the ``def``, inside all others."""
        margin = _margin(self._lines[function.first])
        self._above[function.first].append(f"{margin}@{decorator}{self._newline}")

    def unmark(self, site: Site) -> None:
        """Remove the mark of a statement or function, with comments on its lines."""
        if isinstance(site.node, ast.With) and not site.body:  # the body is on the line of the header
            self._spans.append((start_of(site.node), start_of(site.node.body[0]), ""))
        else:
            self._unmarked.append(site)

    def replace(self, node: ast.expr, text: str) -> None:
        """Replace the text of an expression."""
        self._spans.append((start_of(node), end_of(node), text))

    def index_of(self, loop: Site) -> str:
        """Return the index variable of a ``for`` loop; a loop without an index gets one by ``enumerate``."""
        node = loop.node
        if (counter := _loop_counter(node)) is not None:
            return counter
        if loop not in self._indices:
            used = {
                *re.findall(r"\w+", ast.get_source_segment(self._file.text, loop.function.node) or ""),
                *self._indices.values(),
            }
            name = self._indices[loop] = next(fresh_names("index", used))
            self.replace(node.target, f"{name}, {ast.unparse(node.target)}")  # with the parentheses of a tuple
            opened, closed = ("((", "))") if isinstance(node.iter, ast.Tuple) else ("(", ")")
            self._spans.append((start_of(node.iter), start_of(node.iter), f"enumerate{opened}"))
            self._spans.append((end_of(node.iter), end_of(node.iter), closed))
        return self._indices[loop]

    def add_import(self, module: str) -> None:
        """Import a module, after the first imports or the docstring."""
        position = first_line(self._file.tree.body[0])
        for number, node in enumerate(self._file.tree.body):
            docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not docstring and not isinstance(node, (ast.Import, ast.ImportFrom)):
                break
            position = (node.end_lineno or node.lineno) + 1
        self._above[position].insert(0, f"import {module}{self._newline}")

    def text(self) -> str:
        """Return the text of the file with all edits. Call it once."""
        for start, end, new in sorted(self._spans, reverse=True):
            self._replace_span(start, end, new)
        for wrap in sorted(self._wraps, key=lambda wrap: wrap[1].last - wrap[0].first):  # inner blocks first
            self._wrap_lines(*wrap)
        for site in self._unmarked:
            self._remove_mark(site)
        return "".join(line for number, own in enumerate(self._lines) for line in (*self._above[number], own))

    def _replace_span(self, start: Position, end: Position, new: str) -> None:
        (first, start_column), (last, end_column) = start, end
        before = self._lines[first].encode()[:start_column].decode()
        after = self._lines[last].encode()[end_column:].decode()
        self._lines[first] = f"{before}{new}{after}"
        self._lines[first + 1 : last + 1] = [""] * (last - first)

    def _wrap_lines(self, first: Site, last: Site, manager: str) -> None:
        margin = _margin((self._above[first.first] or [self._lines[first.first]])[0])
        unit = self._indent(first)

        def deeper(line: str) -> str:
            start = len(margin) if line.startswith(margin) else 0
            return f"{line[:start]}{unit}{line[start:]}" if line.strip() else line

        self._change_lines(first.first, last.last, deeper)
        head = [f"with {manager}:"]
        if len(head[0]) > LONGEST_LINE:
            name, _, value = manager.partition("(")
            head = [f"with {name}(", f"{unit}{value[:-1]}", "):"]
        self._above[first.first][:0] = [f"{margin}{line}{self._newline}" for line in head]

    def _indent(self, site: Site) -> str:
        """Return the text by which the block of ``site`` is indented."""
        lines, outer = self._file.lines, site.above or site.function
        return _margin(lines[site.suite[0].first]).removeprefix(_margin(lines[outer.first])) or "    "

    def _change_lines(self, first: int, last: int, change: Callable[[str], str]) -> None:
        for number in range(first, last + 1):
            self._above[number] = list(map(change, self._above[number]))
            if number not in self._fixed_lines:
                self._lines[number] = change(self._lines[number])

    @functools.cached_property
    def _fixed_lines(self) -> set[int]:
        """The lines that begin inside a string literal: indenting them would change the string."""
        fixed: set[int] = set()
        nodes: list[ast.AST] = [self._file.tree]
        while nodes:
            node = nodes.pop()
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
            ):
                fixed.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
            else:
                nodes += ast.iter_child_nodes(node)
        return fixed

    def _remove_mark(self, site: Site) -> None:
        """Remove the lines of a mark, and dedent the body of its ``with``."""
        assert site.mark is not None  # noqa: S101 - the mark to remove
        first, last = site.mark.call.lineno, site.mark.call.end_lineno or 0
        if isinstance(site.node, ast.With):
            first, last = site.first, self._colon_line(site.node)
            margin, unit = _margin(self._lines[first]), self._indent(site.body[0])

            def shallower(line: str) -> str:
                return margin + line.removeprefix(margin + unit) if line.startswith(margin + unit) else line

            self._change_lines(last + 1, site.last, shallower)
        self._lines[first : last + 1] = [""] * (last + 1 - first)

    def _colon_line(self, node: ast.With) -> int:
        """Return the line of the colon that ends the header of a ``with``."""
        number, column = end_of(node.items[-1].optional_vars or node.items[-1].context_expr)
        rest = self._file.lines[number].encode()[column:].decode()
        while ":" not in rest.partition("#")[0]:
            number += 1
            rest = self._file.lines[number]
        return number


def start_of(node: ast.expr | ast.stmt) -> Position:
    """Return where a node begins."""
    return node.lineno, node.col_offset


def end_of(node: ast.expr | ast.stmt) -> Position:
    """Return where a node ends."""
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _loop_counter(loop: ast.For) -> str | None:
    """Return the index variable that a loop already has, by ``range`` or ``enumerate``; None if it has none."""
    kind = ast.unparse(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    target = loop.target
    if kind == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    elif kind != "range":
        return None
    stored = (
        node.id
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return target.id if isinstance(target, ast.Name) and target.id not in stored else None


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t\f"))]
