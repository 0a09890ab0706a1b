"""The first ten minutes of a user, by pointer alone: the clicks are counted.

After each edit and measurement every figure on screen equals that of the DataFrames.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from regional_explorer.record.partition import State
from regional_explorer.style.formats import NONE, STATE_GLYPHS, duration, word
from tests.browser.lab import Lab
from tests.browser.views import MEASURED, NOISY, WAIT_MS, Explorer

MODEL = """
%load_ext regional_explorer
import torch
from torch import nn
from torch.nn import functional as F

class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.to_qkv, self.to_out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.to_qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        return self.to_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))

class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(dim), Attention(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.ffn(x)

class TinyViT(nn.Module):
    def __init__(self, dim=32, classes=10):
        super().__init__()
        self.embed, self.place = nn.Conv2d(3, dim, 8, 8), nn.Parameter(torch.zeros(64, dim))
        self.encoders = nn.Sequential(Encoder(dim), Encoder(dim))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, img, label):
        x = self.encoders(self.embed(img).flatten(2).transpose(1, 2) + self.place)
        return F.cross_entropy(self.head(self.norm(x).mean(1)), label)

vit, img, label = TinyViT(), torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
"""
MOST_CLICKS = 25
FRAMES = (
    "(ex.regions[['region', 'state', 'eager_us', 'compiled_us', 'speedup']].to_dict('split')['data'],"
    " ex.timings[['phase', 'variant', 'median_us', 'plan']].to_dict('split')['data'])"
)


@pytest.fixture
def notebook(jupyterlab: Lab) -> Iterator[Lab]:
    with jupyterlab.running([MODEL, "%regional_compile --no-bench -o ex vit(img, label)"], width=1440) as lab:
        yield lab


class Pointer:
    """Clicks, and counts the clicks."""

    def __init__(self, notebook: Lab) -> None:
        self.notebook, self.panel = notebook, Explorer(notebook, 1)
        self.clicks = 0

    def click(self, what: Locator, until: Locator) -> None:
        what.click()
        self.clicks += 1
        self.panel.graph.wait_for_kernel()
        expect(until.first).to_be_visible(timeout=WAIT_MS)
        self.panel.expect_idle()

    def edit(self, what: Locator, until: Locator) -> None:
        """Click; compare every row of the regions and the run times of the whole call with the DataFrames."""
        self.click(what, until)
        # nan and inf are no Python literals: None stands for both.
        regions, times = ast.literal_eval(re.sub(r"\b(nan|inf)\b", "None", self.notebook.kernel_value(FRAMES)))
        shown = [
            [line.get_attribute("aria-label"), *figures(line.locator(".rxt-time"))] for line in self.panel.rows.all()
        ]
        assert shown == [
            [
                name,
                word(State(state)),
                microseconds_text(eager),
                microseconds_text(compiled),
                NOISY if row[-1] == NOISY else NONE if speedup is None else f"{speedup:.2f}",
            ]
            for row, (name, state, eager, compiled, speedup) in zip(shown, regions, strict=True)
        ]
        results = self.panel.root.locator(".rx-results")
        for phase, variant, median, plan in times:
            title = "Run time" if plan == "current" else "Run time of another plan"
            expect(results.get_by_role("heading", name=title, exact=True)).to_have_count(1)
            # Forward and backward are folded away.
            line = results.locator(f"tr:has(td:text-is('{phase}')):has(:text-is('{word(variant)}'))").first
            assert duration(median * 1e-6) in (line.text_content() or "")


def figures(cell: Locator) -> list[str]:
    """Return state, times and speedup of a region; a measured region shows figures in place of its state.

    A speedup that is not shown is ``NOISY`` if the row says so.
    """
    shown, titles = cell.inner_text(), " ".join(one.get_attribute("title") or "" for one in cell.locator("span").all())
    state = next((word(one) for one in State if f"{STATE_GLYPHS[one]} {word(one)}" in shown), "measured")
    times = dict(re.findall(r"(eager|compiled) ([\d.,]+ (?:µs|ms|s)\b)", titles))
    speedup, unknown = re.search(r"([\d.]+)×", shown), NOISY if NOISY in shown else NONE
    return [state, times.get("eager", NONE), times.get("compiled", NONE), speedup[1] if speedup else unknown]


def microseconds_text(value: float | None) -> str:
    return NONE if value is None else duration(value * 1e-6)


@pytest.mark.compiles
def test_the_whole_workflow_takes_few_clicks_and_no_typing(notebook: Lab) -> None:
    pointer = Pointer(notebook)
    panel, press = pointer.panel, pointer.panel.button
    attention = panel.row("attn")
    panel.set_budget(1)
    # Where the time goes; the attention is a region.
    pointer.click(press("Profile").first, panel.root.get_by_label("Time by module"))
    pointer.edit(press("Mark encoders.*.attn"), attention)
    # A config: a switch that is added is turned away from its default.
    pointer.click(attention.locator("[data-do=open]"), panel.root.get_by_label("Config keys"))
    pointer.edit(press("Add epilogue_fusion"), attention.get_by_text("epilogue_fusion=False"))
    # Measured beside eager alone; its code.
    panel.open_options()
    pointer.click(panel.root.get_by_role("checkbox", name="traced", exact=True), attention)
    pointer.edit(panel.measure_button, attention.get_by_text(MEASURED))
    pointer.click(panel.pane("Code"), panel.code.locator(".rxs-kernel"))
    # Without the config again, and both compared.
    pointer.edit(press("Undo"), attention)
    pointer.edit(panel.measure_button, press("Use plan 1"))
    pointer.edit(press("Use plan 1"), attention.get_by_text("epilogue_fusion=False"))
    pointer.click(panel.root.get_by_text("Take home"), press("Page"))
    pointer.click(press("Page"), panel.root.get_by_role("status").filter(has_text=".html"))
    assert pointer.clicks <= MOST_CLICKS


@pytest.mark.compiles
def test_edit_keeps_figures_of_unchanged_regions(notebook: Lab) -> None:
    pointer = Pointer(notebook)
    panel, press = pointer.panel, pointer.panel.button
    notebook.run_code("ex.mark('attn', modules='encoders.*.attn')")
    expect(panel.row("attn")).to_be_visible()
    panel.measure(budget_s=1)
    panel.expect_measured("attn")
    panel.rows.first.locator(".rxt-time").click()
    pointer.edit(press("Split"), panel.row("attn.1"))
    panel.graph.search.fill("op:mm")
    panel.root.get_by_title("Select all matches").click()
    pointer.edit(press("Carve out"), panel.row("attn.1"))
    panel.graph.search.press("Escape")
    pointer.edit(press("Remove attn.2 from the plan"), panel.row("attn.1"))
    expect(panel.rows).to_have_count(1)
