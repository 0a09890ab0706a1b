"""Where in the user's program a line stands."""

from __future__ import annotations

import ast
import functools
import linecache

from regional_explorer.record.graph import SourceLine


def source_line(file: str, line: int, function: str, text: str | None = None) -> SourceLine:
    """Return the line with its text, and the line of the ``def`` around it."""
    shown = linecache.getline(file, line) if text is None else text
    return SourceLine(file, line, function, shown.strip(), def_line(file, line))


def def_line(file: str, line: int) -> int:
    """Return the line of the ``def`` of the innermost function around ``line``, or 0 if the source is gone."""
    return max((start for start, end in _functions(file) if start <= line <= end), default=0)


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> tuple[tuple[int, int], ...]:
    # linecache knows the cells of a notebook too, whose files are temporary names that exist nowhere.
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, kinds))
