"""Times every op of a call, and the code around the graphs."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from msgspec import structs
from torch import fx

from regional_explorer.capture.live_graph import GraphState
from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError
from regional_explorer.measure.clock import Clock, clock_for, overhead_s
from regional_explorer.measure.rates import BURST_SHARE, STEPS, Rates, Work, rates_of, traffic_work
from regional_explorer.measure.rounds import RoundsResult, StopReason, run_rounds
from regional_explorer.measure.turns import in_state_of_call
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import Phase, VariantName
from regional_explorer.record.graph import Graph, Node
from regional_explorer.record.plan import Direction
from regional_explorer.record.profile import OUTSIDE, UNKNOWN_LINE, OpTime, Profile, ProfileKind, ProfileRow
from regional_explorer.torch_api.graphs import boxed, size_hint, writes_inputs
from regional_explorer.torch_api.hidden_state import storage_key

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
"""Two stamps of a clock."""


def spans_around_graphs(clock: Clock[Any], phases: Sequence[Any], runs: Sequence[Span]) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of each span of one call outside its graphs; the clock is synchronized.

    ``phases`` are stamps before the call, after its forward, and after its backward if it has one, ``runs`` the first
    and the last stamp of each run of a graph, in any order.
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


class OpTimer:
    """Runs the code of ``gm`` with a stamp before its first op and after every op.

    The time of an op is the time from one stamp to the next, so the ops add up to the time of the graph. It includes
    what the code does around the op: calling it from Python, and freeing values after their last use. ``calls`` has the
    stamps of each run in each call.
    """

    def __init__(self, gm: fx.GraphModule, clock: Clock[Any]) -> None:
        self._clock = clock
        self.calls: list[list[list[Any]]] = []
        calls, take_stamp = self.calls, clock.stamp

        def begin() -> None:
            calls[-1].append([take_stamp()])

        def stamp() -> None:
            calls[-1][-1].append(take_stamp())

        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        self._op_names: list[str] = []
        for node in gm.graph.nodes:
            if not self._op_names and node.op == "call_function":
                graph.call_function(begin)
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "call_function":
                graph.call_function(stamp)
                self._op_names.append(node.name)
        self.run = boxed(fx.GraphModule(gm, graph, class_name="Timed"))
        """Runs the graph on a list of arguments, which it empties."""

    def spans(self, stamps: Sequence[Any]) -> Iterator[tuple[str, float]]:
        """Yield the name and seconds of each op of a run, in order; the clock must be synchronized."""
        for name, (begin, end) in zip(self._op_names, pairwise(stamps), strict=True):
            yield name, self._clock.seconds(begin, end)


def bytes_moved(gm: fx.GraphModule) -> dict[str, int]:
    """Return the least bytes that each op of a captured graph reads and writes, by name, if its sizes are known."""
    moved = {}
    for node in (node for node in gm.graph.nodes if node.op == "call_function"):
        inputs = fx.node.map_arg((node.args, node.kwargs), lambda read: read.meta.get("val"))
        with suppress(ValueError):  # a size that is known only in a run
            moved[node.name] = moved_bytes(node.target, inputs, node.meta.get("val"))
    return moved


def moved_bytes(target: Any, inputs: Any, outputs: Any) -> int:
    """Return the least bytes that an op reads and writes: each input and output once; a view moves none."""
    if target is operator.getitem:
        return 0
    read, written = list(dense_tensors(inputs)), list(dense_tensors(outputs))
    input_storages = {storage_key(tensor) for tensor in read}
    if not writes_inputs(target) and all(storage_key(tensor) in input_storages for tensor in written):
        return 0
    return sum(map(tensor_bytes, read + written))


def dense_tensors(values: Any) -> list[torch.Tensor]:
    """Return the dense tensors among nested arguments or results."""
    leaves: list[Any] = []
    fx.node.map_aggregate(values, leaves.append)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided]


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes behind a tensor; elements that a broadcast repeats count once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size_hint(size) if size_hint(stride) else min(size_hint(size), 1)
    return elements * tensor.element_size()


LEAST_OVERHEADS = 10.0
"""An op is too short for a figure of its own if it takes less than this many times the overhead of a stamp."""

OpKey = tuple[str, str]
"""The graph and name of an op; for time outside of the graphs, ``NO_GRAPH`` and the name of the span."""
NO_GRAPH = ""


STAMPED = "with stamps"
STATE_CHANGED = "settings or modes of modules were changed meanwhile"


def profile(variants: Variants, budget_s: float, device: str, run: Run) -> Profile | None:
    """Return the eager time of every op of the captured graphs, or None if cancelled before the first round.

    It ends if settings or modes change meanwhile: the call would be traced again, and the profile be of two states.

    Raises:
        MeasureError: the budget is invalid, or the call runs no op of the captured graphs.
        KeyboardInterrupt: it was interrupted before the first round.
    """
    clock, rates, capture = clock_for(device), rates_of(device), variants.program.capture
    variants.program.trace_present_state()
    state = capture.state
    steady = replace(run.part(0.0, 1.0, "profiling: "), cancelled=lambda: run.cancelled() or capture.state != state)
    with capture.generated.collecting():
        stamped = _StampedCall(clock, {live.id: OpTimer(live.gm, clock) for live in capture.live})
    graphs = capture.graphs
    moved = {(live.id, op): size for live in capture.live for op, size in bytes_moved(live.gm).items()}
    aot_eager = variants.get(VariantName.AOT_EAGER)

    def before() -> None:
        aot_eager.before()
        for timer in stamped.timers.values():
            timer.calls.append([])

    def select(*, stamps: bool) -> None:
        for timer in stamped.timers.values():
            timer.calls.clear()
        aot_eager.select()
        for live in capture.live:
            if stamps and live.id in stamped.timers:
                live.enter(GraphState.REPLACED, stamped.timers[live.id].run)

    with in_state_of_call(variants, steady) as turn:
        calls = (
            variants.get(VariantName.EAGER),
            replace(aot_eager, select=lambda: select(stamps=False)),
            replace(aot_eager, name=STAMPED, select=lambda: select(stamps=True), before=before, parts=stamped.parts),
        )
        rounds = run_rounds(
            calls,
            budget_s,
            baseline="",
            first_calls=1,
            clock=clock,
            context=steady,
            turn=turn,
            between=lambda: rates.measure([_copy_work(max([STEPS[0], *moved.values()]))], budget_s * BURST_SHARE),
        )
    if rounds.dropped:
        raise MeasureError(" ".join(map(str, rounds.dropped.values())))
    if STAMPED not in rounds.parts:
        rounds.stopped.raise_interrupt()
        if not run.cancelled() and steady.cancelled():
            raise MeasureError(f"The profile ended before its first round: {STATE_CHANGED}. Profile again.")
        return None
    found = profile_of(rounds, graphs, moved, rates, float(np.median(stamped.overheads_s)))
    ended_early = rounds.stopped is StopReason.CANCELLED and not run.cancelled()
    return structs.replace(found, stopped=STATE_CHANGED) if ended_early else found


@dataclass
class _StampedCall:
    """The call in which a timer runs each graph; ``overheads_s`` are the seconds of a stamp, one per sample."""

    clock: Clock[Any]
    timers: Mapping[str, OpTimer]
    overheads_s: list[float] = field(default_factory=list)

    def parts(self, number: int, phases: Sequence[Any]) -> Mapping[OpKey, float]:
        """Return the seconds of each op and of the code around the graphs in one call, without the stamps' own."""
        overhead = overhead_s(self.clock)
        self.overheads_s.append(overhead)
        seconds: defaultdict[OpKey, float] = defaultdict(float)
        runs = [(graph, timer, stamps) for graph, timer in self.timers.items() for stamps in timer.calls[number]]
        if not runs:
            raise MeasureError("The call runs no op of the captured graphs, so there is nothing to profile.")
        for graph, timer, stamps in runs:
            for name, span_s in timer.spans(stamps):
                seconds[graph, name] += max(span_s - overhead, 0.0)
        for name, span_s in spans_around_graphs(self.clock, phases, [(stamps[0], stamps[-1]) for _, _, stamps in runs]):
            seconds[NO_GRAPH, name] += max(span_s - overhead, 0.0)
        return seconds


def profile_of(
    rounds: RoundsResult, graphs: Iterable[Graph], moved: Mapping[OpKey, int], rates: Rates, overhead: float
) -> Profile:
    """Return the profile from rounds; ``moved`` has the bytes of each op, ``overhead`` is the seconds of a stamp."""
    parts = rounds.parts[STAMPED]
    figures = {key: parts.figure([key]) for key in parts.seconds if key[0] != NO_GRAPH}
    ops = {
        key: OpTime(key[0], key[1], seconds, too_short=seconds.value < LEAST_OVERHEADS * overhead)
        for key, seconds in figures.items()
    }
    whole_s = parts.mean(parts.seconds)
    keys_by_row = _keys_by_row(ops, {graph.id: graph.by_name for graph in graphs}, overhead)
    keys_by_row |= {(ProfileKind.AROUND, key[1]): [key] for key in parts.seconds if key not in ops}
    rows = []
    for (kind, name), keys in keys_by_row.items():
        seconds = parts.figure(keys)
        backward_s = parts.mean(
            key for key in keys if Direction.of_graph(key[0]) is Direction.BACKWARD or key[1] in _BACKWARD_SPANS
        )
        rows.append(
            ProfileRow(
                kind=kind,
                name=name,
                seconds=seconds,
                forward_s=max(seconds.value - backward_s, 0.0),
                backward_s=backward_s,
                share=seconds.value / whole_s if whole_s else 0.0,
                ops=0 if kind is ProfileKind.AROUND else len(keys),
                moved_bytes=sum(moved.get(key, 0) for key in keys),
                copy_s=sum(rates.seconds(_copy_work(moved.get(key, 0))) for key in keys),
            )
        )
    kinds = list(ProfileKind)
    step_s = rounds.samples[VariantName.AOT_EAGER]
    whole_phase = Phase.STEP if Phase.STEP in step_s else Phase.FORWARD
    return Profile(
        ops=tuple(ops.values()),
        rows=tuple(sorted(rows, key=lambda row: (kinds.index(row.kind), -row.seconds.value))),
        seconds=parts.figure(ops),
        step=rounds.time(VariantName.AOT_EAGER, whole_phase),
        overhead_s=overhead,
        rounds=rounds.rounds - rounds.noise.left_out,
        stopped=str(rounds.stopped),
        bandwidth=rates.largest_copy_rate(),
        noise=rounds.noise,
        eager=rounds.time(VariantName.EAGER, whole_phase) if VariantName.EAGER in rounds.samples else None,
    )


def _copy_work(moved: int) -> Work:
    """Return the work of a copy that moves ``moved`` bytes, half read and half written."""
    return traffic_work(int(moved) // 2, int(moved) // 2)


def _keys_by_row(
    ops: Mapping[OpKey, OpTime], graphs: Mapping[str, Mapping[str, Node]], overhead: float
) -> dict[tuple[ProfileKind, str], list[OpKey]]:
    """Return the ops of each row; ops that are too short for a figure of their own share one row."""
    rows: defaultdict[tuple[ProfileKind, str], list[OpKey]] = defaultdict(list)
    short_name = f"ops shorter than {LEAST_OVERHEADS * overhead * 1e6:.1f} µs each"
    for key, op in ops.items():
        node = graphs[op.graph].get(op.node)
        modules = dict.fromkeys(call.path for call in node.modules if call.path) if node else ()
        for module in modules or (OUTSIDE,):
            rows[ProfileKind.MODULE, module].append(key)
        rows[ProfileKind.LINE, str(node.source) if node and node.source else UNKNOWN_LINE].append(key)
        rows[ProfileKind.OP, short_name if op.too_short else node.target if node else op.node].append(key)
    return dict(rows)
