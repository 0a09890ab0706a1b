"""The saved page in Chromium: opened from disk, without a network, and used by pointer and keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from regional_explorer.exploration.results import save
from regional_explorer.page.graph import SHARE
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.session import Session
from tests.browser.views import THEMES, Graph, accessibility_faults
from tests.shared import sessions

CODE = """kernel = async_compile.cpp('''
void kernel(const float* in, float* out) { out[0] = in[0]; }  // </script><b>
''')
def call(args):
    kernel(args[0], args[1])
    return args
"""
INK = "canvas => canvas.toDataURL()"
CHANGED = "([canvas, ink]) => canvas.toDataURL() !== ink"

Open = Callable[..., Page]


def session() -> Session:
    """Return a measured session with source lines, diagnostics, and the code of one artifact."""
    base = sessions.measured(sessions.session_with_diagnostics())
    kernel = Kernel("kernel", KernelKind.POINTWISE, nodes=(0, 1), defined=(1, 3), called=5)
    return sessions.with_code(base, ArtifactCode(CODE, kernels=(kernel,)))


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """A function that saves a session and opens it from disk, offline; no request and no error may occur."""
    contexts, requests, errors = [], [], []

    def save_and_open(found: Session, **options: Any) -> Page:
        others = [replace(found, plan=found.plan.changed(one.name, enabled=False)) for one in found.plan.regions[:1]]
        path = save(found, tmp_path / "saved.html", (found, *others))
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: errors.append(dialog.message))
        page.goto(path.as_uri())
        return page

    yield save_and_open
    for context in contexts:
        context.close()
    assert [url for url in requests if not url.startswith("file:")] == []
    assert errors == []


@pytest.fixture
def page(open_page: Open) -> Page:
    return open_page(session())


@pytest.fixture
def graph(page: Page) -> Graph:
    return Graph(page.locator(".rxg"))


def box_count(graph: Graph) -> int:
    return int(graph.selected.inner_text().split(" nodes in ")[1].split()[0])


@pytest.mark.parametrize("transitions", [True, False])
def test_the_graph_has_the_colours_of_the_page(page: Page, graph: Graph, transitions: bool) -> None:
    if not transitions:
        page.emulate_media(reduced_motion="reduce")
        page.add_style_tag(content="* { transition: none !important }")
    canvas = graph.canvas.element_handle()
    for theme, shown in THEMES.items():
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(shown, arg=canvas)


def test_the_graph_is_redrawn_for_another_pixel_ratio(page: Page, graph: Graph) -> None:
    sides = "canvas => [canvas.width, canvas.height]"
    wide, high = graph.canvas.evaluate(sides)
    screen = {"width": 1280, "height": 901, "deviceScaleFactor": 2, "mobile": False}
    page.context.new_cdp_session(page).send("Emulation.setDeviceMetricsOverride", screen)
    is_redrawn = "([canvas, sides]) => String([canvas.width, canvas.height]) === String(sides)"
    page.wait_for_function(is_redrawn, arg=[graph.canvas.element_handle(), [2 * wide, 2 * high]])
    assert graph.canvas.evaluate("canvas => canvas.toDataURL().length") > 4000


def test_folds_open_and_close_by_button_and_key(page: Page, graph: Graph) -> None:
    graph.button("Collapse all").click()
    few = box_count(graph)
    graph.button("Expand all").click()
    many = box_count(graph)
    assert few < 21 <= many
    graph.button("Collapse all").click()
    graph.press("n", "n", "Enter")
    assert few < box_count(graph) < many
    page.locator("[data-do=back]").first.click()
    assert box_count(graph) == 21
    backward = page.get_by_role("tab", name="backward")
    backward.click()
    expect(backward).to_have_attribute("aria-selected", "true")
    assert box_count(graph) != 21


def test_search_finds_and_selects_a_node(page: Page, graph: Graph) -> None:
    graph.search.fill("op:gelu")
    expect(graph.count).to_have_text("4 found")
    page.keyboard.press("Enter")
    expect(graph.count).to_have_text("1 / 4 boxes")
    expect(graph.tip).to_contain_text("gelu0")
    graph.button("Select all matches").click()
    expect(graph.selected).to_contain_text("4 of 25 nodes selected")


def test_lines_select_their_nodes_and_nodes_highlight_their_lines(page: Page, graph: Graph) -> None:
    lines = page.locator(".rxs-line[data-do=nodes]")
    lines.nth(2).click(modifiers=["Shift"])  # the first click: no line begins a range yet
    graph.expect_selection_text("4 of 25 nodes selected, 8 in other graphs")
    lines.nth(1).click()
    graph.expect_selection_text("8 of 25 nodes selected, 4 in other graphs")
    expect(lines.nth(1)).to_have_attribute("aria-selected", "true")
    lines.nth(2).click(modifiers=["Shift"])
    graph.expect_selection_text("12 of 25 nodes selected, 12 in other graphs")
    lines.nth(1).click(modifiers=["Control"])
    graph.expect_selection_text("4 of 25 nodes selected, 8 in other graphs")
    graph.press("Escape")
    expect(lines.nth(1)).to_have_attribute("aria-selected", "false")
    graph.press("n", "n", " ")
    expect(page.locator(".rxs-line[aria-selected=true]")).to_have_count(1)
    graph.press("u")
    expect(graph.selected).to_contain_text("3 of 25 nodes selected")


def test_the_share_of_the_time_colours_the_boxes(open_page: Open) -> None:
    page = open_page(sessions.profiled(session()))
    graph = Graph(page.locator(".rxg"))
    canvas = graph.canvas.element_handle()
    before = canvas.evaluate(INK)
    graph.root.get_by_label("Colour").select_option(SHARE)
    expect(page.locator(".rxg-key")).to_have_text("share of the time nonemost")
    page.wait_for_function(CHANGED, arg=[canvas, before])
    graph.press("n", "n")
    expect(graph.tip).to_contain_text("of the call")
    page.get_by_role("tab", name="forward").press("ArrowRight")
    expect(page.get_by_role("tab", name="backward")).to_be_focused()
    graph.press("n", "n")
    expect(graph.tip).to_contain_text("in the backward")


def test_code_opens_and_its_lines_show_their_nodes(page: Page, graph: Graph) -> None:
    page.get_by_text("Code of mlp").click()
    expect(page.get_by_text("Diagnostics (2)").locator("xpath=..")).not_to_have_attribute("open", "")
    page.locator(".rx-code [data-nodes]").first.click()
    expect(graph.selected).to_contain_text("2 of 25 nodes selected")
    page.get_by_text("Diagnostics (2)").click()
    page.get_by_role("button", name="Show the nodes of region-split").click()
    expect(graph.selected).to_contain_text("8 of 25 nodes selected")
    expect(page.get_by_text("Measured plans")).to_be_visible()


def test_a_table_is_copied_with_tabs_and_newlines(page: Page) -> None:
    found = page.locator(".rx-results table").first
    heads, first = (found.locator(f"tr:nth-child(1) {kind}").all_inner_texts() for kind in ("th", "td"))
    copied = found.evaluate("table => { getSelection().selectAllChildren(table); return String(getSelection()); }")
    assert [line.split("\t") for line in copied.split("\n") if line][:2] == [heads, first]
    assert len(heads) > 2


def test_code_without_nodes_selects_nothing(open_page: Open) -> None:
    found = session()
    code = found.artifacts["artifact-0/forward"].code
    assert code is not None
    page = open_page(sessions.with_code(found, replace(code, kernels=(replace(code.kernels[0], nodes=()),))))
    page.get_by_text("Code of mlp").click()
    page.locator(".rx-code [data-kernels]").first.click()
    page.locator("[data-do=region]").click()
    page.locator(".rx-code [data-kernels]").first.click()
    expect(page.locator(".rxg-selected")).to_contain_text("12 of 25 nodes selected")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible_in_the_theme_of_the_reader(open_page: Open, theme: str) -> None:
    page = open_page(session(), color_scheme=theme)
    assert page.locator(".rxg").evaluate("root => root.classList.contains('rxg-dark')") is (theme == "dark")
    for pane in ("Code of mlp", "Diagnostics (2)"):
        fold = page.locator("details[name=beside]", has_text=pane).first
        if fold.get_attribute("open") is None:
            fold.locator("summary").first.click()
        assert accessibility_faults(page) == []


def test_a_printed_page_has_a_picture_for_the_view(page: Page, tmp_path: Path) -> None:
    expect(page.locator(".rx-drawn svg")).to_be_hidden()
    page.emulate_media(media="print")
    expect(page.locator(".rx-drawn svg")).to_be_visible()
    expect(page.locator(".rxg")).to_be_hidden()
    expect(page.get_by_text("Mark the op between them too.")).to_be_visible()
    expect(page.get_by_role("heading", name="Run time")).to_be_visible()
    target = tmp_path / "page.pdf"
    page.pdf(path=target)
    assert target.read_bytes().startswith(b"%PDF")


def test_closed_parts_are_printed(page: Page) -> None:
    page.get_by_text("Diagnostics (2)").click()
    advice = page.get_by_text("Mark the op between them too.")
    expect(advice).to_be_hidden()
    page.emulate_media(media="print")
    expect(advice).to_be_visible()
    page.emulate_media(media="screen")
    expect(advice).to_be_hidden()
    expect(page.locator("[data-part=source]")).to_be_visible()


def test_the_page_has_picture_and_tables_without_scripts(open_page: Open) -> None:
    page = open_page(session(), java_script_enabled=False)
    expect(page.locator(".rx-drawn svg")).to_be_visible()
    expect(page.get_by_role("heading", name="Run time")).to_be_visible()


@pytest.mark.parametrize("hostile", sessions.HOSTILE[:6], ids=lambda one: ascii(one[:12]))
def test_hostile_names_run_nothing(open_page: Open, hostile: str) -> None:
    page = open_page(sessions.hostile_session(hostile))
    expect(page.locator(".rxg-canvas")).to_be_visible()
    assert page.locator("script").count() == 2
    assert page.locator("img, iframe").count() == 0
