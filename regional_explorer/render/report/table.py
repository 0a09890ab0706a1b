"""The table as a record (title, columns, rows of cells with tone and bar), from which text and HTML are made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: ``tone`` is good, bad, warn or quiet, ``region`` the index of the region it names.

    ``bar`` has the names and lengths of the parts of a bar; 1 is its full width.
    """

    text: str
    tone: str = ""
    region: int | None = None
    timing: Timing | None = None
    bar: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table. ``figures`` are the right-aligned columns; ``empty`` is shown if there are no rows.

    ``outdated`` is True if its figures are those of another plan; its title then says so.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    note: str = ""
    figures: frozenset[str] = frozenset()
    outdated: bool = False


def of_measured_plan(session: Session, table: Table) -> Table:
    """Return ``table``, a result of the last benchmark; marked as outdated if that measured another plan."""
    if not session.is_outdated or not table.rows:
        return table
    return replace(table, title=f"{table.title} of another plan", outdated=True)
