"""A table as text and as elements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing
from regional_explorer.style.css import paint, toned
from regional_explorer.style.element import Node, node
from regional_explorer.tables.chart import Scale, bar, whisker


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


FEW_ROWS = 5
"""A table with more rows is folded, unless it has a bad cell or a warning."""


def table_nodes(table: Table, *, regions: Session | None = None, titled: bool = True) -> list[Node]:
    """Return title, rows and notes of ``table``; ``regions`` is the session whose regions are named in it."""
    title = [node("h4", table.title)] if titled else []
    if not table.rows:
        return [*title, node("p", table.empty, class_="rx-empty")]
    scale = Scale.of(cell.timing for row in table.rows for cell in row if cell.timing)
    region_count = len(regions.plan.regions) if regions else 0
    classes = ["rx-figure" if column in table.figures else None for column in table.columns]
    head = (node("th", column, class_=class_) for column, class_ in zip(table.columns, classes, strict=True))
    rows = (
        node("tr", *(_cell_node(cell, class_, scale, region_count) for cell, class_ in zip(row, classes, strict=True)))
        for row in table.rows
    )
    drawn = node("table", node("thead", node("tr", *head)), node("tbody", *rows))
    notes = (node("p", line, class_="rx-note") for line in table.note.splitlines())
    return [*title, node("div", drawn, class_="rx-wide rx-outdated" if table.outdated else "rx-wide"), *notes]


def folded_table(table: Table, regions: Session) -> list[Node]:
    """Return ``table`` in a fold, which is open if the table is short, or has a bad cell or a warning."""
    if not table.rows:
        return table_nodes(table, regions=regions)
    bad = any(cell.tone in {"bad", "warn"} for row in table.rows for cell in row)
    inside = table_nodes(table, regions=regions, titled=False)
    return [node("details", node("summary", table.title), *inside, open=bad or len(table.rows) <= FEW_ROWS)]


def chip(region: int, **attributes: object) -> Node:
    """Return the letter of a region on its colour."""
    return node("span", paint(region).letter, class_=f"rx-chip rx-r{region}", **attributes)


def _cell_node(cell: Cell, class_: str | None, scale: Scale, region_count: int) -> Node:
    if cell.timing:
        return node("td", whisker(cell.timing, scale), class_=class_)
    if cell.bar:
        return node("td", bar(cell.bar), class_=class_)
    text = toned(cell.text, cell.tone) if cell.tone or isinstance(cell.text, State) else cell.text
    if cell.region is not None and cell.region < region_count:
        return node("td", chip(cell.region), " ", text, class_=class_)
    return node("td", text, class_=class_)
