"""What a person does in the first ten minutes, by pointer alone: the clicks are counted, with a picture after each.

After each edit and measurement every figure on screen is that of the DataFrames.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Locator, expect

from regional_explorer.style.formats import NONE, duration
from tests.browser.conftest import a_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.test_panel import printed, row

MODEL = """
%load_ext regional_explorer
import torch
from torch import nn
from torch.nn import functional as F

class PatchEmbed(nn.Module):
    def __init__(self, dim, patch=8):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, patch)
        self.pos = nn.Parameter(torch.zeros(1, 64, dim))

    def forward(self, img):
        return self.proj(img).flatten(2).transpose(1, 2) + self.pos

class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.to_qkv, self.to_out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5
        return self.to_out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))

class GatedFFN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.wide, self.back = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        value, gate = self.wide(x).chunk(2, -1)
        return self.back(value * F.silu(gate))

class Encoder(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.pre1, self.attn = nn.LayerNorm(dim), SelfAttention(dim, heads)
        self.pre2, self.ffn = nn.LayerNorm(dim), GatedFFN(dim)

    def forward(self, x):
        x = x + self.attn(self.pre1(x))
        return x + self.ffn(self.pre2(x))

class TinyViT(nn.Module):
    def __init__(self, dim=32, depth=2, heads=4, classes=10):
        super().__init__()
        self.embed = PatchEmbed(dim)
        self.encoders = nn.Sequential(*(Encoder(dim, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, img, label):
        x = self.encoders(self.embed(img))
        return F.cross_entropy(self.head(self.norm(x).mean(1)), label)

vit = TinyViT()
img, label = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
"""
MOST_CLICKS = 25
WAIT_MS = 200_000
FRAMES = (
    "(ex.regions[['region', 'state', 'eager_us', 'compiled_us', 'speedup']].to_dict('split')['data'],"
    " ex.timings[['phase', 'variant', 'median_us', 'plan']].to_dict('split')['data'])"
)


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with a_page(browser, lab_server, width=1440, height=900) as lab:
        lab.write_notebook("first.ipynb", [MODEL, "%regional_compile --no-bench -o ex vit(img, label)"])
        lab.open_and_run("first.ipynb")
        budget = lab.output(1).get_by_label("Budget (s)")
        budget.fill("1")
        budget.press("Enter")
        yield lab


@pytest.fixture
def panel(notebook: Lab) -> Locator:
    return notebook.output(1).locator(".rx-panel")


@dataclass
class Pointer:
    """Clicks and counts, and takes a picture after each click."""

    notebook: Lab
    panel: Locator
    clicks: int = 0

    def click(self, what: Locator, until: Locator) -> None:
        what.click()
        self.clicks += 1
        expect(until.first).to_be_visible(timeout=WAIT_MS)
        expect(self.panel.get_by_role("button", name="Compile & measure")).to_be_enabled(timeout=WAIT_MS)
        self.notebook.screenshot(f"first-{self.clicks:02}")

    def edit(self, what: Locator, until: Locator) -> None:
        """Click, and compare every row of the regions, and the run times of the whole call, with the DataFrames."""
        self.click(what, until)
        # nan and inf are no Python; None stands for what is not a number.
        regions, times = ast.literal_eval(re.sub(r"\b(nan|inf)\b", "None", printed(self.notebook, FRAMES)))
        shown = [
            [
                line.get_attribute("aria-label"),
                cell(line, "state").split()[-1],
                cell(line, "eager"),
                cell(line, "compiled"),
                cell(line, "speedup").split("×")[0].strip("▲▼ ✓"),
            ]
            for line in self.panel.locator("tbody tr[data-do=pick]").all()
        ]
        assert shown == [
            [name, state, micro(eager), micro(compiled), NONE if speedup is None else f"{speedup:.2f}"]
            for name, state, eager, compiled, speedup in regions
        ]
        results = self.panel.locator(".rx-results")
        for phase, variant, median, plan in times:
            title = "Run time" if plan == "current" else "Run time of another plan"
            expect(results.get_by_role("heading", name=title, exact=True)).to_have_count(1)
            # Forward and backward are folded away.
            line = results.locator(f"tr:has(td:text-is('{phase}')):has(td:text-is('{variant}'))").first
            assert duration(median * 1e-6) in (line.text_content() or "")


def cell(line: Locator, column: str) -> str:
    return line.locator(f".rxt-{column}").inner_text().removeprefix(column).strip()


def micro(value: float | None) -> str:
    return NONE if value is None else duration(value * 1e-6)


@pytest.mark.compiles
def test_from_where_the_time_goes_to_a_saved_comparison_by_pointer_alone(notebook: Lab, panel: Locator) -> None:
    panel.scroll_into_view_if_needed()
    notebook.screenshot("first-00")
    pointer, press = Pointer(notebook, panel), panel.get_by_role
    attention, compared = row(panel, "attn"), panel.locator(".rx-compare")
    # Where the time goes; the attention is a region.
    pointer.click(press("button", name="Profile", exact=True).first, panel.get_by_label("Time by module"))
    pointer.edit(press("button", name="Mark encoders.*.attn", exact=True), attention)
    # A config: a switch that is added is turned away from its default.
    pointer.click(attention.get_by_role("button", name="Config"), panel.get_by_label("Config keys"))
    pointer.edit(press("button", name="Add epilogue_fusion"), attention.get_by_text("epilogue_fusion=False"))
    # Measured beside eager alone; its code.
    for variant in ("aot_eager", "full"):
        pointer.click(press("checkbox", name=variant, exact=True), attention)
    pointer.edit(press("button", name="Compile & measure"), attention.get_by_text("measured"))
    pointer.click(press("tab", name="Code"), panel.locator(".rx-code .rxs-kernel"))
    # Without the config again, and both compared.
    pointer.edit(press("button", name="Undo", exact=True), attention)
    pointer.edit(press("button", name="Compile & measure"), compared.get_by_role("button", name="Use plan 1"))
    pointer.edit(compared.get_by_role("button", name="Use plan 1"), attention.get_by_text("epilogue_fusion=False"))
    pointer.click(press("button", name="Save HTML"), panel.get_by_role("status").filter(has_text=".html"))
    assert pointer.clicks <= MOST_CLICKS
    assert notebook.errors == []


@pytest.mark.compiles
def test_what_was_measured_stays_with_what_an_edit_leaves_as_it_is(notebook: Lab, panel: Locator) -> None:
    pointer, press, rows = Pointer(notebook, panel), panel.get_by_role, panel.locator("tbody tr[data-do=pick]")
    rows.first.locator(".rxt-state").click()
    pointer.edit(press("button", name="Split", exact=True), row(panel, "attn.1"))
    panel.get_by_role("searchbox").fill("op:mm")
    panel.get_by_title("Select all matches").click()
    pointer.edit(press("button", name="Carve out", exact=True), row(panel, "attn.1"))
    panel.get_by_role("searchbox").press("Escape")
    pointer.edit(press("button", name="Remove attn.2 from the plan", exact=True), row(panel, "attn.1"))
    expect(rows).to_have_count(1)
    assert notebook.errors == []
