"""Finds how two plans or two sessions differ, and whether a change of a time is real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict, replace

from regional_explorer.errors import NoVerdictError, SessionError, count, listing
from regional_explorer.record.artifact import normalized
from regional_explorer.record.benchmark import Timing, VariantName, Verdict
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.figure import Figure
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, State, plan_content
from regional_explorer.record.plan import Plan, config_texts
from regional_explorer.record.region_code import region_code
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import MIN_FLOOR


def plan_differences(plans: Sequence[Plan]) -> list[list[str]]:
    """Return for each plan, in words, the properties that not all other plans share."""
    plan_texts = [list(_plan_texts(plan)) for plan in plans]
    orders = [f"order {', '.join(region.name for region in plan.regions)}" for plan in plans]
    of_same_texts = grouped((frozenset(texts), order) for texts, order in zip(plan_texts, orders, strict=True))
    for texts, order in zip(plan_texts, orders, strict=True):
        if len(set(of_same_texts[frozenset(texts)])) > 1:
            texts.append(order)
    return _not_shared(plan_texts)


def run_differences(runs: Sequence[Session]) -> list[list[str]]:
    """Return for each session, in words, the properties of its environment, shapes and plan that not all share."""
    of_environments = _not_shared([_environment_texts(run) for run in runs])
    of_plans = plan_differences([run.plan for run in runs])
    return [[*environment, *plan] for environment, plan in zip(of_environments, of_plans, strict=True)]


def _not_shared(texts_of: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[text for text in texts if not all(text in other for other in texts_of)] for texts in texts_of]


def _environment_texts(run: Session) -> list[str]:
    environment = run.environment
    settings = (f"{name}={value}" for name, value in environment.settings.items())
    mode = environment.mode or "no modules"
    return [f"shapes: {run.shapes}", count(environment.threads, "thread"), mode, *settings]


def _plan_texts(plan: Plan) -> Iterator[str]:
    yield f"cut {plan.cut}"
    yield str(plan.tracing)
    if not plan.regions:
        yield "no region"
    for region in plan.regions:
        yield f"{region.name} = {region.selection}"
        yield from (f"{region.name}: only {listing(selector.only)}" for selector in region.selectors if selector.only)
        if not region.enabled:
            yield f"{region.name} off"
        for direction, config in region.configs:
            name = region.name if direction is None else f"{region.name}.{direction}"
            yield from (f"{name}: {text}" for text in config_texts(config))
        yield from (f"{region.name}: {text}" for text in region.treatment.texts)


PROCESS_NOISE = 2 * MIN_FLOOR
"""Smaller changes between two processes never count as real: each process has its own memory layout."""


@dataclass(frozen=True)
class SpeedChange:
    """How the time of a call changed between two sessions, each relative to its own eager time."""

    slowdown: Figure | None = None
    """The earlier speedup ÷ the later one: 1.05 is 5 % slower. Its interval has a confidence of 99 %."""
    problem: str = ""
    """Why there is no ``slowdown``."""
    busy: str = ""
    """What else the machine did, and in which session."""

    @property
    def verdict(self) -> str:
        """Whether the change is real: ``slower``, ``faster``, ``no difference``, ``inconclusive``, or the problem."""
        if self.slowdown is None or self.slowdown.bounds is None:
            return self.problem
        low, high = self.slowdown.bounds
        if low > 1.0 + PROCESS_NOISE:
            return str(Verdict.SLOWER)
        if high < 1.0 / (1.0 + PROCESS_NOISE):
            return str(Verdict.FASTER)
        return str(Verdict.without_winner(low, high))

    def is_slower(self, limit: float) -> bool:
        """Return whether it is slower by more than ``limit``, with the whole interval beyond it."""
        low = None if self.slowdown is None else self.slowdown.low
        return low is not None and low > 1.0 + limit and not self.busy

    def why_no_verdict(self, limit: float) -> str:
        """Return why it is unknown whether the call is slower by more than ``limit``; empty if it is known.

        On a quiet machine an interval across the limit is good enough if it is narrow: it would show what matters.
        """
        low, high = (self.slowdown and self.slowdown.bounds) or (1.0, 1.0)
        if high <= 1.0 + limit or self.is_slower(limit):
            return ""
        if self.busy:
            return self.busy
        half_width = (high - low) / 2.0
        wide = f"the interval of ±{half_width:.1%} is wider than the limit of {limit:.1%}"
        return f"{wide}: measure with a larger --budget" if half_width > max(limit, PROCESS_NOISE) else ""


def speed_change(before: Session, after: Session) -> SpeedChange:
    """Return how the whole call's speedup over eager changed, each session's relative to its own eager samples.

    Raises:
        SessionError: a session was not measured with eager and regional, or its plan changed later, or the two
            measured different phases.
        NoVerdictError: a session was measured in too few rounds, or the machine was too busy.
    """
    regional = {name: _regional_timing(name, session) for name, session in (("A", before), ("B", after))}
    if regional["A"].phase != regional["B"].phase:
        raise SessionError(
            f"A measured the {regional['A'].phase} and B the {regional['B'].phase}: measure both with gradients, or "
            "both without."
        )
    withheld = [f"{name} {timing.numerics}" for name, timing in regional.items() if timing.numerics.withholds_speedup]
    if withheld:
        return SpeedChange(problem=f"The numerics of {' and of '.join(withheld)}: there is no speedup to compare.")
    speedups = {
        name: timing.speedup or Figure(1.0, why=timing.median_s.why or "no rounds shared with eager")
        for name, timing in regional.items()
    }
    unsure = [f"{name} ({figure.why})" for name, figure in speedups.items() if figure.bounds is None]
    if unsure:
        raise NoVerdictError(
            f"The speedup of {' and of '.join(unsure)} has no interval, so it cannot be compared: measure again with a "
            "larger --budget, on a quiet machine."
        )
    noises = ((name, session.conditions.noise) for name, session in (("A", before), ("B", after)) if session.conditions)
    busy = " ".join(f"{name}: {noise.sentence}" for name, noise in noises if noise.is_busy)
    return SpeedChange(speedups["A"].over(speedups["B"]), busy=busy)


def _regional_timing(name: str, session: Session) -> Timing:
    eager, regional = (session.whole_timings.get(variant) for variant in (VariantName.EAGER, VariantName.REGIONAL))
    if eager is None or regional is None:
        raise SessionError(f"{name} was not measured: save a session after ex.benchmark(), or run without --no-bench.")
    if session.is_outdated:
        raise SessionError(
            f"{name} was measured for {session.measured_for}, before a change. Call ex.benchmark() and save it again."
        )
    return regional


def session_changes(before: Session, after: Session) -> list[str]:
    """Return what differs in ``after`` besides the plan: torch, machine, shapes, graphs, partitions and code."""
    old, new = (
        {**asdict(session.environment), **session.environment.settings, "shapes": session.shapes}
        for session in (before, after)
    )
    changed = [name for name in old | new if name != "settings" and old.get(name) != new.get(name)]
    facts = [f"{name} {old.get(name) or 'default'} → {new.get(name) or 'default'}" for name in changed]
    return [*facts, *_graph_changes(before, after), *_partition_changes(before, after)]


def run_same_code(one: Session, other: Session) -> bool:
    """Return whether two sessions with different configs or selectors run the same code in the same partitions."""
    parts = _explored_partitions(one)
    return (
        one.plan != other.plan
        and one.shapes == other.shapes
        and one.environment == other.environment
        and bool(parts)
        and [part.id for part in parts] == [part.id for part in _explored_partitions(other)]
        and all(part.state is not State.STALE for part in parts)
        and plan_content(parts) == plan_content(_explored_partitions(other))
    )


def _explored_partitions(session: Session) -> list[Partition]:
    """Return the partitions of the explored call; partitions of later calls, on other shapes, are not measured."""
    return [part for part in session.partitions if part.graph not in session.late_graphs]


def under_plan_of(earlier: Session, newest: Session) -> Session:
    """Return an earlier plan's session with the measurements of ``newest``, which has the same code."""
    of_config = "config-"
    findings = [
        *(diagnostic for diagnostic in earlier.diagnostics if diagnostic.code.startswith(of_config)),
        *(diagnostic for diagnostic in newest.diagnostics if not diagnostic.code.startswith(of_config)),
    ]
    return replace(
        newest,
        plan=earlier.plan,
        partitions=earlier.partitions,
        artifacts=earlier.artifacts,
        reused=earlier.reused,
        diagnostics=tuple(sorted(findings, key=lambda item: list(Severity).index(item.severity), reverse=True)),
    )


def _graph_changes(before: Session, after: Session) -> Iterator[str]:
    ops_before, ops_after = map(_ops_by_graph, (before, after))
    for graph in ops_before | ops_after:
        old, new = ops_before.get(graph, 0), ops_after.get(graph, 0)
        if old != new:
            yield f"{graph}: {old} → {count(new, 'op')}"


def _ops_by_graph(session: Session) -> dict[str, int]:
    """Return the number of ops of each graph; its frame is counted from 0, as a new trace of the call begins later."""
    frames = list(dict.fromkeys(graph.frame for graph in session.graphs))
    return {
        f"{frames.index(graph.frame)}{graph.id.removeprefix(str(graph.frame))}": len(graph.ops)
        for graph in session.graphs
    }


def _partition_changes(before: Session, after: Session) -> Iterator[str]:
    regions = dict.fromkeys(region.name for session in (before, after) for region in session.plan.regions)
    for region in regions:
        old, new = (
            Counter(len(part.nodes) for part in session.partitions if part.region == region)
            for session in (before, after)
        )
        if old != new:
            yield (
                f"{region}: {old.total()} → {count(new.total(), 'partition')}, "
                f"{_op_count(old)} → {count(_op_count(new), 'op')}"
            )
        codes = [region_code(session, region) for session in (before, after)]
        old_text, new_text = (Counter(tuple(normalized(part.text)) for part in parts) for parts in codes)
        if old_text and new_text and old_text != new_text:
            kernels = [sum(len(part.code.kernels) for part in parts) for parts in codes]
            yield f"{region}: other generated code, {kernels[0]} → {count(kernels[1], 'kernel')}"


def _op_count(sizes: Counter[int]) -> int:
    return sum(size * times for size, times in sizes.items())
