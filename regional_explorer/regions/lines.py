"""Line selectors: ``function:3-7``, counted from the function's ``def``, or ``file.py:10-20``."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from dataclasses import dataclass

from regional_explorer.errors import SelectorError
from regional_explorer.record.graph import SourceLine


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines ``first`` to ``last`` of a file, or of a function whose ``def`` is line 1."""

    place: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> LineRange:
        """Read ``place:3`` or ``place:3-7``.

        Raises:
            SelectorError: the text is not of that form.
        """
        match = re.fullmatch(r"\s*(.+?):(\d+)(?:-(\d+))?\s*", text)
        if match is None:
            raise SelectorError(
                f"lines={text!r} is not a line range. Write function:3-7 (counted from its def) or file.py:10-20."
            )
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first:
            raise SelectorError(f"lines={text!r} ends before it begins. Did you mean {match[1]}:{last}-{first}?")
        return cls(match[1], first, last)

    def holds(self, line: SourceLine) -> bool:
        """Tell whether ``line`` is in the range."""
        if self.place.endswith(".py"):
            return _is_file(line.file, self.place) and self.first <= line.line <= self.last
        if self.place not in (line.function, line.function.rsplit(".", 1)[-1]):
            return False
        start = first_line(line.file, line.line)
        return start is not None and self.first <= line.line - start + 1 <= self.last


def _is_file(file: str, wanted: str) -> bool:
    return file == wanted or file.endswith("/" + wanted.lstrip("/"))


def first_line(file: str, line: int) -> int | None:
    """Return the line of the ``def`` of the innermost function around ``line``, or None if the source is gone."""
    starts = [start for start, end in _functions(file) if start <= line <= end]
    return max(starts) if starts else None


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> tuple[tuple[int, int], ...]:
    # linecache knows the cells of a notebook too, whose files are temporary names that exist nowhere.
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
