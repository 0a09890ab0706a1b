"""The panel in a real JupyterLab. The tests share one notebook, and run in their order: each says what it finds."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.widget import SessionView
from tests.browser.conftest import a_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.test_graph_view import Graph
from tests.shared.panel import make

SETUP = """
%load_ext regional_explorer
import torch
import regional_explorer as rx

def f(x, w):
    with rx.region("mlp", max_fusion_size=8):
        h = torch.relu(x @ w) * 2
    with rx.region("softmax"):
        return torch.softmax(h, -1).mean(0)

x, w = torch.randn(32, 32), torch.randn(32, 32)
net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU())
"""
CELLS = [
    SETUP,
    "%regional_compile --no-bench -o ex f(x, w)",
    "%regional_compile --no-bench -o bare net(x)",
]
UNDO_AND_SELECT = """
panel => {
    const stage = panel.querySelector('.rxg-stage');
    panel.querySelector('[data-do=undo]').click();
    stage.focus();
    for (const key of ['End', ' ']) stage.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
}
"""
BUSY = """
import time
from pathlib import Path
Path("busy").touch()
while not Path("go on").exists():
    time.sleep(0.02)
"""
CHANGE_FROM_THE_KERNEL = """
async (code) => {
    const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
    await kernel.requestExecute({ code }).done;
}
"""
WIDTHS = (600, 700, 1200, 2500)
MEASURED_S = 240


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with a_page(browser, lab_server, height=1400) as lab:
        lab.write_notebook("panel.ipynb", CELLS)
        lab.open_and_run("panel.ipynb")
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Locator:
    return notebook.output(1).locator(".rx-panel")


def row(panel: Locator, region: str) -> Locator:
    return panel.locator(f"tr[aria-label='{region}']")


def switch_of(panel: Locator, region: str) -> Locator:
    return panel.get_by_label(f"Compile {region}", exact=True)


def printed(notebook: Lab, code: str) -> str:
    index = notebook.add_cell_and_run(f"print({code})")
    return str(notebook.outputs(index)[0]["text"]).strip()


def expect_not_boxed(output: Locator) -> None:
    """Expect that what a cell shows is high, and that nothing of it has to be scrolled to."""
    box = output.locator(".rx-panel").bounding_box()
    assert box is not None
    assert box["height"] > 600
    assert output.evaluate("area => area.scrollHeight - area.clientHeight") <= 2


def expect_plan_is_copied(lab: Lab, output: Locator) -> None:
    """Expect that the panel says its kernel is gone, and that a new one explores again under the plan it copies."""
    gone = output.get_by_role("alert").filter(has_text="The kernel was restarted: run the cell again.")
    expect(gone).to_have_count(1, timeout=60_000)
    assert output.locator(".rx-panel").evaluate("panel => panel.inert")
    dialog = lab.page.locator(".jp-Dialog")
    if dialog.is_visible():  # JupyterLab says that the kernel died
        dialog.get_by_role("button").last.click()
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    gone.get_by_role("button", name="Copy plan").click()
    expect(gone.get_by_role("button", name="Copied")).to_be_visible()
    copied = lab.page.evaluate("() => navigator.clipboard.readText()")
    lab.add_cell_and_run(SETUP)
    again = lab.add_cell_and_run(f"%regional_compile --no-bench --no-widget --plan {copied} -o ex f(x, w)")
    assert [one for one in lab.outputs(again) if one["output_type"] == "error"] == []
    assert printed(lab, "[(r.name, r.enabled) for r in ex.plan.regions]") == "[('mlp', True), ('softmax', False)]"


def wait_for_file(lab: Lab, name: str, says: str = "", timeout_s: float = MEASURED_S) -> None:
    """Wait until the kernel has written a file that says so."""
    path, ends_s = lab.server.folder / name, time.monotonic() + timeout_s
    while not (path.exists() and says in path.read_text(encoding="utf-8")):
        assert time.monotonic() < ends_s, f"{name} does not say {says!r}"
        lab.page.wait_for_timeout(50)


def rename_and_take_back(panel: Locator) -> None:
    row(panel, "mlp").locator(".rxt-state").click()
    expect(row(panel, "mlp")).to_have_attribute("aria-selected", "true")
    panel.get_by_placeholder("new name").fill("first")
    panel.get_by_role("button", name="Rename").click()
    expect(row(panel, "first")).to_have_attribute("aria-selected", "true")
    panel.get_by_role("button", name="Undo").click()
    expect(row(panel, "mlp")).to_have_count(1)


def test_the_panel_appears_and_its_twin_rests(notebook: Lab, panel: Locator) -> None:
    expect(panel).to_be_visible()
    expect_not_boxed(notebook.output(1))
    assert Path(printed(notebook, "__import__('sys').prefix")) == Path(sys.prefix)
    expect(row(panel, "mlp")).to_contain_text("stale")
    expect(row(panel, "mlp")).to_contain_text("max_fusion_size=8")
    expect(panel.locator(".rxg-stage")).to_be_visible()
    assert notebook.output(1).locator(".rx-static-copy").count() == 1
    expect(notebook.output(1).locator(".rx-static-copy")).to_be_hidden()


def test_a_region_is_switched_off_and_on(notebook: Lab, panel: Locator) -> None:
    switch = switch_of(panel, "mlp")
    switch.uncheck()
    expect(row(panel, "mlp")).to_contain_text("eager")
    assert printed(notebook, "ex.plan['mlp'].enabled") == "False"
    panel.get_by_role("button", name="Undo").click()
    expect(switch).to_be_checked()
    expect(panel.get_by_role("button", name="Redo")).to_be_enabled()
    notebook.screenshot("panel-undone", panel)


def test_rows_are_ordered_and_selected_by_keyboard(notebook: Lab, panel: Locator) -> None:
    names = panel.locator("tbody tr[data-do=pick] .rxt-name b")
    panel.get_by_role("button", name="region", exact=True).focus()
    notebook.page.keyboard.press("Enter")
    expect(panel.locator("th.rxt-name")).to_have_attribute("aria-sort", "ascending")
    notebook.page.keyboard.press("Enter")
    expect(names).to_have_text(["softmax", "mlp"])
    expect(panel.get_by_role("button", name="region ↓")).to_be_focused()
    notebook.page.keyboard.press("Enter")
    expect(names).to_have_text(["mlp", "softmax"])
    row(panel, "mlp").focus()
    notebook.page.keyboard.press("Enter")
    expect(row(panel, "mlp")).to_have_attribute("aria-selected", "true")
    expect(panel.locator(".rxg-selected")).to_contain_text("3 of 7 nodes selected")
    notebook.page.keyboard.press("Shift+ArrowDown")
    expect(row(panel, "softmax")).to_have_attribute("aria-selected", "true")
    expect(row(panel, "softmax")).to_be_focused()
    expect(panel.locator(".rxg-selected")).to_contain_text("5 of 7 nodes selected")
    notebook.page.keyboard.press("Space")
    expect(row(panel, "softmax")).to_have_attribute("aria-selected", "false")
    panel.locator(".rxg-stage").focus()
    notebook.page.keyboard.press("Escape")


def test_regions_are_merged_split_and_renamed(notebook: Lab, panel: Locator) -> None:
    row(panel, "mlp").locator(".rxt-state").click()
    row(panel, "softmax").locator(".rxt-state").click(modifiers=["Control"])
    panel.get_by_role("button", name="Merge").click()
    expect(row(panel, "softmax")).to_have_count(0)
    expect(row(panel, "mlp").locator(".rxt-ops")).to_have_text("5")
    panel.get_by_role("button", name="Undo").click()
    expect(row(panel, "softmax")).to_have_count(1)
    expect(panel.locator(".rxg-selected")).to_contain_text("3 of 7 nodes selected")
    rename_and_take_back(panel)


def test_the_controls_work_by_keyboard(notebook: Lab, panel: Locator) -> None:
    switch = switch_of(panel, "softmax")
    switch.focus()
    notebook.page.keyboard.press("Space")
    expect(row(panel, "softmax")).to_contain_text("eager")
    notebook.page.keyboard.press("Space")
    expect(row(panel, "softmax")).not_to_contain_text("eager")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Enter")
    expect(panel.get_by_label("Add a key")).to_be_visible()
    notebook.page.keyboard.press("Enter")
    expect(panel.get_by_label("Add a key")).to_have_count(0)


def test_a_region_is_made_by_clicking_nodes(notebook: Lab, panel: Locator) -> None:
    panel.scroll_into_view_if_needed()
    graph = Graph(notebook, 1, notebook.output(1))
    graph.click("relu")
    for told in ("relu = aten.relu.default", "float32[32, 32]", "h = torch.relu(x @ w) * 2", "max_fusion_size=8"):
        expect(panel.get_by_role("tooltip")).to_contain_text(told)
    panel.get_by_label("Mark by").select_option("selection")
    expect(panel.get_by_label("Pattern", exact=True)).to_have_value("1 node selected")
    notebook.screenshot("panel-selected", panel)
    expect(panel.locator(".rx-preview")).to_contain_text(
        "Region relu would give 1 partition of 1 op (1 in 0/inference)"
    )
    expect(panel.locator(".rx-preview")).to_contain_text("mlp: 1 → 2")
    panel.get_by_label("Name", exact=True).last.fill("picked")
    panel.get_by_role("button", name="Mark", exact=True).click()
    expect(row(panel, "picked")).to_contain_text("stale")
    assert printed(notebook, "ex.session.members['picked']['0/inference']") == "('relu',)"
    panel.get_by_role("button", name="Undo").click()
    expect(row(panel, "picked")).to_have_count(0)


def test_a_region_is_made_of_a_line_and_of_what_was_found(notebook: Lab, panel: Locator) -> None:
    pattern = panel.get_by_label("Pattern", exact=True)
    panel.locator(".rxs-line", has_text="return torch.softmax").click()
    expect(pattern).to_have_value("4 nodes selected")  # of the Dynamo graph, too
    panel.get_by_role("searchbox").fill("op:aten.mul")
    expect(panel.locator(".rxg-count")).to_have_text("1 found")
    panel.get_by_role("button", name="Select all matches").click()
    expect(pattern).to_have_value("1 node selected")
    expect(panel.locator(".rxs-line[aria-selected=true]")).to_contain_text("torch.relu(x @ w) * 2")
    panel.get_by_label("Name", exact=True).last.fill("scale")
    panel.get_by_role("button", name="Mark", exact=True).click()
    expect(row(panel, "scale")).to_contain_text("stale")
    panel.get_by_role("button", name="Undo").click()
    panel.get_by_role("searchbox").press("Escape")
    expect(row(panel, "scale")).to_have_count(0)


def test_what_is_pressed_while_the_kernel_is_busy_means_what_is_shown(notebook: Lab, panel: Locator) -> None:
    notebook.add_cell_and_start(BUSY)
    wait_for_file(notebook, "busy")
    panel.scroll_into_view_if_needed()
    graph = Graph(notebook, 1, notebook.output(1))
    graph.click("mm")
    notebook.page.wait_for_timeout(100)  # what is under the pointer is told, too
    graph.click("mul")
    panel.get_by_label("Name", exact=True).last.press_sequentially("quick")
    panel.get_by_role("button", name="Mark", exact=True).click()
    (notebook.server.folder / "go on").touch()
    notebook.wait_idle()
    assert printed(notebook, "ex.session.members['quick']['0/inference']") == "('mul',)"
    panel.get_by_role("button", name="Undo").click()
    expect(row(panel, "quick")).to_have_count(0)


def test_a_change_leaves_what_it_does_not_concern(notebook: Lab, panel: Locator) -> None:
    name = panel.get_by_label("Name", exact=True).last
    name.fill("half a na")
    kept = [
        name,
        panel.get_by_role("button", name="Mark", exact=True),
        panel.get_by_role("spinbutton", name="Budget (s)"),
    ]
    elements = [locator.element_handle() for locator in kept]
    notebook.page.evaluate(CHANGE_FROM_THE_KERNEL, "ex.configure('softmax', max_fusion_size=16)")
    expect(row(panel, "softmax")).to_contain_text("max_fusion_size=16")
    assert [element.evaluate("element => element.isConnected") for element in elements] == [True] * 3
    expect(name).to_be_focused()
    expect(name).to_have_value("half a na")
    name.fill("")
    panel.get_by_role("button", name="Undo").click()
    expect(row(panel, "softmax")).not_to_contain_text("max_fusion_size=16")


def test_a_config_is_changed_through_its_fields(notebook: Lab, panel: Locator) -> None:
    row(panel, "mlp").get_by_role("button", name="Config").click()
    expect(panel.get_by_role("heading", name="Config of mlp")).to_be_visible()
    size = panel.get_by_role("spinbutton", name="max_fusion_size")
    size.fill("4")
    size.press("Enter")
    expect(row(panel, "mlp")).to_contain_text("max_fusion_size=4")
    keys = panel.get_by_label("Config keys")
    expect(keys.locator("code")).to_have_count(12)
    expect(keys).to_contain_text(
        "an int, default 64 · can matter on cpuin usehow many nodes to allow into a single fusion"
    )
    panel.get_by_label("Add a key").fill("simdlen")
    expect(keys.locator("code")).to_have_text(["cpp.simdlen"])
    panel.get_by_role("button", name="Add cpp.simdlen").click()
    expect(panel.get_by_role("textbox", name="cpp.simdlen")).to_have_value("None")
    assert printed(notebook, "dict(ex.plan['mlp'].config)") == "{'max_fusion_size': 4, 'cpp.simdlen': None}"


def test_a_wrong_value_is_told_at_its_field(notebook: Lab, panel: Locator) -> None:
    field = panel.get_by_role("textbox", name="cpp.simdlen")
    field.fill("abc")
    field.press("Enter")
    alert = panel.get_by_role("alert").filter(has_text="takes an int or None")
    expect(alert).to_be_visible()
    expect(field).to_have_value("abc")
    panel.get_by_label("Add a key").fill("cpp.simdlem")
    expect(panel.get_by_role("alert").filter(has_text="Did you mean 'cpp.simdlen'")).to_be_visible()
    panel.get_by_label("Add a key").fill("eager numerics when")  # words of its text
    expect(panel.get_by_text("Mode to emulate PyTorch eager numerics")).to_be_visible()
    panel.get_by_label("Add a key").fill("max_autotune")
    expect(panel.get_by_label("Config keys")).to_contain_text(
        "! No effect here: C++ GEMM templates need constant weights"
    )
    notebook.screenshot("panel-config", panel)


def test_the_config_is_copied_as_python(notebook: Lab, panel: Locator) -> None:
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    config = panel.locator(".rx-config")
    config.get_by_role("button", name="Copy as Python").click()
    expect(config.get_by_role("button", name="Copied")).to_be_visible()
    copied = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "ex.configure('mlp', {'max_fusion_size': 4, 'cpp.simdlen': None})"


def test_a_copy_button_gets_its_text_back_and_says_when_copying_failed(notebook: Lab, panel: Locator) -> None:
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    config = panel.locator(".rx-config")
    copy = config.get_by_role("button", name="Copy as Python")
    copy.dblclick()
    expect(config.get_by_role("button", name="Copied")).to_be_visible()
    expect(copy).to_be_visible(timeout=5000)
    notebook.page.evaluate("() => navigator.clipboard.writeText('something else')")
    notebook.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    copy.click()
    expect(config.get_by_role("button", name="Copied")).to_be_visible()
    assert notebook.page.evaluate("() => navigator.clipboard.readText()").startswith("ex.configure('mlp'")
    expect(copy).to_be_visible(timeout=5000)
    notebook.page.evaluate("() => { document.execCommand = () => false; }")
    copy.click()
    expect(config.get_by_role("button", name="Copying failed")).to_be_visible()
    expect(copy).to_be_visible(timeout=5000)
    notebook.page.evaluate("() => { delete navigator.clipboard.writeText; delete document.execCommand; }")


def test_what_is_typed_and_taken_back_does_not_stay_for_the_next_region(alone: Callable[[SessionView], Page]) -> None:
    exploration = make()
    exploration.configure("act", {"max_fusion_size": 4})
    panel = Panel(control_of(exploration))
    panel.press("open", "mm")
    page = alone(panel)
    field = page.get_by_role("spinbutton", name="max_fusion_size")
    field.press("1")
    field.press("Backspace")
    expect(field).to_have_value("8")
    page.locator(".rxg-stage").focus()
    panel.press("open", "act")
    news = {name: value for name, value in panel.get_state().items() if name[0] != "_"}
    page.evaluate("(news) => answer(news)", news)
    expect(page.get_by_role("heading", name="Config of act")).to_be_visible()
    expect(field).to_have_value("4")
    panel.close()
    exploration.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_clipped_at_any_width(notebook: Lab, panel: Locator, theme: str) -> None:
    notebook.set_theme("dark" if theme == "dark" else "light")
    for width in WIDTHS:
        notebook.set_viewport(width, 1400)
        notebook.page.wait_for_timeout(150)
        notebook.screenshot(f"panel-{theme}-{width}", panel)
        wide = panel.evaluate("panel => [panel.scrollWidth, panel.clientWidth]")
        assert wide[0] <= wide[1], f"{theme} {width}: {wide}"
        beyond = panel.evaluate(
            """panel => {
                const right = panel.getBoundingClientRect().right;
                const shown = [...panel.querySelectorAll('button, input, select')].filter(e => e.offsetParent);
                return shown.filter(e => e.getBoundingClientRect().right > right).map(e => e.outerHTML);
            }"""
        )
        assert beyond == []
    notebook.set_theme("light")
    notebook.set_viewport(1280, 1400)


def test_every_control_has_a_name_and_shows_its_focus(panel: Locator) -> None:
    nameless = panel.evaluate(
        """panel => [...panel.querySelectorAll('button, input, select, [tabindex="0"]')]
            .filter(e => e.offsetParent && !(e.getAttribute('aria-label') || e.labels?.length && e.labels[0].textContent
                || e.textContent.trim() || e.placeholder || e.title)).map(e => e.outerHTML)"""
    )
    assert nameless == []
    panel.page.keyboard.press("Shift")  # as by keyboard, so that the focus is to be seen
    unseen = panel.evaluate(
        """panel => [...panel.querySelectorAll('button, input, select, [tabindex="0"]')]
            .filter(e => e.offsetParent && !e.disabled)
            .filter(e => { e.focus(); return getComputedStyle(e).outlineStyle === 'none'; }).map(e => e.outerHTML)"""
    )
    assert unseen == []


def test_text_is_never_tiny(panel: Locator) -> None:
    sizes = panel.evaluate(
        """panel => [...panel.querySelectorAll('button, input, select, label, span, td, th, p, li')]
            .filter(e => e.offsetParent && !e.closest('svg')).map(e => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert min(sizes) >= 11


@pytest.mark.compiles
def test_compile_and_measure_fills_the_tables_while_the_kernel_stays_usable(notebook: Lab, panel: Locator) -> None:
    field = panel.get_by_role("textbox", name="cpp.simdlen")
    field.fill("None")
    field.press("Enter")
    for variant in ("aot_eager", "full"):
        panel.get_by_label(variant, exact=True).uncheck()
    budget = panel.get_by_label("Budget (s)")
    budget.fill("4")  # enough for a speedup of each region, whatever else runs
    budget.press("Enter")
    panel.get_by_role("button", name="Compile & measure").click()
    expect(panel.locator(".rx-progress").get_by_role("status")).to_contain_text(
        re.compile("compiling|building|warming|checking|round|calls")
    )
    assert printed(notebook, "6 * 7") == "42"
    times = panel.locator("table").filter(has_text="samples").locator("td").filter(has_text=re.compile("^regional$"))
    expect(times.first).to_be_visible(timeout=MEASURED_S * 1000)
    expect(row(panel, "mlp")).to_contain_text("measured")
    expect(panel.get_by_role("button", name="Compile & measure")).to_be_enabled(timeout=MEASURED_S * 1000)
    expect(row(panel, "mlp").locator(".rxt-compiled")).to_contain_text(re.compile("µs|ms"))
    expect(row(panel, "mlp").locator(".rxt-speedup")).to_contain_text(re.compile(r"\d×"))
    notebook.screenshot("panel-measured", panel)
    overlay = panel.get_by_role("button", name="Next overlay")
    for title in ("compiled time", "eager time", "speedup"):
        overlay.click()
        expect(panel.locator(".rxg-key")).to_contain_text(title)
        notebook.screenshot(f"panel-overlay-{title.partition(' ')[0]}", panel.locator(".rxg"))
    overlay.click()
    expect(panel.locator(".rxg-key")).to_have_count(0)


ALIVE = "[t.name for t in __import__('threading').enumerate() if 'regional' in t.name and 'latest' not in t.name]"
"""Threads of jobs; one of ``Latest`` may be busy with the new picture."""


@pytest.mark.compiles
def test_cancel_ends_a_long_measurement(notebook: Lab, panel: Locator) -> None:
    budget = panel.get_by_label("Budget (s)")
    budget.fill("300")
    budget.press("Enter")
    panel.get_by_role("button", name="Compile & measure").click()
    expect(panel.locator(".rx-progress").get_by_role("status")).to_contain_text("round", timeout=MEASURED_S * 1000)
    notebook.screenshot("panel-busy", panel)
    panel.get_by_role("button", name="Cancel").click()
    # Long before the budget is spent.
    expect(panel.locator(".rx-progress").get_by_role("status")).to_contain_text("Cancelled", timeout=20_000)
    notebook.screenshot("panel-cancelled", panel)
    expect(row(panel, "mlp").get_by_role("checkbox")).to_be_enabled()
    assert printed(notebook, ALIVE) == "[]"


@pytest.mark.compiles
def test_two_measured_plans_are_compared_and_one_is_taken(notebook: Lab, panel: Locator) -> None:
    budget = panel.get_by_label("Budget (s)")
    budget.fill("0.5")
    budget.press("Enter")
    switch_of(panel, "softmax").uncheck()
    panel.get_by_role("button", name="Compile & measure").click()
    compared = panel.locator(".rx-compare")
    expect(compared.get_by_text("softmax off")).to_be_visible(timeout=MEASURED_S * 1000)
    expect(compared.get_by_text("current plan")).to_be_visible()
    notebook.screenshot("panel-compared", panel)
    compared.get_by_role("button", name="Use plan 1").click()
    expect(switch_of(panel, "softmax")).to_be_checked()
    assert printed(notebook, "(len(ex.history), ex.plan['softmax'].enabled)") == "(2, True)"


def test_a_selection_made_before_undo_is_answered_stays(notebook: Lab) -> None:
    other = notebook.output(2).locator(".rx-panel")
    pattern = other.get_by_label("Pattern", exact=True)
    other.get_by_label("Mark by").select_option("modules")
    pattern.fill("0")
    other.get_by_label("Name").last.fill("linear")
    other.get_by_role("button", name="Mark", exact=True).click()
    row(other, "linear").locator(".rxt-state").click()
    expect(row(other, "linear")).to_have_attribute("aria-selected", "true")
    other.evaluate(UNDO_AND_SELECT)  # undone, the region is gone, and with it the selection of its nodes
    expect(row(other, "linear")).to_have_count(0)
    expect(pattern).to_have_value("1 node selected")
    expect(other.locator(".rxg-selected")).to_contain_text(re.compile(r"^1 of \d+ nodes selected"))
    notebook.page.keyboard.press("Escape")
    expect(pattern).to_have_value("")


def test_an_error_shows_in_the_panel(notebook: Lab, panel: Locator) -> None:
    notebook.add_cell_and_run("ex.benchmark = lambda *_, **__: 1 / 0")
    panel.get_by_role("button", name="Compile & measure").click()
    alert = panel.locator(".rx-alert").get_by_role("alert")
    expect(alert).to_have_text("✗ ZeroDivisionError: division by zero")
    notebook.screenshot("panel-error", panel)
    panel.get_by_role("button", name="Dismiss").click()
    expect(alert).to_be_hidden()
    notebook.add_cell_and_run("del ex.benchmark")


def test_a_diagnostic_leads_to_its_place(notebook: Lab, panel: Locator) -> None:
    panel.locator(".rxg-stage").focus()
    notebook.page.keyboard.press("Escape")
    panel.get_by_role("tab", name="Diagnostics").click()
    panel.get_by_text(re.compile(r"^\d+ infos?$")).click()
    panel.get_by_role("button", name=re.compile("^Show the nodes of")).first.click()
    expect(panel.locator(".rxg-selected")).to_contain_text("selected")


def test_a_region_is_made_by_choosing_a_module(notebook: Lab) -> None:
    other = notebook.output(2).locator(".rx-panel")
    expect(other).to_contain_text("No region yet")
    other.get_by_label("Mark by").select_option("modules")
    other.get_by_label("Pattern", exact=True).fill("1")
    other.get_by_label("Pattern", exact=True).press("Tab")
    expect(other.locator(".rx-preview")).to_contain_text("region would give 2 partitions of 1 op")
    other.get_by_label("Name").last.fill("act")
    other.get_by_role("button", name="Mark").click()
    expect(row(other, "act")).to_contain_text("stale")
    notebook.screenshot("panel-marked", other)
    assert printed(notebook, "[r.name for r in ex.plan.regions]") == "['mlp', 'softmax']"
    assert printed(notebook, "[r.selection for r in bare.plan.regions]") == "['modules:1']"


def test_a_cell_that_runs_again_has_one_panel(notebook: Lab) -> None:
    before = int(printed(notebook, "len(__import__('ipywidgets').widgets.widget._instances)"))
    notebook.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2; }")
    notebook.execute("notebook:run-cell", wait=False)
    notebook.wait_idle()
    expect(notebook.output(2).locator(".rx-panel")).to_have_count(1)
    assert int(printed(notebook, "len(__import__('ipywidgets').widgets.widget._instances)")) <= before


def test_nothing_went_wrong_and_nothing_was_fetched(notebook: Lab) -> None:
    assert notebook.errors == []
    assert notebook.foreign_requests == []


RESTART = "async () => { await window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart(); }"
DESCENDANTS = """
import os, pathlib
def descendants(root):
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    found = [root]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found
print(descendants(os.getpid()))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_after_a_restart_nothing_is_left_running_and_the_panel_keeps_its_plan(notebook: Lab, panel: Locator) -> None:
    switch_of(panel, "softmax").uncheck()
    expect(row(panel, "softmax")).to_contain_text("eager")
    budget = panel.get_by_label("Budget (s)")
    budget.fill("300")
    budget.press("Enter")
    panel.get_by_role("button", name="Compile & measure").click()
    expect(panel.get_by_role("button", name="Cancel")).to_be_enabled()
    index = notebook.add_cell_and_run(DESCENDANTS)
    running = json.loads(str(notebook.outputs(index)[0]["text"]))
    notebook.save()
    notebook.page.evaluate(RESTART)
    for _ in range(150):
        left = [pid for pid in running if Path(f"/proc/{pid}").exists()]
        if not left:
            break
        notebook.page.wait_for_timeout(100)
    assert left == []
    graph, beside = panel.locator(".rxg").bounding_box(), panel.locator(".rx-beside").bounding_box()
    assert graph is not None
    assert beside is not None
    assert abs(graph["y"] - beside["y"]) < 2  # still side by side
    notebook.screenshot("panel-restarted", notebook.output(1))
    expect_plan_is_copied(notebook, notebook.output(1))


def test_reopened_without_a_kernel_the_static_output_stands(notebook: Lab) -> None:
    notebook.reopen_without_kernel("panel.ipynb")
    twin = notebook.output(1).locator(".rx-static-copy")
    expect(twin).to_be_visible()
    expect(twin.locator("svg.rx-graph")).to_be_visible()
    expect(twin).to_contain_text("max_fusion_size=4")
    assert notebook.output(1).locator(".rx-panel").count() == 0
    expect(notebook.output(1).get_by_text("Loading widget")).to_be_hidden()
    notebook.screenshot("panel-reopened", notebook.output(1))


WATCHED = """
from pathlib import Path
from regional_explorer.ui import jobs
from regional_explorer.ui.control import control_of

control, jobs.INTERVAL_S, replies = control_of(ex), 0.25, 0

def reply(answer=control.heartbeat.on_reply):
    global replies
    answer()
    replies += 1
    if replies > 1.5 * jobs.MAX_UNANSWERED:
        Path("replied").touch()

control.heartbeat.on_reply = reply
control.listeners.append(lambda control: Path("job").write_text("busy" if control.state.busy else "ended"))
"""
"""Pings the page often, and writes files about it: while no page is open, no cell can be asked."""


@pytest.mark.compiles
def test_after_a_closed_tab_nothing_is_left_running(lab: Lab) -> None:
    lab.write_notebook("closed.ipynb", [*CELLS[:2], WATCHED])
    lab.open_notebook("closed.ipynb")
    lab.run_all()
    panel = lab.output(1).locator(".rx-panel")
    for variant in ("aot_eager", "full"):
        panel.get_by_label(variant, exact=True).uncheck()
    budget = panel.get_by_label("Budget (s)")
    budget.fill("300")
    budget.press("Enter")
    panel.get_by_role("button", name="Compile & measure").click()
    working = panel.locator(".rx-progress").get_by_role("status")
    expect(working).to_contain_text("round", timeout=MEASURED_S * 1000)
    wait_for_file(lab, "replied")  # more often than one would be waited for: somebody is there
    wait_for_file(lab, "job", "busy")
    expect(working).to_contain_text("round")
    lab.save()
    lab.execute("application:close")
    wait_for_file(lab, "job", "ended")
    lab.open_notebook("closed.ipynb")
    assert printed(lab, "control.jobs.wait(20)") == "True"
    assert printed(lab, ALIVE) == "[]"
    assert printed(lab, "control.state.note").startswith("Stopped because no page shows the panel")
