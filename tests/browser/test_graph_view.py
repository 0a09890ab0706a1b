"""The graph view and the source view in a real JupyterLab, and in a page of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from regional_explorer.ui.widget import SessionView
from tests.browser.lab import Lab
from tests.browser.views import DRAWN, THEMES, Graph
from tests.shared import sessions

SHOW = """
import json
from tests.shared import sessions
from regional_explorer.ui.widget import SessionView
"""
TRAINED = "view = SessionView(sessions.training_session(3))"
DEEP = "view = SessionView(sessions.training_session(40))"
MODULES = "view = SessionView(sessions.session((sessions.layers_graph(12),)))"


@pytest.fixture
def show(jupyterlab: Lab) -> Iterator[Callable[..., Graph]]:
    """A function that shows a view in a notebook; at the end no error may have been logged."""
    with ExitStack() as notebooks:

        def show_view(code: str, *, on: Lab = jupyterlab, below: Sequence[str] = ()) -> Graph:
            notebooks.enter_context(on.running([f"{SHOW}{code}\nview", *below]))
            return Graph.fitted(on.output(0))

        yield show_view


Show = Callable[..., Graph]


def selection(lab: Lab, graph: Graph) -> list[str]:
    graph.wait_for_kernel()
    found: list[str] = json.loads(lab.kernel_value("json.dumps(view.selection)"))
    return found


def test_pointing_shows_a_tooltip_and_clicks_select_in_the_kernel(jupyterlab: Lab, show: Show) -> None:
    graph = show(TRAINED)
    graph.point("gelu1")
    expect(graph.tip).to_contain_text("gelu1 = aten.gelu.default")
    expect(graph.tip).to_contain_text("float32[2, 128, 256]")
    expect(graph.tip).to_contain_text("model.py:6 in forward: y = self.mlp(x)")
    expect(graph.tip).to_contain_text("mlp[1] · 3 ops · compiled")

    graph.click("gelu0")
    graph.expect_selection_text("1 of 19 nodes selected")
    assert selection(jupyterlab, graph) == ["0/forward:gelu0"]
    graph.click("mm1", "Shift")  # in the order they run: gelu, add, norm, item, t, mm
    graph.expect_selection_text("6 of 19 nodes selected")
    graph.click("mm1", "Control")
    graph.click("add2", "Control")
    graph.expect_selection_text("6 of 19 nodes selected")
    chosen = ("gelu0", "add0", "norm1", "item1", "t1", "add2")
    assert selection(jupyterlab, graph) == [f"0/forward:{name}" for name in chosen]
    graph.press("Escape")
    graph.expect_selection_text("19 nodes in 16 boxes")

    graph.click("gelu0")
    graph.press("u")
    graph.expect_selection_text("6 of 19 nodes selected")
    graph.press("Escape")
    graph.click("gelu2")
    graph.press("d")
    graph.expect_selection_text("2 of 19 nodes selected")
    graph.wait_for_kernel()
    jupyterlab.run_code("view.select(['0/forward:t0', '0/backward:tanh1'])")
    graph.expect_selection_text("1 of 19 nodes selected, 1 in other graphs")
    graph.press("u")  # keeps the selection in other graphs
    graph.wait_for_kernel()
    jupyterlab.run_code("view.set_session(sessions.training_session(2))")
    graph.expect_selection_text("1 of 13 nodes selected, 1 in other graphs")


def test_edges_of_selected_nodes_are_highlighted(show: Show) -> None:
    graph = show(TRAINED)
    before = [graph.ink_between(f"mm{n}", f"gelu{n}") for n in (0, 1)]
    graph.click("mm1")
    graph.expect_selection_text("1 of 19 nodes selected")
    after = [graph.ink_between(f"mm{n}", f"gelu{n}") for n in (0, 1)]
    assert after[1] > 1.3 * before[1]
    assert after[0] <= before[0]  # the other edges become lighter
    graph.press("Escape")
    graph.expect_selection_text("19 nodes in 16 boxes")
    assert [graph.ink_between(f"mm{n}", f"gelu{n}") for n in (0, 1)] == pytest.approx(before, rel=0.05)


def test_the_lasso_selects_the_boxes_inside(jupyterlab: Lab, show: Show) -> None:
    graph = show(TRAINED)
    page = graph.page
    (left, top), (right, bottom) = graph.at("mm1"), graph.at("gelu1")
    page.keyboard.down("Alt")
    page.mouse.move(left - 30, top - 8)
    page.mouse.down()
    for corner in ((left + 30, top - 8), (right + 30, bottom + 8), (right - 30, bottom + 8)):
        page.mouse.move(*corner, steps=4)
    page.mouse.up()
    page.keyboard.up("Alt")
    assert selection(jupyterlab, graph) == ["0/forward:mm1", "0/forward:gelu1"]


def test_search_counts_steps_through_and_selects_matches(show: Show) -> None:
    graph = show(TRAINED)
    keyboard = graph.page.keyboard
    graph.press("/")
    keyboard.type("op:gelu")
    expect(graph.count).to_have_text("3 found")
    keyboard.press("Shift+Enter")
    expect(graph.count).to_have_text("3 / 3 boxes")
    keyboard.press("Enter")
    keyboard.press("Enter")
    expect(graph.count).to_have_text("2 / 3 boxes")
    expect(graph.tip).to_contain_text("gelu1 = aten.gelu.default")
    for query, text in (
        ("2x128 region:mlp mm", "3 found"),
        ("/^(add|t)[01]$/", "4 found"),
        ("module:layers.2", "6 found"),
        ("line:forward state:compiled", "9 found"),
        ("/(/", "not a regular expression"),
        ("nonsense", "0 found"),
        ("gelu", "3 found"),
    ):
        graph.search.fill(query)
        expect(graph.count).to_have_text(text)
    graph.press("s")
    graph.expect_selection_text("3 of 19 nodes selected")
    graph.press("Escape")
    graph.button("Select all matches").click()
    graph.expect_selection_text("3 of 19 nodes selected")
    graph.search.press("Escape")
    expect(graph.count).to_have_text("")


def test_search_shows_the_first_match(show: Show) -> None:
    graph = show(DEEP)
    graph.press(*["+"] * 10)
    expect(graph.root.locator(".rxg-map")).to_be_visible()
    graph.press("/")
    graph.page.keyboard.type("name:norm0")
    expect(graph.count).to_have_text("1 found")
    left, top, width, height = graph.area()
    graph.page.mouse.move(left + width / 2, top + height / 2)
    expect(graph.tip).to_contain_text("norm0 = aten.native_layer_norm")


def test_the_view_pans_and_zooms(show: Show) -> None:
    graph = show(DEEP)
    mouse = graph.page.mouse
    x, y = graph.at("gelu0")
    graph.point("gelu0")
    expect(graph.tip).to_contain_text("gelu0 = aten.gelu.default")
    graph.page.keyboard.down("Control")
    for _ in range(4):  # the point under the pointer stays there
        mouse.wheel(0, -100)
    graph.page.keyboard.up("Control")
    mouse.move(x + 1, y)
    expect(graph.tip).to_contain_text("gelu0 = aten.gelu.default")
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 60, y, steps=3)
    mouse.up()
    mouse.move(x + 60, y)
    expect(graph.tip).to_contain_text("gelu0 = aten.gelu.default")

    minimap = graph.root.locator(".rxg-map")
    expect(minimap).to_be_visible()
    minimap.click(position={"x": 3, "y": 3})
    mouse.move(x + 60, y)
    expect(graph.tip.filter(has_text="gelu0 = ")).to_have_count(0)
    graph.press("m")
    expect(minimap).to_be_hidden()
    graph.press("f")
    graph.point("gelu0")
    expect(graph.tip).to_contain_text("gelu0 = aten.gelu.default")


def test_the_wheel_scrolls_the_page_and_zooms_with_ctrl(host: Lab, show: Show) -> None:
    graph = show(TRAINED, on=host, below=["# one\n# more\n# cell"] * 20)
    graph.stage.hover()
    canvas, top = graph.canvas.element_handle(), graph.area()[1]
    for key, turn in (("Control", 100), ("Meta", -100)):
        drawn = canvas.evaluate("canvas => canvas.toDataURL()")
        host.page.keyboard.down(key)
        for _ in range(3):
            host.page.mouse.wheel(0, turn)
        host.page.keyboard.up(key)
        host.page.wait_for_function("([canvas, drawn]) => canvas.toDataURL() !== drawn", arg=[canvas, drawn])
    host.page.evaluate(DRAWN)
    assert graph.area()[1] == top
    for _ in range(6):
        host.page.mouse.wheel(0, 100)
    host.page.wait_for_function("([canvas, top]) => top - canvas.getBoundingClientRect().top > 200", arg=[canvas, top])


def test_the_graph_never_leaves_its_view(show: Show) -> None:
    graph = show(TRAINED)
    graph.press("m")
    count_shades = """el => {
        const { data } = el.getContext('2d').getImageData(0, 0, el.width, el.height);
        return new Set(data.filter((_, at) => at % 4 === 0)).size;
    }"""
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"):
        graph.press(*[f"Shift+{key}"] * 12)
        assert graph.canvas.evaluate(count_shades) > 10, key
    graph.press(*["-"] * 30)
    assert graph.canvas.evaluate(count_shades) > 10
    graph.press(*["+"] * 40)
    left, top, width, height = graph.area()
    mouse = graph.page.mouse
    for dx, dy in ((-300, 0), (0, -200)):
        for _ in range(6):
            mouse.move(left + width / 2 - dx, top + height / 2 - dy)
            mouse.down()
            mouse.move(left + width / 2 + dx, top + height / 2 + dy)
            mouse.up()
    graph.press("f")
    graph.point("gelu1")
    expect(graph.tip).to_contain_text("gelu1 = aten.gelu.default")


def test_the_graph_is_usable_by_keyboard_alone(jupyterlab: Lab, show: Show) -> None:
    graph = show(DEEP)
    live = graph.root.locator(".rxg-live")
    graph.press("Home")
    expect(live).to_contain_text("x.")
    graph.press("n", "n", "n")
    expect(live).to_contain_text("mm.")
    expect(live).to_contain_text("region mlp[0]")
    graph.press(" ")
    graph.expect_selection_text("1 of 241 nodes selected")
    graph.press("Shift+N", "Shift+N")
    graph.expect_selection_text("3 of 241 nodes selected")
    graph.press("Control+Space")
    graph.expect_selection_text("2 of 241 nodes selected")
    graph.press("End", "Enter")  # the last box is the repeat
    expect(graph.selected).not_to_contain_text("in 7 boxes")
    graph.press("Control+a")
    graph.expect_selection_text("241 of 241 nodes selected")
    graph.press("Escape", "c")
    graph.expect_selection_text("241 nodes in 2 boxes")
    graph.press("e")
    graph.expect_selection_text("241 nodes in 201 boxes")
    forward, backward = (graph.root.get_by_role("tab", name=name) for name in ("forward", "backward"))
    graph.press("g")
    expect(backward).to_have_attribute("aria-selected", "true")
    expect(graph.stage).to_have_attribute("aria-label", re.compile("^backward · 160 ops: "))
    graph.press("t")
    forward.focus()
    for key, there in (("ArrowRight", backward), ("ArrowLeft", forward)):
        jupyterlab.page.keyboard.press(key)
        expect(there).to_be_focused()
        expect(there).to_have_attribute("aria-selected", "true")
    graph.press("?")
    expect(graph.root.locator(".rxg-help")).to_be_visible()
    graph.press("Escape")
    expect(graph.root.locator(".rxg-help")).to_be_hidden()
    # Keys of the view are not JupyterLab's: no cell was cut, added or run.
    assert jupyterlab.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == 1


def test_the_graph_opens_on_modules_and_crumbs_lead_back(host: Lab, show: Show) -> None:
    graph = show(MODULES, on=host)
    graph.expect_selection_text("73 nodes in 2 boxes")
    graph.point("gelu3")
    expect(graph.tip).to_contain_text("layers.0–11 × 12")
    graph.click("gelu3", plus=True)
    graph.expect_selection_text("73 nodes in 3 boxes")
    expect(graph.crumbs).to_have_text(["forward", "layers.0–11"])
    expect(graph.crumbs.last).to_have_attribute("aria-current", "location")
    graph.click("gelu0", plus=True)
    expect(graph.crumbs).to_have_text(["forward", "layers.0–11", "layers.0"])
    for node, text in (("gelu0", "layers.0.mlp"), ("add0", "add0 = aten.add.Tensor"), ("gelu5", "layers.1–11 × 11")):
        graph.point(node)  # at its position in a picture that fits the view
        expect(graph.tip).to_contain_text(text)
    graph.crumbs.nth(1).click()
    graph.expect_selection_text("73 nodes in 3 boxes")
    graph.crumbs.first.click()
    graph.expect_selection_text("73 nodes in 2 boxes")
    expect(graph.crumbs).to_have_text(["forward"])


def test_the_graph_is_redrawn_at_any_size_and_tabs_switch(jupyterlab: Lab, show: Show) -> None:
    graph = show(TRAINED)
    canvas = graph.canvas.element_handle()
    was_redrawn = """([canvas, before]) => {
        const { clientWidth } = canvas.parentElement;
        return clientWidth !== before && Math.abs(canvas.width - clientWidth * devicePixelRatio) <= 2;
    }"""
    for width, height in ((700, 700), (2500, 1200), (1280, 900)):
        before = canvas.evaluate("canvas => canvas.parentElement.clientWidth")
        jupyterlab.set_viewport(width, height)
        jupyterlab.page.wait_for_function(was_redrawn, arg=[canvas, before])
    graph.root.get_by_role("tab", name="partitions").click()
    graph.expect_selection_text("32 nodes in 17 boxes")


def test_the_colours_follow_the_theme_without_a_transition(host: Lab, show: Show) -> None:
    page, canvas = host.page, show(TRAINED, on=host).canvas.element_handle()

    def follow() -> None:
        for theme, shown in THEMES.items():
            host.set_theme(theme)
            page.wait_for_function(shown, arg=canvas)

    follow()
    page.emulate_media(reduced_motion="reduce")
    follow()
    without_transitions = page.add_style_tag(content="* { transition: none !important }")
    follow()
    page.emulate_media(reduced_motion="null")
    without_transitions.evaluate("style => style.remove()")


def test_several_views_on_one_page_do_not_clash(jupyterlab: Lab, show: Show) -> None:
    graph = show(TRAINED)
    index = jupyterlab.add_cell_and_run(
        "other = SessionView(sessions.training_session(2))\ndisplay(view)\ndisplay(other)"
    )
    views = jupyterlab.output(index).locator(".rxg")
    again, other = Graph(views.first), Graph(views.last)
    again.expect_selection_text("19 nodes in 16 boxes")
    other.expect_selection_text("13 nodes in 11 boxes")
    again.button("mlp").click()
    again.expect_selection_text("9 of 19 nodes selected")
    other.expect_selection_text("13 nodes in 11 boxes")
    jupyterlab.execute("notebook:clear-cell-output")
    graph.stage.scroll_into_view_if_needed()
    graph.expect_selection_text("9 of 19 nodes selected")


def test_hostile_names_stay_text(jupyterlab: Lab, show: Show) -> None:
    show(
        "import ipywidgets\n"
        "view = ipywidgets.VBox([SessionView(sessions.hostile_session(text), height=200) for text in sessions.HOSTILE])"
    )
    views = jupyterlab.output(0).locator(".rxg")
    expect(views).to_have_count(len(sessions.HOSTILE))
    for view in map(Graph, views.all()):
        view.press("Home", "n", "n", " ", "s")
        expect(view.selected).to_contain_text("4 nodes")
    assert jupyterlab.output(0).locator("script, img, iframe").count() == 0


SHOT = f"{DRAWN}.then(() => document.querySelector('.rxg-canvas').toDataURL())"
DRAG = """
(keys) => {
    const canvas = document.querySelector(".rxg-canvas"), { left, top } = canvas.getBoundingClientRect();
    for (const [name, by] of [["pointerdown", 0], ["pointermove", 40], ["pointermove", 80]]) {
        const where = { clientX: left + 100 + by, clientY: top + 100 + by * by / 200, movementX: by, movementY: by };
        canvas.dispatchEvent(new PointerEvent(name, { ...where, ...keys, buttons: 1, pointerId: 1, bubbles: true }));
    }
}
"""
MOVE = """() => document.querySelector(".rxg-canvas").dispatchEvent(new PointerEvent("pointermove", {
    clientX: 3, clientY: 3, movementX: 40, movementY: 40, pointerId: 1, bubbles: true }))"""
RECORD_TEXTS = """() => {
    const pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
    window.written = {};
    pen.fillText = function (text, x, y) { written[text] = x; write.call(this, text, x, y); };
}"""
"""Records the last position of each text."""
POINT_AND_TYPE = """
(closes) => {
    const stage = document.querySelector(".rxg-stage"), search = document.querySelector(".rxg input");
    stage.dispatchEvent(new KeyboardEvent("keydown", { key: "n" }));
    search.value = "gelu";
    search.dispatchEvent(new Event("input", { bubbles: true }));
    if (closes) close_view();
}
"""
SENT_SELECTIONS = "sent.filter((message) => message.do === 'select')"
"""The selections that were sent, without requests for graphs of an idle page."""
SELECT_POINTED = "document.querySelector('.rxg-stage').dispatchEvent(new KeyboardEvent('keydown', { key: ' ' }))"

OpenView = Callable[[SessionView], Page]


@pytest.mark.parametrize("closes", [False, True])
def test_a_closed_view_sends_no_more_state(open_view: OpenView, closes: bool) -> None:
    page = open_view(SessionView(sessions.training_session(3)))
    page.clock.install()
    page.evaluate(POINT_AND_TYPE, closes)
    page.clock.run_for(1_000)
    assert page.evaluate("state.search ?? ''") == ("" if closes else "gelu")


@pytest.mark.parametrize("keys", [{}, {"altKey": True}], ids=["a drag", "a lasso"])
def test_a_drag_that_the_browser_cancels_leaves_nothing(open_view: OpenView, keys: dict[str, bool]) -> None:
    page = open_view(SessionView(sessions.training_session(3)))
    still = page.evaluate(SHOT)
    page.evaluate(DRAG, keys)
    assert page.evaluate(SHOT) != still
    page.evaluate("document.querySelector('.rxg-canvas').dispatchEvent(new PointerEvent('pointercancel'))")
    after = page.evaluate(SHOT)
    assert (after == still) is ("altKey" in keys)
    page.evaluate(MOVE)
    assert page.evaluate(SHOT) == after, "the press is over"


def test_a_late_selection_does_not_replace_a_newer_one(open_view: OpenView) -> None:
    view = SessionView(sessions.training_session(3))
    here, there = open_view(view), open_view(view)
    for page in (there, there, here):
        page.evaluate(POINT_AND_TYPE, False)
        page.evaluate(SELECT_POINTED)
    late = "({ selection, answered }) => answer({ selection, answered })"
    (chosen,) = here.evaluate(SENT_SELECTIONS)
    others = {there.evaluate(SENT_SELECTIONS)[0]["page"]: 99, chosen["page"]: chosen["number"] - 1}
    here.evaluate(late, {"selection": ["0/forward:gelu2"], "answered": others})
    assert here.evaluate("state.selection") == chosen["value"] != ["0/forward:gelu2"]
    others[chosen["page"]] += 1
    here.evaluate(late, {"selection": ["0/forward:gelu2"], "answered": others})
    assert here.evaluate("state.selection") == ["0/forward:gelu2"]


def test_last_selection_wins_while_the_kernel_is_busy(open_view: OpenView) -> None:
    page = open_view(SessionView(sessions.training_session(3)))
    page.evaluate("void show()")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    views = [Graph(one) for one in page.locator(".rxg").all()]
    for graph, node in zip([*views, views[0]], ("gelu0", "mm1", "gelu2"), strict=True):
        graph.stage.scroll_into_view_if_needed()
        graph.press("f")
        graph.click(node)
        assert page.evaluate("state.selection") == [f"0/forward:{node}"]
    messages = page.evaluate(SENT_SELECTIONS)
    answered = {message["page"]: message["number"] for message in messages[:2]}
    page.evaluate("news => answer(news)", {"selection": ["0/forward:mm1"], "answered": answered})
    assert page.evaluate("state.selection") == ["0/forward:gelu2"], "the kernel does not know it yet"
    answered[messages[2]["page"]] = messages[2]["number"]
    page.evaluate("news => answer(news)", {"selection": ["0/forward:mm0"], "answered": answered})
    assert page.evaluate("state.selection") == ["0/forward:mm0"]
    for graph in views:
        graph.expect_selection_text("1 of 19 nodes selected")
    assert errors == []


def test_shown_nodes_open_their_tab(open_view: OpenView) -> None:
    page = open_view(SessionView(sessions.training_session(3), shown={"tab": "partitions"}))
    shown, tip = page.get_by_role("tab", selected=True), Graph(page.locator(".rxg")).tip
    page.evaluate("tell({ show: ['0/backward:tanh1'] })")
    expect(tip).to_contain_text("mlp[1]")
    expect(shown).to_have_text("partitions")
    session = sessions.training_session(3)
    other = replace(session.graphs[0], id="1/forward", frame=1)
    page = open_view(SessionView(replace(session, graphs=(*session.graphs, other)), shown={"tab": "1/forward"}))
    page.evaluate("tell({ show: ['0/forward:gelu1', '0/backward:tanh1'] })")
    expect(page.get_by_role("tab", selected=True)).to_have_text("forward of frame 0")


def expect_boxes(graph: Graph, count: int) -> None:
    expect(graph.stage).to_have_attribute("aria-label", f"forward · 240 ops: {count} boxes")


@pytest.fixture
def deep_graph(open_view: OpenView) -> Graph:
    return Graph(open_view(SessionView(sessions.training_session(40))).locator(".rxg"))


@pytest.fixture
def folded_graph(deep_graph: Graph) -> Graph:
    """The graph of a deep model: the first region is folded, and so are all layers but the first."""
    expect_boxes(deep_graph, 7)
    deep_graph.click("gelu0", count=2)
    expect_boxes(deep_graph, 5)
    return deep_graph


def test_a_range_selection_begins_at_the_last_click(folded_graph: Graph) -> None:
    folded_graph.click("add0")
    folded_graph.click("gelu0", plus=True)
    expect_boxes(folded_graph, 7)
    folded_graph.click("norm0", "Shift")
    folded_graph.expect_selection_text("6 of 241 nodes selected")  # norm, item, t, mm, gelu, add


def test_a_double_click_on_plus_only_opens_one_box(folded_graph: Graph) -> None:
    folded_graph.press("Escape")
    folded_graph.click("gelu0", plus=True, count=2)
    folded_graph.page.evaluate(DRAWN)
    expect_boxes(folded_graph, 7)
    folded_graph.expect_selection_text("241 nodes in 7 boxes")


def test_keys_act_on_the_pointed_box(deep_graph: Graph) -> None:
    deep_graph.click("add0")
    deep_graph.point("gelu0")
    deep_graph.page.keyboard.press("Enter")
    expect_boxes(deep_graph, 5)
    deep_graph.page.mouse.move(0, 0)
    deep_graph.page.keyboard.press("End")
    highlighted = deep_graph.page.locator(".rxs [data-lit~=hovered]")
    expect(deep_graph.tip).to_be_visible()
    expect(highlighted.first).to_be_attached()
    deep_graph.page.keyboard.press("Enter")
    expect_boxes(deep_graph, 43)
    expect(deep_graph.tip).to_be_hidden()
    expect(highlighted).to_have_count(0)


def test_the_title_of_a_graph_stays_in_view(deep_graph: Graph) -> None:
    written = "written['forward · 240 ops']"
    deep_graph.page.evaluate(RECORD_TEXTS)
    deep_graph.press("f")
    deep_graph.page.evaluate(SHOT)
    assert deep_graph.page.evaluate(written) > 8
    deep_graph.press("e", *["+"] * 4)
    for _ in range(2):
        deep_graph.press(*["ArrowRight"] * 4)
        deep_graph.page.evaluate(SHOT)
        assert deep_graph.page.evaluate(written) == 8


def test_a_tab_left_before_its_graph_arrives_is_not_selected(open_view: OpenView) -> None:
    page = open_view(SessionView(sessions.training_session(3)))
    selected = page.get_by_role("tab", selected=True)
    Graph(page.locator(".rxg")).press("g")
    expect(selected).to_have_text("backward")
    Graph(page.locator(".rxg")).press("t")
    expect(selected).to_have_text("forward")


def test_the_window_stays_where_the_minimap_moved_it(open_view: OpenView) -> None:
    page = open_view(SessionView(sessions.training_session(40), shown={"folds": {"0/forward": {"all": True}}}))
    where = "root => [root.rxView.camera.x, root.rxView.camera.y]"
    page.locator(".rxg-map").click()
    moved = page.locator(".rxg").evaluate(where)
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_function("innerWidth === 1000")
    page.evaluate(DRAWN)
    assert page.locator(".rxg").evaluate(where) == pytest.approx(moved, abs=1)
