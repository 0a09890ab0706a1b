"""The panel in the output boxes of other hosts and with hostile names; what a test page records."""

from __future__ import annotations

from functools import partial
from typing import Any

from playwright.sync_api import expect

from tests.browser.cells import CELLS
from tests.browser.lab import Lab
from tests.browser.views import DRAWN, Explorer, expect_not_boxed

NAMES = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "quotes \" ' ` & &amp; ]]> \\ ${x}",
    "}; digraph { evil -> node [label=<<b>x</b>>]",
    "日本語 ラベル 🙂 {{x}} %s",
    "W" * 10_000,
]
HOSTILE = f"""
import torch
import regional_explorer as rx

def f(x):  # </code></style><script>alert(3)</script> "'`]]> {"long " * 40}
    return ((torch.relu(x).sin() + 1).cos() * 2).exp()

ex = rx.explore(f, (torch.randn(4, 4),))
for name, op in zip({NAMES!r}, ("relu", "sin", "cos", "mul", "exp")):
    ex.mark(name, ops=f"aten.{{op}}*")
first = ex.plan.regions[0].name
ex.configure(first, {{"profile_bandwidth_regex": "<script>alert(4)</script>" * 20}})
def broken(*_, **__):
    hidden = "two\\nlines\\tand\\ra bell \\a, \\u202eright to left\\u2066"
    raise ValueError("<script>alert(5)</script> " + hidden + "W" * 10_000)
ex.benchmark = broken
"""


def test_a_tall_output_is_not_boxed_in_notebook_7(notebook7: Lab) -> None:
    with notebook7.running(CELLS[:2]):
        expect(Explorer(notebook7, 1).root).to_be_visible()
        notebook7.add_cell_and_run("pass")
        expect_not_boxed(Explorer(notebook7, 1))


def test_keys_in_the_panel_change_no_cell(host: Lab) -> None:
    with host.running(CELLS[:2]):
        panel, keyboard = Explorer(host, 1), host.page.keyboard
        for focus in (
            panel.root.get_by_label("Shapes", exact=True).focus,
            partial(panel.pick, "mlp"),
            panel.switch("mlp").focus,
            panel.row("mlp").locator("[data-do=open]").focus,
            panel.line("torch.relu").focus,
            panel.graph.stage.focus,
            panel.kind.focus,
        ):
            focus()
            for key in "mxb":
                keyboard.press(key)
                host.page.evaluate(DRAWN)
                assert host.cell_types() == ["code", "code"]
            expect(panel.root).to_be_visible()
        expect(panel.kind).to_have_value("modules")
        host.cell(0).focus()
        keyboard.press("b")
        expect(host.page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)


def test_hostile_names_are_shown_as_text_and_keep_the_layout(jupyterlab: Lab) -> None:
    with jupyterlab.running([HOSTILE, "ex.show()"]):
        panel = Explorer(jupyterlab, 1)
        expect(panel.rows).to_have_count(len(NAMES))
        expect(panel.rows.first).to_contain_text("<script>alert(1)</script>")
        panel.rows.first.locator("[data-do=open]").click()
        field = panel.root.get_by_label("profile_bandwidth_regex").first
        expect(field).to_have_value("<script>alert(4)</script>" * 20)
        panel.rows.nth(3).locator(".rxt-time").click()
        panel.rows.last.locator(".rxt-time").click(modifiers=["Control"])
        panel.measure_button.click()
        expect(panel.alert).to_contain_text("✗ ValueError: <script>alert(5)</script>")
        for width in (600, 1280):
            jupyterlab.set_viewport(width, 900)
            jupyterlab.page.evaluate(DRAWN)
            wide: Any = panel.root.evaluate("panel => [panel.scrollWidth, panel.clientWidth]")
            assert wide[0] <= wide[1]
        assert panel.root.evaluate("panel => panel.clientHeight") < 3200
        assert panel.root.locator("script, img, iframe").count() == 0
        assert jupyterlab.kernel_value(f"[region.name for region in ex.plan.regions] == {NAMES!r}") == "True"
        panel.press("Dismiss")
        expect(panel.alert).to_be_hidden()


def test_errors_dialogs_and_foreign_requests_of_a_page_are_recorded(jupyterlab: Lab) -> None:
    with jupyterlab.running(["pass"]):
        page = jupyterlab.page
        # Chromium logs the failed request last; what came later would be the next test's error.
        failed = page.expect_console_message(lambda message: "Failed to load" in message.text)
        with page.expect_event("pageerror"), page.expect_event("dialog"), failed:
            page.evaluate(
                """() => {
                    console.error('first');
                    setTimeout(() => { throw new Error('second'); });
                    setTimeout(() => { alert('third'); });
                    fetch('http://example.org/fourth').catch(() => {});
                }"""
            )
        for text in ("first", "second", "third"):
            assert any(text in error for error in jupyterlab.errors)
        assert jupyterlab.foreign_requests == ["http://example.org/fourth"]
        jupyterlab.errors.clear()
        jupyterlab.foreign_requests.clear()
