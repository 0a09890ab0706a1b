"""The session: the frozen record of one exploration, as it is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from typing import TypeVar

from msgspec.structs import replace

from regional_explorer.errors import SessionError, did_you_mean, listing, shown_value, user_facing
from regional_explorer.record import Ratio, Record, Seconds
from regional_explorer.record.artifact import ArtifactCompile, ArtifactRecord
from regional_explorer.record.benchmark import (
    ZERO_TO_ROUNDING,
    CompileCost,
    Conditions,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    PartitionTiming,
    Phase,
    ReconciliationRow,
    Timing,
    VariantName,
)
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import QUIET, Noise
from regional_explorer.record.floor import Floor
from regional_explorer.record.graph import Graph, GraphBreak
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Plan
from regional_explorer.record.profile import Profile, TimeShares
from regional_explorer.record.tuning import Suggestion, Tuning

FORMAT = 8
"""Version of the JSON layout; files of another version are rejected with an error."""

SHAPES: Mapping[str, bool | None] = {"automatic": None, "static": False, "dynamic": True}
"""The values of ``torch.compile``'s ``dynamic``, by the word that is shown for each."""

MOST_TENSORS = 3
"""The maximum number of wrong tensors that a text names."""


class Session(Record, frozen=True, dict=True):
    """All results of one exploration, without live objects."""

    title: str
    """The name of the function."""
    environment: Environment
    """The torch, Python, machine and settings when the session was made."""
    grad: bool
    """Whether gradients are taken."""
    graphs: tuple[Graph, ...] = ()
    """The captured graphs."""
    breaks: tuple[GraphBreak, ...] = ()
    """The graph breaks."""
    plan: Plan = Plan()
    """The plan at hand."""
    members: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    """The ids of a region's nodes, per graph: ``members["mlp"]["0/forward"]``."""
    partitions: tuple[Partition, ...] = ()
    """The partitions that the regions were cut into."""
    timings: tuple[Timing, ...] = ()
    """The times of the variants."""
    conditions: Conditions | None = None
    """The conditions of the benchmark; None without one."""
    numerics: tuple[Numerics, ...] = ()
    """The results of the variants against eager's."""
    artifacts: Mapping[str, ArtifactRecord] = {}
    """The artifacts of the partitions by key: compiles, and on request code and kernel times."""
    toolchain: CompileCost | None = None
    """The cost of starting the toolchain."""
    variant_costs: tuple[CompileCost, ...] = ()
    """The costs of compiling other variants."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """The findings, the most severe first."""
    partition_timings: tuple[PartitionTiming, ...] = ()
    """The times of partitions, each timed outside the call; ``region_timings`` sums them by region."""
    partition_numerics: tuple[Numerics, ...] = ()
    """The results of partitions alone."""
    reconciliation: tuple[ReconciliationRow, ...] = ()
    """How the parts add up to the whole."""
    memory: tuple[MemoryPeak, ...] = ()
    """The peak memory of the variants."""
    profile: Profile | None = None
    """The eager time of every op."""
    floor: Floor | None = None
    """The least time of the call on this machine."""
    dynamic: bool | None = None
    """The option ``dynamic`` of the trace."""
    late_graphs: tuple[str, ...] = ()
    """The ids of the graphs that later calls traced, for example on other shapes."""
    reused: tuple[str, ...] = ()
    """The keys of artifacts that were compiled for plans measured before."""
    tuning: Tuning | None = None
    """The last search for the best plan."""
    suggestions: tuple[Suggestion, ...] = ()
    """The suggested regions that ``ex.suggest(budget_s=…)`` has measured, on these graphs and under these settings."""
    trace_s: Seconds = 0.0
    """The seconds of the trace; a compile by ``torch.compile`` includes its own."""
    compile_rate: Ratio = 1.0
    """The seconds of the compiles that this process has seen, relative to the machine of ``record.expected``."""

    @property
    def shapes(self) -> str:
        """How the trace treats sizes: ``automatic``, ``static`` or ``dynamic``."""
        return next(word for word, dynamic in SHAPES.items() if dynamic is self.dynamic)

    @property
    def is_outdated(self) -> bool:
        """Whether run times, numerics, memory and reconciliation belong to another plan or environment."""
        return bool(self.outdated_by)

    @property
    def outdated_by(self) -> tuple[str, ...]:
        """What has changed since the benchmark: ``the plan``, ``1 thread (measured with 2)``; empty if nothing has."""
        if self.conditions is None:
            return ()
        plan = ("the plan",) if self.conditions.outdated else ()
        return *plan, *self.environment.changes_since(self.conditions.environment)

    @property
    def environment_changes(self) -> tuple[str, ...]:
        """What has changed in the environment since the benchmark; if nothing has, what has since the profile."""
        return tuple(change for change in self.outdated_by if change != "the plan") or self.profile_outdated_by

    @property
    def measured_for(self) -> str:
        """What the benchmark measured, if not the present state: ``another plan``, or an earlier state; else empty."""
        changes = self.outdated_by
        if changes in ((), ("the plan",)):
            return "another plan" if changes else ""
        return f"an earlier state: {', '.join(changes)}"

    @property
    def profile_outdated_by(self) -> tuple[str, ...]:
        """What has changed since the profile, as in ``outdated_by``."""
        return () if self.profile is None else self.environment.changes_since(self.profile.environment)

    @property
    def whole_phase(self) -> Phase:
        """The phase of the whole call: the step, or the forward if no gradient is taken or no step was measured."""
        phases = {timing.phase for timing in self.timings}
        return Phase.STEP if self.grad and phases != {Phase.FORWARD} else Phase.FORWARD

    @property
    def whole_timings(self) -> dict[str, Timing]:
        """The timing of the whole call, by variant."""
        return {timing.variant: timing for timing in self.timings if timing.phase is self.whole_phase}

    def numerics_of(self, variant: str, verdict: NumericsVerdict | None = None) -> tuple[Numerics, ...]:
        """Return the rows of the numerics check of a variant, or those with a ``verdict``."""
        return tuple(row for row in self.numerics if row.variant == variant and verdict in (None, row.verdict))

    def errors_of(self, variant: str, rows: Sequence[Numerics]) -> str:
        """Return in words how far off the given tensors of a variant are."""
        texts = [f"{row.tensor}: {row.error_text}" for row in rows[:MOST_TENSORS]]
        more = f"; and {len(rows) - len(texts)} more of {len(self.numerics_of(variant))} tensors"
        return "; ".join(texts) + (more if len(rows) > len(texts) else "")

    @property
    def plan_numerics(self) -> NumericsVerdict | None:
        """The verdict of the numerics check of ``regional`` under ``plan``; None if there was none."""
        rows = () if self.is_outdated else self.numerics_of(VariantName.REGIONAL)
        return NumericsVerdict.worst(row.verdict for row in rows)

    @property
    def plan_errors(self) -> str:
        """How far off the wrong results of the plan are, or those that rounding decides; empty if there are none.

        Of right results, it names the tensors that are zero to rounding.
        """
        verdict, plan = self.plan_numerics, VariantName.REGIONAL
        if verdict is NumericsVerdict.OK:
            zeros = [row.tensor for row in self.numerics_of(plan) if row.note == ZERO_TO_ROUNDING]
            return f"zero to rounding: {listing(zeros, most=MOST_TENSORS)}" if zeros else ""
        if verdict is None or not verdict.withholds_speedup:
            return ""
        return self.errors_of(plan, self.numerics_of(plan, verdict))

    @property
    def noise(self) -> Noise:
        """The noise of all disturbed measurements; quiet ones would hide it in their number of rounds.

        Measurements that were disturbed in different ways may hide each other: then it is the noise of the most
        disturbed. What other processes used does not count if few rounds were disturbed and each verdict stands.
        """
        kernel_times = (artifact.kernel_times for artifact in self.artifacts.values())
        measured = [source.noise for source in (self.conditions, self.profile, *kernel_times) if source is not None]
        measured += self.conditions.noise_beside if self.conditions else ()
        if not any(timing.verdict.is_unsure for timing in self.timings):
            measured = [noise if noise.is_often_disturbed else replace(noise, others=None) for noise in measured]
        disturbed = [noise for noise in measured if noise.sentence]
        together = sum(disturbed, QUIET)
        return together if together.sentence else max(disturbed, key=lambda noise: noise.disturbed, default=QUIET)

    @property
    def compile_s(self) -> float:
        """The seconds waited for compiles that only this plan needed."""
        return sum(compiled.waited_s for part, compiled in self.compiled_partitions if part.artifact not in self.reused)

    @property
    def plan_cost(self) -> CompileCost | None:
        """The cost of the plan's trace and compiles, to compare with ``full_cost``; None before a compile.

        As there, the start of the toolchain is not in it. ``cache`` is ``mixed`` if the caches had a part.
        """
        compiles = [compiled for _, compiled in self.compiled_partitions]
        if not compiles:
            return None
        states = {compiled.cache for compiled in compiles}
        seconds = self.trace_s + sum(compiled.waited_s for compiled in compiles)
        return CompileCost(VariantName.REGIONAL, seconds, states.pop() if len(states) == 1 else "mixed")

    @property
    def full_cost(self) -> CompileCost | None:
        """The cost of plain ``torch.compile``; None if it has not compiled the call."""
        return next((cost for cost in self.variant_costs if cost.what == VariantName.FULL), None)

    @cached_property
    def time_shares(self) -> TimeShares | None:
        """The profile linked to the nodes of the graphs; None if the call was not profiled."""
        return None if self.profile is None else TimeShares(self.graphs, self.profile)

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """The partition that each artifact was compiled for, by key: the first partition that runs it."""
        return {part.artifact: part.id for part in reversed(self.partitions) if part.artifact is not None}

    @property
    def compiled_partitions(self) -> Iterator[tuple[Partition, ArtifactCompile]]:
        """The partitions that artifacts were compiled for, with their compile, without those that share another's."""
        for part in self.partitions:
            if (compiled := self.compile_of(part)) is not None:
                yield part, compiled

    def artifact_of(self, partition: Partition) -> ArtifactRecord | None:
        """Return the artifact that a partition runs; None if it has none."""
        return self.artifacts.get(partition.artifact or "")

    def compile_of(self, partition: Partition) -> ArtifactCompile | None:
        """Return the compile of a partition's artifact; None without one, or if compiled for another partition."""
        artifact = self.artifact_of(partition)
        return artifact.compile if artifact and self.owners[partition.artifact or ""] == partition.id else None

    @user_facing
    def graph(self, graph_id: str) -> Graph:
        """Return the graph called ``graph_id``.

        Raises:
            SessionError: there is none; the message lists similar ids.
        """
        for graph in self.graphs:
            if graph.id == graph_id:
                return graph
        ids = [graph.id for graph in self.graphs]
        listed = f"Graphs: {', '.join(ids)}." if ids else "There is no graph."
        raise SessionError(f"No graph is called {shown_value(graph_id)}.{did_you_mean(graph_id, ids)} {listed}")


V = TypeVar("V")


def derived(view: Callable[[Session], V]) -> Callable[[Session], V]:
    """Decorator: cache what ``view`` makes of a session with the session, which never changes."""

    @wraps(view)
    def kept(session: Session) -> V:
        views = session.__dict__
        if view.__name__ not in views:
            views[view.__name__] = view(session)
        value: V = views[view.__name__]
        return value

    return kept
