"""What a host does to the panel: Notebook 7 boxes tall outputs, kernels die."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.test_panel import CELLS, SETUP, printed, row, switch_of


def test_a_tall_output_is_not_boxed(host: Lab) -> None:
    host.write_notebook("tall.ipynb", CELLS[:2])
    host.open_notebook("tall.ipynb")
    host.run_all()
    panel, area = host.output(1).locator(".rx-panel"), host.output(1)
    expect(panel).to_be_visible()
    host.add_cell_and_run("pass")
    box = panel.bounding_box()
    assert box is not None
    assert box["height"] > 600
    assert area.evaluate("area => area.scrollHeight - area.clientHeight") <= 2
    assert host.errors == []


def test_after_the_kernel_died_the_panel_says_so_and_keeps_its_plan(lab: Lab) -> None:
    lab.write_notebook("died.ipynb", CELLS[:2])
    lab.open_notebook("died.ipynb")
    lab.run_all()
    panel = lab.output(1).locator(".rx-panel")
    switch_of(panel, "softmax").uncheck()
    expect(row(panel, "softmax")).to_contain_text("eager")
    lab.add_cell_and_start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    gone = lab.output(1).get_by_role("alert").filter(has_text="The kernel was restarted: run the cell again.")
    expect(gone).to_have_count(1, timeout=60_000)
    assert panel.evaluate("panel => panel.inert")
    dialog = lab.page.locator(".jp-Dialog")
    if dialog.is_visible():  # JupyterLab says that the kernel died
        dialog.get_by_role("button").last.click()
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    gone.get_by_role("button", name="Copy plan").click()
    expect(gone.get_by_role("button", name="Copied")).to_be_visible()
    copied = lab.page.evaluate("() => navigator.clipboard.readText()")
    lab.add_cell_and_run(SETUP)
    lab.add_cell_and_run(f"%regional_compile --no-bench --no-widget --plan {copied} -o ex f(x, w)")
    assert printed(lab, "[(r.name, r.enabled) for r in ex.plan.regions]") == "[('mlp', True), ('softmax', False)]"
