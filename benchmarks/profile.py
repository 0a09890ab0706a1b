"""``ex.profile()`` beside ``aot_eager``'s step and ``torch.profiler``: ``python -m benchmarks profile``.

``torch.profiler`` records the operators of the captured graphs with their shapes, each inside a range that names its
node. As in its own table by input shapes, equal operators on equal shapes share the mean of their times; these are
summed by module. It runs half before and half after ``ex.profile()``, so that a machine that slows down slows both. Of
each recording only the last call counts: the first ones after a start are slower.

Recording an operator costs ``torch.profiler`` microseconds, as much as a small operator takes. So the batch of the
models is as large as it can be, in powers of two, without a step longer than the quickstart's.

Modules that repeat (``layers.0.attn``, ``layers.1.attn``, …) take nearly the same time, so their order among each other
is chance. Further columns tell how much that is: the correlation with each node's own time in place of the mean, the
one between the two halves of ``torch.profiler``'s runs, and the one over kinds of modules, each kind summed. One more
takes the times of the ranges, which contain the call from Python, as the times of ``ex.profile()`` do.
"""

from __future__ import annotations

import json
import re
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import fx

import regional_explorer as rx
from benchmarks.models import explore
from regional_explorer.record.grouping import grouped
from regional_explorer.record.timing import VariantName
from regional_explorer.torch_api.graphs import BoxedCall, boxed

MODELS = {"gpt": 256, "bert": 256, "albert": 256, "gpt2": 128, "llama": 256, "vit": 256, "dit": 32, "mamba": 64}
"""How often the batch of each model is repeated."""

BUDGET_S = 5.0
RUNS = 20
CALLS = 3
"""Calls in one recording of torch.profiler; the last one counts."""
RANGE = "op of "
LEAST_SHARE = 0.01
QUICKSTART = Path(__file__).parent.parent / "notebooks" / "quickstart.ipynb"


OpKey = tuple[str, str]
"""Graph and node."""


@dataclass
class OpTimes:
    """One op under ``torch.profiler``: its operators with their shapes, and the seconds of each run.

    ``ranges_s`` are those of the op's range, ``operators_s`` those of the operators inside.
    """

    operators: tuple[tuple[str, str], ...] = ()
    ranges_s: list[float] = field(default_factory=list)
    operators_s: list[float] = field(default_factory=list)


Times = dict[OpKey, OpTimes]


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
    spearman_of_ranges: float
    spearman_of_nodes: float
    spearman_of_halves: float
    kinds: int
    spearman_of_kinds: float

    def __str__(self) -> str:
        """Return the row of a Markdown table."""
        return (
            f"| {self.model} | {self.ops} | {self.rounds} | {self.sum_s * 1e3:.3g} ms | {self.whole_s * 1e3:.3g} ms "
            f"| {self.step_s * 1e3:.3g} ms | {self.sum_s / self.step_s:.3f} | {self.whole_s / self.step_s:.3f} "
            f"| {self.modules} | {self.spearman:.3f} | {self.spearman_of_ranges:.3f} "
            f"| {self.spearman_of_nodes:.3f} | {self.spearman_of_halves:.3f} | {self.kinds} "
            f"| {self.spearman_of_kinds:.3f} |"
        )


HEADER = (
    "| model | ops | rounds | ops | ops and around | aot_eager | ops/aot_eager | all/aot_eager (goal 0.9 to 1.1) "
    "| modules of 1 % | Spearman (goal ≥ 0.95) | with the calls from Python | each node's own time "
    "| torch.profiler with itself | kinds of modules | Spearman of kinds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def rows(models: Iterable[str] = ("quickstart", *MODELS)) -> Iterator[Row]:
    """Profile a training step of each model both ways."""
    for name in models:
        ex = quickstart() if name == "quickstart" else explore(name, training=True, repeats=MODELS[name])[0]
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
    profile = ex.session.profile
    assert profile is not None
    ours = {(op.graph, op.node): op.seconds for op in profile.ops}
    first, second = (medians({op: times.operators_s for op, times in half.items()}) for half in (before, after))
    ranges = medians({op: times.ranges_s + after[op].ranges_s for op, times in before.items()})
    operators = medians({op: times.operators_s + after[op].operators_s for op, times in before.items()})
    both = pd.DataFrame(
        {
            "ours": by_module(ex, ours),
            "theirs": by_module(ex, by_shapes(operators, before)),
            "ranges": by_module(ex, by_shapes(ranges, before)),
            "nodes": by_module(ex, operators),
            "first": by_module(ex, first),
            "second": by_module(ex, second),
        }
    ).fillna(0.0)
    kinds = both.groupby(lambda path: re.sub(r"(?<=\.)\d+|^\d+", "*", path)).sum()
    least_s = LEAST_SHARE * profile.seconds
    modules, kinds = both[both.ours >= least_s], kinds[kinds.ours >= least_s]
    return Row(
        name,
        len(profile.ops),
        profile.rounds,
        profile.seconds,
        profile.whole_s,
        profile.step_s,
        len(modules),
        spearman(modules),
        spearman(modules, other="ranges"),
        spearman(modules, other="nodes"),
        spearman(modules, "first", "second"),
        len(kinds),
        spearman(kinds),
    )


def spearman(both: pd.DataFrame, one: str = "ours", other: str = "theirs") -> float:
    """Return the rank correlation of two columns."""
    return float(both[one].rank().corr(both[other].rank())) if len(both) > 1 else 1.0


def medians(samples: Mapping[OpKey, Sequence[float]]) -> dict[OpKey, float]:
    """Return the median seconds of each op."""
    return {op: statistics.median(seconds) for op, seconds in samples.items()}


def by_shapes(seconds: Mapping[OpKey, float], times: Times) -> dict[OpKey, float]:
    """Return the seconds with those of equal operators on equal shapes replaced by their mean."""
    alike = grouped((times[op].operators, op) for op in seconds)
    means = {operators: statistics.mean(seconds[op] for op in ops) for operators, ops in alike.items()}
    return {op: means[times[op].operators] for op in seconds}


def by_module(ex: rx.Exploration, seconds: Mapping[OpKey, float]) -> pd.Series[float]:
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
    times: Times = defaultdict(OpTimes)
    for run in range(runs + 1):
        variant.select()
        for live in ex.live.program.capture.live:
            live.implementation = labelled[live.id]
        with torch.profiler.profile(record_shapes=True) as recorded:
            for _ in range(CALLS):
                with call.restoring():
                    outputs = variant.forward()
                    if variant.backward is not None:
                        variant.backward(outputs)
        events: Iterable[Any] = recorded.events() or ()
        last_call = {event.name: event for event in events if event.name.startswith(RANGE)}
        for name, event in last_call.items() if run else ():  # the first run warms up
            graph, _, node = name.removeprefix(RANGE).partition(":")
            operators = [child for child in event.cpu_children if child.name.startswith("aten::")]
            op_times = times[graph, node]
            op_times.operators = tuple((operator.name, str(operator.input_shapes)) for operator in operators)
            op_times.ranges_s.append(event.cpu_time_total * 1e-6)
            op_times.operators_s.append(sum(operator.cpu_time_total for operator in operators) * 1e-6)
    ex.live.program.select_regional(on=True)
    return times


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
