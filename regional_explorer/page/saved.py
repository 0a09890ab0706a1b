"""A session as a standalone HTML page: its tables, and the panel's graph, source and code, offline in one file.

The page has the panel's scripts, and the data to fold and select without a kernel. Without scripts, and in print, a
picture replaces the graph.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from regional_explorer.errors import sendable
from regional_explorer.page.answer import answer_nodes
from regional_explorer.page.answer_chart import chart_nodes
from regional_explorer.page.code import CODE_CSS, code_parts
from regional_explorer.page.columns import columns
from regional_explorer.page.graph import PALETTE, graph_bars, graph_traits
from regional_explorer.page.report import report_nodes, summary_rows
from regional_explorer.page.source_pane import line_nodes, line_rows, row_links, source_listing, source_pane
from regional_explorer.page.static import script, style
from regional_explorer.picture.page_records import Records
from regional_explorer.picture.svg import picture_html, session_svg
from regional_explorer.record.answer import answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.region_code import nodes_of_diagnostic, region_code
from regional_explorer.record.session import Session
from regional_explorer.style.css import page_css, rules
from regional_explorer.style.element import Node, markup, node, to_html
from regional_explorer.tables.plan import diagnostics_nodes

GRAPH_HEIGHT = 520
"""The height of the drawing in pixels; its lower edge can be dragged."""


def page_html(session: Session, plans: Sequence[Node] = (), drawings: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return ``session`` as a page; ``plans`` is the table of measured plans, ``drawings`` are SVG by title."""
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
    above = [*title, *answer_nodes(answer_of(session), chart_nodes(bars_of(session)))]
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
        f'<div class="rx-results">{to_html(*below)}{_drawn(drawings)}</div></main>'
        f'<script type="text/plain" id="rx-data">{_packed(state)}</script>'
        f'<script type="module">{page_script}</script></body></html>\n'
    )


def _drawn(drawings: Mapping[str, str]) -> str:
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
