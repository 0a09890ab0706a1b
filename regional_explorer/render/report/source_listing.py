"""Lists the user's source as it ran: files, the functions in them as blocks of lines, and the nodes of each line."""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regional_explorer.record.graph import Role, SourceLine, is_cell, is_library
from regional_explorer.record.session import Session
from regional_explorer.render.style.untrusted import LONG, SHORT, clean, clean_page, sendable


@dataclass(frozen=True, slots=True)
class _Block:
    """A function: its lines in a file, and its qualified name."""

    file: str
    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it is shown, with its ``own`` nodes as ``graph:name``; ``passing`` adds those of functions it calls."""

    number: int
    text: str
    own: tuple[str, ...]
    passing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function as it is shown; ``library`` is True if the user did not write it."""

    name: str
    file: str
    library: bool
    lines: tuple[Line, ...]


class _File:
    """One source file as it is now; of a file that changed since the trace, only the lines in the trace are shown."""

    def __init__(self, path: str, seen: Iterable[SourceLine]) -> None:
        self.path = path
        self.lines = _lines(path)
        self.known: dict[int, str] = {}
        self.of_function: dict[str, list[int]] = {}
        for line in seen:
            self.known[line.line] = line.text
            self.of_function.setdefault(line.function, []).append(line.line)
        self.changed = any(
            number > len(self.lines) or (text.strip() and text.strip() != self.lines[number - 1].strip())
            for number, text in self.known.items()
        )
        self.blocks = [] if self.changed else [_Block(path, *found) for found in _functions("\n".join(self.lines))]

    def block(self, line: SourceLine) -> _Block:
        """Return the innermost function around a line; without the file, the range of its known lines."""
        around = [block for block in self.blocks if block.first <= line.line <= block.last]
        if around:
            return max(around, key=lambda block: block.first)
        known = self.of_function[line.function]
        return _Block(self.path, line.function, min(known), max(known))

    def text(self, block: _Block) -> list[str]:
        """Return the lines of a function, without the indent that all of them share."""
        numbers = range(block.first, block.last + 1)
        lines = [self.known.get(number, "…") if self.changed else self.lines[number - 1] for number in numbers]
        return textwrap.dedent("\n".join(line.expandtabs(4) for line in lines)).split("\n")


def _lines(path: str) -> list[str]:
    try:
        return [line.rstrip("\n") for line in linecache.getlines(path)]
    except ValueError:  # not a valid file name
        return []


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> tuple[tuple[str, int, int], ...]:
    """Return name, first and last line of every function."""
    # Magics and shell commands in notebook cells are not Python: they are not parsed.
    lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n"))
    try:
        return tuple(_inside(ast.parse("\n".join(lines)), ""))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def _inside(tree: ast.AST, name: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(tree):
        whole = name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            whole = f"{name}.{node.name}" if name else node.name
            if not isinstance(node, ast.ClassDef):
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                yield whole, first, node.end_lineno or node.lineno
        yield from _inside(node, whole)


def listing(session: Session) -> tuple[Function, ...]:
    """Return the functions that the nodes of ``session`` come from, each line with its nodes."""
    nodes = [(g.id, node) for g in session.graphs for node in g.nodes if node.role is Role.OP and node.stack]
    seen: dict[str, dict[SourceLine, None]] = {}
    for _, node in nodes:
        for line in node.stack:
            seen.setdefault(line.file, {})[line] = None
    files = {path: _File(path, lines) for path, lines in seen.items()}
    block_of = {line: files[path].block(line) for path, lines in seen.items() for line in lines}
    own: dict[tuple[_Block, int], list[str]] = {}
    passing: dict[_Block, dict[int, list[str]]] = {}
    for graph, node in nodes:
        name = sendable(f"{graph}:{node.name}")
        own.setdefault((block_of[node.stack[-1]], node.stack[-1].line), []).append(name)
        for block, row in {(block_of[line], line.line): None for line in node.stack}:
            passing.setdefault(block, {}).setdefault(row, []).append(name)
    return tuple(
        Function(
            name=clean(block.name, SHORT),
            file="cell" if is_cell(block.file) else clean(block.file.rsplit("/", 1)[-1], 2 * SHORT),
            library=is_library(block.file),
            lines=tuple(
                Line(row, _one_line(text), tuple(own.get((block, row), ())), tuple(rows.get(row, ())))
                for row, text in enumerate(files[block.file].text(block), block.first)
            ),
        )
        for block, rows in passing.items()
    )


def _one_line(text: str) -> str:
    return clean_page(text, LONG).replace("\n", "")
