"""The quickstart in a real JupyterLab; its pictures are those of the README: they are copied to docs/images by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import lab_page
from tests.browser.lab import PICTURES, Lab
from tests.browser.server import LabServer
from tests.browser.views import WAIT_MS, Explorer, box_of

GPT = 5
"""The cell that explores a training step."""
LARGEST_PICTURE = 300_000


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with lab_page(browser, lab_server) as lab:
        lab.set_viewport(1500, 2400)
        lab.open_and_run("quickstart.ipynb", timeout_s=500)
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Explorer:
    notebook.cell(GPT).scroll_into_view_if_needed()
    return Explorer(notebook, GPT)


def save_picture(notebook: Lab, name: str, panel: Explorer, until: str) -> None:
    """Save a picture of the panel from its top to the end of the part ``until``."""
    panel.root.evaluate("panel => panel.scrollIntoView()")
    notebook.page.wait_for_timeout(300)  # colours change gradually
    clip, last = box_of(panel.root), box_of(panel.root.locator(until))
    clip["height"] = last["y"] + last["height"] - clip["y"]
    path = PICTURES / f"{name}.png"
    notebook.page.screenshot(path=path, clip=clip)
    assert path.stat().st_size <= LARGEST_PICTURE


@pytest.mark.slow
@pytest.mark.compiles
def test_the_panel_shows_the_measured_times(notebook: Lab, panel: Explorer) -> None:
    expect(panel.root).to_be_visible()
    panel.press("Measure torch.compile")
    bar = panel.root.get_by_role("row", name="torch.compile").filter(has_text=re.compile(r"\d (ms|s)"))
    expect(bar.first).to_be_visible(timeout=WAIT_MS)
    panel.expect_idle()
    for region in ("attention", "mlp", "loss"):
        panel.expect_measured(region)
        times = panel.row(region).locator(".rxt-time")
        if interval := times.locator("small").all():  # a noisy region has none
            figure = box_of(times.locator("span", has_text="×"))
            assert box_of(interval[0])["x"] - figure["x"] - figure["width"] > 4
    save_picture(notebook, "quickstart-panel", panel, ".rx-compare")
    panel.pick("mlp")
    panel.graph.button("Fit the graph to the view").click()
    panel.graph.stage.hover(position={"x": 5, "y": 5})
    save_picture(notebook, "quickstart-graph", panel, ".rx-views")


@pytest.mark.slow
@pytest.mark.compiles
def test_the_panel_is_dark_if_jupyterlab_is(notebook: Lab, panel: Explorer) -> None:
    panel.open_config("mlp")
    notebook.set_theme("dark")
    save_picture(notebook, "quickstart-dark", panel, ".rx-regions")
    notebook.set_theme("light")
    panel.row("mlp").locator("[data-do=open]").click()  # the other pictures are without it
    assert notebook.errors == []
    assert notebook.foreign_requests == []
