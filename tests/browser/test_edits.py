"""Every figure on screen is that of the DataFrame, edit after edit, in a real JupyterLab."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from regional_explorer.style.formats import NONE, duration
from tests.browser.conftest import a_page
from tests.browser.lab import Lab
from tests.browser.server import LabServer
from tests.browser.test_panel import printed, row, switch_of

MODEL = """
%load_ext regional_explorer
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act = torch.nn.LayerNorm(16), torch.nn.Linear(16, 16), torch.nn.GELU()

    def forward(self, x):
        return x + self.act(self.up(self.norm(x)))

net, x = torch.nn.Sequential(*(Layer() for _ in range(3))), torch.randn(8, 16)
"""
EXPLORED = "%regional_compile -r up=modules:*.up -r norm=modules:*.norm --budget 0.3 --variants regional -o ex net(x)"
EDITS = 20
# What follows takes a plan that was measured, each kind of edit at least once.
FIRST = ("configure", "split", "undo", "mark", "carve", "rename", "merge", "undo", "redo", "take", "switch", "remove")
PATTERNS = ("0", "*.act", "1.norm", "2.*", "*.up")
FRAMES = (
    "(ex.regions[['region', 'state', 'eager_us', 'compiled_us', 'speedup']].to_dict('split')['data'],"
    " ex.timings[['phase', 'variant', 'median_us', 'plan']].to_dict('split')['data'])"
)


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with a_page(browser, lab_server, width=1440, height=1600) as lab:
        lab.write_notebook("edits.ipynb", [MODEL, EXPLORED])
        lab.open_and_run("edits.ipynb")
        yield lab


class Hand:
    """Edits the plan as a person does, with the pointer and the keyboard."""

    def __init__(self, notebook: Lab, panel: Locator, seed: int) -> None:
        self.notebook, self.panel = notebook, panel
        self.random = random.Random(seed)  # noqa: S311 - edits, no secret
        self.named = 0

    def press(self, name: str) -> None:
        self.panel.get_by_role("button", name=name, exact=True).click()

    def region(self) -> str:
        """Select a row by itself and return its name."""
        names = self.panel.locator("tbody tr[data-do=pick] .rxt-name b").all_inner_texts()
        name = self.random.choice(names)
        row(self.panel, name).locator(".rxt-state").click()
        expect(row(self.panel, name)).to_have_attribute("aria-selected", "true")
        return str(name)

    def new_name(self) -> str:
        self.named += 1
        return f"r{self.named}"

    def mark(self) -> None:
        name = self.new_name()
        self.panel.get_by_label("Mark by").select_option("modules")
        self.panel.get_by_label("Pattern", exact=True).fill(self.random.choice(PATTERNS))
        self.panel.get_by_label("Name", exact=True).last.fill(name)
        self.press("Mark")
        expect(row(self.panel, name)).to_be_visible()

    def rename(self) -> None:
        before, name = self.region(), self.new_name()
        self.panel.get_by_placeholder("new name").fill(name)
        self.press("Rename")
        expect(row(self.panel, name)).to_be_visible()
        expect(row(self.panel, before)).to_have_count(0)

    def split(self) -> None:
        name = self.region()
        self.press("Split")
        expect(row(self.panel, f"{name}.1")).to_be_visible()

    def merge(self) -> None:
        rows = self.panel.locator("tbody tr[data-do=pick]")
        many = rows.count()
        rows.nth(0).locator(".rxt-state").click()
        rows.nth(1).locator(".rxt-state").click(modifiers=["Control"])
        self.press("Merge")
        expect(rows).to_have_count(many - 1)

    def carve(self) -> None:
        self.panel.get_by_role("searchbox").fill("op:addmm")
        self.panel.get_by_title("Select all matches").click()
        self.press("Carve out")
        self.panel.get_by_role("searchbox").press("Escape")

    def configure(self) -> None:
        name = self.region()
        row(self.panel, name).get_by_role("button", name="Config").click()
        expect(self.panel.get_by_role("heading", name=f"Config of {name}")).to_be_visible()
        self.panel.get_by_label("Add a key").fill("max_fusion_size")
        self.press("Add max_fusion_size")
        field = self.panel.get_by_role("spinbutton", name="max_fusion_size")
        field.fill(str(self.random.randint(2, 9)))
        field.press("Enter")
        expect(row(self.panel, name)).to_contain_text("max_fusion_size=")
        self.panel.get_by_role("tab", name="Source").click()

    def switch(self) -> None:
        switch_of(self.panel, self.region()).click()

    def remove(self) -> None:
        name = self.region()
        self.press(f"Remove {name} from the plan")
        expect(row(self.panel, name)).to_have_count(0)

    def undo(self) -> None:
        self.press("Undo")

    def redo(self) -> None:
        self.press("Redo")

    def take(self) -> None:
        """Measure this plan, then go back to the first one."""
        self.press("Compile & measure")
        compared = self.panel.locator(".rx-compare")
        expect(compared.get_by_text("current plan")).to_be_visible(timeout=240_000)
        expect(self.panel.get_by_role("button", name="Compile & measure")).to_be_enabled(timeout=240_000)
        compared.get_by_role("button", name="Use plan 1").click()
        expect(compared.locator("tbody tr").first).to_contain_text("current plan")


def read(notebook: Lab) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows of the regions and of the run times in the kernel, None for what is not a number."""
    text = re.sub(r"\b(nan|inf)\b", "None", printed(notebook, FRAMES))
    regions, times = ast.literal_eval(text)
    return regions, times


def cell(line: Locator, column: str) -> str:
    return line.locator(f".rxt-{column}").inner_text().removeprefix(column).strip()


def micro(value: float | None) -> str:
    return NONE if value is None else duration(value * 1e-6)


def check(notebook: Lab, panel: Locator) -> None:
    """Compare every row of the regions, and the run times of the whole call, with the DataFrames."""
    regions, times = read(notebook)
    rows = panel.locator("tbody tr[data-do=pick]")
    expect(rows).to_have_count(len(regions))
    shown = [
        [
            line.get_attribute("aria-label"),
            cell(line, "state").split()[-1],
            cell(line, "eager"),
            cell(line, "compiled"),
            cell(line, "speedup").split("×")[0].strip("▲▼ ✓"),
        ]
        for line in rows.all()
    ]
    assert shown == [
        [name, state, micro(eager), micro(compiled), NONE if speedup is None else f"{speedup:.2f}"]
        for name, state, eager, compiled, speedup in regions
    ]
    title = "Run time" if times[0][3] == "current" else "Run time of another plan"
    results = panel.locator(".rx-results")
    expect(results.get_by_role("heading", name=title, exact=True)).to_have_count(1)
    for phase, variant, median, _ in times:
        # Forward and backward are folded away.
        line = results.locator(f"tr:has(td:text-is('{phase}')):has(td:text-is('{variant}'))").first
        assert duration(median * 1e-6) in (line.text_content() or "")


@pytest.mark.compiles
def test_after_each_of_twenty_edits_the_screen_shows_the_figures_of_the_frames(notebook: Lab) -> None:
    panel = notebook.output(1).locator(".rx-panel")
    hand = Hand(notebook, panel, seed=0)
    check(notebook, panel)
    kinds: dict[str, Callable[[], None]] = {name: getattr(hand, name) for name in FIRST}
    for number in range(EDITS):
        kind = FIRST[number] if number < len(FIRST) else hand.random.choice(("mark", "rename", "undo", "switch"))
        kinds[kind]()
        check(notebook, panel)
    notebook.screenshot("edits", panel)
    assert notebook.errors == []
