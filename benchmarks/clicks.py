"""How soon a click on the graph is answered: a node selected, a box opened or closed.

The goal: within 100 ms, median of 20, for a BERT of 12 layers, training. A fold is what the kernel takes to fold, place
and pack, and the page to draw it; the way between them is left out.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

import regional_explorer as rx
from benchmarks.page import NewPage, in_page, pages, traits
from regional_explorer.page.report import table_text
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.session import Session
from regional_explorer.tables.table import Cell, Table
from regional_explorer.ui.view import GraphView

CLICKS = 20
LAYERS = 12
TEXTS = 5
OPENS = 3
"""Texts of a box in the payload, and which of them is the key of the fold that it opens."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of ``CLICKS`` clicks, in milliseconds."""

    graph: str
    nodes: int
    boxes: int
    select_ms: float
    kernel_ms: float
    page_ms: float


def rows(*, layers: int = LAYERS) -> Iterator[Row]:
    """Yield what was measured of each graph of a BERT's training step; nothing without Chromium."""
    session = bert(layers).session
    with pages() as new_page:
        for graph in session.graphs if new_page else ():
            if new_page and graph.kind is not GraphKind.DYNAMO:
                for everything in (False, True):
                    yield _row(session, graph.id, new_page, everything=everything)


def _row(session: Session, graph: str, new_page: NewPage, *, everything: bool) -> Row:
    view = GraphView(tab=graph)
    view.set_session(session)
    keys = _closed(view)
    if everything:
        view.expand_all()
    boxes = len(view.payload["box_pieces"]) // 4
    with in_page(view, new_page) as page:
        page.get_by_role("button", name="Fit the graph to the view").click()
        found = [page.evaluate("(box) => window.click(box)", boxes * number // CLICKS) for number in range(CLICKS)]
        kernel, drawn = [], []
        for number in range(CLICKS):
            key = keys[number // 2 % len(keys)]
            begin = time.perf_counter()
            view.fold(key, opened=everything == bool(number % 2))
            sent = traits(view, "payload", "tree")
            kernel.append(1000 * (time.perf_counter() - begin))
            drawn.append(page.evaluate("(news) => window.answer(news)", sent))
    name = f"{graph.rsplit('/', maxsplit=1)[-1]}, {'every box' if everything else 'as it opens'}"
    nodes = len(view.payload["node_names"])
    return Row(name, nodes, boxes, *(statistics.median(times) for times in (found, kernel, drawn)))


def _closed(view: GraphView) -> list[str]:
    """Return the keys of what can be opened."""
    texts, numbers = view.payload["texts"], array("I", view.payload["box_texts"])
    return [key for key in (texts[number] for number in numbers[OPENS::TEXTS]) if key]


def bert(layers: int) -> rx.Exploration:
    """Return the exploration of a BERT's training step."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = BertConfig(
        hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=128, vocab_size=100
    )
    model = BertForSequenceClassification(sizes).train()
    words = {"input_ids": torch.randint(0, 100, (2, 16)), "labels": torch.tensor([0, 1])}
    return rx.explore(model, (), words)


def table(found: Iterable[Row]) -> str:
    """Return the rows as text."""
    names = ("BERT, training", "nodes", "boxes", "select", "fold: kernel", "page", "in all")
    cells = [
        (
            Cell(row.graph),
            Cell(f"{row.nodes:,}"),
            Cell(f"{row.boxes:,}"),
            *(Cell(f"{ms:.0f} ms") for ms in (row.select_ms, row.kernel_ms, row.page_ms, row.kernel_ms + row.page_ms)),
        )
        for row in found
    ]
    made = Table(f"Clicks, median of {CLICKS}", names, tuple(cells), "No Chromium.", figures=frozenset(names[1:]))
    return table_text(made, width=140)
