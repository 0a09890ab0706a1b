"""The first ten minutes with a model of ``transformers``, in a fresh JupyterLab with its side bar open, by pointer.

After each step no sentence on the screen contradicts another, and nothing has moved. A picture of each step is saved
for people to look at, in both themes.
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
from transformers import Qwen3Config, Qwen3ForCausalLM

from regional_explorer.ui import answer

answer.SEARCHES['tune'] = 20.0
torch.manual_seed(0)
config = Qwen3Config(
    num_hidden_layers=3, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=256, use_cache=False,
)
model, ids = Qwen3ForCausalLM(config), torch.randint(0, 256, (2, 32))
"""
"""The search is as short as can be: how long it may take is no subject of this test."""
MOST_CLICKS = 9
"""The clicks from the profile to the saved plan; undoing and redoing an edit take one click each."""
SIZE = (1440, 900)


@pytest.fixture
def notebook(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with lab_page(browser, lab_server) as lab:
        lab.set_viewport(*SIZE)
        lab.write_notebook("minutes.ipynb", [MODEL, "%regional_compile -o ex model(input_ids=ids, labels=ids)"])
        lab.open_notebook("minutes.ipynb")
        yield lab


def text_of(part: Locator) -> str:
    return " ".join(" ".join(part.all_inner_texts()).split())


def contradictions(panel: Explorer, *, edited: bool = False) -> list[str]:
    """Return the sentences on the screen of which another says the contrary; the plan was ``edited`` or not."""
    answer, found = panel.root.locator(".rx-answer"), []
    sentences, everything = text_of(answer), text_of(panel.root)
    timed = [
        row.locator("td").first.inner_text()
        for row in answer.locator(".rx-times tr").all()
        if re.search(r"\d (ns|µs|ms|s)\b", row.inner_text())
    ]
    found += [f"{word} has a time" for word in timed if f"{word} was not measured" in sentences]
    found += [
        f"a time and none in the row {text!r}"
        for text in answer.locator(".rx-times tr").all_inner_texts()
        if "not measured" in text and re.search(r"\d (ns|µs|ms|s)\b", text)
    ]
    headline = answer.locator(".rx-headline")
    if "No verdict" in text_of(headline) and headline.locator(".rx-good, .rx-bad").count():
        found.append("a headline with a verdict says that there is none")
    if not edited and re.search("earlier plan|plan was changed", everything):
        found.append("no plan was changed")
    if answer.get_by_role("row", name=re.compile("^earlier plan")).get_by_text("in use").count():
        found.append("the earlier plan is not in use")
    if panel.compared.get_by_text("current plan", exact=True).count() > 1:
        found.append("one plan is the current one")
    if "no other process" in everything:
        found.append("what made the machine busy is named")
    if len(set(re.findall(r"\d+ of (\d+) rounds?", sentences))) > 1:
        found.append("rounds are counted once")
    why = panel.root.locator(".rx-why")
    if re.search("How long the kernels .* is not known", text_of(why)) and why.locator(".rx-times tr").count():
        found.append("times of kernels are known")
    return found


class Person:
    """Clicks, counts the clicks, and looks at the screen after each."""

    def __init__(self, notebook: Lab) -> None:
        self.notebook, self.panel = notebook, Explorer(notebook, 1)
        self.clicks = 0

    def click(self, what: Locator, until: Locator, name: str, *, edited: bool = False) -> None:
        what.click()
        self.clicks += 1
        self.look(until, name, edited=edited)

    def look(self, until: Locator, name: str, *, edited: bool = False) -> None:
        """Wait until ``until`` is visible and no job runs; expect no contradiction, and save pictures."""
        expect(until.first).to_be_visible(timeout=WAIT_MS)
        self.panel.expect_idle()
        assert contradictions(self.panel, edited=edited) == []
        for theme in ("light", "dark"):
            self.notebook.set_theme(theme)
            self.panel.root.evaluate("panel => panel.querySelector('.rx-header').scrollIntoView()")
            self.notebook.page.wait_for_timeout(400)  # colours change gradually
            self.notebook.screenshot(f"minutes-{name}-{theme}")
        self.notebook.set_theme("light")

    def select_a_layer(self) -> None:
        """Click the box of the first layer: each place has its name and its number of ops, and nothing moves."""
        panel, graph = self.panel, self.panel.graph
        graph.stage.scroll_into_view_if_needed()
        graph.press("f")
        before, at = panel.places(), graph.middle_of("model.layers.0")
        graph.click_box("model.layers.0")
        self.clicks += 1
        expect(panel.preview).to_contain_text("Region layers.0 would have")
        assert (panel.places(), graph.middle_of("model.layers.0")) == (before, at)
        ops = graph.box("model.layers.0")["detail"].split(" · ")[1].removesuffix(" ops")
        expect(panel.picked).to_contain_text("Mark layers.0")
        expect(panel.pattern).to_have_value("modules:model.layers.0")
        assert graph.trail() == ["model", "layers", "0"]
        assert graph.tip.locator("b").inner_text() == "model.layers.0"
        for place in (graph.selected, graph.tip, panel.preview):
            expect(place).to_contain_text(re.compile(rf"\b{ops}\b"))
        assert contradictions(panel) == []


@pytest.mark.slow
@pytest.mark.compiles
def test_a_plan_is_found_by_pointer_and_no_screen_contradicts_itself(notebook: Lab) -> None:
    person = Person(notebook)
    panel, press = person.panel, person.panel.button
    notebook.run_all(timeout_s=WAIT_MS / 1000)
    person.look(panel.root.get_by_label("Time by module"), "1-profiled")
    person.select_a_layer()
    person.click(press("all 3 alike"), panel.row("layers"), "2-marked")
    expect(panel.picked).to_have_text("These ops are region layers.")
    expect(panel.preview).to_be_empty()
    person.click(panel.row("layers").locator("[data-do=open]"), press("Add max_fusion_size"), "3-config")
    press("Add max_fusion_size").click()
    person.clicks += 1
    size = panel.root.get_by_role("spinbutton", name="max_fusion_size")
    size.fill("8")
    size.press("Enter")
    person.look(panel.row("layers").get_by_text("max_fusion_size=8"), "4-set")

    answer = panel.root.locator(".rx-answer")
    timed = answer.get_by_role("row", name=re.compile("^torch.compile")).get_by_text(re.compile(r"\d (ms|s)$"))
    person.click(panel.measure_button, timed, "5-compared")  # torch.compile is measured without being asked for
    person.click(panel.row("layers").locator("[data-do=why]"), panel.root.get_by_text("region-time"), "6-why")

    clicks, figures = person.clicks, text_of(answer.locator(".rx-times"))
    undone = panel.row("layers").get_by_text("default")
    person.click(press("Undo"), undone, "7-undone", edited=True)
    person.click(press("Redo"), panel.row("layers").get_by_text("max_fusion_size=8"), "8-redone")
    assert text_of(answer.locator(".rx-times")) == figures, "no figure is lost"
    person.clicks = clicks

    searched = panel.status.filter(has_text=re.compile("The search|best of"))
    person.click(press("Find the best plan"), searched, "9-searched", edited=True)
    panel.root.get_by_text("Take home").click()
    press("Plan file").click()
    person.clicks += 2
    person.look(panel.root.get_by_role("status").filter(has_text=".json"), "10-saved", edited=True)
    assert person.clicks <= MOST_CLICKS
    assert notebook.errors == []
    assert notebook.foreign_requests == []
