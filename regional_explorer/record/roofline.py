"""A plan against full Inductor: the gain it reaches, the bytes that cross partitions, roundings, launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from regional_explorer.record import Record
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.benchmark import Phase
from regional_explorer.record.figure import Figure
from regional_explorer.record.graph import Graph, Node, Role
from regional_explorer.record.grouping import grouped
from regional_explorer.record.region_code import partition_codes
from regional_explorer.record.session import Session

EAGER_OPS = "eager ops"
"""The name for ops outside of partitions; each of them runs as its own kernel."""

LOW_PRECISION = frozenset({"bfloat16", "float16"})


class Border(Record, frozen=True):
    """The tensors computed on one side and read on another side; a side is a partition or an eager op."""

    source: str
    """The region that computes the tensors, or ``EAGER_OPS``."""
    reader: str
    """The region that reads the tensors, or ``EAGER_OPS``."""
    tensors: int
    """How many there are."""
    moved_bytes: int
    """The bytes that move: once when a tensor is written, and once for each side that reads it."""
    fused: int
    """The number of the tensors that full Inductor does not move: it computes and reads them in one kernel."""
    fused_bytes: int
    """The bytes that full Inductor does not move."""


class PhaseReach(Record, frozen=True):
    """How much of full Inductor's gain over eager a plan reaches in one phase."""

    phase: Phase
    """The part of the call."""
    eager_s: Figure
    regional_s: Figure
    """The time under the plan."""
    full_s: Figure
    """The time of full Inductor."""
    full_gain_s: Figure
    """The seconds by which full Inductor is faster than eager."""
    share_by_round: Figure
    """The plan's part of that gain, by round: 0.0 if it is as slow as eager, 1.0 if as fast as full."""
    full_wins: bool = True
    """Whether full Inductor is certainly faster than eager."""
    full_loses: bool = False
    """Whether full Inductor is certainly slower than eager."""
    withheld: str = ""
    """The variants whose results are wrong, so that there is no share."""

    @property
    def gain_s(self) -> Figure | None:
        """The seconds that full Inductor gains over eager; None unless it is certainly faster."""
        return self.full_gain_s if self.full_wins and self.full_gain_s.value > 0.0 else None

    @property
    def share(self) -> Figure | None:
        """The plan's share of full's gain."""
        return None if self.gain_s is None or self.withheld else self.share_by_round


class RegionReach(Record, frozen=True):
    """The gain of one region, measured alone, over eager."""

    region: str
    gain_s: Figure | None
    share: Figure | None
    """Its part of full's total gain."""


class OpDifference(Record, frozen=True):
    """How Inductor's decomposition of an op changes its results, on the values of the call."""

    op: str
    nodes: int
    """How many nodes call it."""
    bitwise: int
    """The number of nodes with bitwise equal results."""
    max_difference: float
    """The largest difference."""
    eager_error: float | None
    """The error of the op against float64; None if it does not run in float64."""
    decomposed_error: float | None
    """The error of its decomposition against float64; None if the op does not run in float64."""


class BitwiseTrial(Record, frozen=True):
    """The comparison of full Inductor under a config with eager; results that cannot be compared do not count."""

    config: Mapping[str, object]
    tensors: int = 0
    """How many tensors were compared."""
    bitwise: int = 0
    """How many of them were equal to the bit."""
    max_difference: float = 0.0
    """The largest difference."""
    problem: str = ""
    """Why no tensor was compared."""

    @property
    def equal(self) -> bool:
        """Whether every output and gradient that was compared is bitwise equal to eager's."""
        return not self.problem and 0 < self.tensors == self.bitwise


class Roundings(Record, frozen=True):
    """How often results of two-byte dtypes are rounded."""

    results: int
    """How many results have a two-byte dtype."""
    elided: int
    """How many of the results full Inductor never rounds to their dtype."""


class Launches(Record, frozen=True):
    """How many kernels one call launches."""

    eager_ops: int
    """How many ops run eagerly under the plan."""
    region_kernels: int | None
    """How many kernels the regions launch."""
    full_kernels: int
    """How many kernels full Inductor launches."""


class FullGraph(Record, frozen=True):
    """The code that Inductor generates for a whole captured graph."""

    graph: str
    """The id of the graph."""
    names: tuple[str, ...]
    """The nodes that positions in the code refer to."""
    code: ArtifactCode


def borders(session: Session, full: Mapping[str, FullGraph]) -> tuple[Border, ...]:
    """Return the tensors that cross between partitions and eager ops, for the graphs in ``full``, by fused bytes."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for graph in full.values():
        for result in _graph_results(session, graph):
            for number, (reader, readers) in enumerate(result.read_by.items()):
                is_first, all_fused = number == 0, all(map(result.is_fused_with, readers))
                row = sums[result.source[0], reader[0]]
                row["tensors"] += 1
                row["fused"] += all_fused
                row["moved_bytes"] += result.bytes * (2 if is_first else 1)
                row["fused_bytes"] += result.bytes * (all_fused + (is_first and result.is_never_stored))
    rows = (
        Border(*sides, row["tensors"], row["moved_bytes"], row["fused"], row["fused_bytes"])
        for sides, row in sums.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.fused_bytes, -row.moved_bytes)))


def roundings(session: Session, full: Mapping[str, FullGraph]) -> Roundings:
    """Return how many results have a two-byte dtype, and how many of them full Inductor keeps in a wider one."""
    results = [
        result
        for graph in full.values()
        for result in _graph_results(session, graph, crossing=False)
        if result.node.values and result.node.values[0].dtype in LOW_PRECISION
    ]
    return Roundings(len(results), sum(result.is_never_stored for result in results))


def eager_ops(session: Session, full: Mapping[str, FullGraph]) -> int:
    """Return how many ops that compute something run outside of partitions."""
    in_partitions = {(part.graph, name) for part in session.partitions if part.artifact for name in part.nodes}
    total = 0
    for full_graph in full.values():
        views = {full_graph.names[position] for position in full_graph.code.views}
        ops = session.graph(full_graph.graph).ops
        total += sum(node.name not in views and (full_graph.graph, node.name) not in in_partitions for node in ops)
    return total


Side = tuple[str, str]
"""The name of the region, or ``EAGER_OPS``, and the partition or op."""


def launches(session: Session, full: Mapping[str, FullGraph]) -> Launches:
    """Return the number of kernels that eager code, the plan and full launch in the graphs that full's code is for."""
    codes = [code for code in partition_codes(session) if code.partition.graph in full]
    compiled = [part for part in session.partitions if part.graph in full and part.artifact is not None]
    return Launches(
        eager_ops(session, full),
        sum(len(part.kernels) for part in codes) if len(codes) == len(compiled) else None,
        sum(len(graph.code.kernels) for graph in full.values()),
    )


class _Result(Record, frozen=True):
    """A result of an op, with its readers."""

    node: Node
    """The op."""
    source: Side
    """The side that computes it."""
    bytes: int
    """Its size."""
    readers: tuple[str, ...]
    """The nodes that read it."""
    read_by: Mapping[Side, tuple[str, ...]]
    """The readers on other sides, by side."""
    escapes: bool
    """Whether the graph returns it."""
    kernels: Mapping[str, frozenset[int]]
    """The kernels of full Inductor that compute and read it, by node."""

    def is_fused_with(self, reader: str) -> bool:
        """Return whether every kernel of full Inductor that computes ``reader`` also computes this result."""
        kernels, reader_kernels = self.kernels.get(self.node.name, frozenset()), self.kernels.get(reader, frozenset())
        return bool(reader_kernels) and reader_kernels <= kernels

    @property
    def is_never_stored(self) -> bool:
        """Whether full Inductor never writes the result to memory."""
        return not self.escapes and bool(self.readers) and all(map(self.is_fused_with, self.readers))


def _graph_results(session: Session, full_graph: FullGraph, *, crossing: bool = True) -> Iterator[_Result]:
    """Yield the results of a graph; with ``crossing``, only results that are read on another side."""
    graph = session.graph(full_graph.graph)
    nodes = graph.by_name
    views = {full_graph.names[position] for position in full_graph.code.views}
    numbers = grouped(
        (full_graph.names[position], number)
        for number, kernel in enumerate(full_graph.code.kernels)
        for position in (*kernel.nodes, *kernel.inferred)
    )
    kernels = {name: frozenset(computing) for name, computing in numbers.items()}
    sides: dict[str, Side] = {
        name: (part.region, part.id)
        for part in session.partitions
        if part.graph == graph.id and part.artifact
        for name in part.nodes
    }
    readers, escaping = _readers(graph, views)
    for name, result_readers in readers.items():
        source = sides.get(name, (EAGER_OPS, name))
        read_by = grouped((sides.get(reader, (EAGER_OPS, reader)), reader) for reader in result_readers)
        read_by.pop(source, None)
        if read_by or not crossing:
            yield _Result(
                nodes[name],
                source,
                size_of(nodes[name]),
                tuple(result_readers),
                {side: tuple(names) for side, names in read_by.items()},
                name in escaping,
                kernels,
            )


def _readers(graph: Graph, views: set[str]) -> tuple[dict[str, list[str]], set[str]]:
    """Return the nodes that read each result, through views, and the results that leave the graph."""
    base: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    escaping: set[str] = set()
    for node in graph.nodes:
        sources = dict.fromkeys(base[name] for name in node.inputs if name in base)
        if node.role is Role.OUTPUT:
            escaping |= set(sources)
        elif node.role is Role.OP and node.name in views:
            if node.inputs and node.inputs[0] in base:
                base[node.name] = base[node.inputs[0]]
        elif node.role is Role.OP:
            base[node.name] = node.name
            readers[node.name] = []
            for name in sources:
                readers[name].append(node.name)
    return readers, escaping


def size_of(node: Node) -> int:
    """Return the bytes of a node's results; results with symbolic sizes count as 0."""
    return sum(spec.size_bytes or 0 for spec in node.values)
