"""A session as text and as HTML: the answer, the summary, the tables in order."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from regional_explorer.errors import count
from regional_explorer.page.answer import answer_nodes, answer_text, chart_nodes
from regional_explorer.picture.svg import picture_html
from regional_explorer.record.answer import answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.session import Session
from regional_explorer.style.css import PAGE, page_css
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, node, style_sheet, to_html
from regional_explorer.style.formats import MOST_ENTRIES
from regional_explorer.tables.benchmark import (
    compile_costs_table,
    memory_table,
    numerics_table,
    reconciliation_table,
    region_timings_table,
    regions_table,
    run_time_tables,
)
from regional_explorer.tables.compile import caches_table, compile_times_table, patterns_table
from regional_explorer.tables.plan import breaks_table, diagnostics_nodes, kept_table, kept_text, partitions_table
from regional_explorer.tables.profile import profile_tables
from regional_explorer.tables.table import TEXT_WIDTH, Table
from regional_explorer.tables.tuning import tuning_table


def summary_rows(session: Session) -> tuple[tuple[str, str], ...]:
    """Return the label and the text of each row of the summary: what was captured, and where."""
    environment = session.environment
    graphs = [graph for graph in session.graphs if graph.parent is None and graph.kind is not GraphKind.DYNAMO]
    sizes = ", ".join(f"{clean(graph.id, SHORT)} {count(len(graph.ops), 'op')}" for graph in graphs[:MOST_ENTRIES])
    more = f" and {len(graphs) - MOST_ENTRIES} more" if len(graphs) > MOST_ENTRIES else ""
    shapes = [("shapes", session.shapes)] if session.dynamic is not None else []
    tracing = [("traced", str(session.plan.tracing))] if session.plan.tracing.options else []
    return (
        ("graphs", (sizes + more) or "none was captured"),
        *shapes,
        *tracing,
        *([("kept for the backward", kept)] if (kept := kept_text(session)) else []),
        ("gradients", "captured for training" if session.grad else "captured without gradients"),
        ("graph breaks", str(len(session.breaks)) if session.breaks else "none"),
        ("torch", f"{clean(environment.torch, SHORT)}, Python {clean(environment.python, SHORT)}"),
        ("device", f"{clean(environment.device)}, {count(environment.threads, 'thread')}"),
    )


def report(session: Session, *, regions: bool = True) -> list[Table[Any]]:
    """Return the tables of a session in order, without tables that have neither rows nor a note.

    Args:
        session: the record.
        regions: whether the tables of regions are among them; a panel has its own.
    """
    tables: tuple[Table[Any], ...] = (
        *run_time_tables(session),
        tuning_table(session),
        reconciliation_table(session),
        *((region_timings_table(session), regions_table(session)) if regions else ()),
        *profile_tables(session),
        partitions_table(session),
        numerics_table(session),
        compile_costs_table(session),
        compile_times_table(session),
        caches_table(session),
        patterns_table(session),
        memory_table(session),
        kept_table(session),
        breaks_table(session),
    )
    return [table for table in tables if table.shown_rows or table.empty]


def report_nodes(session: Session, *, regions: bool = True) -> list[Node]:
    """Return the tables of a session as elements; ``regions`` as in :func:`report`."""
    return [element for table in report(session, regions=regions) for element in table.nodes()]


def session_html(session: Session, *, picture: str | None = None, plans: Sequence[Node] = ()) -> str:
    """Return ``session`` as one HTML fragment.

    Args:
        session: The record.
        picture: SVG of ``session_svg``; None leaves the picture out.
        plans: the table of measured plans.
    """
    rows = (element for label, text in summary_rows(session) for element in (node("dt", label), node("dd", text)))
    above = [
        node("h3", session.title),
        *answer_nodes(answer_of(session), chart_nodes(bars_of(session))),
        node("dl", *rows),
        *diagnostics_nodes(session.diagnostics),
    ]
    sheet = to_html(style_sheet(page_css(len(session.plan.regions))))
    drawn = picture_html(picture) if picture else ""
    return f'<div class="{PAGE}">{sheet}{to_html(*above)}{drawn}{to_html(*plans, *report_nodes(session))}</div>'


def session_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return all contents of ``session`` as text of about ``width`` columns."""
    tables = (table.text(width) for table in report(session))
    return "\n\n".join([summary_text(session, width=width), *tables, diagnostics_text(session, width=width)]) + "\n"


def summary_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return the first lines of a session: the answer and the summary."""
    rows = summary_rows(session)
    label_width = max(len(label) for label, _ in rows)
    told = answer_text(answer_of(session), width)
    return "\n".join([told, "", *(f"  {label:<{label_width}}  {text}" for label, text in rows)])


def diagnostics_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return the diagnostics as paragraphs."""
    diagnostics = session.diagnostics
    if not diagnostics:
        return "Diagnostics\n  None: everything was done as requested."
    lines = [f"Diagnostics ({len(diagnostics)})"]
    for diagnostic in diagnostics:
        text = f"{diagnostic.severity}: {clean(diagnostic, LONG_TEXT)}"
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)
