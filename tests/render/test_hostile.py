"""Names of a user's program are shown as text, not as markup, and without invisible characters."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from regional_explorer.page.report import page_html, session_html, session_text
from regional_explorer.picture.layout import dot_lines, graphviz, layout_command
from regional_explorer.picture.open_folds import compose
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.plan import Plan
from regional_explorer.style.element import node, to_html
from regional_explorer.tables.plan import diagnostics_nodes
from regional_explorer.ui.state import PanelState, Shown
from regional_explorer.ui.tables import region_table
from tests.shared import sessions
from tests.shared.pages import Page
from tests.shared.sessions import parse_svg

SVG = {"svg", "style", "g", "title", "rect", "text", "tspan", "path"}
SVG_ATTRIBUTES = {"class", "x", "y", "dx", "width", "height", "rx", "d", "viewBox", "role", "aria-label", "style"}
TAGS = SVG | {
    *("html", "head", "meta", "title", "body", "div", "h3", "h4", "dl", "dt", "dd", "p", "ul", "li", "code"),
    *("table", "thead", "tbody", "tr", "th", "td", "span", "details", "summary", "circle", "b", "i", "small"),
}
ATTRIBUTES = {name.lower() for name in SVG_ATTRIBUTES} | {
    *("lang", "charset", "name", "content", "http-equiv", "open", "xmlns", "title", "tabindex", "aria-hidden"),
    *("stroke", "fill", "stroke-width", "stroke-dasharray", "cx", "cy", "r"),
}
PAGE_TAGS = TAGS | {"script", "main", "h1", "button", "pre"}
PAGE_ATTRIBUTES = ATTRIBUTES | {"hidden", "id", "type", "data-head"}
PANEL_TAGS = TAGS | {"input", "button", "label"}
INVISIBLE = re.compile(
    "[\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]"
)

every_text = pytest.mark.parametrize("text", sessions.HOSTILE, ids=lambda text: ascii(text[:12]))


@every_text
def test_hostile_names_in_elements(text: str) -> None:
    html = to_html(node("b", text, title=text))
    assert (html.count("<"), html.count(">")) == (2, 2)
    assert html.partition(">")[0].count('"') == 2
    assert html.encode()


@every_text
def test_hostile_names_in_the_report(text: str) -> None:
    session = sessions.hostile_session(text)
    svg = session_svg(session)
    root = parse_svg(svg)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= SVG
    assert {name for element in root.iter() for name in element.attrib} <= SVG_ATTRIBUTES
    report = session_html(session, picture=svg)
    page = Page(report)
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert not INVISIBLE.search(svg + report)
    assert len(svg) < 12_000
    assert len(report) < 66_000


@every_text
def test_hostile_names_in_the_text(text: str) -> None:
    shown = session_text(sessions.hostile_session(text))
    assert not INVISIBLE.search(shown)
    assert "\t" not in shown
    assert shown.encode()


SCRIPTS = ("<!--", "</script><script>alert(1)</script><!--", "a\u2028b\u2029c")


@pytest.mark.parametrize("text", [*sessions.HOSTILE, *SCRIPTS], ids=lambda text: ascii(text[:12]))
def test_hostile_names_in_the_saved_page(text: str) -> None:
    html = page_html(sessions.hostile_session(text))
    page = Page(html)
    assert len(page.texts["script"]) == len(re.findall(r"<script\b", html)) == 2
    assert page.tags <= PAGE_TAGS
    assert {name for name in page.attributes if not re.match(r"(data|aria)-", name)} <= PAGE_ATTRIBUTES
    assert "<!--" not in html
    assert page.data["tabs"]
    assert not INVISIBLE.search(html)


@every_text
def test_hostile_names_in_the_panel(text: str) -> None:
    session = sessions.hostile_session(text)
    (region,) = session.plan.regions
    session = replace(session, plan=Plan((replace(region, config={}),)))  # its keys are checked
    table = region_table(Shown("", "ex", PanelState(session.plan), session, (), {}, None))
    page = to_html(*table, *diagnostics_nodes(session.diagnostics))
    assert Page(page).tags <= PANEL_TAGS
    assert not INVISIBLE.search(page)


@pytest.mark.skipif(layout_command("svg") is None, reason="no Graphviz")
def test_hostile_names_in_graphvizs_picture() -> None:
    each = [sessions.hostile_session(text) for text in sessions.HOSTILE]
    session = replace(
        each[0],
        graphs=tuple(graph for one in each for graph in one.graphs),
        plan=Plan(tuple(region for one in each for region in one.plan.regions)),
        members={name: nodes for one in each for name, nodes in one.members.items()},
        partitions=tuple(cut for one in each for cut in one.partitions),
    )
    dot = "\n".join(["digraph {", *dot_lines(compose(session), legend=True), "}"])
    svg = graphviz(dot, "svg")
    assert svg is not None, dot
    root = parse_svg(svg)
    assert not [e for e in root.iter() if e.tag.endswith(("script", "image", "foreignObject"))]
    assert not [name for e in root.iter() for name in e.attrib if name.lower().startswith("on")]
    assert len([e for e in root.iter() if e.get("class") == "node"]) == 4 * len(each)
