"""Times every op of a call, and what runs around the graphs."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import fx

from regional_explorer.compiler.run import Executor, Run
from regional_explorer.errors import MeasureError
from regional_explorer.measure.clock import Clock, TimedCall, clock_for, gc_paused
from regional_explorer.measure.machine import Watch, fixed_work
from regional_explorer.measure.rates import STEPS, Rates, Work, rates_of, traffic
from regional_explorer.measure.rounds import CONFIDENCE, Stop, check_budget
from regional_explorer.measure.variants import Variants
from regional_explorer.record.figure import Noise
from regional_explorer.record.graph import Graph, Node
from regional_explorer.record.plan import Direction
from regional_explorer.record.profile import OUTSIDE, UNKNOWN_LINE, OpTime, Profile, ProfileKind, ProfileRow
from regional_explorer.record.statistics import MiddleRounds
from regional_explorer.record.timing import Phase, VariantName
from regional_explorer.torch_api.graphs import BoxedCall, boxed

_FORWARD_SPANS = (
    "before the first graph: the module's call, Dynamo's guards, AOTAutograd's wrappers",
    "between graphs: Python that was not traced",
    "after the last forward graph: AOTAutograd's wrappers",
)
_BACKWARD_SPANS = (
    "before the first backward graph: autograd's engine",
    "between backward graphs: autograd's engine",
    "after the last backward graph: autograd's engine",
)

Span = tuple[Any, Any]
"""Two marks of a clock."""


def around(clock: Clock[Any], phases: Sequence[Any], runs: Sequence[Span]) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of each span of one call outside its graphs.

    Args:
        clock: the clock of the marks, synchronized.
        phases: marks before the call, after its forward, and after its backward if it has one.
        runs: the first and the last mark of each run of a graph, in any order.
    """
    call_begin = phases[0]
    ordered_runs = sorted(runs, key=lambda run: clock.seconds(call_begin, run[0]))
    for span_names, (start, end) in zip((_FORWARD_SPANS, _BACKWARD_SPANS), pairwise(phases), strict=False):
        start_s, end_s = clock.seconds(call_begin, start), clock.seconds(call_begin, end)
        phase_runs = [run for run in ordered_runs if start_s <= clock.seconds(call_begin, run[0]) < end_s]
        ends = [start, *(last for _, last in phase_runs)]
        begins = [*(first for first, _ in phase_runs), end]
        for index, (last, first) in enumerate(zip(ends, begins, strict=True)):
            name = span_names[0] if index == 0 else span_names[2] if index == len(phase_runs) else span_names[1]
            yield name, clock.seconds(last, first)


_OVERHEAD_MARKS = 200


class OpTimer:
    """Runs the code of ``gm`` with a mark before its first op and after every op.

    The time of an op is that from one mark to the next, so the ops add up to the time of the graph. It includes what
    the code does around the op: calling it from Python, and freeing values after their last use.
    """

    def __init__(self, gm: fx.GraphModule, clock: Clock[Any]) -> None:
        self._clock = clock
        self._marks: list[Any] = []
        marks, take_mark = self._marks, clock.mark

        def mark() -> None:
            marks.append(take_mark())

        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        self._op_names: list[str] = []
        for node in gm.graph.nodes:
            if not self._op_names and node.op == "call_function":
                graph.call_function(mark)
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "call_function":
                graph.call_function(mark)
                self._op_names.append(node.name)
        self.run = boxed(fx.GraphModule(gm, graph, class_name="Timed"))
        """Runs the graph on a list of arguments, which it empties."""

    def clear(self) -> None:
        """Discard the marks."""
        self._marks.clear()

    def runs(self) -> Iterator[tuple[Any, Any]]:
        """Yield the first and the last mark of each run."""
        return ((marks[0], marks[-1]) for marks in self._marks_of_runs())

    def spans(self) -> Iterator[tuple[str, float]]:
        """Yield name and seconds of each op that ran, in order, once the clock is synchronized."""
        for marks in self._marks_of_runs():
            for name, (begin, end) in zip(self._op_names, pairwise(marks), strict=True):
                yield name, self._clock.seconds(begin, end)

    def _marks_of_runs(self) -> Iterator[list[Any]]:
        per_run = len(self._op_names) + 1
        return (self._marks[start : start + per_run] for start in range(0, len(self._marks) - per_run + 1, per_run))


def overhead_s(clock: Clock[Any]) -> float:
    """Return the seconds that a mark takes: those between two marks with nothing in between."""
    marks: list[Any] = []

    def mark() -> None:
        marks.append(clock.mark())

    for _ in range(_OVERHEAD_MARKS):
        mark()
    clock.synchronize()
    return statistics.median(clock.seconds(begin, end) for begin, end in pairwise(marks))


class OpBytes(fx.Interpreter):
    """Runs a graph op by op; ``moved`` has the bytes that each op moves, by name."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.moved: dict[str, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node."""
        if n.op != "call_function":
            return super().run_node(n)
        inputs = self.fetch_args_kwargs_from_env(n)
        result = super().run_node(n)
        target: Any = n.target
        self.moved[n.name] = moved_bytes(target, inputs, result)
        return result


def moved_bytes(target: Callable[..., Any], inputs: Any, outputs: Any) -> int:
    """Return the least bytes that an op reads and writes: each input and output once; a view moves none."""
    if target is operator.getitem:
        return 0
    read, written = list(_dense_tensors(inputs)), list(_dense_tensors(outputs))
    input_storages = {tensor.untyped_storage().data_ptr() for tensor in read}
    schema = getattr(target, "_schema", None)
    mutates = schema is not None and schema.is_mutable
    if not mutates and all(tensor.untyped_storage().data_ptr() in input_storages for tensor in written):
        return 0
    return sum(map(_tensor_bytes, read)) + sum(map(_tensor_bytes, written))


def _dense_tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the dense tensors among nested arguments or results."""
    if isinstance(values, torch.Tensor):
        if values.layout is torch.strided:
            yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _dense_tensors(value)
    elif isinstance(values, Mapping):
        yield from _dense_tensors(list(values.values()))


def _tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes behind a tensor; elements that a broadcast repeats count once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else min(size, 1)
    return elements * tensor.element_size()


LEAST_OVERHEADS = 10.0
"""An op is too short for a figure of its own if it takes less than this many times the overhead of a mark."""

OpKey = tuple[str, str]
"""Graph and name of an op; for time outside of the graphs, ``NO_GRAPH`` and the name of the span."""
NO_GRAPH = ""


def profile(variants: Variants, budget_s: float, device: str, context: Run) -> Profile | None:
    """Return the eager time of every op of the captured graphs, or None if cancelled before the first round.

    Raises:
        MeasureError: the budget is invalid, or the call runs no op of the captured graphs.
        KeyboardInterrupt: it was interrupted before the first round.
    """
    check_budget(budget_s)
    clock = clock_for(device)
    run = _ProfileRun(variants, clock, rates_of(device), Watch(clock, fixed_work(clock)))
    try:
        stopped = run.go(budget_s, context)
    except CancelledError:
        stopped = Stop.CANCELLED
    except KeyboardInterrupt:
        stopped = Stop.INTERRUPTED
    finally:
        variants.program.select_regional(on=True)
    if not run.rounds:
        stopped.raise_interrupt()
        return None
    graphs = {graph.id: graph for graph in variants.program.capture.graphs}
    return _summarize(run, graphs, budget_s, stopped)


@dataclass
class _ProfileRun:
    """The rounds so far: seconds by op, of the call without marks, and of a mark."""

    variants: Variants
    clock: Clock[Any]
    rates: Rates
    watch: Watch
    rounds: list[dict[OpKey, float]] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    overheads_s: list[float] = field(default_factory=list)
    moved: dict[OpKey, int] = field(default_factory=dict)
    timers: dict[str, OpTimer] = field(default_factory=dict)

    def go(self, budget_s: float, context: Run) -> Stop:
        """Measure rounds until the budget is spent; return why it ended."""
        capture = self.variants.program.capture
        with capture.generated.collected():
            self.timers = {live.id: OpTimer(live.gm, self.clock) for live in capture.live}
        began_s = self.clock.now()
        context.progress("profiling: first round", 0.0)
        # The first round warms up, and counts the bytes that ops move. It is used only if the budget allows no other.
        context.executor.run_timed(self._count_bytes)
        context.progress("measuring how fast this machine copies", 0.0)
        context.executor.run_timed(self._measure_rates)
        self.watch.begin()
        first_s = self._run_timed_round(context.executor)
        while self.rounds:
            spent_s = self.clock.now() - began_s
            if context.cancelled():
                return Stop.CANCELLED
            if spent_s + (first_s if len(self.rounds) == 1 else spent_s / len(self.rounds)) > budget_s:
                context.executor.run_timed(lambda: self.watch.look(len(self.rounds)))
                context.executor.run_timed(self._measure_rates)
                return Stop.BUDGET
            self._run_timed_round(context.executor)
            context.progress(f"profiling: round {len(self.rounds)}", min(1.0, (self.clock.now() - began_s) / budget_s))
        return Stop.FAILED

    def used_rounds(self) -> tuple[Sequence[int], Noise]:
        """Return the numbers of the rounds that are used: not the first of several, and none that was disturbed."""
        quiet, noise = self.watch.quiet(len(self.rounds))
        return [number for number in np.flatnonzero(quiet).tolist() if number or len(self.rounds) == 1], noise

    def _run_timed_round(self, executor: Executor) -> float:
        began_s = self.clock.now()
        executor.run_timed(self._profile_round)
        return self.clock.now() - began_s

    def _profile_round(self) -> None:
        """Run the call once without and once with marks, in alternating order, and measure the overhead of a mark."""
        aot_eager = self.variants.get(VariantName.AOT_EAGER)
        self.watch.look(len(self.rounds))
        with self.variants.call.restoring():
            for with_marks in (False, True) if len(self.rounds) % 2 else (True, False):
                if with_marks:
                    phase_marks = self._run_with(aot_eager, {name: timer.run for name, timer in self.timers.items()})
                else:
                    whole_phase = Phase.FORWARD if aot_eager.backward is None else Phase.STEP
                    step_s = aot_eager.sample(self.clock, 1)[whole_phase]
            overhead = overhead_s(self.clock)
        seconds: dict[OpKey, float] = {}
        for graph_id, timer in self.timers.items():
            for name, span_s in timer.spans():
                seconds[graph_id, name] = seconds.get((graph_id, name), 0.0) + max(span_s - overhead, 0.0)
        if not seconds:
            raise MeasureError("The call runs no op of the captured graphs, so there is nothing to profile.")
        runs = [run for timer in self.timers.values() for run in timer.runs()]
        for name, span_s in around(self.clock, phase_marks, runs):
            seconds[NO_GRAPH, name] = seconds.get((NO_GRAPH, name), 0.0) + max(span_s - overhead, 0.0)
        for timer in self.timers.values():
            timer.clear()
        self.rounds.append(seconds)
        self.steps_s.append(step_s)
        self.overheads_s.append(overhead)

    def _count_bytes(self) -> None:
        """Run the call once op by op, to count the bytes that each op moves."""
        counters = {live.id: OpBytes(live.gm) for live in self.variants.program.capture.live}
        with self.variants.call.restoring():
            self._run_with(
                self.variants.get(VariantName.AOT_EAGER),
                {name: counter.boxed_run for name, counter in counters.items()},
            )
        self.moved = {(graph, op): size for graph, counter in counters.items() for op, size in counter.moved.items()}

    def _measure_rates(self) -> None:
        """Measure the rates that bound the ops, before and after the rounds."""
        self.rates.measure([_copying(max(self.moved.values(), default=STEPS[0]))])

    def _run_with(self, variant: TimedCall, implementations: Mapping[str, BoxedCall]) -> Sequence[Any]:
        """Run the call with other implementations of the captured graphs; return the marks around its phases."""
        variant.select()
        capture = self.variants.program.capture
        with capture.running(lambda live: implementations.get(live.id, live.implementation)), gc_paused():
            phase_marks = variant.marked_call(self.clock)
            self.clock.synchronize()
        return phase_marks


def _summarize(run: _ProfileRun, graphs: Mapping[str, Graph], budget_s: float, stopped: Stop) -> Profile:
    used, noise = run.used_rounds()
    rounds = [run.rounds[number] for number in used]
    keys = list(dict.fromkeys(key for seconds in rounds for key in seconds))
    samples = np.array([[seconds.get(key, 0.0) for key in keys] for seconds in rounds])
    middle_rounds = MiddleRounds.of(samples.sum(axis=1), CONFIDENCE, seed=0)
    whole_s = middle_rounds.mean(samples.sum(axis=1))
    overhead = float(np.median(run.overheads_s))
    nodes_by_graph = {graph.id: graph.by_name() for graph in graphs.values()}
    moved = np.array([run.moved.get(key, 0) for key in keys])
    ops: dict[int, OpTime] = {}
    for column, (graph, name) in enumerate(keys):
        if graph != NO_GRAPH:
            seconds, low, high = middle_rounds.figures(samples[:, column])
            ops[column] = OpTime(
                graph, name, seconds, low, high, int(moved[column]), too_short=seconds < LEAST_OVERHEADS * overhead
            )
    total_s, total_low_s, total_high_s = middle_rounds.figures(samples[:, list(ops)].sum(axis=1))
    copying_s = np.array([run.rates.seconds(_copying(size)) for size in moved])
    row_columns = _columns_by_row(ops, nodes_by_graph, overhead)
    row_columns |= {(ProfileKind.AROUND, name): [column] for column, (_, name) in enumerate(keys) if column not in ops}
    is_backward = np.array([Direction.of_graph(graph) is Direction.BACKWARD for graph, _ in keys])
    rows = []
    for (kind, name), columns in row_columns.items():
        seconds, low, high = middle_rounds.figures(samples[:, columns].sum(axis=1))
        backward_s = middle_rounds.mean(samples[:, [column for column in columns if is_backward[column]]].sum(axis=1))
        rows.append(
            ProfileRow(
                kind=kind,
                name=name,
                seconds=seconds,
                low_s=low,
                high_s=high,
                forward_s=max(seconds - backward_s, 0.0),
                backward_s=backward_s,
                share=seconds / whole_s if whole_s else 0.0,
                ops=0 if kind is ProfileKind.AROUND else len(columns),
                moved_bytes=int(moved[columns].sum()),
                copy_s=float(copying_s[columns].sum()),
            )
        )
    kinds = list(ProfileKind)
    return Profile(
        ops=tuple(ops.values()),
        rows=tuple(sorted(rows, key=lambda row: (kinds.index(row.kind), -row.seconds))),
        seconds=total_s,
        low_s=total_low_s,
        high_s=total_high_s,
        step_s=float(np.median([run.steps_s[number] for number in used])),
        overhead_s=overhead,
        rounds=len(rounds),
        budget_s=budget_s,
        stopped=str(stopped),
        confidence=CONFIDENCE,
        bandwidth=run.rates.copies(),
        noise=noise,
    )


def _copying(moved: int) -> Work:
    """Return the work of copying, by which so many bytes are moved."""
    return traffic(int(moved) // 2, int(moved) // 2)


def _columns_by_row(
    ops: Mapping[int, OpTime], nodes_by_graph: Mapping[str, Mapping[str, Node]], overhead: float
) -> dict[tuple[ProfileKind, str], list[int]]:
    """Return the indices of the ops of each row; ops that are too short for a figure of their own share one row."""
    columns_by_row: dict[tuple[ProfileKind, str], list[int]] = {}
    short_name = f"ops shorter than {LEAST_OVERHEADS * overhead * 1e6:.1f} µs each"
    for column, op in ops.items():
        node = nodes_by_graph[op.graph].get(op.node)
        modules = dict.fromkeys(call.path for call in node.modules if call.path) if node else ()
        for module in modules or (OUTSIDE,):
            columns_by_row.setdefault((ProfileKind.MODULE, module), []).append(column)
        line = str(node.source) if node and node.source else UNKNOWN_LINE
        columns_by_row.setdefault((ProfileKind.LINE, line), []).append(column)
        name = short_name if op.too_short else node.target if node else op.node
        columns_by_row.setdefault((ProfileKind.OP, name), []).append(column)
    return columns_by_row
