"""Views in Chromium: how soon a graph is seen, how smoothly it moves, and how soon clicks and edits are answered.

Each view is shown as in a notebook, with nothing else in the page; the way between kernel and page is left out. Goals
on a CPU: the first picture of a 24-block GPT's training graphs within 1 s of the capture, that of 10,000 nodes without
modules within 3 s, 50 frames per second while either is moved about; for the training step of a BERT of 12 layers, as
medians of 20: clicks and folds within 30 ms, at 30 regions a new config within 60 ms and other edits within 300 ms.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from msgspec.structs import replace
from playwright.sync_api import Page, sync_playwright
from torch import fx, nn
from torch.fx.passes.graph_drawer import FxGraphDrawer

import regional_explorer as rx
from benchmarks.row import Row
from regional_explorer.picture.layout import graphviz
from regional_explorer.record.environment import Environment
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.session import Session
from regional_explorer.ui.control import control_of
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.widget import SessionView
from tests.shared.lone_view import CHROMIUM, NewPage, in_page
from tests.shared.models import transformer

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@contextmanager
def pages() -> Iterator[NewPage]:
    """Give a function that opens a page in Chromium.

    Raises:
        RuntimeError: there is no Chromium.
    """
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        raise RuntimeError("views are measured in Chromium, which is not installed")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield lambda: chromium.new_page(viewport={"width": 1200, "height": 760})
        chromium.close()


def limit_row(limit_s: float, what: str, *seconds: float, beside: str = "") -> Row:
    """Return a row whose goal is an absolute time."""
    return Row(what, f"{limit_s:g} s{beside}", seconds, [limit_s] * len(seconds), 1.0)


# ------------------------------------------------------------------------------------------------------------- drawing

LIMIT_S = 120.0
"""The seconds after which FxGraphDrawer and dot are given up."""

FRAMES = 90
BOXES = "document.querySelector('.rxg').rxView.picture.boxes"
OPS = ("mul", "add", "relu", "mm", "sub", "exp", "view")


def drawing_rows(blocks: int = 24, nodes: int = 10_000) -> Iterator[Row]:
    """Show graphs as they open and with every box open, beside FxGraphDrawer with dot, and move them about."""
    with pages() as new_page:
        for session, limit_s in ((_training(blocks), 1.0), (_flat(nodes), 3.0)):
            for graph in session.graphs:
                if graph.kind is not GraphKind.DYNAMO:
                    theirs = f"; FxGraphDrawer + dot: {_graphviz_time(graph)}"
                    yield from _pictures(session, graph, limit_s, theirs, new_page)


def _pictures(session: Session, graph: Graph, limit_s: float, theirs: str, new_page: NewPage) -> Iterator[Row]:
    for state, opening in (("as it opens", {}), ("every box", {"all": True})):
        view = SessionView(shown={"tab": graph.id, "folds": {graph.id: opening}})
        begin = time.perf_counter()
        view.set_session(session)
        kernel_s = time.perf_counter() - begin
        with in_page(view, new_page) as page:
            page_s = page.evaluate("window.took") / 1000
            near = page.evaluate(f"window.pan({FRAMES})")
            page.get_by_role("button", name="Fit the graph to the view").click()
            whole = page.evaluate(f"window.pan({FRAMES})")
            boxes = page.evaluate(BOXES)
        what = f"{session.title} {graph.kind}, {state} ({len(graph.nodes):,} nodes, {boxes:,} boxes)"
        yield limit_row(
            limit_s, f"first picture of {what}, {page_s:.2f} s in the page", kernel_s + page_s, beside=theirs
        )
        frames = f"50 frames of it, {near:.0f} per second near by and {whole:.0f} of the whole"
        yield limit_row(1.0, frames, 50 / min(near, whole))


def _graphviz_time(graph: Graph) -> str:
    """Return how long FxGraphDrawer and dot take for ``graph``."""
    if importlib.util.find_spec("pydot") is None:
        return "needs pydot"
    module = _module(graph)
    begin = time.perf_counter()
    text = FxGraphDrawer(module, "graph").get_dot_graph().to_string()
    left = LIMIT_S - (time.perf_counter() - begin)
    done = left > 0 and graphviz(text, "svg", time_limit_s=left) is not None
    return f"{time.perf_counter() - begin:.2f} s" if done else f"> {LIMIT_S:.0f} s"


def _module(graph: Graph) -> fx.GraphModule:
    """Return ``graph`` as a graph module of the same nodes and edges."""
    copy = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for node in graph.nodes:
        inputs = tuple(nodes[name] for name in node.inputs if name in nodes)
        if node.role is Role.OUTPUT:
            copy.output(inputs)
        elif node.role is Role.OP:
            nodes[node.name] = copy.create_node("call_function", torch.add, inputs, name=node.name)
        else:
            nodes[node.name] = copy.placeholder(node.name)
    return fx.GraphModule(nn.Module(), copy)


class Block(nn.Module):
    """One block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` after causal self-attention and MLP."""
        B, T, C = x.shape
        parts = self.qkv(self.first(x)).split(C, dim=2)
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in parts)
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weight = (q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5).masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.out((weight @ v).transpose(1, 2).reshape(B, T, C))
        hidden = F.gelu(self.up(self.second(x)))
        return torch.add(x, self.down(hidden))


def _training(blocks: int) -> Session:
    """Return the record of a GPT's training step with its MLPs marked."""
    model = nn.Sequential(*(Block(32, 2) for _ in range(blocks)), nn.LayerNorm(32))
    exploration = rx.explore(model, (torch.randn(1, 16, 32),))
    exploration.mark("mlp", modules=["*.up", "*.down"])
    return replace(exploration.session, title=f"GPT, {blocks} blocks,")


def _flat(count: int) -> Session:
    """Return the record of ``count`` ops in no module: a chain with side branches and edges from far back."""
    nodes = [Node("x", Role.INPUT, "x")]
    for n in range(count):
        feeds = {max(n - 1, 0), max(n - 1 - n % 7, 0), max(n - n % 331, 0)} if n % 5 else {max(n - 3, 0)}
        inputs = tuple(f"op{m}" for m in sorted(feeds) if m < n) or ("x",)
        nodes.append(Node(f"op{n}", Role.OP, f"aten.{OPS[n * n % len(OPS)]}.Tensor", inputs))
    nodes.append(Node("output", Role.OUTPUT, "output", (f"op{count - 1}",)))
    where = Environment(torch.__version__, "", "cpu", torch.get_num_threads())
    return Session(f"{count:,} nodes", where, False, (Graph("flat", GraphKind.INFERENCE, 0, tuple(nodes)),))  # noqa: FBT003


# ---------------------------------------------------------------------------------------------------- clicks and edits

TIMES = 20
CLICK_S, CONFIG_S, EDIT_S = 0.03, 0.06, 0.3
"""The goals of a click or a fold, of a new config, and of any other edit."""
LAYERS = 12
FOLD = """(number) => {
  const view = document.querySelector(".rxg").rxView, { picture } = view, begin = performance.now();
  const boxes = [...Array(picture.boxes).keys()].filter((box) => picture.opens(box) ?? picture.around(box));
  view.fold(boxes[number % boxes.length]);
  return drawn(begin);
}"""
"""Opens a closed fold, or closes an open one."""

REGIONS = 30
CONFIGURE = "change a config"
PARTS = ("attention.self", "attention.output", "intermediate")


def bert(layers: int) -> rx.Exploration:
    """Return the exploration of a BERT's training step."""
    model, words = transformer(
        "BertForSequenceClassification",
        lambda: {"input_ids": torch.randint(0, 100, (2, 16)), "labels": torch.tensor([0, 1])},
    )(hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=128, vocab_size=100)()
    return rx.explore(model.train(), (), words)


def click_rows(layers: int = LAYERS) -> Iterator[Row]:
    """Select nodes, and open and close folds: the page does so without the kernel."""
    session = bert(layers).session
    with pages() as new_page:
        for graph in session.graphs:
            if graph.kind is not GraphKind.DYNAMO:
                yield from _clicks(session, graph, new_page, everything=False)
                yield from _clicks(session, graph, new_page, everything=True)


def _clicks(session: Session, graph: Graph, new_page: NewPage, *, everything: bool) -> Iterator[Row]:
    view = SessionView(shown={"tab": graph.id, "folds": {graph.id: {"all": True} if everything else {}}})
    view.set_session(session)
    with in_page(view, new_page) as page:
        boxes = page.evaluate(BOXES)
        page.get_by_role("button", name="Fit the graph to the view").click()
        clicked = [page.evaluate("(box) => window.click(box)", boxes * number // TIMES) for number in range(TIMES)]
        folded = [page.evaluate(FOLD, number) for number in range(TIMES)]
    where = f"of the {graph.kind}, {'every box' if everything else 'as it opens'} ({boxes:,} boxes)"
    yield limit_row(CLICK_S, f"select a box {where}", *(ms / 1000 for ms in clicked))
    yield limit_row(CLICK_S, f"open or close a fold {where}", *(ms / 1000 for ms in folded))


def _response_s(panel: Panel, page: Page, act: Callable[[int], object], number: int) -> float:
    """Return the seconds that the kernel takes for ``act(number)``, and the page to draw the changes."""
    before = panel.get_state()
    begin = time.perf_counter()
    act(number)
    kernel_s = time.perf_counter() - begin
    news = {key: value for key, value in panel.get_state().items() if value != before.get(key)}
    return kernel_s + page.evaluate("(news) => window.answer(news)", news) / 1000


def edit_rows(layers: int = LAYERS) -> Iterator[Row]:
    """Edit the plan in a panel with many regions."""
    exploration = bert(layers)
    for number in range(REGIONS):
        part = PARTS[number % len(PARTS)]
        exploration.mark(f"r{number}", modules=f"**.layer.{number // len(PARTS) % layers}.{part}")
    panel = Panel(control_of(exploration))
    with pages() as new_page, in_page(panel, new_page) as page:
        for name, edit in _edits(panel, exploration, layers).items():
            seconds = [_response_s(panel, page, edit, number) for number in range(TIMES)]
            yield limit_row(CONFIG_S if name == CONFIGURE else EDIT_S, f"{name}, at {REGIONS} regions", *seconds)
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
        "switch a region off": lambda number: panel.press("enable", f"r{number}", value=False),
        CONFIGURE: configure,
        "rename a region": rename,
        "mark another": mark,
        "undo": lambda _: panel.press("undo"),
    }
