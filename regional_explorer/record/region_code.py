"""The code of regions: its kernels, linked to nodes and lines, the patterns that matched, and the names of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import fields

from regional_explorer.record import Record
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, Kernel, KernelKind
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.graph import Graph, Node, Role, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.session import Session


class Coverage(Record, frozen=True):
    """How many nodes that compute something are linked to a kernel, and how many kernels to a node."""

    nodes: int
    """How many nodes compute something."""
    linked: int
    """How many of the nodes are linked to a kernel."""
    recorded: int
    """How many of the linked nodes Inductor records for a kernel; the others are inferred from their readers."""
    kernels: int
    """How many kernels there are."""
    linked_kernels: int
    """How many of the kernels are linked to a node."""

    @property
    def share(self) -> float:
        """The share of the nodes that is linked; 1.0 without nodes."""
        return self.linked / self.nodes if self.nodes else 1.0

    def __str__(self) -> str:
        """Return for example ``12 of 12 nodes linked to kernels (11 by Inductor, 1 inferred); 3 of 3 kernels``."""
        inferred = self.linked - self.recorded
        how = f" ({self.recorded} by Inductor, {inferred} inferred)" if inferred else ""
        return (
            f"{self.linked} of {self.nodes} nodes linked to kernels{how}; "
            f"{self.linked_kernels} of {self.kernels} kernels linked to nodes"
        )


def total_coverage(coverages: Sequence[Coverage]) -> Coverage:
    """Return the coverage of several partitions together."""
    return Coverage(*(sum(getattr(coverage, field.name) for coverage in coverages) for field in fields(Coverage)))


class LinkedKernel(Record, frozen=True):
    """A kernel of one partition with the nodes that it computes."""

    number: int
    """The number of the launch, from 1."""
    kernel: Kernel
    nodes: tuple[Node, ...]

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """The distinct source lines of its nodes."""
        return tuple(dict.fromkeys(node.source for node in self.nodes if node.source is not None))


@dataclass(frozen=True)
class PartitionCode:
    """The generated code of one partition, and its kernels in the order they run."""

    partition: Partition
    code: ArtifactCode
    nodes: tuple[Node, ...]
    times: ArtifactKernelTimes | None = None
    """The times of its kernels; None if not measured."""

    @property
    def text(self) -> str:
        """The generated code."""
        return self.code.text

    @cached_property
    def kernels(self) -> tuple[LinkedKernel, ...]:
        """The kernels, each with its nodes."""
        return tuple(
            LinkedKernel(
                number, kernel, tuple(self.nodes[position] for position in sorted((*kernel.nodes, *kernel.inferred)))
            )
            for number, kernel in enumerate(self.code.kernels, 1)
        )

    @property
    def source(self) -> tuple[SourceLine, ...]:
        """The distinct source lines of all nodes of the partition."""
        return tuple(dict.fromkeys(node.source for node in self.nodes if node.source is not None))

    @cached_property
    def _computing_positions(self) -> frozenset[int]:
        views = set(self.code.views)
        return frozenset(index for index, node in enumerate(self.nodes) if node.role is Role.OP and index not in views)

    @property
    def computing(self) -> tuple[Node, ...]:
        """The nodes that compute something."""
        return tuple(self.nodes[position] for position in sorted(self._computing_positions))

    @property
    def unlinked(self) -> tuple[Node, ...]:
        """The nodes that compute something and have no known kernel."""
        linked = {position for kernel in self.code.kernels for position in (*kernel.nodes, *kernel.inferred)}
        return tuple(self.nodes[position] for position in sorted(self._computing_positions - linked))

    @property
    def coverage(self) -> Coverage:
        """How many of the nodes and kernels are linked."""
        recorded = {position for kernel in self.code.kernels for position in kernel.nodes} & self._computing_positions
        return Coverage(
            nodes=len(self._computing_positions),
            linked=len(self._computing_positions) - len(self.unlinked),
            recorded=len(recorded),
            kernels=len(self.code.kernels),
            linked_kernels=sum(bool(kernel.nodes or kernel.inferred) for kernel in self.code.kernels),
        )


def region_code(session: Session, region: str) -> tuple[PartitionCode, ...]:
    """Return the code of the partitions of a region, as far as ``session`` has it."""
    return tuple(code for code in partition_codes(session) if code.partition.region == region)


def partition_codes(session: Session, other_codes: Mapping[str, ArtifactCode] | None = None) -> Iterator[PartitionCode]:
    """Yield the code of every partition whose code is in ``session``, or in ``other_codes`` by partition id."""
    graphs = {graph.id: graph.by_name for graph in session.graphs}
    for part in session.partitions:
        artifact = session.artifact_of(part)
        code_and_times = (artifact.code, artifact.kernel_times) if artifact else (None, None)
        code, times = code_and_times if other_codes is None else (other_codes.get(part.id), None)
        if code is not None:
            yield PartitionCode(part, code, tuple(graphs[part.graph][name] for name in part.nodes), times)


def template_times(session: Session) -> dict[tuple[str, str], float]:
    """Return the seconds of kernels from Inductor's templates that were timed, by graph and node that they compute."""
    timed = (
        (code.partition.graph, linked, time.seconds.value)
        for code in partition_codes(session)
        if code.times is not None and code.times.problem is None
        for linked, time in zip(code.kernels, code.times.kernels, strict=True)
        if time is not None and linked.kernel.kind is KernelKind.TEMPLATE
    )
    return {(graph, node.name): seconds for graph, linked, seconds in timed for node in linked.nodes}


def grouped_by_artifact(parts: Iterable[PartitionCode]) -> list[list[PartitionCode]]:
    """Return the partitions in groups that share one artifact, and so the same code, in the order of the first ones."""
    return list(grouped((id(part.code), part) for part in parts).values())


@dataclass(frozen=True)
class PatternMatches:
    """How often one pattern matched; None if unknown."""

    name: str
    """The name of the function in Inductor that makes the pattern, or that replaces its matches."""
    trace: int
    """The count in the passes that ran when the call was traced."""
    regions: Mapping[str, int | None]
    """The count in each region, over all its partitions."""
    full: int | None
    """The count in the whole call under plain ``torch.compile``."""

    @property
    def is_lost(self) -> bool:
        """Whether it matched only in plain ``torch.compile``; False if its count there or in a region is unknown."""
        return bool(self.full) and not self.trace and all(matches == 0 for matches in self.regions.values())


def pattern_match_counts(session: Session) -> list[PatternMatches]:
    """Return the patterns that matched anywhere, the most frequent first, idle patterns last."""
    trace = _sum_of(graph.patterns for graph in session.graphs) or Counter()
    regions, cost = region_patterns(session), session.full_cost
    full = None if cost is None else cost.patterns
    totals = sum(map(Counter, filter(None, (trace, *regions.values(), full))), Counter[str]())
    rows = (
        PatternMatches(
            name,
            trace[name],
            {region: None if matches is None else matches[name] for region, matches in regions.items()},
            None if full is None else full.get(name, 0),
        )
        for name, _ in totals.most_common()
    )
    return sorted(rows, key=lambda row: is_idle(row.name))


def is_idle(name: str) -> bool:
    """Return whether a pattern only removes ops that compute nothing."""
    return name.startswith(("pointless_convert", "pointless_permute", "pointless_view"))


def region_patterns(session: Session) -> dict[str, Counter[str] | None]:
    """Return how often each pattern matched in each region; None if unknown."""
    return {
        region.name: _sum_of(_matches_of(session, part) for part in session.partitions if part.region == region.name)
        for region in session.plan.regions
    }


def _matches_of(session: Session, partition: Partition) -> Mapping[str, int] | None:
    if (artifact := session.artifact_of(partition)) is not None:
        return artifact.patterns
    return None if partition.state is State.STALE else {}


def _sum_of(matches: Iterable[Mapping[str, int] | None]) -> Counter[str] | None:
    """Return the summed counts; None if a part is None."""
    parts = list(matches)
    counters = [Counter(part) for part in parts if part is not None]
    return sum(counters, Counter[str]()) if len(counters) == len(parts) else None


def qualified_names(graphs: Iterable[Graph]) -> Iterator[str]:
    """Yield the nodes of ``graphs`` as ``graph:name``."""
    return (f"{graph.id}:{node.name}" for graph in graphs for node in graph.nodes)


def nodes_of_region(session: Session, name: str) -> list[str]:
    """Return the nodes of a region as ``graph:name``."""
    return [f"{graph}:{node}" for graph, nodes in session.members.get(name, {}).items() for node in nodes]


def nodes_of_diagnostic(diagnostic: Diagnostic, session: Session) -> list[str]:
    """Return the nodes of a diagnostic as ``graph:name``: its nodes, else its lines' nodes, else its region's."""
    if diagnostic.graph is not None and diagnostic.nodes:
        return [f"{diagnostic.graph}:{name}" for name in diagnostic.nodes]
    lines = {(line.file, line.line) for line in diagnostic.where}
    on_lines = [
        f"{graph.id}:{node.name}"
        for graph in session.graphs
        for node in graph.ops
        if lines and any((line.file, line.line) in lines for line in node.stack)
    ]
    return on_lines or nodes_of_region(session, diagnostic.region or "")
