"""Splits generated code into sections: kernels, the calls of them, and the rest, which is folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.render.style.untrusted import clean_page

LONG_KERNEL = 80
"""A kernel of more lines is folded."""
LONGEST_LINE = 2_000
"""How many characters of one line are shown at most."""

_CALLS_START = re.compile(r"\s*(class Runner|def call\(|async_compile\.wait)")
_HARNESS_START = re.compile(r"def (get_args|benchmark_compiled_module)\(|if __name__ ==")


@dataclass(frozen=True, slots=True)
class CodeSection:
    """Lines ``first`` to ``last`` of the code, counted from 1; ``kernels`` are the numbers of those defined in it.

    ``language`` is that of its lines, as Pygments names it.
    """

    title: str
    first: int
    last: int
    folded: bool
    kernels: tuple[int, ...] = ()
    language: str = "python"

    @property
    def lines(self) -> int:
        """How many lines the section has."""
        return self.last - self.first + 1


def sections(code: ArtifactCode) -> tuple[CodeSection, ...]:
    """Return the sections of ``code``, in order, every line in one of them."""
    lines = code.text.splitlines()
    return tuple(section for section in _split_sections(code, lines) if section.lines > 0)


def shown_lines(lines: Iterable[str]) -> list[str]:
    """Return lines of code cleaned and cut one by one, so that each stays one line."""
    return [clean_page(line, LONGEST_LINE).replace("\n", " ") for line in lines]


def _split_sections(code: ArtifactCode, lines: list[str]) -> Iterator[CodeSection]:
    numbers_by_span: dict[tuple[int, int], list[int]] = {}
    for number, kernel in enumerate(code.kernels, 1):
        if kernel.defined is not None:
            numbers_by_span.setdefault(kernel.defined, []).append(number)
    end = 0
    for (first, last), numbers in sorted(numbers_by_span.items()):
        if not end or first > end + 1:
            yield CodeSection("Imports and settings" if not end else "Between kernels", end + 1, first - 1, folded=True)
        name, language = code.kernels[numbers[0] - 1].name, "cpp" if code.language == "C++" else "python"
        yield CodeSection(name, first, last, last - first >= LONG_KERNEL, tuple(numbers), language)
        end = last
    calls = _first_match(_CALLS_START, lines, end)
    yield CodeSection("Between kernels" if end else "Imports and settings", end + 1, calls, folded=True)
    harness = _first_match(_HARNESS_START, lines, calls)
    yield CodeSection("The calls, in order", calls + 1, harness, folded=False)
    yield CodeSection("Inductor's own benchmark", harness + 1, len(lines), folded=True)


def _first_match(pattern: re.Pattern[str], lines: list[str], start: int) -> int:
    """Return the index of the first matching line from ``start`` on; the number of lines if there is none."""
    return next((index for index in range(start, len(lines)) if pattern.match(lines[index])), len(lines))
