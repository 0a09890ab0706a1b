"""A session as text and as HTML: the answer, the facts, the tables in order."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace

from regional_explorer.errors import count, listing
from regional_explorer.picture.svg import picture_html
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, Timing, VariantName, Verdict
from regional_explorer.style.css import PAGE, page_css
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, node, style_sheet, to_html
from regional_explorer.style.formats import MOST_ENTRIES, bounds, failed_numerics, speedup
from regional_explorer.tables.compile import compile_tables
from regional_explorer.tables.plan import breaks_table, diagnostics_nodes, partitions_table, regions_table
from regional_explorer.tables.profile import profile_tables
from regional_explorer.tables.results import (
    compile_table,
    memory_table,
    numerics_table,
    reconciliation_table,
    region_times_table,
    timings_table,
)
from regional_explorer.tables.table import Table, folded_table, table_nodes

MOST_REGIONS = 3


def headline(session: Session) -> str:
    """Return which variants are faster than eager, by how much, and which regions alone; empty before a benchmark."""
    timings = session.whole_timings
    variants = [_variant_text(timings[name]) for name in (VariantName.REGIONAL, VariantName.FULL) if name in timings]
    if not variants:
        return ""
    result = f"{', '.join(variants)}{_regions_text(session)}"
    return f"Measured for an earlier plan: {result}" if session.is_outdated else result


def _variant_text(timing: Timing) -> str:
    if failed_numerics(timing):
        return f"{timing.variant}: numerics failed"
    low, high, middle = timing.speedup_low, timing.speedup_high, timing.speedup
    if middle is None:
        return f"{timing.variant}: {timing.verdict}"
    between = f" ({ci})" if (ci := bounds(low, high)) else ""
    if timing.numerics is NumericsVerdict.NOT_COMPARABLE:
        return f"{timing.variant} against eager: {timing.verdict}, {speedup(timing)}{between}"
    if timing.verdict is Verdict.FASTER:
        return f"{timing.variant} {speedup(timing)} faster than eager{between}"
    if timing.verdict is Verdict.SLOWER and low and high:
        return f"{timing.variant} {1 / middle:.2f}× slower than eager ({bounds(1 / high, 1 / low)})"
    return f"{timing.variant} {speedup(timing)} against eager{between}: {timing.verdict}"


def _regions_text(session: Session) -> str:
    summaries = region_summaries(session)
    measured = [(clean(summary.region.name, SHORT), summary.timing.verdict) for summary in summaries if summary.timing]
    clauses = [
        (f"{listing(names, MOST_REGIONS)} {'is' if len(names) == 1 else 'are'} {verdict}")
        for verdict in (Verdict.FASTER, Verdict.SLOWER)
        if (names := [name for name, measured_verdict in measured if measured_verdict is verdict])
    ]
    return f". Measured alone, {' and '.join(clauses)} compiled" if clauses else ""


def session_facts(session: Session) -> tuple[tuple[str, str], ...]:
    """Return the label and the text of each fact: what was captured, and where."""
    environment = session.environment
    graphs = [graph for graph in session.graphs if graph.parent is None and graph.kind is not GraphKind.DYNAMO]
    sizes = ", ".join(f"{clean(graph.id, SHORT)} {count(len(graph.ops), 'op')}" for graph in graphs[:MOST_ENTRIES])
    more = f" and {len(graphs) - MOST_ENTRIES} more" if len(graphs) > MOST_ENTRIES else ""
    shapes = [("shapes", session.shapes)] if session.dynamic is not None else []
    return (
        ("graphs", (sizes + more) or "none was captured"),
        *shapes,
        ("gradients", "captured for training" if session.grad else "captured without gradients"),
        ("graph breaks", str(len(session.breaks)) if session.breaks else "none"),
        ("torch", f"{clean(environment.torch, SHORT)}, Python {clean(environment.python, SHORT)}"),
        ("device", f"{clean(environment.device)}, {count(environment.threads, 'thread')}"),
    )


def session_html(session: Session, *, picture: str | None = None) -> str:
    """Return ``session`` as one HTML fragment.

    Args:
        session: The record.
        picture: SVG of ``session_svg``; None leaves the picture out.
    """
    facts = (element for label, text in session_facts(session) for element in (node("dt", label), node("dd", text)))
    above = [node("h3", session.title), node("dl", *facts), *diagnostics_nodes(session.diagnostics)]
    below = [
        *table_nodes(timings_table(session), regions=session),
        *region_times_nodes(session),
        *_reconciliation_nodes(session),
        *table_nodes(regions_table(session), regions=session),
        *_detail_nodes(session),
    ]
    sheet = to_html(style_sheet(page_css(len(session.plan.regions))))
    drawn = picture_html(picture) if picture else ""
    return f'<div class="{PAGE}">{sheet}{to_html(*above)}{drawn}{to_html(*below)}</div>'


def region_times_nodes(session: Session) -> list[Node]:
    """Return the run times of single regions; nothing before regions were measured."""
    table = region_times_table(session)
    return table_nodes(table, regions=session) if table.rows else []


def results_nodes(session: Session) -> list[Node]:
    """Return the results for a panel, which has its own table of regions: the whole call first, then the details."""
    text = headline(session)
    return [
        *([node("p", text, class_="rx-headline", role="status")] if text else []),
        *_run_time_nodes(session),
        *_reconciliation_nodes(session),
        *_detail_nodes(session),
    ]


def _run_time_nodes(session: Session) -> list[Node]:
    """Return the run times of the whole call, and those of forward and backward folded."""
    table, whole_phase = timings_table(session), session.whole_phase
    whole_call = replace(table, rows=tuple(row for row in table.rows if row[0].text == whole_phase))
    single_phases = replace(table, rows=tuple(row for row in table.rows if row[0].text != whole_phase), note="")
    if not single_phases.rows:
        return table_nodes(table, regions=session)
    return [
        *table_nodes(whole_call, regions=session),
        node("details", node("summary", "Forward and backward"), *table_nodes(single_phases, titled=False)),
    ]


def _reconciliation_nodes(session: Session) -> list[Node]:
    # Totals without a note are among the run times already.
    has_parts = any(not row.total or row.note for row in session.reconciliation)
    return folded_table(reconciliation_table(session), session) if has_parts else []


def _detail_nodes(session: Session) -> list[Node]:
    return [
        *(element for table in profile_tables(session) for element in folded_table(table, session)),
        *folded_table(partitions_table(session), session),
        *folded_table(numerics_table(session), session),
        *(folded_table(compile_table(session), session) if session.compile_costs else []),
        *(element for table in compile_tables(session) for element in folded_table(table, session)),
        *(folded_table(memory_table(session), session) if session.memory else []),
        *(table_nodes(breaks_table(session)) if session.breaks else []),
    ]


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
