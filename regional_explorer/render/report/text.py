"""A session as plain text for a terminal: tables with padded columns and wrapped lines."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Sequence

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.session import Session
from regional_explorer.render.report.compile_tables import compile_tables
from regional_explorer.render.report.plan_tables import breaks_table, partitions_table, regions_table
from regional_explorer.render.report.profile_tables import profile_tables
from regional_explorer.render.report.region_tables import memory_table, reconciliation_table, region_times_table
from regional_explorer.render.report.result_tables import compile_table, numerics_table, timings_table
from regional_explorer.render.report.session_facts import session_facts
from regional_explorer.render.report.table import Table
from regional_explorer.render.style.untrusted import LONG_TEXT, clean

TEXT_WIDTH = 100
WIDEST_CELL = 34
LONGEST_WORD = 24
SESSION_TABLES: tuple[Callable[[Session], Table], ...] = (
    regions_table,
    partitions_table,
    timings_table,
    region_times_table,
    reconciliation_table,
    numerics_table,
    compile_table,
    memory_table,
    breaks_table,
)
"""The tables of a session, in order."""

OPTIONAL_TABLES = (region_times_table, reconciliation_table, memory_table)
"""The tables that are left out if nothing was measured."""


def session_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return all contents of ``session`` as text of about ``width`` columns."""
    tables = [table(session) for table in SESSION_TABLES if table not in OPTIONAL_TABLES or table(session).rows]
    tables += [*compile_tables(session), *profile_tables(session)]
    texts = [summary_text(session), *(table_text(table, width=width) for table in tables)]
    return "\n\n".join([*texts, diagnostics_text(session.diagnostics, width=width)]) + "\n"


def summary_text(session: Session) -> str:
    """Return the first lines of a session."""
    facts = session_facts(session)
    label_width = max(len(label) for label, _ in facts)
    return "\n".join([clean(session.title), *(f"  {label:<{label_width}}  {text}" for label, text in facts)])


def diagnostics_text(diagnostics: Sequence[Diagnostic], *, width: int = TEXT_WIDTH) -> str:
    """Return the diagnostics as paragraphs."""
    if not diagnostics:
        return "Diagnostics\n  None: everything was done as requested."
    lines = [f"Diagnostics ({len(diagnostics)})"]
    for diagnostic in diagnostics:
        text = f"{diagnostic.severity}: {clean(diagnostic, LONG_TEXT)}"
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def table_text(table: Table, *, width: int = TEXT_WIDTH) -> str:
    """Return ``table`` with aligned columns; long cells are wrapped."""
    notes = [line for note in table.note.splitlines() for line in _wrap(note, width - 2)]
    if not table.rows:
        return "\n".join(
            f"  {line}" if n else line for n, line in enumerate([table.title, *_wrap(table.empty, width - 2)])
        )
    columns = [n for n in range(len(table.columns)) if any(row[n].text for row in table.rows)]
    heads = [table.columns[n] for n in columns]
    # Figures are not wrapped, so that they stay beside their units.
    measures = [_text_width if head in table.figures else _longest_word for head in heads]
    minimums = [
        max(_text_width(head), *(measure(row[n].text) for row in table.rows))
        for n, head, measure in zip(columns, heads, measures, strict=True)
    ]
    limits = [WIDEST_CELL] * len(heads)
    while True:
        rows = [[_wrap(row[n].text, limit) for n, limit in zip(columns, limits, strict=True)] for row in table.rows]
        widths = [
            max(_text_width(line) for line in (head, *(line for row in rows for line in row[column])))
            for column, head in enumerate(heads)
        ]
        if sum(widths) + 2 * len(widths) <= width:
            break
        # The widest column is narrowed first; none becomes narrower than its head and its longest word.
        shrinkable = {n: wide for n, wide in enumerate(widths) if wide > minimums[n] and limits[n] > minimums[n]}
        if not shrinkable:
            break
        column = max(shrinkable, key=lambda n: shrinkable[n])
        limits[column] = min(limits[column], widths[column]) - 1
    right = [head in table.figures for head in heads]
    lines = [table.title, _pad_cells(heads, widths, right), _pad_cells(["─" * wide for wide in widths], widths, right)]
    for row in rows:
        lines += [
            _pad_cells([cell[index] if index < len(cell) else "" for cell in row], widths, right)
            for index in range(max(map(len, row)))
        ]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def _pad_cells(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, column_width, is_right in zip(cells, widths, right, strict=True):
        space = " " * (column_width - _text_width(cell))
        padded.append(space + cell if is_right else cell + space)
    return ("  " + "  ".join(padded)).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _longest_word(text: str) -> int:
    return max((min(_text_width(word), LONGEST_WORD) for word in text.split()), default=0)


def _text_width(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
