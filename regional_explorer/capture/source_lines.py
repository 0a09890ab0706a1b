"""Looks up a line of the user's program and the function around it."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator

from regional_explorer.record.graph import SourceLine


def source_line(file: str, line: int, function: str, text: str | None = None) -> SourceLine:
    """Return the line with its text, and the function around it."""
    linecache.checkcache(file)  # edited since, under autoreload
    shown = linecache.getline(file, line) if text is None else text
    # linecache knows the cells of a notebook too, whose files are temporary names that exist nowhere.
    around = [found for found in _functions("".join(linecache.getlines(file))) if found[0] <= line <= found[1]]
    start, _, scope = max(around, default=(0, 0, ""))
    return SourceLine(file, line, function, shown.strip(), start, scope)


@functools.lru_cache(maxsize=256)
def _functions(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return first line, last line and name of every function of a module's text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    return tuple(_inside(tree, ""))


def _inside(tree: ast.AST, scope: str) -> Iterator[tuple[int, int, str]]:
    for node in ast.iter_child_nodes(tree):
        name = scope
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{scope}.{node.name}".lstrip(".")
        elif isinstance(node, ast.Lambda):
            name = f"{scope}.<lambda>".lstrip(".")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node.lineno, node.end_lineno or node.lineno, name
        yield from _inside(node, name)
