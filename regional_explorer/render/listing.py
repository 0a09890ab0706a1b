"""The user's source as it ran: the functions in the stacks of nodes, with the nodes and regions of every line."""

from __future__ import annotations

import ast
import linecache
import textwrap
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regional_explorer.record.graph import Role, SourceLine
from regional_explorer.record.session import Session
from regional_explorer.render.palette import paint
from regional_explorer.render.style import page_css
from regional_explorer.render.untrusted import LONG, SHORT, clean, clean_page, sendable

LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")
"""Parts of paths that tell a library from what the user wrote."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A function: where it stands, and its name with those of the classes and functions around it."""

    file: str
    name: str
    first: int
    last: int


class _File:
    """One file as it is now; what does not agree with the trace is not shown."""

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
        self.blocks = [] if self.changed else [_Block(path, *found) for found in _functions(self.lines)]

    def block(self, line: SourceLine) -> _Block:
        """Return the innermost function around a line; without the file, the lines known of that function."""
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
    except ValueError:  # a name that no file can have
        return []


def _functions(lines: list[str]) -> list[tuple[str, int, int]]:
    """Return name, first and last line of every function."""
    # A cell of a notebook may hold a magic, which is no Python: it is left out of what is parsed.
    text = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)
    try:
        return list(_inside(ast.parse(text), ""))
    except (SyntaxError, ValueError, RecursionError):
        return []


def _inside(tree: ast.AST, name: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(tree):
        whole = name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            whole = f"{name}.{node.name}" if name else node.name
            if not isinstance(node, ast.ClassDef):
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                yield whole, first, node.end_lineno or node.lineno
        yield from _inside(node, whole)


def listing(session: Session) -> dict[str, Any]:
    """Return the functions with their lines, and which nodes pass through which line.

    ``passes`` holds four numbers for each: function, line within it, node, and 1 where it is the node's own line
    rather than one that calls it.
    """
    nodes = [(g.id, node) for g in session.graphs for node in g.nodes if node.role is Role.OP and node.stack]
    seen: dict[str, dict[SourceLine, None]] = {}
    for _, node in nodes:
        for line in node.stack:
            seen.setdefault(line.file, {})[line] = None
    files = {path: _File(path, lines) for path, lines in seen.items()}
    block_of = {line: files[path].block(line) for path, lines in seen.items() for line in lines}
    number: dict[_Block, int] = {}
    passes = array("I")
    for place, (_, node) in enumerate(nodes):
        own = node.stack[-1]
        for block, row in {(block_of[line], line.line): None for line in node.stack}:
            at = number.setdefault(block, len(number))
            passes.extend((at, row - block.first, place, (block, row) == (block_of[own], own.line)))
    regions = _regions(session)
    paints = [paint(place) for place in range(len(session.plan.regions))]
    return {
        "functions": [_facts(block, files[block.file]) for block in number],
        "passes": passes.tobytes(),
        "ids": [sendable(f"{graph}:{node.name}") for graph, node in nodes],
        "node_regions": array("i", (regions.get((graph, node.name), -1) for graph, node in nodes)).tobytes(),
        "regions": [
            [clean(region.name, SHORT), colours.letter]
            for region, colours in zip(session.plan.regions, paints, strict=True)
        ],
        "style": page_css(paints),
    }


def _facts(block: _Block, file: _File) -> dict[str, Any]:
    return {
        "name": clean(block.name, SHORT),
        "file": clean(block.file.rsplit("/", 1)[-1], 2 * SHORT),
        "first": block.first,
        "library": any(part in block.file for part in LIBRARIES),
        "lines": [clean_page(line, LONG).replace("\n", "") for line in file.text(block)],
    }


def _regions(session: Session) -> Mapping[tuple[str, str], int]:
    return {
        (graph, name): place
        for place, region in enumerate(session.plan.regions)
        for graph, names in session.members.get(region.name, {}).items()
        for name in names
    }
