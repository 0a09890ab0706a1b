"""The session: the finished record of one exploration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from regional_explorer.errors import SessionError, did_you_mean
from regional_explorer.errors.arguments import shown_value
from regional_explorer.record.compiles import ArtifactCompile
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.graph import Graph, GraphBreak
from regional_explorer.record.kernel_times import ArtifactKernelTimes
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.record.profile import Profile
from regional_explorer.record.region import Partition, Plan
from regional_explorer.record.timing import (
    CompileCost,
    Conditions,
    MemoryPeak,
    Numerics,
    PartitionTiming,
    Phase,
    Reconciled,
    Timing,
)

FORMAT = 2
"""Version of the JSON layout; a file of a newer one is refused with a clear text."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the record was made."""

    torch: str
    python: str
    device: str
    threads: int

    @property
    def device_type(self) -> str:
        """``cuda`` of the device ``cuda:0 (NVIDIA H100)``."""
        return self.device.partition(" ")[0].partition(":")[0]


@dataclass(frozen=True, slots=True)
class Session:
    """Everything one exploration found out, without anything live in it.

    ``members`` maps a region's name to the ids of its nodes, per graph: ``members["mlp"]["0/forward"]``.
    ``partition_timings`` and ``partition_numerics`` are of partitions alone; ``region_timings`` sums them by region.
    ``codes`` has the generated code of those artifacts that somebody looked at, ``kernel_times`` the times of their
    kernels, ``profile`` the eager time of every op. ``compiles`` tells of each artifact what the caches said of it, and
    where the time of its compile went.
    """

    title: str
    environment: Environment
    grad: bool
    graphs: tuple[Graph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    plan: Plan = field(default_factory=Plan)
    members: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    timings: tuple[Timing, ...] = ()
    conditions: Conditions | None = None
    numerics: tuple[Numerics, ...] = ()
    compile_costs: tuple[CompileCost, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    partition_timings: tuple[PartitionTiming, ...] = ()
    partition_numerics: tuple[Numerics, ...] = ()
    reconciliation: tuple[Reconciled, ...] = ()
    memory: tuple[MemoryPeak, ...] = ()
    codes: tuple[ArtifactCode, ...] = ()
    kernel_times: tuple[ArtifactKernelTimes, ...] = ()
    profile: Profile | None = None
    compiles: tuple[ArtifactCompile, ...] = ()

    @property
    def is_outdated(self) -> bool:
        """Whether run times, numerics, memory and reconciliation are those of another plan than ``plan``."""
        return self.conditions is not None and self.conditions.outdated

    @property
    def whole_phase(self) -> Phase:
        """The phase of the whole call: the step, or the forward where no gradient is taken or no step was measured."""
        phases = {timing.phase for timing in self.timings}
        return Phase.STEP if self.grad and phases != {Phase.FORWARD} else Phase.FORWARD

    @property
    def whole_timings(self) -> dict[str, Timing]:
        """The timing of the whole call, by variant."""
        return {timing.variant: timing for timing in self.timings if timing.phase is self.whole_phase}

    @property
    def compile_s(self) -> float:
        """The seconds that compiling the partitions took, reused artifacts included."""
        return sum(part.compile_s or 0.0 for part in self.partitions)

    @property
    def compiled_partitions(self) -> Iterator[tuple[Partition, ArtifactCompile]]:
        """The partitions that an artifact was compiled for, each with its compile; those that share one left out."""
        made = {one.artifact: one for one in self.compiles}
        for part in self.partitions:
            if part.artifact in made and part.shared_with is None:
                yield part, made[part.artifact]

    def graph(self, graph_id: str) -> Graph:
        """Return the graph called ``graph_id``.

        Raises:
            SessionError: there is none of that id; the text lists near matches.
        """
        for graph in self.graphs:
            if graph.id == graph_id:
                return graph
        known = [graph.id for graph in self.graphs]
        raise SessionError(
            f"No graph is called {shown_value(graph_id)}.{did_you_mean(graph_id, known)} Graphs: {', '.join(known)}."
        )
