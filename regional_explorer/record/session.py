"""The session: the frozen record of one exploration, as it is saved, and the environment it was made in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regional_explorer.errors import SessionError, did_you_mean, shown_value
from regional_explorer.record.artifact import ArtifactCode, ArtifactCompile, ArtifactKernelTimes
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.graph import Graph, GraphBreak
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Plan
from regional_explorer.record.profile import Profile
from regional_explorer.record.record import Count, Record
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

FORMAT = 4
"""Version of the JSON layout; files of another version are rejected with an error."""

SHAPES: Mapping[str, bool | None] = {"automatic": None, "static": False, "dynamic": True}
"""The values of ``dynamic``, as ``torch.compile`` takes it, by the word that is shown for each."""


class Environment(Record, frozen=True):
    """The torch, Python and machine that a session was made with."""

    torch: str
    python: str
    device: str
    threads: Count

    @property
    def device_type(self) -> str:
        """The type of the device: ``cuda`` for ``cuda:0 (NVIDIA H100)``."""
        return self.device.partition(" ")[0].partition(":")[0]


class Session(Record, frozen=True):
    """All results of one exploration, without live objects.

    ``members`` maps a region's name to the ids of its nodes, per graph: ``members["mlp"]["0/forward"]``.
    ``partition_timings`` and ``partition_numerics`` are of partitions alone; ``region_timings`` sums them by region.
    ``codes`` has the generated code of those artifacts for which it was requested, ``kernel_times`` the times of their
    kernels, ``profile`` the eager time of every op. ``compiles`` has the cache result and the compile time by phase of
    each artifact. ``dynamic`` is the option that the call was traced with.
    """

    title: str
    environment: Environment
    grad: bool
    graphs: tuple[Graph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    plan: Plan = Plan()
    members: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
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
    dynamic: bool | None = None

    @property
    def shapes(self) -> str:
        """What the trace takes sizes for: ``automatic``, ``static`` or ``dynamic``."""
        return next(word for word, dynamic in SHAPES.items() if dynamic is self.dynamic)

    @property
    def is_outdated(self) -> bool:
        """Whether run times, numerics, memory and reconciliation are of a plan other than ``plan``."""
        return self.conditions is not None and self.conditions.outdated

    @property
    def whole_phase(self) -> Phase:
        """The phase of the whole call: the step, or the forward if no gradient is taken or no step was measured."""
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
        """The partitions that an artifact was compiled for, each with its compile, without those that share one."""
        compiles = {entry.artifact: entry for entry in self.compiles}
        for part in self.partitions:
            if part.artifact in compiles and part.shared_with is None:
                yield part, compiles[part.artifact]

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
