"""A table before it becomes text or HTML."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: ``tone`` is good, bad, warn or quiet, ``region`` the index of the region it names.

    ``bar`` has the parts of a bar, by name, as shares of its full length.
    """

    text: str
    tone: str = ""
    region: int | None = None
    timing: Timing | None = None
    bar: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table. ``figures`` are the columns set flush right; ``empty`` stands where there is no row.

    ``outdated`` says that its figures are those of another plan, which the title says.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    note: str = ""
    figures: frozenset[str] = frozenset()
    outdated: bool = False


def of_measured_plan(session: Session, table: Table) -> Table:
    """Return a table of what the last benchmark found, under a title that says so where it measured another plan."""
    if not session.is_outdated or not table.rows:
        return table
    return replace(table, title=f"{table.title} of another plan", outdated=True)
