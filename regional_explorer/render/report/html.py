"""A session as one HTML fragment: tables and a picture, without scripts or external resources."""

from __future__ import annotations

from dataclasses import replace

from regional_explorer.record.session import Session
from regional_explorer.render.picture.svg import picture_html
from regional_explorer.render.report.compile_tables import compile_tables
from regional_explorer.render.report.diagnostics_list import diagnostics_nodes
from regional_explorer.render.report.headline import headline
from regional_explorer.render.report.plan_tables import breaks_table, partitions_table, regions_table
from regional_explorer.render.report.profile_tables import profile_tables
from regional_explorer.render.report.region_tables import memory_table, reconciliation_table, region_times_table
from regional_explorer.render.report.result_tables import compile_table, numerics_table, timings_table
from regional_explorer.render.report.session_facts import session_facts
from regional_explorer.render.report.table_node import folded_table, table_nodes
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.element import Node, node, style_sheet, to_html


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
