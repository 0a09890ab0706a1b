"""What a host does to the panel: Notebook 7 boxes tall outputs, kernels die. What the pages of the tests tell."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.conftest import a_page
from tests.browser.lab import Lab, Notebook7
from tests.browser.server import LabServer
from tests.browser.test_panel import CELLS, expect_not_boxed, expect_plan_is_copied, row, switch_of


def test_in_notebook_7_a_tall_output_is_not_boxed(browser: Browser, lab_server: LabServer) -> None:
    with a_page(browser, lab_server, Notebook7) as host:
        host.write_notebook("tall.ipynb", CELLS[:2])
        host.open_notebook("tall.ipynb")
        host.run_all()
        expect(host.output(1).locator(".rx-panel")).to_be_visible()
        host.add_cell_and_run("pass")
        expect_not_boxed(host.output(1))
        assert host.errors == []


def test_after_the_kernel_died_the_panel_says_so_and_keeps_its_plan(lab: Lab) -> None:
    lab.write_notebook("died.ipynb", CELLS[:2])
    lab.open_notebook("died.ipynb")
    lab.run_all()
    panel = lab.output(1).locator(".rx-panel")
    switch_of(panel, "softmax").uncheck()
    expect(row(panel, "softmax")).to_contain_text("eager")
    lab.add_cell_and_start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    expect_plan_is_copied(lab, lab.output(1))


def test_errors_and_foreign_requests_of_a_page_are_noted(lab: Lab) -> None:
    lab.page.evaluate(
        """() => {
            console.error('first');
            setTimeout(() => { throw new Error('second'); });
            fetch('http://example.org/third').catch(() => {});
        }"""
    )
    lab.page.wait_for_timeout(200)
    assert any("first" in error for error in lab.errors)
    assert any("second" in error for error in lab.errors)
    assert lab.foreign_requests == ["http://example.org/third"]
