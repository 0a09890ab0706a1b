"""The panel in a real JupyterLab."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.widget import SessionView
from tests.browser.cells import CELLS, SETUP
from tests.browser.conftest import lab_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.views import DRAWN, WAIT_MS, Explorer, Graph, accessibility_faults, box_of, expect_not_boxed
from tests.shared.panel import small_exploration

STATIC_COPY = ".rx-static-copy"


@pytest.fixture
def notebook(jupyterlab: Lab) -> Iterator[Lab]:
    with jupyterlab.running(CELLS[:2], height=1400) as lab:
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Explorer:
    return Explorer(notebook, 1)


@pytest.fixture
def mortal(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    """A notebook whose kernel and page the test may end."""
    with lab_page(browser, lab_server, height=1400) as lab:
        lab.write_notebook("panel.ipynb", CELLS[:2])
        lab.open_and_run("panel.ipynb")
        yield lab


def clipboard(lab: Lab) -> str:
    text: str = lab.page.evaluate("() => navigator.clipboard.readText()")
    return text


def wait_for_file(lab: Lab, name: str, text: str = "") -> None:
    """Wait until the kernel has written ``text`` to a file."""
    path, ends_s = lab.server.folder / name, time.monotonic() + WAIT_MS / 1000
    while not (path.exists() and text in path.read_text(encoding="utf-8")):
        assert time.monotonic() < ends_s, f"{name} does not contain {text!r}"
        lab.page.wait_for_timeout(50)


def test_the_panel_appears_and_its_static_copy_is_hidden(notebook: Lab, panel: Explorer) -> None:
    expect(panel.root).to_be_visible()
    expect_not_boxed(panel)
    assert Path(notebook.kernel_value("__import__('sys').prefix")) == Path(sys.prefix)
    expect(panel.row("mlp")).to_contain_text("not compiled")
    expect(panel.row("mlp")).to_contain_text("max_fusion_size=8")
    expect(panel.graph.stage).to_be_visible()
    static_copy = panel.output.locator(STATIC_COPY)
    expect(static_copy).to_have_count(1)
    expect(static_copy).to_be_hidden()


def test_region_row_works_by_pointer_and_keyboard(notebook: Lab, panel: Explorer) -> None:
    panel.switch("mlp").uncheck()
    expect(panel.row("mlp")).to_contain_text("eager")
    assert notebook.kernel_value("ex.plan['mlp'].enabled") == "False"
    panel.press("Undo")
    expect(panel.switch("mlp")).to_be_checked()
    expect(panel.button("Redo")).to_be_enabled()
    panel.switch("softmax").focus()
    notebook.page.keyboard.press("Space")
    expect(panel.row("softmax")).to_contain_text("eager")
    notebook.page.keyboard.press("Space")
    expect(panel.row("softmax")).not_to_contain_text("eager")
    notebook.page.keyboard.press("Tab")
    for shown in (1, 0):
        notebook.page.keyboard.press("Enter")
        expect(panel.root.get_by_label("Add a key")).to_have_count(shown)


def test_rows_are_ordered_and_selected_by_keyboard(notebook: Lab, panel: Explorer) -> None:
    names, keyboard = panel.root.locator("tbody tr[data-do=pick] .rxt-name b"), notebook.page.keyboard
    panel.button("region").focus()
    keyboard.press("Enter")
    expect(panel.root.locator("th.rxt-name")).to_have_attribute("aria-sort", "ascending")
    keyboard.press("Enter")
    expect(names).to_have_text(["softmax", "mlp"])
    expect(panel.button("region ↓")).to_be_focused()
    keyboard.press("Enter")
    expect(names).to_have_text(["mlp", "softmax"])
    panel.row("mlp").focus()
    keyboard.press("Enter")
    panel.expect_picked("mlp")
    expect(panel.graph.selected).to_contain_text("3 of 7 nodes selected")
    keyboard.press("Shift+ArrowDown")
    panel.expect_picked("softmax")
    expect(panel.row("softmax")).to_be_focused()
    expect(panel.graph.selected).to_contain_text("5 of 7 nodes selected")
    keyboard.press("Space")
    expect(panel.row("softmax")).to_have_attribute("aria-selected", "false")
    panel.graph.press("Escape")


def test_regions_are_merged(panel: Explorer) -> None:
    panel.pick("mlp")
    panel.pick("softmax", "Control")
    panel.press("Merge")
    expect(panel.row("softmax")).to_have_count(0)
    expect(panel.row("mlp").locator(".rxt-picks")).to_contain_text("5 ops")
    panel.press("Undo")
    expect(panel.row("softmax")).to_have_count(1)
    expect(panel.graph.selected).to_contain_text("3 of 7 nodes selected")


BUSY = """
import time
from pathlib import Path
Path("busy").touch()
while not Path("go on").exists():
    time.sleep(0.02)
"""


def test_press_while_busy_acts_on_the_shown_state(notebook: Lab, panel: Explorer) -> None:
    for name in ("busy", "go on"):
        (notebook.server.folder / name).unlink(missing_ok=True)
    notebook.add_cell_and_start(BUSY)
    wait_for_file(notebook, "busy")
    graph = Graph.fitted(panel.output)
    graph.click("mm")
    graph.click("mul")
    panel.name.press_sequentially("quick")
    panel.press("Mark")
    (notebook.server.folder / "go on").touch()
    expect(panel.row("quick")).to_have_count(1)
    assert notebook.kernel_value("ex.session.members['quick']['0/inference']") == "('mul',)"
    panel.press("Undo")
    expect(panel.row("quick")).to_have_count(0)


def test_a_change_keeps_other_elements_and_the_focus(notebook: Lab, panel: Explorer) -> None:
    panel.name.fill("half a na")
    elements = [found.element_handle() for found in (panel.name, panel.button("Mark"), panel.budget)]
    notebook.run_code("ex.configure('softmax', max_fusion_size=16)")
    expect(panel.row("softmax")).to_contain_text("max_fusion_size=16")
    assert [element.evaluate("element => element.isConnected") for element in elements] == [True] * 3
    expect(panel.name).to_be_focused()
    expect(panel.name).to_have_value("half a na")
    panel.name.fill("")
    panel.press("Undo")
    expect(panel.row("softmax")).not_to_contain_text("max_fusion_size=16")


def test_config_fields_change_and_show_errors(notebook: Lab, panel: Explorer) -> None:
    panel.open_config("mlp")
    size = panel.root.get_by_role("spinbutton", name="max_fusion_size")
    size.fill("4")
    size.press("Enter")
    expect(panel.row("mlp")).to_contain_text("max_fusion_size=4")
    panel.root.get_by_label("Add a key").fill("simdlen")
    expect(panel.root.get_by_label("Config keys").locator("code")).to_have_text(["cpp.simdlen"])
    panel.press("Add cpp.simdlen")
    field = panel.root.get_by_role("textbox", name="cpp.simdlen")
    expect(field).to_have_value("None")
    assert notebook.kernel_value("dict(ex.plan['mlp'].config)") == "{'max_fusion_size': 4}", "no edit: its default"
    field.fill("abc")
    field.press("Enter")
    expect(panel.root.get_by_role("alert").filter(has_text="takes an int or None")).to_be_visible()
    expect(field).to_have_value("abc")


def test_config_is_copied_as_python(notebook: Lab, panel: Explorer) -> None:
    page, copy = notebook.page, panel.config.locator("[data-do=copy]")
    code = "ex.configure('mlp', {'max_fusion_size': 8})"
    panel.open_config("mlp")
    copy.dblclick()
    expect(copy).to_have_text("Copied")
    assert clipboard(notebook) == code
    page.evaluate("() => navigator.clipboard.writeText('something else')")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    page.evaluate("() => { document.execCommand = () => false; }")
    copy.click()
    expect(copy).to_have_text("Copying failed")
    page.evaluate("() => { delete document.execCommand; }")
    copy.click()
    expect(copy).to_have_text("Copied")
    assert clipboard(notebook) == code
    page.evaluate("() => { delete navigator.clipboard.writeText; }")
    expect(copy).to_have_text("Copy as Python")


def test_deleted_input_is_not_sent_to_the_next_region(open_view: Callable[[SessionView], Page]) -> None:
    exploration = small_exploration()
    exploration.configure("act", {"max_fusion_size": 4})
    panel = Panel(control_of(exploration))
    panel.press("open", "mm")
    page = open_view(panel)
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


def test_escape_closes_an_open_menu_and_keeps_what_is_selected(open_view: Callable[[SessionView], Page]) -> None:
    panel = Panel(control_of(small_exploration()))
    page = open_view(panel)
    for title in ("Options", "Take home"):
        summary = page.locator("summary", has_text=title)
        summary.click()
        menu = page.locator(".rx-options", has=summary)
        expect(menu).to_have_attribute("open", "")
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        expect(menu).not_to_have_attribute("open", "")
        expect(summary).to_be_focused()
    assert "clear" not in page.evaluate("sent.map((message) => message.do)")
    page.keyboard.press("Escape")
    assert "clear" in page.evaluate("sent.map((message) => message.do)")
    panel.close()


def test_nothing_is_clipped_at_any_width(notebook: Lab, panel: Explorer) -> None:
    menus = panel.root.locator(".rx-options")
    menus.evaluate_all("menus => menus.forEach((menu) => { menu.open = true; })")
    for width in (600, 700, 800, 950, 1200, 2500):
        notebook.set_viewport(width, 1400)
        notebook.page.evaluate(DRAWN)
        assert panel.root.evaluate("panel => panel.scrollWidth - panel.clientWidth") <= 0, width
        beyond = panel.root.evaluate(
            """panel => {
                const { left, right } = panel.getBoundingClientRect(), side = (e) => e.getBoundingClientRect();
                const shown = [...panel.querySelectorAll('button, input, select')].filter(e => e.offsetParent);
                return shown.filter(e => side(e).left < left || side(e).right > right).map(e => e.outerHTML);
            }"""
        )
        assert beyond == [], width


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_panel_is_accessible(notebook: Lab, panel: Explorer, theme: str) -> None:
    notebook.set_theme("dark" if theme == "dark" else "light")
    panel.open_config("mlp")
    for pane in ("Why", "Code", "Config", "Time"):
        panel.pane(pane).click()
        assert accessibility_faults(notebook.page, ".rx-panel") == []


CONTROLS = """
panel => {
    const controls = [...panel.querySelectorAll('button, input, select, [tabindex="0"]')].filter(e => e.offsetParent);
    const texts = [...panel.querySelectorAll('button, input, select, label, span, td, th, p, li')];
    const named = (e) => e.getAttribute('aria-label') || e.labels?.length && e.labels[0].textContent
        || e.textContent.trim() || e.placeholder || e.title;
    const focused = (e) => { e.focus(); return getComputedStyle(e).outlineStyle !== 'none'; };
    const shown = texts.filter(e => e.offsetParent && !e.closest('svg'));
    return {
        nameless: controls.filter(e => !named(e)).map(e => e.outerHTML),
        unseen: controls.filter(e => !e.disabled && !focused(e)).map(e => e.outerHTML),
        least: Math.min(...shown.map(e => parseFloat(getComputedStyle(e).fontSize))),
    };
}
"""


def test_controls_have_names_visible_focus_and_legible_text(panel: Explorer) -> None:
    panel.open_config("mlp")
    panel.root.page.keyboard.press("Shift")  # as by keyboard, so that the focus is visible
    found = panel.root.evaluate(CONTROLS)
    assert found["nameless"] == []
    assert found["unseen"] == []
    assert found["least"] >= 11


@pytest.mark.compiles
def test_measured_figures_are_in_rows_tables_and_colours(panel: Explorer) -> None:
    panel.measure(budget_s=1)
    for region in ("mlp", "softmax"):
        panel.expect_measured(region)
    times = panel.root.locator("table").filter(has_text="samples").locator("td", has_text=re.compile("^your plan$"))
    expect(times.first).to_be_visible()
    key, colour = panel.root.locator(".rxg-key"), panel.graph.root.get_by_label("Colour")
    for title in ("compiled time", "eager time", "speedup"):
        colour.select_option(title)
        expect(key).to_contain_text(title)
    colour.select_option("region")
    expect(key).to_have_count(0)


ALIVE = """
import threading
jobs = [one for one in threading.enumerate() if 'regional' in one.name and 'latest' not in one.name]
for job in jobs:
    job.join(5)
print([job.name for job in jobs if job.is_alive()])
"""
"""Threads of jobs that do not end; one of ``LatestWorkRunner`` may be busy with the new picture."""


@pytest.mark.compiles
def test_kernel_stays_usable_while_measuring_until_cancelled(notebook: Lab, panel: Explorer) -> None:
    panel.measure(budget_s=3_000)
    panel.expect_rounds()
    assert notebook.kernel_value("6 * 7") == "42"
    panel.expect_rounds()
    panel.press("Cancel")
    expect(panel.status).to_contain_text("Cancelled")  # long before the budget is spent
    expect(panel.switch("mlp")).to_be_enabled()
    assert notebook.run_code(ALIVE) == "[]"


UNDO_AND_SELECT = """
panel => {
    const stage = panel.querySelector('.rxg-stage');
    panel.querySelector('[data-do=undo]').click();
    stage.focus();
    for (const key of ['End', ' ']) stage.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
}
"""


def test_a_selection_in_a_second_panel_survives_undo(notebook: Lab) -> None:
    other = Explorer(notebook, notebook.add_cell_and_run(CELLS[2]))
    expect(other.rows).to_have_count(0)
    other.kind.select_option("modules")
    other.pattern.fill("1")
    other.pattern.press("Tab")
    expect(other.preview).to_contain_text("Region 1 would have 2 pieces, 1 + 1 ops")
    other.mark("act")
    expect(other.row("act")).to_contain_text("not compiled")
    assert notebook.kernel_value("[r.name for r in ex.plan.regions]") == "['mlp', 'softmax']"
    assert notebook.kernel_value("[r.selection for r in bare.plan.regions]") == "['modules:1']"
    other.pick("act")
    other.expect_picked("act")
    other.root.evaluate(UNDO_AND_SELECT)  # undo removes the region, and with it the selection of its nodes
    expect(other.row("act")).to_have_count(0)
    expect(other.pattern).to_have_value("ops:gelu")
    expect(other.graph.selected).to_contain_text(re.compile(r"^1 of \d+ nodes selected"))
    notebook.page.keyboard.press("Escape")
    expect(other.pattern).to_have_value("")


def test_a_cell_that_runs_again_has_one_panel(notebook: Lab, panel: Explorer) -> None:
    instances = "len(__import__('ipywidgets').widgets.widget._instances)"
    before = int(notebook.kernel_value(instances))
    notebook.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    notebook.execute("notebook:run-cell", wait=False)
    notebook.wait_idle()
    expect(panel.root).to_have_count(1)
    assert int(notebook.kernel_value(instances)) <= before


# ------------------------------------------------------------------------------------- without a page, without a kernel


def expect_kernel_gone(panel: Explorer) -> Locator:
    """Expect that the panel reports that its kernel is gone; return the message."""
    alert = panel.output.get_by_role("alert").filter(has_text="The kernel was restarted: run the cell again.")
    expect(alert).to_have_count(1)
    expect(panel.measure_button).to_be_disabled()
    return alert


def copy_plan(lab: Lab, alert: Locator) -> str:
    cells = lab.cell_types()
    alert.get_by_role("button", name="Copy plan").click()
    expect(alert.get_by_role("button", name="Copied")).to_be_visible()
    lab.page.keyboard.press("x")
    lab.page.evaluate(DRAWN)
    assert lab.cell_types() == cells  # none was cut
    return clipboard(lab)


RESTART = "async () => { await window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart(); }"


@pytest.mark.compiles
def test_restart_keeps_the_plan_of_the_panel(mortal: Lab) -> None:
    panel = Explorer(mortal, 1)
    panel.switch("softmax").uncheck()
    expect(panel.row("softmax")).to_contain_text("eager")
    for tab in ("dynamo", "inference"):  # the page asks for a graph when it shows it, again after each edit
        panel.pane(tab).click()
        expect(panel.graph.stage).to_have_attribute("aria-label", re.compile(f"^{tab}"))
    panel.measure(budget_s=3_000)
    expect(panel.button("Cancel")).to_be_enabled()
    kernel = psutil.Process(int(mortal.kernel_value("__import__('os').getpid()")))
    running = [kernel, *kernel.children(recursive=True)]
    mortal.save()
    mortal.page.evaluate(RESTART)
    assert psutil.wait_procs(running, timeout=WAIT_MS / 1000)[1] == []
    alert = expect_kernel_gone(panel)
    graph, beside = box_of(panel.graph.root), box_of(panel.root.locator("[data-column=source]"))
    assert abs(graph["y"] - beside["y"]) < 2  # still side by side
    panel.press("Source")  # parts that need no kernel can be opened and hidden
    expect(panel.line("torch.relu").first).to_be_hidden()
    panel.press("Source")
    panel.pane("Time").click()
    expect(panel.root.get_by_role("tabpanel", name="time")).to_be_visible()
    expect(panel.pane("Code")).to_be_disabled()  # the kernel would read it
    panel.pane("dynamo").click()
    expect(panel.graph.stage).to_have_attribute("aria-label", re.compile("^dynamo"))
    mortal.run_code(SETUP)
    mortal.add_cell_and_run(f"%regional_compile --no-bench --plan {copy_plan(mortal, alert)} -o ex f(x, w)")
    plan = "[(r.name, r.enabled) for r in ex.plan.regions]"
    assert mortal.kernel_value(plan) == "[('mlp', True), ('softmax', False)]"


UNHEARD = """
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel

unheard = Panel(control_of(ex))
unheard.on_msg(unheard.receive, remove=True)
unheard
"""
"""A panel whose page asks in vain for the graphs that it does not show."""


def test_tabs_of_graphs_that_the_page_lacks_are_disabled_after_a_restart(mortal: Lab) -> None:
    panel = Explorer(mortal, mortal.add_cell_and_run(UNHEARD))
    expect(panel.pane("dynamo")).to_be_enabled()
    mortal.save()
    mortal.page.evaluate(RESTART)
    expect(panel.pane("dynamo")).to_be_disabled()
    expect(panel.pane("inference")).to_be_enabled()
    for _ in range(3):
        panel.graph.press("g")  # turns to the next tab
        panel.graph.page.evaluate(DRAWN)
        expect(panel.pane("dynamo")).to_have_attribute("aria-selected", "false")


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
"""Pings the page often, and writes files about it: while no page is open, the kernel cannot be asked."""


@pytest.mark.compiles
def test_nothing_is_left_running_after_a_closed_tab(mortal: Lab) -> None:
    panel = Explorer(mortal, 1)
    mortal.run_code(WATCHED)
    panel.measure(budget_s=3_000)
    panel.expect_rounds()
    wait_for_file(mortal, "replied")  # more replies than missing ones end a job: the page is open
    wait_for_file(mortal, "job", "busy")
    panel.expect_rounds()
    mortal.save()
    mortal.execute("application:close")
    wait_for_file(mortal, "job", "ended")
    mortal.open_notebook("panel.ipynb")
    assert mortal.run_code(ALIVE) == "[]"
    assert mortal.kernel_value("control.state.note").startswith("Stopped because no page shows the panel")


def test_the_panel_of_a_dead_kernel_keeps_its_plan(mortal: Lab) -> None:
    panel = Explorer(mortal, 1)
    panel.switch("softmax").uncheck()
    expect(panel.row("softmax")).to_contain_text("eager")
    plan = panel.root.locator("[data-part=header] button", has_text="Copy plan").get_attribute("data-of")
    mortal.add_cell_and_start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    alert = expect_kernel_gone(panel)
    dialog = mortal.page.locator(".jp-Dialog")
    if dialog.is_visible():  # JupyterLab says that the kernel died
        dialog.get_by_role("button").last.click()
    assert copy_plan(mortal, alert) == plan


def test_the_static_output_is_shown_without_a_kernel(notebook: Lab, panel: Explorer, browser: Browser) -> None:
    panel.open_config("mlp")
    size = panel.root.get_by_role("spinbutton", name="max_fusion_size")
    size.fill("4")
    size.press("Enter")
    expect(panel.output.locator(STATIC_COPY)).to_contain_text("max_fusion_size=4")
    notebook.save()
    folder = notebook.server.folder
    shutil.copy(folder / notebook.paths[0], folder / "saved.ipynb")
    with lab_page(browser, notebook.server) as reader:
        reader.open_notebook("saved.ipynb", kernel=False)
        panel = Explorer(reader, 1)
        static_copy = panel.output.locator(STATIC_COPY)
        expect(static_copy).to_be_visible()
        expect(static_copy.locator("svg.rx-graph")).to_be_visible()
        expect(static_copy).to_contain_text("max_fusion_size=4")
        expect(panel.root).to_have_count(0)
        expect(panel.output.get_by_text("Loading widget")).to_be_hidden()
