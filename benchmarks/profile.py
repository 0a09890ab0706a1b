"""``ex.profile()`` beside ``aot_eager``'s step and ``torch.profiler``: ``python -m benchmarks profile``.

``torch.profiler`` records the operators of the captured graphs with their shapes, each inside a range that names its
node. The times of these ranges, which contain the call from Python as the times of ``ex.profile()`` do, are summed by
module; a second correlation takes the operators inside of them alone. It runs half before and half after
``ex.profile()``, so that a machine that slows down slows both. Of each recording only the last call counts: the first
ones after a start are slower. Modules that repeat (``layers.0.attn``, ``layers.1.attn``, …) take nearly the same time.
So the ranking of kinds has each kind summed, and how well the two halves of ``torch.profiler``'s own runs agree on the
modules stands beside.
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
from torch import fx

import regional_explorer as rx
from benchmarks.models import explore
from regional_explorer.record.variant_name import VariantName
from regional_explorer.torch_api import BoxedCall, boxed

MODELS = ("gpt", "bert", "llama", "vit", "mamba")
BUDGET_S = 5.0
RUNS = 20
CALLS = 3
"""Calls in one recording of torch.profiler; the last one counts."""
RANGE = "op of "
LEAST_SHARE = 0.01
QUICKSTART = Path(__file__).parent.parent / "notebooks" / "quickstart.ipynb"


Times = dict[tuple[str, str], list[tuple[float, float]]]
"""By graph and node, for each run the seconds of the op's range, and of the operators inside."""


@dataclass(frozen=True)
class Row:
    """One model: its ops and what runs around them beside the step, and how modules rank beside ``torch.profiler``."""

    model: str
    ops: int
    rounds: int
    sum_s: float
    whole_s: float
    step_s: float
    modules: int
    spearman: float
    spearman_of_operators: float
    spearman_of_halves: float
    kinds: int
    spearman_of_kinds: float

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        return (
            f"| {self.model} | {self.ops} | {self.rounds} | {self.sum_s * 1e3:.3g} ms | {self.whole_s * 1e3:.3g} ms "
            f"| {self.step_s * 1e3:.3g} ms | {self.sum_s / self.step_s:.3f} | {self.whole_s / self.step_s:.3f} "
            f"| {self.modules} | {self.spearman:.3f} | {self.spearman_of_operators:.3f} "
            f"| {self.spearman_of_halves:.3f} | {self.kinds} | {self.spearman_of_kinds:.3f} |"
        )


HEADER = (
    "| model | ops | rounds | ops | ops and around | aot_eager | ops/aot_eager | all/aot_eager (goal 0.9 to 1.1) "
    "| modules of 1 % | Spearman (goal ≥ 0.95) | without the calls from Python | torch.profiler with itself "
    "| kinds of modules | Spearman of kinds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def rows(models: Iterable[str] = ("quickstart", *MODELS)) -> Iterator[Row]:
    """Profile a training step of each model both ways."""
    for name in models:
        ex = quickstart() if name == "quickstart" else explore(name, training=True)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    """Compare a profile of ``ex`` with one by ``torch.profiler``."""
    before = profiled(ex, RUNS // 2)
    ex.profile(BUDGET_S)
    after = profiled(ex, RUNS // 2)
    theirs = {op: before.get(op, []) + after.get(op, []) for op in before | after}
    found = ex.session.profile
    assert found is not None
    mine = {(op.graph, op.node): op.seconds for op in found.ops}
    both = pd.DataFrame(
        {
            "ours": by_module(ex, mine),
            "theirs": by_module(ex, medians(theirs, 0)),
            "operators": by_module(ex, medians(theirs, 1)),
            "before": by_module(ex, medians(before, 0)),
            "after": by_module(ex, medians(after, 0)),
        }
    ).fillna(0.0)
    kinds = both.groupby(lambda path: re.sub(r"(?<=\.)\d+|^\d+", "*", path)).sum()
    least_s = LEAST_SHARE * found.seconds
    modules, kinds = both[both.ours >= least_s], kinds[kinds.ours >= least_s]
    return Row(
        name,
        len(found.ops),
        found.rounds,
        found.seconds,
        found.whole_s,
        found.step_s,
        len(modules),
        spearman(modules),
        spearman(modules, other="operators"),
        spearman(modules, "before", "after"),
        len(kinds),
        spearman(kinds),
    )


def spearman(both: pd.DataFrame, one: str = "ours", other: str = "theirs") -> float:
    """Return the rank correlation of two columns."""
    return float(both[one].rank().corr(both[other].rank())) if len(both) > 1 else 1.0


def medians(times: Times, which: int) -> dict[tuple[str, str], float]:
    """Return the median seconds of each op: of its range (0), or of the operators inside alone (1)."""
    return {op: statistics.median(sample[which] for sample in samples) for op, samples in times.items()}


def by_module(ex: rx.Exploration, seconds: dict[tuple[str, str], float]) -> pd.Series[float]:
    """Return seconds by op summed by module, those inside it included."""
    nodes = {graph.id: graph.by_name() for graph in ex.session.graphs}
    found: dict[str, float] = {}
    for (graph, name), op_s in seconds.items():
        for module in dict.fromkeys(call.path for call in nodes[graph][name].modules if call.path):
            found[module] = found.get(module, 0.0) + op_s
    return pd.Series(found, dtype=float)


def profiled(ex: rx.Exploration, runs: int) -> Times:
    """Return the seconds of each op in each run, of its range and of the operators inside, by ``torch.profiler``."""
    call, variant = ex.live.capture.call, ex.live.variants.get(VariantName.AOT_EAGER)
    labelled = {live.id: with_ranges(live.id, live.gm) for live in ex.live.program.capture.live}
    found: Times = {}
    for run in range(runs + 1):
        variant.select()
        for live in ex.live.program.capture.live:
            live.implementation = labelled[live.id]
        with torch.profiler.profile(record_shapes=True) as recorded:
            for _ in range(CALLS):
                with call.kept():
                    outputs = variant.forward()
                    if variant.backward is not None:
                        variant.backward(outputs)
        events: Iterable[Any] = recorded.events() or ()
        last: dict[tuple[str, str], tuple[float, float]] = {}
        for event in events if run else ():  # the first run warms up
            if event.name.startswith(RANGE):
                graph, _, node = event.name.removeprefix(RANGE).partition(":")
                inside = (child for child in event.cpu_children if child.name.startswith("aten::"))
                alone = sum(child.cpu_time_total for child in inside)
                last[graph, node] = event.cpu_time_total * 1e-6, alone * 1e-6
        for op, seconds in last.items():
            found.setdefault(op, []).append(seconds)
    ex.live.program.select_regional(on=True)
    return found


def with_ranges(graph_id: str, gm: fx.GraphModule) -> BoxedCall:
    """Return what runs ``gm`` with each op inside a range of the profiler that names it."""
    ranges: list[Any] = []

    def begin(name: str) -> None:
        ranges.append(torch.profiler.record_function(name))
        ranges[-1].__enter__()

    def end() -> None:
        ranges.pop().__exit__(None, None, None)

    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            graph.call_function(begin, (f"{RANGE}{graph_id}:{node.name}",))
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "call_function":
            graph.call_function(end)
    return boxed(fx.GraphModule(gm, graph))
