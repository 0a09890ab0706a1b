"""A session as text and as HTML: the answer, the facts, the tables in order."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regional_explorer.errors import count, listing
from regional_explorer.picture.svg import picture_html
from regional_explorer.record.benchmark import NumericsVerdict, Timing, VariantName, Verdict
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.style.css import PAGE, page_css
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, node, style_sheet, to_html
from regional_explorer.style.formats import MOST_ENTRIES, against_trace, interval_note, speedup, times, withheld
from regional_explorer.tables.benchmark import (
    compile_costs_table,
    memory_table,
    numerics_table,
    reconciliation_table,
    region_timings_table,
    regions_table,
    run_time_tables,
)
from regional_explorer.tables.compile import caches_table, compile_times_table
from regional_explorer.tables.plan import breaks_table, diagnostics_nodes, kept_table, kept_text, partitions_table
from regional_explorer.tables.profile import profile_tables
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
    if withheld(timing):
        of_trace = against_trace(timing.against_trace)
        note = f" (against the trace, aot_eager: {of_trace})" if of_trace else ""
        return f"{timing.variant}: numerics {timing.numerics}{note}"
    if timing.speedup is None:
        return f"{timing.variant}: {timing.verdict}"
    between = interval_note(timing.speedup)
    if timing.numerics is NumericsVerdict.NOT_COMPARABLE:
        return f"{timing.variant} against eager: {timing.verdict}, {speedup(timing)}{between}"
    if timing.verdict is Verdict.FASTER:
        return f"{timing.variant} {speedup(timing)} faster than eager{between}"
    if timing.verdict is Verdict.SLOWER:
        slowdown = 1.0 / timing.speedup
        return f"{timing.variant} {times(slowdown.value)} slower than eager{interval_note(slowdown)}"
    return f"{timing.variant} {speedup(timing)} against eager{between}: {timing.verdict}"


def _regions_text(session: Session) -> str:
    summaries = region_summaries(session)
    measured = [(clean(summary.region.name, SHORT), summary.timing.verdict) for summary in summaries if summary.timing]
    clauses = [
        (f"{listing(names, MOST_REGIONS)} {'is' if len(names) == 1 else 'are'} {verdict}")
        for verdict in (Verdict.FASTER, Verdict.SLOWER)
        if (names := [name for name, measured_verdict in measured if measured_verdict is verdict])
    ]
    over_trace = any(summary.timing and summary.timing.over_trace for summary in summaries)
    than = ", against traced ops that are slower than the program's own" if over_trace else ""
    return f". Measured alone, {' and '.join(clauses)} compiled{than}" if clauses else ""


def session_facts(session: Session) -> tuple[tuple[str, str], ...]:
    """Return the label and the text of each fact: what was captured, and where."""
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
    """Return the tables of a session in order, without those that have neither rows nor anything to say.

    Args:
        session: the record.
        regions: whether the tables of regions are among them; a panel has its own.
    """
    tables: tuple[Table[Any], ...] = (
        *run_time_tables(session),
        reconciliation_table(session),
        *((region_timings_table(session), regions_table(session)) if regions else ()),
        *profile_tables(session),
        partitions_table(session),
        numerics_table(session),
        compile_costs_table(session),
        compile_times_table(session),
        caches_table(session),
        memory_table(session),
        kept_table(session),
        breaks_table(session),
    )
    return [table for table in tables if table.shown_rows or table.empty]


def report_nodes(session: Session, *, regions: bool = True) -> list[Node]:
    """Return the tables of a session as elements; ``regions`` as in :func:`report`."""
    return [element for table in report(session, regions=regions) for element in table.nodes()]


def headline_nodes(session: Session) -> list[Node]:
    """Return the headline as an element; none before a benchmark."""
    text = headline(session)
    return [node("p", text, class_="rx-headline", role="status")] if text else []


def noise_nodes(session: Session) -> list[Node]:
    """Return that the machine was busy as an element; none if it was quiet."""
    text = session.noise.sentence
    return [node("p", text, class_="rx-note rx-warn")] if text else []


def results_nodes(session: Session) -> list[Node]:
    """Return the results for a panel."""
    return [*headline_nodes(session), *report_nodes(session, regions=False)]


def session_html(session: Session, *, picture: str | None = None, plans: Sequence[Node] = ()) -> str:
    """Return ``session`` as one HTML fragment.

    Args:
        session: The record.
        picture: SVG of ``session_svg``; None leaves the picture out.
        plans: the table of measured plans.
    """
    facts = (element for label, text in session_facts(session) for element in (node("dt", label), node("dd", text)))
    above = [
        node("h3", session.title),
        *headline_nodes(session),
        *noise_nodes(session),
        node("dl", *facts),
        *diagnostics_nodes(session.diagnostics),
    ]
    sheet = to_html(style_sheet(page_css(len(session.plan.regions))))
    drawn = picture_html(picture) if picture else ""
    return f'<div class="{PAGE}">{sheet}{to_html(*above)}{drawn}{to_html(*plans, *report_nodes(session))}</div>'


def session_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return all contents of ``session`` as text of about ``width`` columns."""
    tables = (table.text(width) for table in report(session))
    return "\n\n".join([summary_text(session, width=width), *tables, diagnostics_text(session, width=width)]) + "\n"


MOST_BRIEF_LINES = 12


def brief_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return a session in at most 12 lines: what it is, the headline, its regions, and what to look at or do next."""
    facts = dict(session_facts(session))
    first = textwrap.shorten(
        f"{clean(session.title)}: {facts['graphs']}; {facts['gradients']}", width, placeholder=" …"
    )
    headlines = textwrap.wrap(headline(session), width, max_lines=2, placeholder=" …")
    found = count(len(session.diagnostics), "diagnostic")
    worst = f": {session.diagnostics[0].code}, …" if session.diagnostics else ""
    last = [f"{found}{worst}", f"Next: {_next_steps(session)}"]
    table = regions_table(session)
    figures = ("speedup", "CI", "numerics") if session.partition_timings else ("selector",)
    rows = list(table.rows)
    while rows:
        more = len(table.rows) - len(rows)
        brief = (
            replace(table, heads=("region", "state", *figures), shown=rows, notes=tuple).text(width).splitlines()[1:]
        )
        lines = [first, *headlines, *brief, *([f"  … {more} more: ex.regions"] if more else []), *last]
        if len(lines) <= MOST_BRIEF_LINES:
            return "\n".join(lines)
        rows.pop()
    return "\n".join([first, *headlines, *last])


def _next_steps(session: Session) -> str:
    """Return what a user does next with an exploration ``ex`` of this session."""
    if not session.plan.regions:
        return "ex.profile() shows where the time goes; ex.mark('mlp', modules='layers.*.mlp') marks a region."
    if not session.timings or session.is_outdated:
        return "ex.benchmark() compiles and measures; ex.show() opens the panel."
    return "ex.timings, ex.diagnostics; ex.save('x.html') writes the page; print(ex.text) has all tables."


def summary_text(session: Session, *, width: int = TEXT_WIDTH) -> str:
    """Return the first lines of a session: what it is, the headline, whether the machine was busy, and the facts."""
    facts = session_facts(session)
    label_width = max(len(label) for label, _ in facts)
    said = (headline(session), session.noise.sentence)
    found = (line for text in said for line in textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  "))
    return "\n".join([clean(session.title), *found, *(f"  {label:<{label_width}}  {text}" for label, text in facts)])


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
