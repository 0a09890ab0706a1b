"""Line selectors: ``function:3-7``, counted from the function's ``def``, ``file.py:10-20``, or only ``10-20``.

Without a place, the numbers are lines of the user's file, as in the source beside the graph.
If several functions have the same name, as every ``forward`` has, ``Class.forward:3-7`` picks one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from regional_explorer.errors import SelectorError
from regional_explorer.record.graph import SourceLine


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines ``first`` to ``last`` of ``place``: a file, or a function (its ``def`` is line 1); if empty, any file."""

    place: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> LineRange:
        """Parse ``place:3``, ``place:3-7`` or only the numbers.

        Raises:
            SelectorError: the text does not have that form.
        """
        match = re.fullmatch(r"\s*(?:(.+?)\s*:)?\s*(\d+)(?:\s*-\s*(\d+))?\s*", text)
        if match is None:
            raise SelectorError(
                f"lines={text!r} is not a line range. Write function:3-7 (counted from its def), file.py:10-20, "
                "or only 10-20."
            )
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first:
            place = f"{match[1]}:" if match[1] else ""
            raise SelectorError(f"lines={text!r} ends before it begins. Did you mean {place}{last}-{first}?")
        return cls(match[1] or "", first, last)

    def __str__(self) -> str:
        """Return the line numbers only, ``3`` or ``3-7``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def contains(self, line: SourceLine) -> bool:
        """Return whether ``line`` is in the range."""
        if not self.place:
            return self.first <= line.line <= self.last and not line.in_library
        if self.place.endswith(".py"):
            return _is_same_file(line.file, self.place) and self.first <= line.line <= self.last
        scope = f".{line.scope or line.function}"
        if self.place != line.function and not scope.endswith(f".{self.place}"):
            return False
        return line.def_line > 0 and self.first <= line.line - line.def_line + 1 <= self.last


def _is_same_file(file: str, place: str) -> bool:
    return file == place or file.endswith("/" + place.lstrip("/"))
