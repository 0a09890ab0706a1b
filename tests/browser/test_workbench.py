"""Marking, keys and code in the panel, in a real JupyterLab."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import TimeoutError as NotInTime
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.views import WAIT_MS, Explorer

MODEL = """
%load_ext regional_explorer
import torch
import regional_explorer as rx

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.ffn = torch.nn.LayerNorm(32), torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.SiLU())

    def forward(self, x):
        y = self.norm(x)
        return x + self.ffn(y)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()

net, x = Net(), torch.randn(16, 32)
"""


@pytest.fixture
def notebook(jupyterlab: Lab) -> Iterator[Lab]:
    cells = [MODEL, "%regional_compile --no-bench -o ex net(x)"]
    with jupyterlab.running(cells, width=1440, height=1100) as lab:
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Explorer:
    return Explorer(notebook, 1)


def test_the_tool_bar_fits_in_one_row(panel: Explorer) -> None:
    parts = panel.root.get_by_role("toolbar", name="Actions").locator("button:visible")
    expect(parts).to_have_count(9)
    middles = "found => found.map(one => one.getBoundingClientRect()).map(({top, bottom}) => Math.round(top + bottom))"
    assert len(set(parts.evaluate_all(middles))) == 1


def test_the_preview_appears_while_typing_and_highlights_matches(panel: Explorer) -> None:
    panel.kind.select_option("modules")
    options = panel.root.locator("datalist option")
    expect(options.first).to_have_attribute("value", "layers.*")
    suggested = options.evaluate_all("found => found.map(one => one.value)")
    assert suggested[:3] == ["layers.*", "layers.*.ffn", "layers.*.ffn.0"]
    panel.pattern.press_sequentially("layers.*.ffn")
    expect(panel.preview).to_contain_text("Region ffn would have 12 pieces", timeout=20_000)
    expect(panel.graph.count).to_contain_text("found")
    panel.press("Mark")
    expect(panel.row("ffn")).to_contain_text("not compiled")


def test_selecting_nodes_sets_the_form_to_mark_the_selection(panel: Explorer) -> None:
    panel.kind.select_option("modules")
    panel.line("return x.square").click()
    expect(panel.kind).to_have_value("selection")
    expect(panel.pattern).to_have_value(re.compile(r"^lines:Net\.forward:\d+$"))


def test_an_equal_module_is_marked_alone_or_with_all_others(panel: Explorer) -> None:
    panel.graph.search.fill("module:layers.0")
    panel.graph.button("Select all matches").click()
    panel.root.locator("[data-do=module][data-of='layers.0']").click()
    expect(panel.pattern).to_have_value("modules:layers.0")
    panel.root.locator("select[data-do=alike]").select_option("all 6 alike")
    expect(panel.pattern).to_have_value("modules:layers.*")
    panel.graph.search.press("Escape")


def test_line_numbers_of_the_source_select_lines_and_are_in_tooltips(notebook: Lab, panel: Explorer) -> None:
    number = panel.line("return x.square").locator(".rxs-number").inner_text()
    panel.kind.select_option("lines")
    panel.pattern.fill(number)
    panel.mark("loss")
    expect(panel.row("loss")).to_be_visible()
    assert notebook.kernel_value("ex.plan['loss'].selectors[0]") == f"lines:{number}"
    search = panel.graph.search
    search.fill("op:aten.mean")
    expect(panel.graph.count).to_have_text("1 found")
    search.press("Enter")
    expect(panel.graph.tip).to_contain_text(f"{number} in Net.forward: return x.square().mean()")
    search.press("Escape")


def test_escape_closes_menus_and_clears_selections_at_any_focus(notebook: Lab, panel: Explorer) -> None:
    selected, help_ = panel.graph.selected, panel.root.locator(".rxg-help")
    lasso = panel.graph.button("Draw around boxes")
    notebook.run_code("ex.mark('loss', ops='aten.mean*')")
    for focus in (panel.name, panel.button("Compile"), panel.pane("Code")):
        panel.pick("loss")
        expect(selected).to_contain_text("selected")
        panel.graph.button("Keys (?)").click()
        expect(help_).to_be_visible()
        lasso.click()
        expect(lasso).to_have_attribute("aria-pressed", "true")
        focus.focus()
        notebook.page.keyboard.press("Escape")
        expect(help_).to_be_hidden()
        expect(lasso).to_have_attribute("aria-pressed", "false")
        expect(selected).to_contain_text("selected")
        notebook.page.keyboard.press("Escape")
        expect(selected).not_to_contain_text("selected")
        expect(panel.row("loss")).to_have_attribute("aria-selected", "false")


def test_tab_completion_offers_the_next_word(notebook: Lab) -> None:
    items, keyboard = notebook.page.locator(".jp-Completer-item:visible"), notebook.page.keyboard
    notebook.cell(notebook.add_cell_and_run("")).locator(".cm-content").click()
    for line, first in (
        ("%regional_compile ", "-r"),
        ("%regional_compile -r a=modules:", "layers"),
        ("%regional_compile -c loss:epilogue_fusion=", "False"),
    ):
        keyboard.type(line)
        for _ in range(4):  # JupyterLab drops a reply that comes while the editor still changes
            keyboard.press("Tab")
            with suppress(NotInTime):
                items.first.wait_for(timeout=10_000)
                break
        expect(items.first).to_contain_text(first)
        keyboard.press("Escape")
        keyboard.press("Control+a")
        keyboard.press("Delete")


def test_the_panel_shows_the_options_given_to_the_magic(notebook: Lab) -> None:
    options = "--budget 2 --variants regional --dynamic"
    panel = Explorer(notebook, notebook.add_cell_and_run(f"%regional_compile --no-bench {options} -o other net(x)"))
    panel.open_options()
    expect(panel.budget).to_have_value("2")
    expect(panel.root.get_by_label("Variants").get_by_label("torch.compile")).not_to_be_checked()
    shapes = panel.root.get_by_label("Shapes", exact=True)
    expect(shapes).to_have_value("dynamic")
    nodes = panel.line("return x.square").locator(".rxs-count")
    dynamic = nodes.inner_text()
    shapes.select_option("static")
    expect(nodes).not_to_have_text(dynamic)
    expect(shapes).to_be_enabled()
    expect(shapes).to_have_value("static")
    assert notebook.kernel_value("other.session.shapes") == "static"


@pytest.mark.compiles
def test_line_node_and_kernel_highlight_each_other(notebook: Lab, panel: Explorer) -> None:
    notebook.run_code("ex.mark('ffn', modules='layers.*.ffn')")
    panel.pick("ffn")
    panel.pane("Code").click()
    expect(panel.code).to_contain_text("Not compiled yet.")
    panel.code.get_by_role("button", name="Compile").click()
    kernel = panel.code.locator(".rxs-kernel", has_text="silu").first
    expect(kernel).to_be_visible(timeout=WAIT_MS)
    expect(panel.code).to_contain_text("and 5 equal partitions")
    panel.button("Compile").first.focus()
    notebook.page.keyboard.press("Escape")
    kernel.click()
    expect(panel.graph.selected).to_contain_text("selected")
    line = panel.code.locator(".rxs-from", has_text="self.ffn(y)")
    expect(line).to_have_attribute("data-lit", re.compile("selected"))
    expect(panel.code.locator(".rxs-text[data-lit*=selected]").first).to_contain_text("cpp_fused")
    line.hover(position={"x": 40, "y": 5})
    expect(panel.code.locator(".rxs-text[data-lit*=hovered]").first).to_be_visible()
    panel.graph.search.fill("op:aten.silu")
    panel.graph.search.press("Enter")
    expect(kernel).to_have_attribute("data-lit", re.compile("above"))
    # Rows that scroll under a resting pointer are not pointed at.
    kernel.evaluate("row => { for (let box = row; box; box = box.parentElement) box.scrollTop += 30; }")
    notebook.page.wait_for_timeout(400)
    expect(kernel).to_have_attribute("data-lit", re.compile("above"))
    panel.graph.search.press("Escape")
    expect(panel.root.locator(".rx-pane > [data-part=source] .rxs-line[aria-selected=true]").first).to_be_visible()


@pytest.mark.compiles
def test_a_kernel_interrupt_cancels_the_work_of_a_button(notebook: Lab, panel: Explorer) -> None:
    notebook.run_code("ex.mark('loss', ops='aten.mean*')")
    expect(panel.row("loss")).to_be_visible()
    panel.measure(budget_s=3_000)
    panel.expect_rounds()
    notebook.execute("notebook:interrupt-kernel", wait=False)
    expect(panel.status).to_contain_text("Interrupted")
    panel.expect_idle()
    assert notebook.kernel_value("6 * 7") == "42"
