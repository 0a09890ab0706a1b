"""How soon an edit of the plan is answered at 30 regions: the kernel's part, and the page's until it is drawn.

The goal: within 300 ms, median of 20, for a BERT of 12 layers, training. The page shows the whole panel, as a notebook
does; the way between kernel and page is left out.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regional_explorer as rx
from benchmarks.clicks import LAYERS, bert
from benchmarks.page import READ_STATE, NewPage, packed, pages
from regional_explorer.page.report import table_text
from regional_explorer.tables.table import Cell, Table
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel

if TYPE_CHECKING:
    from playwright.sync_api import Page

EDITS = 20
REGIONS = 30
PARTS = ("attention.self", "attention.output", "intermediate")

PAGE = """<!doctype html><meta charset="utf-8"><style>body { margin: 8px } %(style)s</style><div id="host"></div>
<script type="application/json" id="given">%(given)s</script>
<script type="module">
%(read)s
class Model {
  heard = {};
  widget_manager = { get_model: async () => ({ comm_live: true }) };
  constructor(state) { this.state = read(state); }
  get(name) { return this.state[name]; }
  set(name, value) { this.state[name] = value; }
  save_changes() {}
  send() {}
  off() {}
  on(name, heard) { (this.heard[name] ??= []).push(heard); }
  answer(news) {
    Object.assign(this.state, news);
    for (const name of Object.keys(news)) for (const heard of this.heard[`change:${name}`] ?? []) heard();
    for (const heard of this.heard.change ?? []) heard();
  }
}
const given = JSON.parse(document.getElementById("given").textContent), models = {}, codes = {};
for (const [name, { state, code }] of Object.entries(given)) {
  models[name] = new Model(state);
  codes[name] = (await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })))).default;
}
const page = {
  getModel: async (ref) => models[ref],
  getWidget: async (ref) => ({ render: ({ el }) => codes[ref].render({ model: models[ref], el, host: page }) }),
};
codes.panel.render({ model: models.panel, el: document.getElementById("host"), host: page });
const drawn = async () => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  document.querySelector(".rxg-canvas")?.getContext("2d").getImageData(0, 0, 1, 1);
};
window.answer = async (changes) => {
  const news = read(changes), begin = performance.now();
  for (const [name, changed] of Object.entries(news)) models[name].answer(changed);
  await drawn();
  return performance.now() - begin;
};
await drawn();
window.ready = true;
</script>"""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of ``EDITS`` edits of one kind, in milliseconds."""

    edit: str
    kernel_ms: float
    page_ms: float


def rows(*, layers: int = LAYERS) -> Iterator[Row]:
    """Yield what was measured of each kind of edit; nothing without Chromium."""
    with pages() as new_page:
        if new_page is None:
            return
        exploration = bert(layers)
        for number in range(REGIONS):
            part = PARTS[number % len(PARTS)]
            exploration.mark(f"r{number}", modules=f"**.layer.{number // len(PARTS) % layers}.{part}")
        panel = Panel(control_of(exploration))
        with _shown(panel, new_page) as page:
            for name, edit in _edits(panel, exploration, layers).items():
                yield _row(panel, page, name, edit)
        panel.close()


def _edits(panel: Panel, exploration: rx.Exploration, layers: int) -> dict[str, Callable[[int], Any]]:
    def configure(number: int) -> None:
        panel.control.edit(lambda ex: ex.configure(f"r{number % REGIONS}", {"max_fusion_size": 2 + number}))

    def rename(number: int) -> None:
        first = exploration.plan.regions[number % REGIONS].name
        panel.control.edit(lambda ex: ex.rename(first, f"name{number}"))

    def mark(number: int) -> None:
        panel.control.edit(lambda ex: ex.mark(f"more{number}", modules=f"**.layer.{number % layers}.output"))

    return {
        "switch off": lambda number: panel.press("switch", f"r{number}", value=False),
        "config": configure,
        "rename": rename,
        "mark": mark,
        "undo": lambda _: panel.press("undo"),
    }


def _row(panel: Panel, page: Page, name: str, edit: Callable[[int], Any]) -> Row:
    kernel, drawn = [], []
    for number in range(EDITS):
        changed = _Changes(panel)
        begin = time.perf_counter()
        edit(number)
        kernel.append(1000 * (time.perf_counter() - begin))
        drawn.append(page.evaluate("(news) => window.answer(news)", changed.taken()))
    return Row(name, statistics.median(kernel), statistics.median(drawn))


class _Changes:
    """Notes which traits of the panel and of its views change."""

    def __init__(self, panel: Panel) -> None:
        self._widgets = _widgets(panel)
        self._before = {name: widget.get_state() for name, widget in self._widgets.items()}

    def taken(self) -> dict[str, dict[str, Any]]:
        """Return what changed since, as JSON."""
        return {
            name: {
                key: packed(value) for key, value in widget.get_state().items() if value != self._before[name].get(key)
            }
            for name, widget in self._widgets.items()
        }


def _widgets(panel: Panel) -> dict[str, Any]:
    """Return the panel and its views, by the names that the page knows them by."""
    inside = {
        panel.views[name]: view
        for name, view in (("graph", panel.graph), ("source", panel.source), ("code", panel.code))
    }
    return {"panel": panel, **inside}


@contextmanager
def _shown(panel: Panel, new_page: NewPage) -> Iterator[Page]:
    """Give a page that shows the panel."""
    widgets = _widgets(panel)
    given = {
        name: {
            "code": widget._esm,
            "state": {key: packed(value) for key, value in widget.get_state().items() if key[0] != "_"},
        }
        for name, widget in widgets.items()
    }
    style = "\n".join(dict.fromkeys(str(getattr(widget, "_css", "")) for widget in widgets.values()))
    page = new_page()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        text = json.dumps(given).replace("<", "\\u003c")
        path.write_text(PAGE % {"read": READ_STATE, "style": style, "given": text}, encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_function("window.ready", timeout=60_000)
    yield page
    page.close()


def table(found: Iterator[Row]) -> str:
    """Return the rows as text."""
    names = ("edit", "kernel", "page", "in all")
    cells = [
        (Cell(row.edit), *(Cell(f"{ms:.0f} ms") for ms in (row.kernel_ms, row.page_ms, row.kernel_ms + row.page_ms)))
        for row in found
    ]
    title = f"Edits at {REGIONS} regions, median of {EDITS}"
    return table_text(Table(title, names, tuple(cells), "No Chromium.", figures=frozenset(names[1:])), width=140)
