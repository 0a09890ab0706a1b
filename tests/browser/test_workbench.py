"""Marking, keys, code and times in the panel, in a real JupyterLab. The tests share one notebook, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Locator, expect
from playwright.sync_api import TimeoutError as NotInTime

from tests.browser.conftest import a_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.test_panel import printed, row

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
WAIT_MS = 240_000


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with a_page(browser, lab_server, width=1440, height=1100) as lab:
        lab.write_notebook("workbench.ipynb", [MODEL, "%regional_compile --no-bench -o ex net(x)"])
        lab.open_and_run("workbench.ipynb")
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Locator:
    return notebook.output(1).locator(".rx-panel")


def number_of(panel: Locator, text: str) -> str:
    return panel.locator(".rxs-line", has_text=text).locator(".rxs-number").inner_text()


def test_the_tool_bar_is_one_row(panel: Locator) -> None:
    parts = panel.get_by_role("toolbar", name="Actions").locator("button, label")
    expect(parts).to_have_count(13)
    middles = "found => found.map(one => one.getBoundingClientRect()).map(({top, bottom}) => Math.round(top + bottom))"
    assert len(set(parts.evaluate_all(middles))) == 1


def test_the_preview_comes_while_typing_and_lights_its_matches(notebook: Lab, panel: Locator) -> None:
    panel.get_by_label("Mark by").select_option("modules")
    expect(panel.locator("datalist option").first).to_have_attribute("value", "layers.*")
    suggested = panel.locator("datalist option").evaluate_all("found => found.map(one => one.value)")
    assert suggested[:3] == ["layers.*", "layers.*.ffn", "layers.*.ffn.*"]
    panel.get_by_label("Pattern", exact=True).press_sequentially("layers.*.ffn")
    expect(panel.locator(".rx-preview")).to_contain_text("Region ffn would give 12 partitions", timeout=20_000)
    expect(panel.locator(".rxg-count")).to_contain_text("found")
    notebook.screenshot("workbench-preview", panel)


def test_an_error_is_told_once_and_goes_with_the_next_key(panel: Locator) -> None:
    pattern = panel.get_by_label("Pattern", exact=True)
    pattern.fill("*ffn")
    told = panel.get_by_text("'*' stays within one level of the path, '**' does not")
    expect(told).to_have_count(1, timeout=20_000)
    expect(panel.locator(".rxg-count")).to_have_text("")
    panel.get_by_role("button", name="Mark", exact=True).click()
    expect(panel.locator(".rx-error").filter(has_text="stays within one level")).to_have_count(1)
    expect(told).to_have_count(1)
    pattern.press("End")
    pattern.press_sequentially("x")
    expect(panel.locator(".rx-error")).to_have_count(0)


def test_selecting_marks_by_selection(panel: Locator) -> None:
    expect(panel.get_by_label("Mark by")).to_have_value("modules")
    panel.locator(".rxs-line", has_text="return x.square").click()
    expect(panel.get_by_label("Mark by")).to_have_value("selection")
    expect(panel.get_by_label("Pattern", exact=True)).to_have_value(re.compile(r"^\d+ nodes selected$"))


def test_the_numbers_beside_the_source_mark_and_are_what_tooltips_show(notebook: Lab, panel: Locator) -> None:
    number = number_of(panel, "return x.square")
    panel.get_by_label("Mark by").select_option("lines")
    panel.get_by_label("Pattern", exact=True).fill(number)
    panel.get_by_label("Name", exact=True).last.fill("loss")
    panel.get_by_role("button", name="Mark", exact=True).click()
    expect(row(panel, "loss")).to_be_visible(timeout=20_000)
    assert printed(notebook, "ex.plan['loss'].selectors[0]") == f"lines:{number}"
    notebook.wait_idle()
    panel.get_by_role("searchbox").fill("op:aten.mean")
    expect(panel.locator(".rxg-count")).to_have_text("1 found")
    panel.get_by_role("searchbox").press("Enter")
    expect(panel.get_by_role("tooltip")).to_contain_text(f"{number} in Net.forward: return x.square().mean()")
    panel.get_by_role("searchbox").press("Escape")


def test_escape_closes_ends_and_clears_wherever_the_focus_is(notebook: Lab, panel: Locator) -> None:
    keyboard, help_ = notebook.page.keyboard, panel.locator(".rxg-help")
    budget, lasso = panel.get_by_label("Budget (s)"), panel.get_by_role("button", name="Draw around boxes")
    selected = panel.locator(".rxg-selected")
    for focus in (
        budget,
        panel.get_by_role("button", name="Compile", exact=True),
        panel.get_by_role("tab", name="Code"),
    ):
        row(panel, "loss").locator(".rxt-state").click()
        expect(selected).to_contain_text("selected")
        panel.get_by_role("button", name="Keys (?)").click()
        expect(help_).to_be_visible()
        lasso.click()
        expect(lasso).to_have_attribute("aria-pressed", "true")
        focus.focus()
        keyboard.press("Escape")
        expect(help_).to_be_hidden()
        expect(lasso).to_have_attribute("aria-pressed", "false")
        expect(selected).to_contain_text("selected")
        keyboard.press("Escape")
        expect(selected).not_to_contain_text("selected")
        expect(row(panel, "loss")).to_have_attribute("aria-selected", "false")


def test_tab_completion_offers_what_comes_next(notebook: Lab) -> None:
    items = notebook.page.locator(".jp-Completer-item:visible")
    for line, first in (
        ("%regional_compile ", "-r"),
        ("%regional_compile -r a=modules:", "layers"),
        ("%regional_compile -c loss:epilogue_fusion=", "False"),
    ):
        index = notebook.add_cell_and_run("")
        editor = notebook.cell(index).locator(".cm-content")
        editor.click()
        notebook.page.keyboard.type(line)
        for _ in range(4):  # JupyterLab drops an answer that comes while the editor still changes
            notebook.page.keyboard.press("Tab")
            with suppress(NotInTime):
                items.first.wait_for(timeout=10_000)
                break
        expect(items.first).to_contain_text(first)
        notebook.page.keyboard.press("Escape")
        notebook.page.keyboard.press("Control+a")
        notebook.page.keyboard.press("Delete")


def test_one_click_shows_where_the_time_goes(notebook: Lab, panel: Locator) -> None:
    panel.scroll_into_view_if_needed()
    budget = panel.get_by_label("Budget (s)")
    budget.fill("0.5")
    budget.press("Enter")
    panel.get_by_role("button", name="Profile", exact=True).first.click()
    share = panel.get_by_label("Time by module").locator("tr", has_text="layers.*.ffn × 6")
    expect(share).to_contain_text(re.compile(r"\d %.*[µm]s"), timeout=WAIT_MS)
    expect(panel.locator(".rxg-key")).to_contain_text("share of the time")
    notebook.screenshot("workbench-time", panel)
    panel.get_by_role("button", name="Mark layers.*.ffn", exact=True).click()
    expect(row(panel, "ffn")).to_have_attribute("aria-selected", "true")
    expect(share.get_by_role("button", name="Mark layers.*.ffn")).to_be_disabled()
    frame = "ex.op_times.query(\"by == 'module' and name.str.fullmatch(r'layers.\\\\d.ffn')\")"
    told = float(share.locator("td").nth(1).inner_text().split()[0])
    assert told == pytest.approx(float(printed(notebook, f"100 * {frame}['share'].sum()")), rel=0.006)


def test_the_options_of_the_magic_are_the_fields_of_the_panel(notebook: Lab) -> None:
    options = "--budget 2 --variants regional --dynamic"
    index = notebook.add_cell_and_run(f"%regional_compile --no-bench {options} -r mid=modules:layers.2 -o other net(x)")
    panel = notebook.output(index).locator(".rx-panel")
    expect(panel.get_by_label("Budget (s)")).to_have_value("2")
    expect(panel.get_by_label("Variants").get_by_label("full")).not_to_be_checked()
    shapes = panel.get_by_label("Shapes", exact=True)
    expect(shapes).to_have_value("dynamic")
    notebook.screenshot("workbench-shapes", panel)
    nodes = panel.locator(".rxs-line", has_text="return x.square").locator(".rxs-count")
    dynamic = nodes.inner_text()
    shapes.select_option("static")
    expect(nodes).not_to_have_text(dynamic, timeout=60_000)
    expect(shapes).to_be_enabled(timeout=60_000)
    expect(shapes).to_have_value("static")
    expect(row(panel, "mid")).to_be_visible()
    expect(panel.locator(".rx-alert")).to_be_hidden()
    assert printed(notebook, "other.session.shapes") == "static"
    notebook.add_cell_and_run("other.retrace()")
    expect(shapes).to_have_value("automatic")


@pytest.mark.compiles
def test_line_node_and_kernel_light_each_other(notebook: Lab, panel: Locator) -> None:
    row(panel, "ffn").locator(".rxt-state").click()
    panel.get_by_role("tab", name="Code").click()
    code = panel.locator(".rx-code")
    expect(code).to_contain_text("Not compiled yet.")
    code.get_by_role("button", name="Compile").click()
    kernel = code.locator(".rxs-kernel", has_text="silu").first
    expect(kernel).to_be_visible(timeout=WAIT_MS)
    expect(code).to_contain_text("and 5 equal partitions")
    panel.get_by_role("button", name="Config").first.focus()
    notebook.page.keyboard.press("Escape")
    kernel.click()
    expect(panel.locator(".rxg-selected")).to_contain_text("selected")
    lit = re.compile("selected")
    expect(code.locator(".rxs-from", has_text="self.ffn(y)")).to_have_attribute("data-lit", lit)
    expect(code.locator(".rxs-text[data-lit*=selected]").first).to_contain_text("cpp_fused")
    notebook.screenshot("workbench-code", panel)
    code.locator(".rxs-from", has_text="self.ffn(y)").hover()
    expect(code.locator(".rxs-text[data-lit*=hovered]").first).to_be_visible()
    panel.get_by_role("searchbox").fill("op:aten.silu")
    panel.get_by_role("searchbox").press("Enter")
    expect(kernel).to_have_attribute("data-lit", re.compile("above"))
    # What scrolls under the pointer, which rests on the code, is not pointed at.
    kernel.evaluate("row => { for (let box = row; box; box = box.parentElement) box.scrollTop += 30; }")
    notebook.page.wait_for_timeout(400)
    expect(kernel).to_have_attribute("data-lit", re.compile("above"))
    panel.get_by_role("searchbox").press("Escape")
    panel.get_by_role("tab", name="Source").click()
    expect(panel.locator(".rx-pane > [data-part=source] .rxs-line[aria-selected=true]").first).to_be_visible()


@pytest.mark.compiles
def test_an_interrupt_of_the_kernel_cancels_the_work_of_a_button(notebook: Lab, panel: Locator) -> None:
    budget = panel.get_by_label("Budget (s)")
    budget.fill("300")
    budget.press("Enter")
    panel.get_by_role("button", name="Compile & measure").click()
    status = panel.locator(".rx-progress").get_by_role("status")
    expect(status).to_contain_text(re.compile("round|compiling|checking|warming"), timeout=WAIT_MS)
    notebook.execute("notebook:interrupt-kernel", wait=False)
    expect(status).to_contain_text("Interrupted. The results so far are kept.", timeout=60_000)
    expect(panel.get_by_role("button", name="Compile & measure")).to_be_enabled()
    assert printed(notebook, "6 * 7") == "42"


def test_nothing_went_wrong_and_nothing_was_fetched(notebook: Lab) -> None:
    assert notebook.errors == []
    assert notebook.foreign_requests == []
