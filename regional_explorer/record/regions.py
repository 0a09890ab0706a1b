"""The state, cost and gain of each region."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from regional_explorer.record import Record
from regional_explorer.record.artifact import ArtifactCompile
from regional_explorer.record.benchmark import NumericsVerdict, PartitionTiming, Phase, VariantName, Verdict
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Direction, Region
from regional_explorer.record.session import Session, derived
from regional_explorer.record.statistics import median_figure, paired_gaps


class RegionTiming(Record, frozen=True):
    """Run time of one region in one phase, per call: eager against compiled, each partition measured alone.

    Its bounds assume that all partitions are at their bounds at once, so they are wider than a CI of the sum.
    """

    region: str
    phase: Phase
    """The part of the call; a step is forward + backward."""
    eager_s: Figure
    """The sum over its partitions."""
    compiled_s: Figure | None
    """The sum over its partitions, eager for those without an artifact; None if no partition is compiled."""
    speedup: Figure | None
    """Eager ÷ compiled; also None if the numerics check of a partition failed."""
    verdict: Verdict
    """What the samples allow to conclude."""
    numerics: NumericsVerdict | None
    """The worst numerics verdict of its artifacts."""
    worst_tensor: str
    """The output with the largest error."""
    compile_cold_s: float
    """The seconds waited for cold compiles of its own artifacts; a shared artifact counts where it was compiled."""
    compile_warm_s: float
    """The seconds waited for its own artifacts that a cache had."""
    partitions: int
    """How many partitions it has."""
    measured: int
    """How many of its partitions have samples of their own."""
    kept_share: float | None = None
    """The share of the regions' gain alone that the call keeps; None unless the call was measured to be faster."""
    exceeds_call: bool = False
    """Whether it saves more, measured alone, than the program's own call takes, or takes longer, without interval."""
    over_trace: bool = False
    """Whether the traced ops take longer than the program's own call, so that the speedup is over the traced ops."""

    @property
    def gain_s(self) -> Figure | None:
        """Seconds that compiling saves in each call; negative if it is slower. None without a speedup."""
        eager_s = self.eager_s.value
        return None if self.speedup is None else self.speedup.map(lambda ratio: eager_s - eager_s / ratio)

    @property
    def gain_of_call_s(self) -> Figure | None:
        """``gain_s``, as a part of what the call takes; None if it exceeds that, as then it is no part of it."""
        return None if self.exceeds_call else self.gain_s

    @property
    def compile_s(self) -> float:
        """Seconds that were waited for the compiles of its own artifacts."""
        return self.compile_cold_s + self.compile_warm_s

    @property
    def cache(self) -> str:
        """``cold``, ``warm``, ``cold+warm``, or empty if it has no artifact of its own."""
        return "+".join(
            word for word, seconds in (("cold", self.compile_cold_s), ("warm", self.compile_warm_s)) if seconds > 0.0
        )

    @property
    def pays_off_after_calls(self) -> float | None:
        """The number of calls after which the compile pays off, given the share of its gain that the call keeps.

        Infinite if it never pays off: if the samples show no difference, there is no gain. None if that is not known.
        """
        if self.verdict is Verdict.FASTER and self.kept_share is None:
            return None
        return self.calls_to_pay_off(self.kept_share or 0.0)

    def calls_to_pay_off(self, kept_share: float) -> float | None:
        """Return the number of calls after which the compile pays off if the call keeps ``kept_share`` of the gain."""
        gain = self.gain_s
        if gain is None or self.verdict.is_unsure:
            return None
        left_s = kept_share * gain.value if self.verdict is Verdict.FASTER else 0.0
        calls = self.compile_s / left_s if left_s > 0.0 else math.inf
        return float(math.ceil(calls)) if math.isfinite(calls) else math.inf


@derived
def region_timings(session: Session) -> tuple[RegionTiming, ...]:
    """Return one row per region and phase, in the order of the plan, for regions whose partitions were all measured.

    Late graphs count only if they were measured: they may have been traced after the call was measured.
    """
    timings = {timing.partition: timing for timing in session.partition_timings}
    rows = []
    for region in session.plan.regions:
        partitions = [
            part
            for part in session.partitions
            if part.region == region.name and (part.id in timings or part.graph not in session.late_graphs)
        ]
        for phase in Phase:
            parts = [part for part in partitions if phase in (Phase.STEP, Phase(Direction.of_graph(part.graph)))]
            measured = parts and all(part.id in timings for part in parts)
            if measured and (phase is not Phase.STEP or session.grad):
                compiles = map(session.compile_of, parts)
                rows.append(_summed_timing(region.name, phase, [timings[part.id] for part in parts], compiles))
    whole_s, alone_s = whole_gain_s(session), gain_alone_s(row for row in rows if row.phase is session.whole_phase)
    kept_share = None if whole_s is None else min(1.0, whole_s / alone_s) if alone_s > 0.0 else 0.0
    return tuple(_limited_to_call(session, replace(row, kept_share=kept_share)) for row in rows)


def _limited_to_call(session: Session, row: RegionTiming) -> RegionTiming:
    """Return the row with what it exceeds of the program's own call, which may run other ops than were traced."""
    eager = next((t for t in session.timings if t.variant == VariantName.EAGER and t.phase is row.phase), None)
    if eager is None:
        return row
    own, whole = row.eager_s.bounds, eager.median_s.bounds
    longer = own is not None and whole is not None and own[0] > whole[1]
    part_s = row.eager_s if own is None else row.gain_s
    return replace(
        row,
        exceeds_call=part_s is not None and part_s.value > eager.median_s.value,
        over_trace=longer and tracing_cost_s(session, row.phase) is not None,
    )


def tracing_cost_s(session: Session, phase: Phase) -> Figure | None:
    """Return the seconds by which the traced graphs, uncompiled, exceed the eager program in each call.

    None unless they were measured to be slower than eager in the same rounds.
    """
    if session.is_outdated:
        return None
    timings = {timing.variant: timing for timing in session.timings if timing.phase is phase}
    eager, traced = timings.get(VariantName.EAGER), timings.get(VariantName.AOT_EAGER)
    if eager is None or traced is None or traced.verdict is not Verdict.SLOWER:
        return None
    gap_s = median_figure(paired_gaps(traced.samples_s, eager.samples_s))
    return gap_s if gap_s.bounds is not None else None


class CallPart(Record, frozen=True):
    """A part of the difference between the plan's call and eager's: the parts add up to it."""

    part: str
    """``trace``, the name of a region, or ``rest``."""
    seconds: float
    """Seconds that it adds to each call; negative if it saves."""
    region: str | None = None


@derived
def call_parts(session: Session) -> tuple[CallPart, ...]:
    """Return the parts that add up to what the plan's call takes more than eager's, by the medians that are shown.

    They are the trace's cost, what each region saves by its row, and the rest: effects of regions on each other, and
    the spread of all figures; without times of the trace, its cost is in the rest. Empty unless all are known.
    """
    timings = {} if session.is_outdated else session.whole_timings
    eager, plan, traced = map(timings.get, (VariantName.EAGER, VariantName.REGIONAL, VariantName.AOT_EAGER))
    gains = {timing.region: timing.gain_of_call_s for timing in region_timings_of_whole_call(session).values()}
    known = {region: gain.value for region, gain in gains.items() if gain is not None}
    if (
        eager is None
        or plan is None
        or not known
        or known.keys() != {r.name for r in session.plan.regions if r.enabled}
    ):
        return ()
    trace = [] if traced is None else [CallPart("trace", traced.median_s.value - eager.median_s.value)]
    parts = [*trace, *(CallPart(region, -saved_s, region) for region, saved_s in known.items())]
    rest_s = plan.median_s.value - eager.median_s.value - sum(part.seconds for part in parts)
    return (*parts, CallPart("everything else" if trace else "trace and everything else", rest_s))


def whole_gain_s(session: Session) -> float | None:
    """Return the seconds that the plan saves in each call; None unless the whole call was measured to be faster."""
    regional, eager = map(session.whole_timings.get, (VariantName.REGIONAL, VariantName.EAGER))
    if session.is_outdated or regional is None or eager is None or regional.verdict is not Verdict.FASTER:
        return None
    ratio = 0.0 if regional.speedup is None else regional.speedup.value
    return eager.median_s.value * (1.0 - 1.0 / ratio) if ratio > 1.0 else None


def gain_alone_s(rows: Iterable[RegionTiming]) -> float:
    """Return the total gain in seconds of the regions that are faster, each measured alone."""
    return sum(row.gain_s.value for row in rows if row.gain_s and row.verdict is Verdict.FASTER)


def is_one_region(session: Session) -> bool:
    """Return whether one partition per graph has all ops of the call, so that there is no larger region to mark."""
    graphs = [
        graph
        for graph in session.graphs
        if graph.kind is not GraphKind.DYNAMO and graph.parent is None and graph.id not in session.late_graphs
    ]
    nodes = grouped((part.graph, {*part.nodes}) for part in session.partitions)
    return bool(graphs) and all(
        len(cut := nodes.get(graph.id, [])) == 1 and {node.name for node in graph.ops} <= cut[0] for graph in graphs
    )


def region_timings_of_whole_call(session: Session) -> Mapping[str, RegionTiming]:
    """Return the timing of each region in the whole call: in the step, or in the forward without gradients."""
    return {timing.region: timing for timing in region_timings(session) if timing.phase is session.whole_phase}


def _summed_timing(
    region: str, phase: Phase, chosen: Sequence[PartitionTiming], compiles: Iterable[ArtifactCompile | None]
) -> RegionTiming:
    compiled = [(timing, timing.compiled) for timing in chosen if timing.compiled is not None]
    failed = [timing for timing, own in compiled if own.numerics.withholds_speedup]
    speedup = None if failed or not compiled else _summed_speedup(chosen)
    costs = [cost for cost in compiles if cost is not None]
    numerics = NumericsVerdict.worst(own.numerics for _, own in compiled)
    worst = [timing.worst_tensor for timing, own in compiled if own.numerics is numerics and timing.worst_tensor]
    return RegionTiming(
        region=region,
        phase=phase,
        eager_s=sum((timing.eager.median_s * timing.runs for timing in chosen), exactly(0.0)),
        compiled_s=sum(((timing.compiled or timing.eager).median_s * timing.runs for timing in chosen), exactly(0.0))
        if compiled
        else None,
        speedup=speedup,
        verdict=Verdict.WITHHELD if failed else _region_verdict({own.verdict for _, own in compiled}, speedup),
        numerics=numerics,
        worst_tensor=next(iter(worst), ""),
        compile_cold_s=sum(cost.waited_s for cost in costs if cost.cache != "warm"),
        compile_warm_s=sum(cost.waited_s for cost in costs if cost.cache == "warm"),
        partitions=len(chosen),
        measured=sum(timing.measured_as is None for timing in chosen),
    )


def _summed_speedup(chosen: Sequence[PartitionTiming]) -> Figure | None:
    """Return the speedup of the summed time from the partitions' speedups; None if one is missing, or nothing runs."""
    eager_s, compiled_s = 0.0, exactly(0.0)
    for timing in chosen:
        speedup = exactly(1.0) if timing.compiled is None else timing.compiled.speedup
        if speedup is None:
            return None
        own_s = timing.eager.median_s.value * timing.runs
        eager_s, compiled_s = eager_s + own_s, compiled_s + own_s / speedup
    return eager_s / compiled_s if compiled_s.value else None


def _region_verdict(verdicts: set[Verdict], speedup: Figure | None) -> Verdict:
    """Return the verdict over all partitions: the bounds and at least one partition must agree with it."""
    bounds, busy = None if speedup is None else speedup.bounds, Verdict.BUSY in verdicts
    if len(verdicts) == 1:
        return next(iter(verdicts))
    if bounds is None or Verdict.UNKNOWN in verdicts:
        return Verdict.without_interval(busy=busy)
    low, high = bounds
    if Verdict.FASTER in verdicts and low > 1.0:
        return Verdict.FASTER
    if Verdict.SLOWER in verdicts and high < 1.0:
        return Verdict.SLOWER
    return Verdict.without_winner(low, high, busy=busy)


class RegionSummary(Record, frozen=True):
    """One region: the request, its partitions and state, and its figures."""

    number: int
    """Its index in the plan."""
    region: Region
    """The region of the plan."""
    state: State
    """The state of its worst partition."""
    note: str
    """The explanation of the state."""
    ops_forward: int
    """How many ops it has in the forward."""
    ops_backward: int
    """How many ops it has in the backward."""
    partitions: tuple[Partition, ...]
    compile_s: float | None
    """The seconds waited for compiles of its own artifacts; None if it has none."""
    timing: RegionTiming | None
    """Its time in the whole call; None if it was not measured in its current state."""
    diagnostics: tuple[Diagnostic, ...]
    """The diagnostics about it."""
    same_code: str = ""
    """The first region before it whose pieces have the same generated code; empty without one."""

    @property
    def artifacts(self) -> int:
        """How many artifacts its partitions run."""
        return len({part.artifact for part in self.partitions} - {None})

    @property
    def numerics(self) -> NumericsVerdict | None:
        """The worst verdict of the numerics checks of its partitions; None if there was no check."""
        return self.timing.numerics if self.timing else None

    @property
    def worst(self) -> Severity | None:
        """The severity of its worst diagnostic."""
        return max((diagnostic.severity for diagnostic in self.diagnostics), key=list(Severity).index, default=None)


@derived
def region_summaries(session: Session) -> tuple[RegionSummary, ...]:
    """Return one summary per region, in the order of the plan."""
    timings, first_of_code = region_timings_of_whole_call(session), dict[frozenset[str | None], str]()
    rows = []
    for number, region in enumerate(session.plan.regions):
        row = _region_summary(session, number, region, timings.get(region.name))
        code = frozenset(part.code_hash for part in row.partitions)
        first = first_of_code.setdefault(code, region.name) if code and None not in code else region.name
        rows.append(row if first == region.name else replace(row, same_code=first))
    return tuple(rows)


def _region_summary(session: Session, number: int, region: Region, timing: RegionTiming | None) -> RegionSummary:
    members = session.members.get(region.name, {})
    ops = Counter[GraphKind]()
    for graph in session.graphs:
        ops[graph.kind] += len(members.get(graph.id, ()))
    forward, backward = ops[GraphKind.FORWARD] + ops[GraphKind.INFERENCE], ops[GraphKind.BACKWARD]
    partitions = tuple(part for part in session.partitions if part.region == region.name)
    own = [compiled.waited_s for part, compiled in session.compiled_partitions if part.region == region.name]
    counts = Counter(part.state for part in partitions)
    state = next((state for state in State if state in counts), State.EAGER if forward + backward else State.EMPTY)
    return RegionSummary(
        number=number,
        region=region,
        state=state,
        note=_state_note(region, state, counts),
        ops_forward=forward,
        ops_backward=backward,
        partitions=partitions,
        compile_s=sum(own) if own else None,
        timing=timing,
        diagnostics=tuple(diagnostic for diagnostic in session.diagnostics if diagnostic.region == region.name),
    )


def _state_note(region: Region, state: State, counts: Mapping[State, int]) -> str:
    if not region.enabled:
        return "disabled"
    if len(counts) > 1:
        return ", ".join(f"{counts[part_state]} {part_state}" for part_state in State if part_state in counts)
    return "none of its ops could be cut out" if state is State.EAGER and not counts else ""
