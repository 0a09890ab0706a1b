"""A session as plain text for a terminal: tables with padded columns and wrapped lines."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Sequence

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.session import Session
from regional_explorer.render.report.compile_tables import compile_tables
from regional_explorer.render.report.plan_tables import breaks_table, partitions_table, regions_table, summary
from regional_explorer.render.report.profile_tables import profile_tables
from regional_explorer.render.report.region_tables import memory_table, reconciliation_table, region_times_table
from regional_explorer.render.report.result_tables import compile_table, numerics_table, timings_table
from regional_explorer.render.report.table import Table
from regional_explorer.render.style.untrusted import LONG_TEXT, clean

WIDTH = 100
WIDEST_CELL = 34
LONGEST_WORD = 24
TABLES: tuple[Callable[[Session], Table], ...] = (
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

LEFT_OUT = (region_times_table, reconciliation_table, memory_table)
"""The tables that are left out if nothing was measured."""


def session_text(session: Session, *, width: int = WIDTH) -> str:
    """Return all contents of ``session`` as text of about ``width`` columns."""
    tables = [table(session) for table in TABLES if table not in LEFT_OUT or table(session).rows]
    tables += [*compile_tables(session), *profile_tables(session)]
    parts = [summary_text(session), *(table_text(table, width=width) for table in tables)]
    return "\n\n".join([*parts, diagnostics_text(session.diagnostics, width=width)]) + "\n"


def summary_text(session: Session) -> str:
    """Return the first lines of a session."""
    facts = summary(session)
    wide = max(len(label) for label, _ in facts)
    return "\n".join([clean(session.title), *(f"  {label:<{wide}}  {text}" for label, text in facts)])


def diagnostics_text(diagnostics: Sequence[Diagnostic], *, width: int = WIDTH) -> str:
    """Return the diagnostics as paragraphs."""
    if not diagnostics:
        return "Diagnostics\n  None: everything was done as requested."
    lines = [f"Diagnostics ({len(diagnostics)})"]
    for found in diagnostics:
        text = f"{found.severity}: {clean(found, LONG_TEXT)}"
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def table_text(table: Table, *, width: int = WIDTH) -> str:
    """Return ``table`` with aligned columns; long cells are wrapped."""
    notes = [line for note in table.note.splitlines() for line in _wrapped(note, width - 2)]
    if not table.rows:
        return "\n".join(
            f"  {line}" if n else line for n, line in enumerate([table.title, *_wrapped(table.empty, width - 2)])
        )
    shown = [n for n in range(len(table.columns)) if any(row[n].text for row in table.rows)]
    heads = [table.columns[n] for n in shown]
    # Figures are not wrapped, so that they stay beside their units.
    narrowest = [_columns if head in table.figures else _longest_word for head in heads]
    least = [
        max(_columns(head), *(narrow(row[n].text) for row in table.rows))
        for n, head, narrow in zip(shown, heads, narrowest, strict=True)
    ]
    widest = [WIDEST_CELL] * len(heads)
    while True:
        rows = [[_wrapped(row[n].text, most) for n, most in zip(shown, widest, strict=True)] for row in table.rows]
        widths = [
            max(_columns(line) for line in (head, *(line for row in rows for line in row[place])))
            for place, head in enumerate(heads)
        ]
        if sum(widths) + 2 * len(widths) <= width:
            break
        # The widest column is narrowed first; none becomes narrower than its head and its longest word.
        room = {n: wide for n, wide in enumerate(widths) if wide > least[n] and widest[n] > least[n]}
        if not room:
            break
        place = max(room, key=lambda n: room[n])
        widest[place] = min(widest[place], widths[place]) - 1
    flush = [head in table.figures for head in heads]
    lines = [table.title, _row(heads, widths, flush), _row(["─" * wide for wide in widths], widths, flush)]
    for row in rows:
        lines += [
            _row([cell[number] if number < len(cell) else "" for cell in row], widths, flush)
            for number in range(max(map(len, row)))
        ]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def _row(cells: Sequence[str], widths: Sequence[int], flush: Sequence[bool]) -> str:
    padded = []
    for cell, wide, right in zip(cells, widths, flush, strict=True):
        space = " " * (wide - _columns(cell))
        padded.append(space + cell if right else cell + space)
    return ("  " + "  ".join(padded)).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _longest_word(text: str) -> int:
    return max((min(_columns(word), LONGEST_WORD) for word in text.split()), default=0)


def _columns(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes: wide characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
