"""A session as text and as HTML: the answer, the facts, the tables in order."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
from regional_explorer.tables.compile import caches_table, compile_times_table
from regional_explorer.tables.plan import breaks_table, diagnostics_nodes, partitions_table
from regional_explorer.tables.profile import profile_tables
from regional_explorer.tables.results import (
    compile_costs_table,
    memory_table,
    numerics_table,
    reconciliation_table,
    region_timings_table,
    regions_table,
    timings_table,
)
from regional_explorer.tables.table import TEXT_WIDTH, Table

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
        *timings_table(session).nodes(),
        *region_times_nodes(session),
        *_reconciliation_nodes(session),
        *regions_table(session).nodes(),
        *_detail_nodes(session),
    ]
    sheet = to_html(style_sheet(page_css(len(session.plan.regions))))
    drawn = picture_html(picture) if picture else ""
    return f'<div class="{PAGE}">{sheet}{to_html(*above)}{drawn}{to_html(*below)}</div>'


def region_times_nodes(session: Session) -> list[Node]:
    """Return the run times of single regions; nothing before regions were measured."""
    table = region_timings_table(session)
    return table.nodes() if table.shown_rows else []


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
    table = timings_table(session)
    whole_call = [timing for timing in table.shown_rows if timing.phase is session.whole_phase]
    single_phases = [timing for timing in table.shown_rows if timing.phase is not session.whole_phase]
    if not single_phases:
        return table.nodes()
    return [
        *replace(table, shown=whole_call).nodes(),
        *replace(
            table, title="Forward and backward", shown=single_phases, notes=tuple, outdated=None, fold="closed"
        ).nodes(),
    ]


def _reconciliation_nodes(session: Session) -> list[Node]:
    # Totals without a note are among the run times already.
    has_parts = any(not row.total or row.note for row in session.reconciliation)
    return reconciliation_table(session).nodes() if has_parts else []


def _detail_nodes(session: Session) -> list[Node]:
    tables: list[Table[Any]] = [
        *profile_tables(session),
        partitions_table(session),
        numerics_table(session),
        *([compile_costs_table(session)] if session.compile_costs else []),
        *_compile_tables(session),
        *([memory_table(session)] if session.memory else []),
        *([breaks_table(session)] if session.breaks else []),
    ]
    return [element for table in tables for element in table.nodes()]


def _compile_tables(session: Session) -> list[Table[Any]]:
    return [compile_times_table(session), caches_table(session)] if session.compiles else []


SESSION_TABLES: tuple[Callable[[Session], Table[Any]], ...] = (
    regions_table,
    partitions_table,
    timings_table,
    region_timings_table,
    reconciliation_table,
    numerics_table,
    compile_costs_table,
    memory_table,
    breaks_table,
)
"""The tables of a session, in order."""

OPTIONAL_TABLES = (region_timings_table, reconciliation_table, memory_table)
"""The tables that are left out if nothing was measured."""


def session_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return all contents of ``session`` as text of about ``width`` columns."""
    tables: list[Table[Any]] = [
        table(session) for table in SESSION_TABLES if table not in OPTIONAL_TABLES or table(session).shown_rows
    ]
    tables += [
        *_compile_tables(session),
        *profile_tables(session),
    ]
    texts = [summary_text(session), *(table.text(width) for table in tables)]
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
