"""How soon a graph is seen, and how smoothly it moves: the graph view beside FxGraphDrawer with dot.

Goals on a CPU: the first picture of a 24-block GPT's training graphs within 1 s of the capture, that of 10,000 nodes
without modules within 3 s, and 50 frames per second while either is moved about, every box shown. Both ways get the
same graphs in the same run; dot is given up on after a limit. ``--quick`` takes small graphs and a short limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.graph_drawer import FxGraphDrawer

import regional_explorer as rx
from benchmarks import clicks, edits
from benchmarks.page import NewPage, in_page, pages
from regional_explorer.page.report import table_text
from regional_explorer.picture.graphviz import graphviz
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.session import Environment, Session
from regional_explorer.tables.table import Cell, Table
from regional_explorer.ui.view import GraphView

LIMIT_S, QUICK_LIMIT_S = 120.0, 10.0
BLOCKS = 24
NODES = 10_000
FRAMES = 90
OPS = ("mul", "add", "relu", "mm", "sub", "exp", "view")


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one graph; None where nothing could be shown.

    ``kernel_s`` is folding, placing and packing in the kernel, ``page_s`` from there to pixels. ``theirs_s`` is the
    time of FxGraphDrawer and dot, None where they were not done within ``limit_s``; that is 0 without pydot, which
    FxGraphDrawer needs.
    """

    graph: str
    nodes: int
    boxes: int
    kernel_s: float
    page_s: float | None
    near_fps: float | None
    whole_fps: float | None
    theirs_s: float | None
    limit_s: float


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Yield what was measured, graph by graph; without Chromium the columns of the page stay empty."""
    drawer = importlib.util.find_spec("pydot") is not None
    limit = (QUICK_LIMIT_S if quick else LIMIT_S) if drawer else 0.0
    sessions = (_training(4 if quick else BLOCKS), _flat(1000 if quick else NODES))
    with pages() as new_page:
        for session in sessions:
            for graph in session.graphs:
                if graph.kind is not GraphKind.DYNAMO:
                    theirs = _theirs(graph, limit) if drawer else None
                    for folded in (True, False):
                        yield _row(session, graph, new_page, (theirs, limit), folded=folded)


def _row(
    session: Session, graph: Graph, new_page: NewPage | None, theirs: tuple[float | None, float], *, folded: bool
) -> Row:
    view = GraphView(tab=graph.id)
    begin = time.perf_counter()
    view.set_session(session)
    if not folded:
        begin = time.perf_counter()
        view.expand_all()
    kernel_s = time.perf_counter() - begin
    page_s, near, whole = _in_page(view, new_page) if new_page else (None, None, None)
    name = f"{session.title} {graph.kind}, {'as it opens' if folded else 'every box'}"
    boxes = len(view.payload["box_pieces"]) // 4
    return Row(name, len(graph.nodes), boxes, kernel_s, page_s, near, whole, *theirs)


def _in_page(view: GraphView, new_page: NewPage) -> tuple[float, float, float]:
    """Return the seconds until the view is seen, and the frames per second near by and of all of it."""
    with in_page(view, new_page) as page:
        took = page.evaluate("window.took") / 1000
        near = page.evaluate(f"window.pan({FRAMES})")
        page.get_by_role("button", name="Fit the graph to the view").click()
        whole = page.evaluate(f"window.pan({FRAMES})")
    return took, near, whole


def _theirs(graph: Graph, limit_s: float) -> float | None:
    """Return the seconds that FxGraphDrawer and dot take for ``graph``, or None if that is over the limit."""
    module = _module(graph)
    begin = time.perf_counter()
    text = FxGraphDrawer(module, "graph").get_dot_graph().to_string()
    left = limit_s - (time.perf_counter() - begin)
    done = left > 0 and graphviz(text, "svg", time_limit_s=left) is not None
    return time.perf_counter() - begin if done else None


def _module(graph: Graph) -> fx.GraphModule:
    """Return ``graph`` as a graph module of the same nodes and edges."""
    made = fx.Graph()
    known: dict[str, fx.Node] = {}
    for node in graph.nodes:
        inputs = tuple(known[name] for name in node.inputs if name in known)
        if node.role is Role.OUTPUT:
            made.output(inputs)
        elif node.role is Role.OP:
            known[node.name] = made.create_node("call_function", torch.add, inputs, name=node.name)
        else:
            known[node.name] = made.placeholder(node.name)
    return fx.GraphModule(nn.Module(), made)


class Block(nn.Module):
    """One block of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` after attention and MLP."""
        x = x + self.attention(self.first(x))
        hidden = F.gelu(self.up(self.second(x)))
        return torch.add(x, self.down(hidden))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Return causal self-attention of ``x``."""
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weight = (q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5).masked_fill(mask, float("-inf")).softmax(-1)
        mixed: torch.Tensor = self.out((weight @ v).transpose(1, 2).reshape(B, T, C))
        return mixed


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


def table(found: Iterable[Row]) -> str:
    """Return the rows as text."""
    names = ("graph", "nodes", "boxes", "kernel", "page", "fps near", "fps whole", "FxGraphDrawer + dot")
    cells = [
        (
            Cell(row.graph),
            Cell(f"{row.nodes:,}"),
            Cell(f"{row.boxes:,}"),
            Cell(f"{row.kernel_s:.2f} s"),
            Cell("no page" if row.page_s is None else f"{row.page_s:.2f} s"),
            Cell("" if row.near_fps is None else f"{row.near_fps:.0f}"),
            Cell("" if row.whole_fps is None else f"{row.whole_fps:.0f}"),
            Cell(_told(row)),
        )
        for row in found
    ]
    made = Table("First picture", names, tuple(cells), "Nothing was measured.", figures=frozenset(names[1:]))
    return table_text(made, width=140)


def _told(row: Row) -> str:
    if row.theirs_s is not None:
        return f"{row.theirs_s:.2f} s"
    return f"> {row.limit_s:.0f} s" if row.limit_s else "needs pydot"


def main() -> None:
    """Print the measurements as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs and a short limit")
    parser.add_argument("--clicks", action="store_true", help="only how soon a click or an edit is answered")
    options = parser.parse_args()
    if not options.clicks:
        print(table(rows(quick=options.quick)))
    layers = 2 if options.quick else clicks.LAYERS
    print(clicks.table(clicks.rows(layers=layers)))
    print(edits.table(edits.rows(layers=layers)))


if __name__ == "__main__":
    main()
