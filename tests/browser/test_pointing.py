"""Pointing at boxes in a real JupyterLab with its side bar open: what has which name, and what stays where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import lab_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.views import Explorer, box_of

MODEL = """
%load_ext regional_explorer
import torch
from tests.shared.small_models import Nested
net, x = Nested(), torch.randn(4, 8)
"""
EXPLORE = "%regional_compile --no-bench -o ex net(x)"
MEASURED = """
from msgspec.structs import replace
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.state import PanelState
from tests.shared import sessions

measured = sessions.measured(sessions.measured_alone())
(region,) = measured.plan.regions
region = replace(region, config={"max_fusion_size": 8})
control = Control(ex)
control.session = replace(measured, plan=replace(measured.plan, regions=(region,)))
control.state = PanelState(control.session.plan)
Panel(control)
"""
CUT_OFF = """
row => [...row.querySelectorAll("button, .rx-key, .rxt-time > *, .rxt-gain > *, small")]
    .filter((one) => {
        const { left, right } = one.getBoundingClientRect(), cell = one.closest("td").getBoundingClientRect();
        const panel = row.closest(".rx-panel").getBoundingClientRect();
        return right > panel.right || left < panel.left || right > cell.right + 1;
    }).map((one) => one.textContent)
"""
SIZES = ((1280, 900), (1440, 900))


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    """A notebook beside JupyterLab's file browser."""
    with lab_page(browser, lab_server) as lab:
        lab.write_notebook("pointing.ipynb", ["pass"])
        lab.open_notebook("pointing.ipynb")
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Iterator[Explorer]:
    with notebook.running([MODEL, EXPLORE], width=1440):
        explorer = Explorer(notebook, 1)
        explorer.graph.stage.scroll_into_view_if_needed()
        yield explorer


def show_layers(panel: Explorer) -> None:
    """Show one box for each layer."""
    panel.graph.button("Collapse all").click()
    if panel.graph.box("model.layers.0") is None:
        panel.graph.click_box("model", count=2)


def open_layer(panel: Explorer, layer: str) -> None:
    show_layers(panel)
    panel.graph.click_box(layer, count=2)


def lasso(panel: Explorer, *titles: str) -> None:
    """Draw around boxes."""
    left, top, *_ = panel.graph.area()
    boxes = [panel.graph.box(title) for title in titles]
    x0, x1 = (left + edge for edge in (min(box["left"] for box in boxes) - 6, max(box["right"] for box in boxes) + 6))
    y0, y1 = (top + edge for edge in (min(box["top"] for box in boxes) - 4, max(box["bottom"] for box in boxes) + 4))
    mouse, keyboard = panel.graph.page.mouse, panel.graph.page.keyboard
    keyboard.down("Alt")
    mouse.move(x0, y0)
    mouse.down()
    for corner in ((x1, y0), (x1, y1), (x0, y1), (x0, y0)):
        mouse.move(*corner, steps=3)
    mouse.up()
    keyboard.up("Alt")
    panel.graph.wait_for_kernel()


def test_every_place_has_the_name_and_the_number_of_ops_of_the_box_that_was_clicked(panel: Explorer) -> None:
    show_layers(panel)
    panel.graph.click_box("model.layers.0")
    expect(panel.picked).to_contain_text("Mark layers.0")
    assert panel.graph.trail() == ["model", "layers", "0"]
    assert panel.graph.tip.locator("b").inner_text() == "model.layers.0"
    expect(panel.graph.tip).not_to_contain_text("norm")
    expect(panel.pattern).to_have_value("modules:model.layers.0")
    expect(panel.name).to_have_attribute("placeholder", "layers.0")
    ops = panel.graph.box("model.layers.0")["detail"].split(" · ")[1].removesuffix(" ops")
    expect(panel.graph.selected).to_contain_text(f"{ops} of")
    expect(panel.graph.tip).to_contain_text(f"{ops} ops")
    expect(panel.preview).to_contain_text(f"Region layers.0 would have 2 pieces, {ops} +")

    panel.picked.get_by_role("button", name="Mark layers.0").click()
    expect(panel.picked).to_have_text("These ops are region layers.0.")
    expect(panel.row("layers.0")).to_contain_text(f"2 pieces, {ops} +")
    panel.expect_picked("layers.0")
    expect(panel.preview).to_be_empty()


def test_a_lasso_has_the_names_of_what_it_took(panel: Explorer) -> None:
    open_layer(panel, "model.layers.0")
    lasso(panel, "model.layers.0.norm", "model.layers.0.attn")
    expect(panel.picked).to_contain_text("Mark norm + attn")
    assert panel.graph.trail() == ["model", "layers", "0"]
    expect(panel.preview).to_contain_text("Region norm + attn would have 3 pieces")
    panel.root.locator("select[data-do=alike]").select_option("all 4 alike")
    expect(panel.preview).to_contain_text("Region norm + attn would have 15 pieces")


def test_nothing_moves_when_boxes_are_selected(panel: Explorer) -> None:
    open_layer(panel, "model.layers.1")
    panel.graph.click_box("model.layers.1.mlp")
    panel.press("Mark mlp")
    panel.expect_picked("mlp")
    panel.graph.press("Escape")
    panel.graph.wait_for_kernel()
    expect(panel.picked).to_be_empty()
    before = panel.places()
    for title in ("model.layers.1.norm", "model.layers.1.attn", "model.layers.2"):
        at = panel.graph.middle_of(title)
        panel.graph.click_box(title)
        expect(panel.preview).to_contain_text("would have")
        assert panel.places() == before
        assert panel.graph.middle_of(title) == at
    lasso(panel, "model.layers.1.norm", "model.layers.1.attn")
    expect(panel.picked).to_contain_text("Mark norm + attn")
    assert panel.places() == before
    panel.kind.select_option("modules")
    panel.pattern.fill("model.layers.1")
    expect(panel.preview).to_contain_text("region-empty")  # a preview is at its longest with warnings
    assert panel.places() == before


@pytest.mark.parametrize("size", SIZES)
def test_a_job_moves_nothing_and_hides_no_fact(panel: Explorer, notebook: Lab, size: tuple[int, int]) -> None:
    notebook.set_viewport(*size)
    panel.set_budget(600)
    panel.root.get_by_text("Options", exact=True).click()
    before = panel.places()
    panel.measure_button.click()
    panel.expect_rounds()
    assert panel.places() == before
    facts, progress = panel.root.locator(".rx-header .rx-quiet"), box_of(panel.root.locator(".rx-progress"))
    assert box_of(facts)["height"] < 30, "the facts are on one line"
    assert progress["y"] + progress["height"] <= box_of(facts)["y"]
    expect(facts.locator("span").first).to_have_attribute("title", re.compile("graph breaks: none.*torch: "))
    notebook.screenshot(f"pointing-progress-{size[0]}")
    panel.press("Cancel")
    panel.expect_idle()


def test_a_double_click_after_a_click_opens_the_box_that_was_clicked(panel: Explorer) -> None:
    show_layers(panel)
    before = panel.places()
    at = panel.graph.middle_of("model.layers.2")
    panel.graph.page.mouse.click(*at)
    expect(panel.preview).to_contain_text("Region layers.2 would have")
    panel.graph.page.mouse.dblclick(*at)
    expect(panel.graph.crumbs.last).to_have_text("model.layers.2")
    assert panel.graph.box("model.layers.2.attn") is not None
    assert panel.places() == before


def test_the_selection_keeps_its_names_when_another_box_is_opened(panel: Explorer) -> None:
    show_layers(panel)
    panel.graph.click_box("model.layers.0")
    expect(panel.preview).to_contain_text("Region layers.0 would have")
    panel.graph.page.mouse.move(*panel.graph.middle_of("model.layers.2"))
    panel.graph.press("Enter")
    expect(panel.graph.crumbs.last).to_have_text("model.layers.2")
    panel.graph.wait_for_kernel()
    expect(panel.picked).to_contain_text("Mark layers.0")
    expect(panel.pattern).to_have_value("modules:model.layers.0")
    expect(panel.preview).to_contain_text("Region layers.0 would have")
    assert panel.graph.trail() == ["model", "layers", "0"]


def test_enter_in_a_field_of_the_form_marks(panel: Explorer) -> None:
    panel.kind.select_option("modules")
    panel.pattern.fill("model.layers.*.mlp")
    panel.pattern.press("Enter")
    expect(panel.row("mlp")).to_be_visible()
    panel.kind.select_option("modules")
    panel.pattern.fill("model.layers.*.attn")
    panel.name.fill("attention")
    panel.name.press("Enter")
    expect(panel.row("attention")).to_be_visible()
    panel.root.get_by_label("new name").fill("heads")
    panel.root.get_by_label("new name").press("Enter")
    expect(panel.row("heads")).to_be_visible()


def test_one_button_is_the_next_step(panel: Explorer) -> None:
    buttons = panel.root.get_by_role("button").all()
    colours = [one.evaluate("one => getComputedStyle(one).backgroundColor") for one in buttons]
    assert colours.count("rgb(11, 92, 173)") == 1


def test_all_findings_come_into_view(panel: Explorer, notebook: Lab) -> None:
    notebook.run_code("ex.mark('act', ops='relu').mark('rest', '-ops:linear')")
    findings = panel.button("all findings")
    for _ in range(2):  # also if the tab is open already
        findings.scroll_into_view_if_needed()
        findings.click()
        tab = panel.root.get_by_role("tab", name="Why")
        expect(tab).to_be_focused()
        expect(panel.root.locator(".rx-why")).to_be_in_viewport(ratio=0.5)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_rows_of_measured_regions_are_whole(notebook: Lab, theme: str) -> None:
    with notebook.running([MODEL, EXPLORE, MEASURED]):
        notebook.set_theme("dark" if theme == "dark" else "light")
        panel = Explorer(notebook, 2)
        for width, height in SIZES:
            notebook.set_viewport(width, height)
            row = panel.rows.first
            row.scroll_into_view_if_needed()
            expect(row).to_contain_text("2.00×")
            notebook.screenshot(f"pointing-row-{theme}-{width}")
            assert row.evaluate(CUT_OFF) == []
            ends = row.locator(".rxt-last button").last
            assert box_of(ends)["x"] + box_of(ends)["width"] <= box_of(panel.root)["x"] + box_of(panel.root)["width"]
        notebook.set_viewport(1000, 900)
        assert panel.rows.first.evaluate("row => getComputedStyle(row).backgroundColor") == "rgba(0, 0, 0, 0)"
        notebook.screenshot(f"pointing-row-{theme}-1000")
    notebook.set_theme("light")


def test_names_of_boxes_that_a_search_left_out_stay_readable(panel: Explorer, notebook: Lab) -> None:
    notebook.set_theme("dark")
    show_layers(panel)
    panel.graph.search.fill("name:relu")
    expect(panel.graph.count).to_contain_text("found")
    box = panel.graph.box("model.layers.0")
    brightest = panel.graph.canvas.evaluate(
        """async (canvas, [x, y, w, h]) => {
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            const k = canvas.width / canvas.clientWidth;
            const { data } = canvas.getContext("2d").getImageData(x * k, y * k, w * k, h * k);
            return Math.max(...data.filter((_, at) => at % 4 === 1));
        }""",
        [box["left"] + 14, box["top"] + 3, box["right"] - box["left"] - 18, box["bottom"] - box["top"] - 6],
    )
    notebook.set_theme("light")
    assert brightest > 140  # on a ground of about 30: a contrast of more than 4.5
