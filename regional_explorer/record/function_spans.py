"""The functions in a Python text: their lines and qualified names."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import NamedTuple


class FunctionSpan(NamedTuple):
    """The lines of a function or lambda."""

    first: int
    """Its first line, decorators included."""
    def_line: int
    """The line of its ``def``."""
    last: int
    """Its last line."""
    name: str
    """Its full name."""


@functools.lru_cache(maxsize=256)
def function_spans(text: str) -> tuple[FunctionSpan, ...]:
    """Return all functions in the text of a module or a notebook's cell, whose magics are left out."""
    # In Python a line may begin like a magic: with an operator.
    for source in (text, _without_magics(text)):
        try:
            return tuple(_spans_below(ast.parse(source), ""))
        except (SyntaxError, ValueError, RecursionError):
            continue
    return ()


def _without_magics(text: str) -> str:
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n"))


def _spans_below(tree: ast.AST, scope: str) -> Iterator[FunctionSpan]:
    for node in ast.iter_child_nodes(tree):
        name = scope
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            name = f"{scope}.{getattr(node, 'name', '<lambda>')}".lstrip(".")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            yield FunctionSpan(first, node.lineno, node.end_lineno or node.lineno, name)
        yield from _spans_below(node, name)
