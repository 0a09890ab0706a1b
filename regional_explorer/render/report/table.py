"""A table before it becomes text or HTML."""

from __future__ import annotations

from dataclasses import dataclass

from regional_explorer.record.timing import Timing


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: ``tone`` is good, bad, warn or quiet, ``region`` the index of the region it names."""

    text: str
    tone: str = ""
    region: int | None = None
    timing: Timing | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table. ``figures`` are the columns set flush right; ``empty`` stands where there is no row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    note: str = ""
    figures: frozenset[str] = frozenset()
