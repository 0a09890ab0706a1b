"""The quickstart in a real JupyterLab; its pictures are those of the README: they are copied to docs/images by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import ROOT, a_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.test_panel import row

GPT = 5
"""The cell that explores a training step."""
LARGEST_PICTURE = 300_000


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with a_page(browser, lab_server, width=1500, height=2400) as lab:
        lab.open_and_run("quickstart.ipynb", timeout_s=500)
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Locator:
    notebook.cell(GPT).scroll_into_view_if_needed()
    return notebook.output(GPT).locator(".rx-panel")


def picture(notebook: Lab, name: str, panel: Locator, until: Locator) -> None:
    """Save a picture of the panel from its top to the end of a part of it."""
    panel.evaluate("panel => panel.scrollIntoView()")
    notebook.page.wait_for_timeout(300)
    whole, last = panel.bounding_box(), until.bounding_box()
    assert whole is not None
    assert last is not None
    path = ROOT / "build" / "screenshots" / f"{name}.png"
    clip = {
        "x": whole["x"],
        "y": whole["y"],
        "width": whole["width"],
        "height": last["y"] + last["height"] - whole["y"],
    }
    notebook.page.screenshot(path=path, clip=clip)  # type: ignore[arg-type]
    assert path.stat().st_size <= LARGEST_PICTURE


@pytest.mark.slow
@pytest.mark.compiles
def test_the_explorer_appears_with_its_figures(notebook: Lab, panel: Locator) -> None:
    expect(panel).to_be_visible()
    for region in ("attention", "mlp", "loss"):
        expect(row(panel, region)).to_contain_text("measured")
        for column in ("eager", "compiled"):
            expect(row(panel, region).locator(f".rxt-{column}")).to_contain_text(re.compile("µs|ms"))
        speedup = row(panel, region).locator(".rxt-speedup")
        expect(speedup).to_contain_text(re.compile(r"\d×.*\d–\d"))
        figure, interval = speedup.locator("span").bounding_box(), speedup.locator("small").bounding_box()
        assert figure is not None
        assert interval is not None
        assert interval["x"] - figure["x"] - figure["width"] > 4
    picture(notebook, "quickstart-panel", panel, panel.locator(".rx-compare"))
    row(panel, "mlp").locator(".rxt-state").click()
    panel.get_by_role("button", name="Fit the graph to the view").click()
    panel.locator(".rxg-stage").hover(position={"x": 5, "y": 5})
    picture(notebook, "quickstart-graph", panel, panel.locator(".rx-views"))


@pytest.mark.slow
@pytest.mark.compiles
def test_it_is_dark_where_jupyterlab_is(notebook: Lab, panel: Locator) -> None:
    row(panel, "mlp").get_by_role("button", name="Config").click()
    expect(panel.get_by_role("heading", name="Config of mlp")).to_be_visible()
    notebook.set_theme("dark")
    picture(notebook, "quickstart-dark", panel, panel.locator(".rx-regions"))
    notebook.set_theme("light")
    assert notebook.errors == []
    assert notebook.foreign_requests == []
