"""The graph view and the panel of a page, as tests use them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from tests.browser.lab import Lab

GROUND = "canvas.getContext('2d').getImageData(3, canvas.height - 3, 1, 1).data[0]"
THEMES: dict[Literal["dark", "light"], str] = {
    "dark": f"canvas => {GROUND} < 60",
    "light": f"canvas => {GROUND} > 200",
}
"""A condition that holds once a canvas has the colours of a theme."""
WHERE = """
(root, node) => {
    const { picture, camera } = root.rxView;
    const { x, y, w, h } = picture.rect(picture.nodeBoxes[picture.ids.findIndex((id) => id.endsWith(`:${node}`))]);
    return { left: camera.toWindow(x, y)[0], middle: camera.toWindow(x + w / 2, y + h / 2), scale: camera.k };
}
"""
BOX = """
(root, title) => {
    const { picture, camera } = root.rxView, box = picture.owners.findIndex((owner) => owner.title === title);
    if (box < 0) return null;
    const { x, y, w, h } = picture.rect(box), [left, top] = camera.toWindow(x, y);
    const [right, bottom] = camera.toWindow(x + w, y + h), detail = picture.detail(box);
    return { left, top, right, bottom, detail };
}
"""
PLACES = """
panel => Object.fromEntries(
    [".rx-header", ".rx-progress", ".rx-answer", ".rx-regions", ".rx-editing", ".rx-mark", ".rx-views"]
    .concat([".rxg-stage", "[data-column=source]", ".rx-results"])
    .map((name) => [name, panel.querySelector(name)]).filter(([, part]) => part?.offsetParent)
    .map(([name, part]) => {
        const { x, y, width } = part.getBoundingClientRect();
        return [name, [x, y - panel.getBoundingClientRect().y, width]];
    }))
"""
INK = """
([x, y]) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    const canvas = document.querySelector(".rxg-stage canvas");
    const k = canvas.width / canvas.clientWidth;
    const { data } = canvas.getContext("2d").getImageData((x - 4) * k, y * k, 8 * k, 1);
    let sum = 0;
    for (let at = 0; at < data.length; at += 4) sum += 255 - (data[at] + data[at + 1] + data[at + 2]) / 3;
    done(sum / (data.length / 4));
})))
"""
ANSWERED = "root => root.rxView.view.answered >= root.rxView.view.number"
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""A promise that is kept once the page has drawn what changed."""
WAIT_MS = 400_000
"""The most time for compiles and measurements; a test ends before, by what the page says."""
NOISY = "noisy"
"""What the row of a region says in place of figures that other work on the machine has spoilt."""
MEASURED = re.compile(f"→|{NOISY}")

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"


def accessibility_faults(page: Page, root: str = "html") -> list[tuple[str, list[str]]]:
    """Return the serious findings of axe-core below an element, such as low contrast or controls without names."""
    if not AXE.exists():
        advice = "axe-core is not installed: run npm ci"
        pytest.fail(advice) if os.environ.get("CI") else pytest.skip(advice)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("root => axe.run(root)", root)
    return [
        (one["id"], [part["html"][:200] for part in one["nodes"][:3]])
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]


def box_of(shown: Locator) -> FloatRect:
    """Return the position and size in the window."""
    box = shown.bounding_box()
    assert box is not None
    return box


class Graph:
    """A graph view in a page."""

    def __init__(self, root: Locator) -> None:
        self.root, self.page = root, root.page
        self.stage = root.locator(".rxg-stage")
        self.canvas = root.locator(".rxg-canvas")
        self.selected = root.locator(".rxg-selected")
        self.search = root.get_by_role("searchbox")
        self.count = root.locator(".rxg-count")
        self.crumbs = root.locator(".rxg-crumbs button")
        self.tip = root.get_by_role("tooltip")

    @classmethod
    def fitted(cls, output: Locator) -> Graph:
        """Return the graph view below a cell, scrolled into view and fitted into its window."""
        graph = cls(output.locator(".rxg").last)
        graph.stage.scroll_into_view_if_needed()
        graph.button("Fit the graph to the view").click()
        return graph

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name)

    def area(self) -> tuple[float, float, float, float]:
        """Return left, top, width and height of the drawing in the window."""
        area = box_of(self.stage)
        return area["x"], area["y"], area["width"], area["height"]

    def at(self, node: str, *, plus: bool = False) -> tuple[float, float]:
        """Return the position in the window of the middle of a node's box, or of its +."""
        (left, top, *_), where = self.area(), self.root.evaluate(WHERE, node)
        x, y = where["middle"]
        return left + (where["left"] + 6 * where["scale"] if plus else x), top + y

    def point(self, node: str) -> None:
        self.page.mouse.move(*self.at(node))

    def click(self, node: str, *modifiers: str, plus: bool = False, count: int = 1) -> None:
        for key in modifiers:
            self.page.keyboard.down(key)
        self.page.mouse.click(*self.at(node, plus=plus), click_count=count)
        for key in modifiers:
            self.page.keyboard.up(key)

    def box(self, title: str) -> Any:
        """Return the edges of the box with this title, from the drawing's corner, and its detail; None without it."""
        return self.root.evaluate(BOX, title)

    def middle_of(self, title: str) -> tuple[float, float]:
        """Return the position in the window of the middle of the box with this title."""
        (left, top, *_), box = self.area(), self.box(title)
        return left + (box["left"] + box["right"]) / 2, top + (box["top"] + box["bottom"]) / 2

    def click_box(self, title: str, *, count: int = 1) -> None:
        """Click the box with this title, and wait until the kernel has its nodes."""
        self.page.mouse.click(*self.middle_of(title), click_count=count)
        self.wait_for_kernel()

    def trail(self) -> list[str]:
        """Return the names of the modules around the selection."""
        return self.root.locator(".rxg-trail button").all_inner_texts()

    def press(self, *keys: str) -> None:
        self.stage.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def expect_selection_text(self, text: str) -> None:
        expect(self.selected).to_have_text(text)

    def ink_between(self, above: str, below: str) -> float:
        """Return how dark the picture is, 0 to 255, between two boxes, one above the other."""
        (x, y), (_, lower), (left, top, *_) = self.at(above), self.at(below), self.area()
        self.page.mouse.move(left + 3, top + 3)  # a pointed node is highlighted too
        ink: float = self.page.evaluate(INK, [round(x - left), round((y + lower) / 2 - top)])
        return ink

    def wait_for_kernel(self) -> None:
        """Wait until the kernel has handled all messages of the page."""
        self.page.wait_for_function(ANSWERED, arg=self.root.element_handle())


class Explorer:
    """A panel in a page."""

    def __init__(self, lab: Lab, cell: int) -> None:
        self.output = lab.output(cell)
        self.root = self.output.locator(".rx-panel")
        self.graph = Graph(self.root.locator(".rxg"))
        self.status = self.root.locator(".rx-progress").get_by_role("status")
        self.alert = self.root.locator(".rx-alert").get_by_role("alert")
        self.kind = self.root.get_by_label("Mark by")
        self.pattern = self.root.get_by_label("Pattern", exact=True)
        self.name = self.root.get_by_label("Name", exact=True).last
        self.picked = self.root.locator(".rx-picked")
        self.preview = self.root.locator(".rx-preview")
        self.config = self.root.locator(".rx-config")
        self.code = self.root.locator(".rx-code")
        self.compared = self.root.locator(".rx-compare")
        self.budget = self.root.get_by_label("Budget (s)")
        self.rows = self.root.locator("tr[data-do=pick]")
        self.measure_button = self.button("Compile & measure")

    def places(self) -> Any:
        """Return where the parts begin in the panel, and how wide they are."""
        return self.root.evaluate(PLACES)

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def press(self, name: str) -> None:
        self.button(name).click()

    def row(self, region: str) -> Locator:
        return self.root.locator(f"tr[aria-label='{region}']")

    def pick(self, region: str, *modifiers: Literal["Control", "Shift"]) -> None:
        self.row(region).locator(".rxt-time").click(modifiers=modifiers)

    def expect_picked(self, region: str) -> None:
        expect(self.row(region)).to_have_attribute("aria-selected", "true")

    def switch(self, region: str) -> Locator:
        return self.root.get_by_label(f"Compile {region}", exact=True)

    def line(self, text: str) -> Locator:
        """Return the line of the source with this text."""
        return self.root.locator(".rxs-line", has_text=text)

    def pane(self, name: str) -> Locator:
        """Return the tab that opens a pane."""
        return self.root.get_by_role("tab", name=name)

    def open_config(self, region: str) -> None:
        self.row(region).locator("[data-do=open]").click()
        expect(self.root.get_by_role("heading", name=f"Config of {region}")).to_be_visible()

    def mark(self, name: str) -> None:
        self.name.fill(name)
        self.press("Mark")

    def open_options(self) -> None:
        if not self.budget.is_visible():
            self.root.get_by_text("Options", exact=True).click()

    def set_budget(self, seconds: float) -> None:
        self.open_options()
        self.budget.fill(f"{seconds:g}")
        self.budget.press("Enter")

    def measure(self, *, budget_s: float) -> None:
        """Begin to measure only eager and the regions."""
        self.set_budget(budget_s)
        for variant in ("traced", "torch.compile"):
            self.root.get_by_label(variant, exact=True).uncheck()
        self.root.get_by_text("Options", exact=True).click()
        self.measure_button.click()

    def expect_rounds(self) -> None:
        """Wait until a measurement is in its rounds."""
        expect(self.status).to_contain_text("round", timeout=WAIT_MS)

    def expect_idle(self) -> None:
        """Wait until no job runs."""
        expect(self.measure_button).to_be_enabled(timeout=WAIT_MS)

    def expect_measured(self, region: str) -> None:
        """Wait until a region has figures, or until the page calls them noisy, and no job runs."""
        expect(self.row(region).locator(".rxt-time")).to_contain_text(MEASURED, timeout=WAIT_MS)
        self.expect_idle()


def expect_not_boxed(panel: Explorer) -> None:
    """Expect a tall output that needs no scrolling."""
    assert box_of(panel.root)["height"] > 600
    assert panel.output.evaluate("area => area.scrollHeight - area.clientHeight") <= 2
