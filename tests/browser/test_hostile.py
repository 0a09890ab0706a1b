"""What a user's program calls its things is shown as text, and the panel keeps its shape."""

from __future__ import annotations

import json

from playwright.sync_api import Dialog, expect

from tests.browser.lab import Lab

NAMES = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "quotes \" ' ` & &amp; ]]> \\ ${x}",
    "}; digraph { evil -> node [label=<<b>x</b>>]",
    "日本語 ラベル 🙂 {{x}} %s",
    "W" * 10_000,
]
SETUP = f"""
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


def test_the_panel_shows_any_text_as_text_and_keeps_its_shape(lab: Lab) -> None:
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    lab.page.on("dialog", dismiss)
    lab.write_notebook(
        "hostile.ipynb", [SETUP, "ex.show()", "print([r.name for r in ex.plan.regions] == " + repr(NAMES) + ")"]
    )
    lab.open_notebook("hostile.ipynb")
    lab.execute("application:toggle-left-area")
    lab.run_all()
    panel = lab.output(1).locator(".rx-panel")
    rows = panel.locator("tr[data-do=pick]")
    expect(rows).to_have_count(len(NAMES))
    expect(rows.first).to_contain_text("<script>alert(1)</script>")
    rows.first.get_by_role("button", name="Config").click()
    expect(panel.get_by_label("profile_bandwidth_regex").first).to_have_value("<script>alert(4)</script>" * 20)
    rows.nth(3).locator(".rxt-state").click()
    rows.last.locator(".rxt-state").click(modifiers=["Control"])
    panel.get_by_role("button", name="Compile & measure").click()
    expect(panel.locator(".rx-alert")).to_contain_text("ValueError: <script>alert(5)</script>")
    for width in (600, 1280):
        lab.set_viewport(width, 900)
        lab.page.wait_for_timeout(200)
        wide = panel.evaluate("panel => [panel.scrollWidth, panel.clientWidth]")
        assert wide[0] <= wide[1]
        lab.screenshot(f"panel-hostile-{width}", panel)
    high = panel.evaluate("panel => panel.clientHeight")
    assert high < 3200
    assert panel.locator("script, img, iframe").count() == 0
    assert dialogs == []
    assert json.loads(str(lab.outputs(2)[0]["text"]).lower())
    assert lab.errors == []
