"""``ex.profile()`` beside ``aot_eager``'s step and ``torch.profiler``: ``python -m benchmarks profile``.

``torch.profiler`` records the captured graphs' operators with their shapes; in the order they run they are matched with
the graphs' nodes, by name, and their times summed by module.
"""

from __future__ import annotations

import json
import re
import statistics
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import regional_explorer as rx
from benchmarks.models import explore
from regional_explorer.compiler.variants import VariantName
from regional_explorer.record.graph import Graph, GraphKind, Node

MODELS = ("gpt", "bert", "llama", "vit", "mamba")
BUDGET_S = 5.0
RUNS = 20
LEAST_SHARE = 0.01
QUICKSTART = Path(__file__).parent.parent / "notebooks" / "quickstart.ipynb"


@dataclass(frozen=True)
class Row:
    """One model: the ops' sum beside the step, and how the modules rank beside ``torch.profiler``."""

    model: str
    ops: int
    rounds: int
    sum_s: float
    step_s: float
    matched: float
    modules: int
    spearman: float

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        return (
            f"| {self.model} | {self.ops} | {self.rounds} | {self.sum_s * 1e3:.3g} ms | {self.step_s * 1e3:.3g} ms "
            f"| {self.sum_s / self.step_s:.3f} | {self.matched:.0%} | {self.modules} | {self.spearman:.3f} |"
        )


HEADER = (
    "| model | ops | rounds | sum over ops | aot_eager | ratio (goal 0.9 to 1.1) | ops matched | modules of 1 % "
    "| Spearman (goal ≥ 0.95) |\n|---|---|---|---|---|---|---|---|---|"
)


def rows(models: Iterable[str] = ("quickstart", *MODELS)) -> Iterator[Row]:
    """Profile a training step of each model both ways."""
    for name in models:
        ex = quickstart() if name == "quickstart" else explore(name, training=True)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ex.profile(BUDGET_S)
            yield row(name, ex)
        ex.close()


def quickstart() -> rx.Exploration:
    """Return the exploration of the quickstart's GPT."""
    cells = (cell for cell in json.loads(QUICKSTART.read_text())["cells"] if cell["cell_type"] == "code")
    sources = ["".join(cell["source"]) for cell in cells]
    model = next(source for source in sources if "class GPT" in source)
    given: dict[str, Any] = {}
    exec(re.sub(r"^%.*", "", f"{sources[0]}\n{model}", flags=re.MULTILINE), given)  # noqa: S102 - our own notebook
    return rx.explore(given["model"], (given["tokens"], given["targets"]))


def row(name: str, ex: rx.Exploration) -> Row:
    """Compare the profile of ``ex`` with one by ``torch.profiler``."""
    found = ex.session.profile
    assert found is not None
    theirs, matched = profiled(ex)
    ours = ex.op_times.query(f"by == 'module' and share >= {LEAST_SHARE}").set_index("name").eager_us
    both = pd.DataFrame({"ours": ours, "theirs": pd.Series(theirs)}).dropna()
    ranked = both.ours.rank().corr(both.theirs.rank()) if len(both) > 1 else 1.0
    return Row(name, len(found.ops), found.rounds, found.seconds, found.step_s, matched, len(ours), float(ranked))


def profiled(ex: rx.Exploration) -> tuple[dict[str, float], float]:
    """Return the seconds by module as ``torch.profiler`` has them, and the part of the profile's ops that matched."""
    expected = expected_ops(ex)
    call, variant = ex.live.capture.call, ex.live.variants.get(VariantName.AOT_EAGER)
    runs: dict[int, list[float]] = {}
    matched = 0
    for _ in range(RUNS):
        variant.select()
        with call.kept(), torch.profiler.profile(record_shapes=True) as recorded:
            outputs = variant.forward()
            if variant.backward is not None:
                variant.backward(outputs)
        events = sorted(
            (event for event in recorded.events() if event.name.startswith("aten::") and not has_parent(event)),
            key=lambda event: event.time_range.start,
        )
        place = 0
        for event in events:
            name, shapes = event.name.removeprefix("aten::"), [list(shape) for shape in event.input_shapes]
            ahead = range(place, min(place + 8, len(expected)))
            place_of = next((at for at in ahead if matches(expected[at], name, shapes)), None)
            if place_of is None:
                continue
            place, matched = place_of + 1, matched + 1
            runs.setdefault(place_of, []).append(event.cpu_time_total * 1e-6)
    ex.live.program.select_regional(on=True)
    seconds: dict[str, float] = {}
    for place, samples in runs.items():
        for module in dict.fromkeys(call.path for call in expected[place][0].modules if call.path):
            seconds[module] = seconds.get(module, 0.0) + statistics.median(samples)
    return seconds, matched / RUNS / len(expected)


def has_parent(event: Any) -> bool:
    """Tell whether an operator ran inside another."""
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith("aten::"):
            return True
        parent = parent.cpu_parent
    return False


def expected_ops(ex: rx.Exploration) -> list[tuple[Node, Graph]]:
    """Return the operators of the captured graphs in the order they run: forward graphs, then backward ones."""
    graphs = [graph for graph in ex.session.graphs if graph.kind is not GraphKind.DYNAMO]
    forward = [graph for graph in graphs if graph.kind is not GraphKind.BACKWARD]
    backward = [graph for graph in graphs if graph.kind is GraphKind.BACKWARD]
    return [
        (node, graph)
        for graph in [*forward, *reversed(backward)]
        for node in graph.ops
        if node.target.startswith("aten.")
    ]


def matches(expected: tuple[Node, Graph], name: str, shapes: list[list[int]]) -> bool:
    """Tell whether an event is that op: by name, and by the shape of its first tensor where that is known."""
    node, graph = expected
    if node.target.split(".")[1] != name:
        return False
    inputs = [graph.by_name()[one].values for one in node.inputs]  # noqa: PD011 - of nodes
    first = next((list(values[0].shape) for values in inputs if len(values) == 1), None)
    return first is None or not any(shapes) or first in shapes
