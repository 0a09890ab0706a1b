"""Line selectors: ``function:3-7``, counted from the function's ``def``, ``file.py:10-20``, or ``10-20`` alone.

Numbers alone are lines of the user's file, as the source beside the graph numbers them.
Where several functions have one name, as every ``forward`` does, ``Class.forward:3-7`` picks one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from regional_explorer.errors import SelectorError
from regional_explorer.record.graph import SourceLine


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines ``first`` to ``last`` of a file, of a function whose ``def`` is line 1, or without ``place`` of any."""

    place: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> LineRange:
        """Read ``place:3``, ``place:3-7`` or the numbers alone.

        Raises:
            SelectorError: the text is not of that form.
        """
        match = re.fullmatch(r"\s*(?:(.+?)\s*:)?\s*(\d+)(?:\s*-\s*(\d+))?\s*", text)
        if match is None:
            raise SelectorError(
                f"lines={text!r} is not a line range. Write function:3-7 (counted from its def), file.py:10-20, "
                "or 10-20 alone."
            )
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first:
            place = f"{match[1]}:" if match[1] else ""
            raise SelectorError(f"lines={text!r} ends before it begins. Did you mean {place}{last}-{first}?")
        return cls(match[1] or "", first, last)

    def __str__(self) -> str:
        """Return the lines alone, ``3`` or ``3-7``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def holds(self, line: SourceLine) -> bool:
        """Return whether ``line`` is in the range."""
        if not self.place:
            return self.first <= line.line <= self.last and not line.in_library
        if self.place.endswith(".py"):
            return _is_file(line.file, self.place) and self.first <= line.line <= self.last
        scope = f".{line.scope or line.function}"
        if self.place != line.function and not scope.endswith(f".{self.place}"):
            return False
        return line.def_line > 0 and self.first <= line.line - line.def_line + 1 <= self.last


def _is_file(file: str, wanted: str) -> bool:
    return file == wanted or file.endswith("/" + wanted.lstrip("/"))
