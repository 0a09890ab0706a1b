"""The graph view and the source view in a real JupyterLab."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Dialog, Locator, Page, expect

from regional_explorer.ui.widget import SessionView
from tests.browser.lab import Lab
from tests.shared import sessions

SHOW = """
import json
from tests.shared import sessions
from regional_explorer.ui.widget import SessionView
"""
TRAINED = "view = SessionView(sessions.trained(3))"
DEEP = "view = SessionView(sessions.trained(40))"

CAPTURED = """
import torch
import torch.nn.functional as F
import regional_explorer as rx

class Attention(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weight = torch.softmax(q @ k.transpose(-2, -1) / 8, dim=-1)
        return self.out(weight @ v)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.down(F.gelu(self.up(self.norm(x))))

model = torch.nn.Sequential(Block(64), Block(64))
ex = rx.explore(model, (torch.randn(2, 16, 64),))
ex.mark("attention", modules="*.attention")
ex.mark("mlp", modules=["*.up", "*.down"])
"""

GROUND = "canvas.getContext('2d').getImageData(3, canvas.height - 3, 1, 1).data[0]"
THEMES: dict[Literal["dark", "light"], str] = {
    "dark": f"canvas => {GROUND} < 60",
    "light": f"canvas => {GROUND} > 200",
}
INK = """
([x, y]) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    const canvas = document.querySelector(".rxg-stage canvas");
    const k = canvas.width / canvas.clientWidth;
    const { data } = canvas.getContext("2d").getImageData((x - 4) * k, y * k, 8 * k, 1);
    let sum = 0;
    for (let at = 0; at < data.length; at += 4) sum += 255 - (data[at] + data[at + 1] + data[at + 2]) / 3;
    done(sum / (data.length / 4));
})))
"""


WHERE = """
(root, node) => {
    const { picture, camera } = root.rxView;
    const { x, y, w, h } = picture.rect(picture.nodeBoxes[picture.ids.findIndex((id) => id.endsWith(`:${node}`))]);
    return { left: camera.toWindow(x, y)[0], middle: camera.toWindow(x + w / 2, y + h / 2), scale: camera.k };
}
"""


class Graph:
    """A graph view in the page, in the words of a test; it was fitted into its window."""

    def __init__(self, lab: Lab, cell: int, output: Locator) -> None:
        self.lab, self.cell, self.root = lab, cell, output.locator(".rxg").last
        self.stage = self.root.locator(".rxg-stage")
        self.stage.scroll_into_view_if_needed()
        self.root.get_by_role("button", name="Fit the graph to the view").click()

    def at(self, node: str) -> tuple[float, float]:
        """Return where the middle of a node's box is, in the window."""
        area, where = self.stage.bounding_box(), self.root.evaluate(WHERE, node)
        assert area is not None
        return (area["x"] + where["middle"][0], area["y"] + where["middle"][1])

    def point(self, node: str) -> None:
        self.lab.page.mouse.move(*self.at(node))

    def click(self, node: str, *modifiers: str, count: int = 1) -> None:
        keyboard = self.lab.page.keyboard
        for key in modifiers:
            keyboard.down(key)
        self.lab.page.mouse.click(*self.at(node), click_count=count)
        for key in modifiers:
            keyboard.up(key)

    def open(self, node: str) -> None:
        """Click on the + of a node's box."""
        where, (x, y) = self.root.evaluate(WHERE, node), self.at(node)
        self.lab.page.mouse.click(x - where["middle"][0] + where["left"] + 6 * where["scale"], y)
        self.lab.wait_idle()

    def press(self, *keys: str) -> None:
        self.stage.focus()
        for key in keys:
            self.lab.page.keyboard.press(key)

    def says(self, text: str) -> None:
        expect(self.root.locator(".rxg-selected")).to_have_text(text)

    def ink_between(self, above: str, below: str) -> float:
        """Return how dark the picture is, 0 to 255, between two boxes that stand one above the other."""
        (x, y), (_, lower) = self.at(above), self.at(below)
        area = self.stage.bounding_box()
        assert area is not None
        self.lab.page.mouse.move(area["x"] + 3, area["y"] + 3)  # what is pointed at is lit too
        ink: float = self.lab.page.evaluate(INK, [round(x - area["x"]), round((y + lower) / 2 - area["y"])])
        return ink

    def selection(self) -> list[str]:
        self.lab.wait_idle()  # the page holds a change back while the kernel is busy with the one before
        index = self.lab.add_cell_and_run("print(json.dumps(view.selection))")
        found: list[str] = json.loads(self.lab.outputs(index)[0]["text"])
        return found


@pytest.fixture
def show(lab: Lab) -> Iterator[Any]:
    """Give a function that shows a view in a notebook; in the end nothing may have gone wrong."""

    def shown(code: str, setup: str = SHOW) -> Graph:
        lab.write_notebook("graph.ipynb", [setup, code, "view"])
        lab.open_notebook("graph.ipynb")
        lab.run_all()
        for index in range(3):
            assert [output for output in lab.outputs(index) if output["output_type"] == "error"] == []
        lab.cell(2).scroll_into_view_if_needed()
        return Graph(lab, 2, lab.output(2))

    yield shown
    assert lab.errors == []
    assert lab.foreign_requests == []


def test_pointing_selecting_and_the_kernel_knows(lab: Lab, show: Any) -> None:
    graph = show(TRAINED)
    graph.point("gelu1")
    tip = graph.root.get_by_role("tooltip")
    expect(tip).to_contain_text("gelu1 = aten.gelu.default")
    expect(tip).to_contain_text("float32[2, 128, 256]")
    expect(tip).to_contain_text("model.py:6 in forward: y = self.mlp(x)")
    expect(tip).to_contain_text("mlp[1] · 3 ops · compiled")
    lab.screenshot("graph-hover", graph.root)

    graph.click("gelu0")
    graph.says("1 of 19 nodes selected")
    assert graph.selection() == ["0/forward:gelu0"]
    graph.click("mm1", "Shift")  # in the order they run: gelu, add, norm, item, t, mm
    graph.says("6 of 19 nodes selected")
    graph.click("mm1", "Control")
    graph.click("add2", "Control")
    graph.says("6 of 19 nodes selected")
    assert graph.selection() == [f"0/forward:{name}" for name in ("gelu0", "add0", "norm1", "item1", "t1", "add2")]
    lab.screenshot("graph-selection", graph.root)
    graph.press("Escape")
    graph.says("19 nodes in 16 boxes")

    graph.click("gelu0")
    graph.press("u")
    graph.says("6 of 19 nodes selected")
    graph.press("Escape")
    graph.click("gelu2")
    graph.press("d")
    graph.says("2 of 19 nodes selected")
    lab.wait_idle()
    lab.add_cell_and_run("view.select(['0/forward:t0', '0/backward:tanh1'])")
    graph.says("1 of 19 nodes selected, 1 in other graphs")
    graph.press("u")  # leaves what is selected in other graphs
    lab.add_cell_and_run("view.set_session(sessions.trained(2))")
    graph.says("1 of 13 nodes selected, 1 in other graphs")


def test_the_edges_of_the_selection_are_lit(show: Any) -> None:
    graph = show(TRAINED)
    before = [graph.ink_between(f"mm{n}", f"gelu{n}") for n in (0, 1)]
    graph.click("mm1")
    graph.says("1 of 19 nodes selected")
    after = [graph.ink_between(f"mm{n}", f"gelu{n}") for n in (0, 1)]
    assert after[1] > 1.3 * before[1]
    assert after[0] <= before[0]  # the others step back
    graph.press("Escape")
    graph.says("19 nodes in 16 boxes")
    assert [graph.ink_between(f"mm{n}", f"gelu{n}") for n in (0, 1)] == pytest.approx(before, rel=0.05)


def test_the_lasso(lab: Lab, show: Any) -> None:
    graph = show(TRAINED)
    corners = [graph.at("mm1"), graph.at("gelu1")]
    around = [(corners[0][0] - 30, corners[0][1] - 8), (corners[0][0] + 30, corners[0][1] - 8)]
    around += [(corners[1][0] + 30, corners[1][1] + 8), (corners[1][0] - 30, corners[1][1] + 8)]
    lab.page.keyboard.down("Alt")
    lab.page.mouse.move(*around[0])
    lab.page.mouse.down()
    for corner in around[1:]:
        lab.page.mouse.move(*corner, steps=4)
    lab.screenshot("graph-lasso", graph.root)
    lab.page.mouse.up()
    lab.page.keyboard.up("Alt")
    assert graph.selection() == ["0/forward:mm1", "0/forward:gelu1"]


def test_searching(lab: Lab, show: Any) -> None:
    graph = show(TRAINED)
    graph.press("/")
    lab.page.keyboard.type("op:gelu")
    count = graph.root.locator(".rxg-count")
    expect(count).to_have_text("3 found")
    lab.page.keyboard.press("Shift+Enter")
    expect(count).to_have_text("3 / 3 boxes")
    lab.page.keyboard.press("Enter")
    lab.page.keyboard.press("Enter")
    expect(count).to_have_text("2 / 3 boxes")
    expect(graph.root.get_by_role("tooltip")).to_contain_text("gelu1 = aten.gelu.default")
    lab.screenshot("graph-search", graph.root)
    search = graph.root.get_by_role("searchbox")
    for query, told in (
        ("2x128 region:mlp mm", "3 found"),
        ("/^(add|t)[01]$/", "4 found"),
        ("module:layers.2", "6 found"),
        ("line:forward state:compiled", "9 found"),
        ("/(/", "not a regular expression"),
        ("nonsense", "0 found"),
    ):
        search.fill(query)
        expect(count).to_have_text(told)
    search.fill("gelu")
    expect(count).to_have_text("3 found")
    graph.press("s")
    graph.says("3 of 19 nodes selected")
    graph.press("Escape")
    graph.root.get_by_role("button", name="Select all matches").click()
    graph.says("3 of 19 nodes selected")
    search.press("Escape")
    expect(count).to_have_text("")


def test_what_is_typed_brings_the_first_hit_into_view(lab: Lab, show: Any) -> None:
    graph = show(DEEP)
    graph.press(*["+"] * 10)
    expect(graph.root.locator(".rxg-map")).to_be_visible()
    graph.press("/")
    lab.page.keyboard.type("name:norm0")
    expect(graph.root.locator(".rxg-count")).to_have_text("1 found")
    area = graph.stage.bounding_box()
    assert area is not None
    lab.page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
    expect(graph.root.get_by_role("tooltip")).to_contain_text("norm0 = aten.native_layer_norm")


def test_moving_about(lab: Lab, show: Any) -> None:
    graph = show(DEEP)
    tip = graph.root.get_by_role("tooltip")
    x, y = graph.at("gelu0")
    graph.point("gelu0")
    expect(tip).to_contain_text("gelu0 = aten.gelu.default")
    lab.page.keyboard.down("Control")
    for _ in range(4):  # what is under the pointer stays there
        lab.page.mouse.wheel(0, -100)
    lab.page.keyboard.up("Control")
    lab.page.mouse.move(x + 1, y)
    expect(tip).to_contain_text("gelu0 = aten.gelu.default")
    lab.screenshot("graph-zoomed", graph.root)
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    lab.page.mouse.move(x + 60, y, steps=3)
    lab.page.mouse.up()
    lab.page.mouse.move(x + 60, y)
    expect(tip).to_contain_text("gelu0 = aten.gelu.default")

    map_ = graph.root.locator(".rxg-map")
    expect(map_).to_be_visible()
    map_.click(position={"x": 3, "y": 3})
    lab.page.mouse.move(x + 60, y)
    expect(tip.filter(has_text="gelu0 = ")).to_have_count(0)
    graph.press("m")
    expect(map_).to_be_hidden()
    graph.press("f")
    graph.point("gelu0")
    expect(tip).to_contain_text("gelu0 = aten.gelu.default")


def test_the_wheel_scrolls_the_page_and_zooms_with_ctrl(host: Lab) -> None:
    host.write_notebook("wheel.ipynb", [SHOW, TRAINED, "view", *["# one\n# more\n# cell"] * 20])
    host.open_notebook("wheel.ipynb")
    host.run_all()
    stage = host.output(2).locator(".rxg-stage")
    top = "stage => stage.getBoundingClientRect().top"
    stage.scroll_into_view_if_needed()
    for key, ticks in (("Control", 3), ("Meta", -2)):
        before, drawn = stage.evaluate(top), stage.screenshot()
        host.wheel(stage, ticks, key=key)
        assert stage.evaluate(top) == before
        assert stage.screenshot() != drawn
    before = stage.evaluate(top)
    host.wheel(stage, 6)
    assert before - stage.evaluate(top) > 200
    assert host.errors == []


def test_the_graph_never_leaves_its_view(lab: Lab, show: Any) -> None:
    graph = show(TRAINED)
    graph.press("m")
    blank = (
        "Array.from(el.getContext('2d').getImageData(0, 0, el.width, el.height).data.filter((_, at) => at % 4 === 0))"
    )
    seen = f"el => new Set({blank}).size"
    canvas = graph.root.locator(".rxg-canvas")
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"):
        graph.press(*[f"Shift+{key}"] * 12)
        assert canvas.evaluate(seen) > 10, key
    graph.press(*["-"] * 30)
    assert canvas.evaluate(seen) > 10
    graph.press(*["+"] * 40)
    area = graph.stage.bounding_box()
    assert area is not None
    for dx, dy in ((-600, 0), (0, -400)):
        for _ in range(6):
            lab.page.mouse.move(area["x"] + area["width"] / 2 - dx / 2, area["y"] + area["height"] / 2 - dy / 2)
            lab.page.mouse.down()
            lab.page.mouse.move(area["x"] + area["width"] / 2 + dx / 2, area["y"] + area["height"] / 2 + dy / 2)
            lab.page.mouse.up()
    graph.press("f")
    graph.point("gelu1")
    expect(graph.root.get_by_role("tooltip")).to_contain_text("gelu1 = aten.gelu.default")


def test_everything_by_keyboard(lab: Lab, show: Any) -> None:
    graph = show(DEEP)
    live = graph.root.locator(".rxg-live")
    graph.press("Home")
    expect(live).to_contain_text("x.")
    graph.press("n", "n", "n")
    expect(live).to_contain_text("mm.")
    expect(live).to_contain_text("region mlp[0]")
    graph.press(" ")
    graph.says("1 of 241 nodes selected")
    graph.press("Shift+N", "Shift+N")
    graph.says("3 of 241 nodes selected")
    graph.press("Control+Space")
    graph.says("2 of 241 nodes selected")
    graph.press("End", "Enter")  # the last box is the repeat
    expect(graph.root.locator(".rxg-selected")).not_to_contain_text("in 7 boxes")
    graph.press("Control+a")
    graph.says("241 of 241 nodes selected")
    graph.press("Escape", "c")
    expect(graph.root.locator(".rxg-selected")).to_have_text("241 nodes in 2 boxes")
    graph.press("e")
    expect(graph.root.locator(".rxg-selected")).to_have_text("241 nodes in 201 boxes")
    lab.screenshot("graph-everything", graph.root)
    graph.press("g")
    expect(graph.root.get_by_role("tab", name="backward")).to_have_attribute("aria-selected", "true")
    expect(graph.stage).to_have_attribute("aria-label", re.compile("^backward · 160 ops: "))
    graph.press("t")
    forward, backward = (graph.root.get_by_role("tab", name=name) for name in ("forward", "backward"))
    forward.focus()
    for key, there in (("ArrowRight", backward), ("ArrowLeft", forward)):
        lab.page.keyboard.press(key)
        expect(there).to_be_focused()
        expect(there).to_have_attribute("aria-selected", "true")
    graph.press("?")
    expect(graph.root.locator(".rxg-help")).to_be_visible()
    graph.press("Escape")
    expect(graph.root.locator(".rxg-help")).to_be_hidden()
    # Keys of the view are not JupyterLab's: no cell was cut, added or run.
    assert lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == 3


def test_it_opens_on_modules_and_crumbs_lead_back(host: Lab) -> None:
    code = "view = SessionView(sessions.session((sessions.layers(12),)))"
    host.write_notebook("modules.ipynb", [SHOW, code, "view"])
    host.open_notebook("modules.ipynb")
    host.run_all()
    host.cell(2).scroll_into_view_if_needed()
    graph = Graph(host, 2, host.output(2))
    crumbs = graph.root.locator(".rxg-crumbs button")
    tip = graph.root.get_by_role("tooltip")
    graph.says("73 nodes in 2 boxes")
    graph.point("gelu3")
    expect(tip).to_contain_text("layers.0–11 × 12")
    graph.open("gelu3")
    graph.says("73 nodes in 3 boxes")
    expect(crumbs).to_have_text(["forward", "layers.0–11"])
    graph.open("gelu0")
    expect(crumbs).to_have_text(["forward", "layers.0–11", "layers.0"])
    for node, told in (("gelu0", "layers.0.mlp"), ("add0", "add0 = aten.add.Tensor"), ("gelu5", "layers.1–11 × 11")):
        graph.point(node)  # where it is in a picture that fits the view
        expect(tip).to_contain_text(told)
    host.screenshot("graph-modules", graph.root)
    crumbs.nth(1).click()
    graph.says("73 nodes in 3 boxes")
    crumbs.first.click()
    graph.says("73 nodes in 2 boxes")
    expect(crumbs).to_have_text(["forward"])
    assert host.errors == []


def test_double_click_opens_and_closes(lab: Lab, show: Any) -> None:
    graph = show(DEEP)
    graph.says("241 nodes in 7 boxes")
    graph.click("gelu20", count=2)
    expect(graph.root.locator(".rxg-selected")).to_contain_text("nodes selected")
    graph.press("Escape")
    expect(graph.root.locator(".rxg-selected")).not_to_have_text("241 nodes in 7 boxes")
    lab.screenshot("graph-opened", graph.root)


def test_themes_sizes_and_tabs(lab: Lab, show: Any) -> None:
    graph = show(TRAINED)
    lab.add_cell_and_run(
        "from regional_explorer.style.formats import duration\n"
        "from regional_explorer.page.graph import overlay\n"
        "from regional_explorer.record.figure import exactly\n"
        "times = {f'mlp/{n}/0/forward': exactly(10.5e-6 * (n + 1)) for n in range(3)}\n"
        "view.overlays = [overlay('time', duration, times)]"
    )
    graph.root.locator("button", has_text="Overlay").click()
    expect(graph.root.locator(".rxg-key")).to_contain_text("time 10.5 µs")
    canvas = graph.root.locator(".rxg-canvas")
    for theme, shown in THEMES.items():
        lab.set_theme(theme)
        lab.page.wait_for_function(shown, arg=canvas.element_handle())
        lab.screenshot(f"graph-{theme}", graph.root)
    for width, height in ((700, 700), (2500, 1200), (1280, 900)):
        lab.set_viewport(width, height)
        lab.page.wait_for_timeout(300)
        area = graph.stage.bounding_box()
        assert area is not None
        ratio = lab.page.evaluate("() => window.devicePixelRatio")
        assert abs(canvas.evaluate("el => el.width") - area["width"] * ratio) <= 2
        lab.screenshot(f"graph-{width}", graph.root)
    graph.root.get_by_role("tab", name="partitions").click()
    graph.says("32 nodes in 17 boxes")
    lab.screenshot("graph-partitions", graph.root)


def test_the_colours_follow_the_theme_without_a_transition(host: Lab) -> None:
    host.write_notebook("themes.ipynb", [SHOW, TRAINED, "view"])
    host.open_notebook("themes.ipynb")
    host.run_all()
    host.cell(2).scroll_into_view_if_needed()
    canvas = host.output(2).locator(".rxg-canvas").element_handle()
    forbidding: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: host.page.emulate_media(reduced_motion="reduce"),
        lambda: host.page.add_style_tag(content="* { transition: none !important }"),
    )
    for forbid in forbidding:
        forbid()
        for theme, shown in (*THEMES.items(), *THEMES.items()):
            host.set_theme(theme)
            host.page.wait_for_function(shown, arg=canvas, timeout=10_000)
    assert host.errors == []


def test_two_views_of_one_and_of_another_do_not_clash(lab: Lab, show: Any) -> None:
    graph = show(TRAINED)
    index = lab.add_cell_and_run("other = SessionView(sessions.trained(2))\ndisplay(view)\ndisplay(other)")
    lab.cell(index).scroll_into_view_if_needed()
    again, other = lab.output(index).locator(".rxg").all()
    expect(again.locator(".rxg-selected")).to_have_text("19 nodes in 16 boxes")
    expect(other.locator(".rxg-selected")).to_have_text("13 nodes in 11 boxes")
    again.get_by_role("button", name="mlp").click()
    expect(again.locator(".rxg-selected")).to_have_text("9 of 19 nodes selected")
    expect(other.locator(".rxg-selected")).to_have_text("13 nodes in 11 boxes")
    lab.execute("notebook:clear-cell-output")
    lab.cell(2).scroll_into_view_if_needed()
    graph.says("9 of 19 nodes selected")


@pytest.mark.parametrize("part", [0, 1])
def test_hostile_names_stay_text(lab: Lab, show: Any, part: int) -> None:
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    lab.page.on("dialog", dismiss)
    graph = show(
        f"half = sessions.HOSTILE[{part}::2]\n"
        "views = [SessionView(sessions.hostile(text), height=200) for text in half]\n"
        "import ipywidgets\nview = ipywidgets.VBox(views)"
    )
    views = lab.output(2).locator(".rxg")
    expect(views).to_have_count(8 + (1 - part))
    for view in views.all():
        view.locator(".rxg-stage").focus()
        for key in ("Home", "n", "n", " ", "s"):
            lab.page.keyboard.press(key)
        expect(view.locator(".rxg-selected")).to_contain_text("4 nodes")
    assert lab.output(2).locator("script, img, iframe").count() == 0
    assert dialogs == []
    lab.screenshot(f"graph-hostile-{part}", graph.root)


@pytest.mark.slow
def test_a_captured_model_and_its_source(lab: Lab, show: Any) -> None:
    graph = show(
        "view = SessionView(ex.session)",
        SHOW + CAPTURED,
    )
    source = lab.output(2).locator(".rxs")
    line = source.locator(".rxs-line", has_text="torch.softmax(q @ k")
    line.click()
    expect(graph.root.locator(".rxg-selected")).to_contain_text("nodes selected")
    lab.screenshot("source", source)
    chosen = graph.selection()
    assert {one.partition(":")[0] for one in chosen} >= {"0/forward", "0/backward"}
    source.locator(".rxs-line", has_text="return self.out").click(modifiers=["Shift"])
    assert len(graph.selection()) > len(chosen)
    line.press("ArrowDown")
    graph.stage.scroll_into_view_if_needed()
    lab.screenshot("graph-captured", graph.root)
    graph.press("Escape", "/")
    lab.page.keyboard.type("softmax")
    lab.page.keyboard.press("Enter")
    expect(line).to_have_attribute("data-lit", re.compile("hovered above"))
    graph.root.get_by_role("tab", name="partitions").click()
    lab.page.wait_for_timeout(1500)
    lab.screenshot("graph-captured-partitions", graph.root)


FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
SHOT = "document.querySelector('.rxg-canvas').toDataURL()"
DRAG = """
(keys) => {
    const canvas = document.querySelector(".rxg-canvas"), { left, top } = canvas.getBoundingClientRect();
    for (const [name, by] of [["pointerdown", 0], ["pointermove", 40], ["pointermove", 80]]) {
        const where = { clientX: left + 100 + by, clientY: top + 100 + by * by / 200, movementX: by, movementY: by };
        canvas.dispatchEvent(new PointerEvent(name, { ...where, ...keys, buttons: 1, pointerId: 1, bubbles: true }));
    }
}
"""
POINT_AND_TYPE = """
(closes) => {
    const stage = document.querySelector(".rxg-stage"), search = document.querySelector(".rxg input");
    stage.dispatchEvent(new KeyboardEvent("keydown", { key: "n" }));
    search.value = "gelu";
    search.dispatchEvent(new Event("input", { bubbles: true }));
    if (closes) close_view();
}
"""
CHOSEN = "sent.filter((message) => message.do === 'select')"
"""The selections that were sent, without the graphs that an idle page asks for."""
PICK = "document.querySelector('.rxg-stage').dispatchEvent(new KeyboardEvent('keydown', { key: ' ' }))"


def trained() -> SessionView:
    return SessionView(sessions.trained(3))


@pytest.mark.parametrize("closes", [False, True])
def test_a_closed_view_sets_nothing_more(alone: Callable[[SessionView], Page], closes: bool) -> None:
    page = alone(trained())
    page.evaluate(POINT_AND_TYPE, closes)
    page.wait_for_timeout(400)
    assert page.evaluate("state.search ?? ''") == ("" if closes else "gelu")


@pytest.mark.parametrize("keys", [{}, {"altKey": True}], ids=["a drag", "a lasso"])
def test_nothing_is_left_of_a_drag_that_the_browser_ends(
    alone: Callable[[SessionView], Page], keys: dict[str, bool]
) -> None:
    page = alone(trained())
    still = page.evaluate(f"{FRAMES}.then(() => {SHOT})")
    page.evaluate(DRAG, keys)
    assert page.evaluate(f"{FRAMES}.then(() => {SHOT})") != still
    page.evaluate("document.querySelector('.rxg-canvas').dispatchEvent(new PointerEvent('pointercancel'))")
    moved = page.evaluate(f"{FRAMES}.then(() => {SHOT})")
    assert (moved == still) is ("altKey" in keys)
    assert page.locator(".rxg-moving").count() == 0


def test_a_late_selection_replaces_no_newer_one_whatever_other_pages_chose(
    alone: Callable[[SessionView], Page],
) -> None:
    view = trained()
    here, there = alone(view), alone(view)
    for page in (there, there, here):
        page.evaluate(POINT_AND_TYPE, False)
        page.evaluate(PICK)
    late = "({ selection, answered }) => answer({ selection, answered })"
    (chosen,) = here.evaluate(CHOSEN)
    others = {there.evaluate(CHOSEN)[0]["page"]: 99, chosen["page"]: chosen["number"] - 1}
    here.evaluate(late, {"selection": ["0/forward:gelu2"], "answered": others})
    assert here.evaluate("state.selection") == chosen["value"] != ["0/forward:gelu2"]
    others[chosen["page"]] += 1
    here.evaluate(late, {"selection": ["0/forward:gelu2"], "answered": others})
    assert here.evaluate("state.selection") == ["0/forward:gelu2"]


def at(page: Page, node: str, *, plus: bool = False) -> tuple[float, float]:
    """Return where the middle of a node's box is in the page, or its +."""
    area, where = page.locator(".rxg-stage").bounding_box(), page.locator(".rxg").evaluate(WHERE, node)
    assert area is not None
    x, y = where["middle"]
    return area["x"] + (where["left"] + 6 * where["scale"] if plus else x), area["y"] + y


def folded(alone: Callable[[SessionView], Page]) -> Page:
    """Return a page with the graph of a deep model: the first region is folded, and so are all layers but the first."""
    page = alone(SessionView(sessions.trained(40)))
    page.mouse.dblclick(*at(page, "gelu0"))
    has_boxes(page, 5)
    return page


def has_boxes(page: Page, count: int) -> None:
    expect(page.locator(".rxg-stage")).to_have_attribute("aria-label", f"forward · 240 ops: {count} boxes")


def test_a_range_begins_where_was_clicked_whatever_is_opened_since(alone: Callable[[SessionView], Page]) -> None:
    page = folded(alone)
    page.mouse.click(*at(page, "add0"))
    page.mouse.click(*at(page, "gelu0", plus=True))
    has_boxes(page, 7)
    page.keyboard.down("Shift")
    page.mouse.click(*at(page, "norm0"))
    expect(page.locator(".rxg-selected")).to_have_text("6 of 241 nodes selected")  # norm, item, t, mm, gelu, add


def test_a_double_click_on_plus_opens_one_box_and_does_nothing_else(alone: Callable[[SessionView], Page]) -> None:
    page = folded(alone)
    page.locator(".rxg-stage").press("Escape")
    page.mouse.dblclick(*at(page, "gelu0", plus=True))
    page.wait_for_timeout(100)
    has_boxes(page, 7)
    expect(page.locator(".rxg-selected")).to_have_text("241 nodes in 7 boxes")


def test_keys_act_on_what_is_pointed_at_and_light_nothing_afterwards(alone: Callable[[SessionView], Page]) -> None:
    page = alone(SessionView(sessions.trained(40)))
    page.mouse.click(*at(page, "add0"))
    page.mouse.move(*at(page, "gelu0"))
    page.keyboard.press("Enter")
    has_boxes(page, 5)
    page.mouse.move(0, 0)
    page.keyboard.press("End")
    lit, tip = page.locator(".rxs [data-lit~=hovered]"), page.get_by_role("tooltip")
    expect(tip).to_be_visible()
    expect(lit.first).to_be_attached()
    page.keyboard.press("Enter")
    has_boxes(page, 43)
    expect(tip).to_be_hidden()
    expect(lit).to_have_count(0)


def test_the_window_stays_where_the_minimap_moved_it(alone: Callable[[SessionView], Page]) -> None:
    page = alone(SessionView(sessions.trained(40), shown={"folds": {"0/forward": {"all": True}}}))
    where = "root => [root.rxView.camera.x, root.rxView.camera.y]"
    page.locator(".rxg-map").click()
    moved = page.locator(".rxg").evaluate(where)
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_timeout(100)
    assert page.locator(".rxg").evaluate(where) == pytest.approx(moved, abs=1)
