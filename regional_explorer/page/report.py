"""A session as text, as HTML, and as a page of its own: the answer, the summary, the tables in order."""

from __future__ import annotations

import base64
import hashlib
import json
import textwrap
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from regional_explorer.errors import count, sendable
from regional_explorer.page.answer import answer_nodes, answer_text, chart_nodes
from regional_explorer.page.code import CODE_CSS, code_parts
from regional_explorer.page.graph import PALETTE, graph_bars, graph_traits
from regional_explorer.page.panes import columns, line_nodes, line_rows, row_links, source_listing, source_pane
from regional_explorer.page.static import script, style
from regional_explorer.picture.page_records import Records
from regional_explorer.picture.svg import picture_html, session_svg
from regional_explorer.record.answer import answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.plan import AS_UPSTREAM
from regional_explorer.record.region_code import nodes_of_diagnostic, region_code
from regional_explorer.record.session import Session
from regional_explorer.style.css import PAGE, page_css, rules
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, markup, node, style_sheet, to_html
from regional_explorer.style.formats import MOST_ENTRIES
from regional_explorer.tables.benchmark import (
    memory_table,
    numerics_table,
    reconciliation_table,
    run_time_tables,
)
from regional_explorer.tables.code import compile_tables, patterns_table
from regional_explorer.tables.plan import breaks_table, diagnostics_nodes, kept_table, kept_text, partitions_table
from regional_explorer.tables.profile import profile_tables
from regional_explorer.tables.regions import passes_table, regions_alone_table, regions_table
from regional_explorer.tables.table import TEXT_WIDTH, Table
from regional_explorer.tables.tuning import gain_parts_table, tuning_table


def summary_rows(session: Session) -> tuple[tuple[str, str], ...]:
    """Return the label and the text of each row of the summary: what was captured, and where."""
    environment = session.environment
    threads = count(environment.threads, "thread")
    graphs = [graph for graph in session.graphs if graph.parent is None and graph.kind is not GraphKind.DYNAMO]
    sizes = ", ".join(f"{clean(graph.id, SHORT)} {count(len(graph.ops), 'op')}" for graph in graphs[:MOST_ENTRIES])
    more = f" and {len(graphs) - MOST_ENTRIES} more" if len(graphs) > MOST_ENTRIES else ""
    shapes = [("shapes", session.shapes)] if session.dynamic is not None else []
    tracing = [("traced", str(session.plan.tracing))] if session.plan.tracing != AS_UPSTREAM else []
    return (
        ("graphs", (sizes + more) or "none was captured"),
        *shapes,
        *tracing,
        *([("kept for the backward", kept)] if (kept := kept_text(session)) else []),
        ("gradients", "captured for training" if session.grad else "captured without gradients"),
        ("graph breaks", str(len(session.breaks)) if session.breaks else "none"),
        ("torch", f"{clean(environment.torch, SHORT)}, Python {clean(environment.python, SHORT)}"),
        ("device", ", ".join(filter(None, (clean(environment.device), threads, environment.mode)))),
    )


REGIONS, PROFILE = "Regions", "Where the time goes"
"""The sections that a panel has elsewhere."""


_SECTIONS: Mapping[str, Callable[[Session], Sequence[Table[Any]]]] = {
    "Run time": lambda session: run_time_tables(session)[:1],
    "Forward and backward": lambda session: run_time_tables(session)[1:],
    "Plans tried": lambda session: [tuning_table(session)] if session.tuning else [],
    "Where the gain comes from": lambda session: [gain_parts_table(session)] if session.tuning else [],
    "How it adds up": lambda session: [reconciliation_table(session)],
    REGIONS: lambda session: [regions_alone_table(session), regions_table(session)],
    PROFILE: profile_tables,
    "Pieces and their results": lambda session: [partitions_table(session), numerics_table(session)],
    "Passes": lambda session: [passes_table(session)],
    "Compiling": lambda session: [*compile_tables(session), patterns_table(session)],
    "Memory and graph breaks": lambda session: [memory_table(session), kept_table(session), breaks_table(session)],
}
"""The tables of a session in order, in sections by title."""


def report(session: Session) -> list[Table[Any]]:
    """Return the tables of a session in order, without tables that have neither rows nor a note."""
    tables = (table for tables_of in _SECTIONS.values() for table in tables_of(session))
    return [table for table in tables if table.shown_rows or table.empty]


def report_nodes(session: Session, *, without: Collection[str] = ()) -> list[Node]:
    """Return the tables of a session as elements, each section folded as a whole; those ``without`` are left out."""
    elements: list[Node] = []
    for title in (title for title in _SECTIONS if title not in without):
        tables = [table for table in _SECTIONS[title](session) if table.shown_rows]
        inside = [element for table in tables for element in replace(table, fold="").elements()]
        fold = node("details", node("summary", title), *inside, open=any(table.opens for table in tables))
        elements += [fold] if len(tables) > 1 else [element for table in tables for element in table.elements()]
    return elements


def _answer_nodes(session: Session, after: Sequence[Node] | None = None) -> list[Node]:
    return answer_nodes(answer_of(session), chart_nodes(bars_of(session)), after=after)


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
        *_answer_nodes(session),
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
    answer = answer_text(answer_of(session), width)
    return "\n".join([answer, "", *(f"  {label:<{label_width}}  {text}" for label, text in rows)])


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


# ---------------------------------------------------------------------------------------------------- a page of its own


GRAPH_HEIGHT = 520
"""The height of the drawing in pixels; its lower edge can be dragged."""


def page_html(session: Session, plans: Sequence[Node] = (), drawings: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return ``session`` as a page in one file, which works offline: its tables, the graph, source and code.

    The page has the panel's scripts, and the data to fold and select without the notebook's kernel. Without scripts,
    and in print, a picture replaces the graph.

    Args:
        session: the record.
        plans: the table of measured plans.
        drawings: SVG by title.
    """
    state = _page_state(session)
    names = [f"{graph['id']}:{name}" for graph in state["graphs"] for name in graph["names"]]
    numbers = {name: number for number, name in enumerate(names)}
    functions = source_listing(session)
    state["part_source"] = source_pane(functions, line_nodes(functions, session), session)
    state["links"] = {"source": row_links(line_rows(functions), names)}

    def number_of(node_id: str) -> str:
        return str(numbers.get(sendable(node_id), ""))

    def show_button(_number: int, finding: Diagnostic) -> Node | None:
        nodes = " ".join(filter(None, map(number_of, nodes_of_diagnostic(finding, session))))
        label = f"Show the nodes of {finding.code}"
        return node("button", "Show", type="button", data_nodes=nodes, aria_label=label) if nodes else None

    page_script = script("page")
    sheet = page_css(len(session.plan.regions))
    styles = "".join([sheet, CODE_CSS, style("view", "panel"), rules("saved")])
    summary = " · ".join(f"{word} {text}" for word, text in summary_rows(session))
    title = [node("h1", session.title), node("p", summary, class_="rx-quiet")]
    above = [*title, *_answer_nodes(session, after=())]  # its reader can neither call ex nor measure
    below = [*([node("div", *plans, class_="rxt")] if plans else []), *report_nodes(session)]
    diagnostics = diagnostics_nodes(session.diagnostics, show_button)
    beside = (
        *(
            _side_fold(f"Code of {region.name}", code_parts(codes, number_of))
            for region in session.plan.regions
            if (codes := region_code(session, region.name))
        ),
        _side_fold(f"Diagnostics ({len(session.diagnostics)})", diagnostics, opened=True, class_="rx-printed"),
    )
    views = columns(node("span", "Why and code"), [node("div", *beside)])
    views[1]["hidden"] = True  # until the script has filled them
    return (
        '<!DOCTYPE html><html lang="en" style="color-scheme:light dark"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_security_policy(page_script)}">'
        f"<title>{markup(session.title)}</title><style>{styles}</style></head>"
        f'<body style="margin:0"><main class="rx rx-panel rx-page">{to_html(*above)}'
        f"{to_html(views)}"
        f'<div class="rx-drawn">{picture_html(session_svg(session))}</div>'
        f'<div class="rx-results">{to_html(*below)}{_drawings_html(drawings)}</div></main>'
        f'<script type="text/plain" id="rx-data">{_packed(state)}</script>'
        f'<script type="module">{page_script}</script></body></html>\n'
    )


def _drawings_html(drawings: Mapping[str, str]) -> str:
    """Return the drawings, each in a fold; nothing if there are none."""
    folds = (
        f"<details><summary>{markup(title)}</summary>{picture_html(svg)}</details>" for title, svg in drawings.items()
    )
    return f"<h4>Drawings</h4>{''.join(folds)}" if drawings else ""


def _security_policy(page_script: str) -> str:
    """Return the content security policy of the page: it runs this script only, and loads nothing."""
    digest = base64.b64encode(hashlib.sha256(page_script.encode()).digest()).decode()
    return (
        f"default-src 'none';style-src 'unsafe-inline';script-src 'sha256-{digest}';base-uri 'none';form-action 'none'"
    )


def _packed(state: Any) -> str:
    """Return ``state`` as compressed JSON, encoded as text; the page decodes it."""
    text = json.dumps(state, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _page_state(session: Session) -> dict[str, Any]:
    records = Records()
    state = {**graph_traits(session, records), "palette": PALETTE, "bars": graph_bars(GRAPH_HEIGHT)}
    for number, graph in enumerate(session.graphs):
        known = records.of(session, graph)
        state |= {f"facts{number}": known.facts, f"folds{number}": known.folds}
    return state


def _side_fold(title: str, inside: Iterable[Node], *, opened: bool = False, class_: str | None = None) -> Node:
    """Return a fold beside the source; only one such fold is open at a time."""
    return node("details", node("summary", title), *inside, name="beside", open=opened, class_=class_)
