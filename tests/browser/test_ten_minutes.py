"""The first ten minutes with a model of ``transformers``, in a fresh JupyterLab: by pointer, without a word typed.

A picture of each step is saved for people to look at, in both themes and two widths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import lab_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.views import WAIT_MS, Explorer

MODEL = """
%load_ext regional_explorer
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(
    n_layer=4, n_embd=128, n_head=4, vocab_size=512, n_positions=128, use_cache=False, bos_token_id=0, eos_token_id=0,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)
model, tokens = GPT2LMHeadModel(config), torch.randint(0, 512, (4, 64))

def step(tokens):
    return model(tokens, labels=tokens).loss
"""
MOST_CLICKS = 9
SIZES = ((1280, 900), (1440, 1000))


@pytest.fixture
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with lab_page(browser, lab_server) as lab:
        lab.write_notebook("minutes.ipynb", [MODEL, "%regional_compile step(tokens)"])
        lab.open_notebook("minutes.ipynb")
        yield lab


class Person:
    """Clicks, counts the clicks, and saves pictures of the result of each."""

    def __init__(self, notebook: Lab) -> None:
        self.notebook, self.panel = notebook, Explorer(notebook, 1)
        self.clicks = 0

    def click(self, what: Locator, until: Locator, name: str, part: str = ".rx-header") -> None:
        what.click()
        self.clicks += 1
        self.take_pictures(until, name, part)

    def take_pictures(self, until: Locator, name: str, part: str = ".rx-header") -> None:
        """Wait until ``until`` is visible and no job runs; save pictures that begin at ``part`` of the panel."""
        expect(until.first).to_be_visible(timeout=WAIT_MS)
        self.panel.expect_idle()
        for theme in ("light", "dark"):
            self.notebook.set_theme(theme)
            for width, height in SIZES:
                self.notebook.set_viewport(width, height)
                self.panel.root.evaluate("(panel, part) => panel.querySelector(part).scrollIntoView()", part)
                self.notebook.page.wait_for_timeout(400)  # colours change gradually
                self.notebook.screenshot(f"minutes-{name}-{theme}-{width}")
        self.notebook.set_theme("light")


@pytest.mark.slow
@pytest.mark.compiles
def test_pointer_alone_leads_to_a_verdict_reason_and_patch(notebook: Lab) -> None:
    person = Person(notebook)
    panel, press = person.panel, person.panel.button
    notebook.run_all()
    person.take_pictures(panel.root.get_by_label("Time by module"), "1-profiled")
    person.take_pictures(panel.root.get_by_label("Time by module"), "1-where", ".rx-views")
    person.click(press("Mark transformer.h.*.attn"), panel.row("attn"), "2-attention")
    person.click(press("Mark transformer.h.*.mlp"), panel.row("mlp"), "3-marked")
    answer = panel.root.locator(".rx-answer")
    bar = answer.get_by_role("row", name=re.compile("^torch.compile"))
    person.click(panel.measure_button, bar.get_by_text("not measured"), "4-answered")
    person.click(press("Measure torch.compile"), bar.get_by_text(re.compile(r"\d (ms|s)$")), "5-compared")
    person.click(
        panel.row("attn").locator("[data-do=why]"), panel.root.get_by_text("region-time"), "6-why", ".rx-views"
    )
    if press("Try").or_(press("Apply")).count():
        person.click(press("Try").or_(press("Apply")).first, press("Measure this plan"), "7-applied")
        person.click(press("Measure this plan"), panel.compared, "8-again")
    person.click(panel.root.get_by_text("Take home"), press("Patch"), "9-menu")
    person.click(press("Patch"), panel.root.get_by_role("status").filter(has_text=".patch"), "10-patch")
    assert person.clicks <= MOST_CLICKS
    assert notebook.errors == []
    assert notebook.foreign_requests == []
