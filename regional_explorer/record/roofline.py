"""A plan against full Inductor: the gain it reaches, the bytes that cross partitions, roundings, launches."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import prod

from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.benchmark import Phase
from regional_explorer.record.figure import Figure
from regional_explorer.record.graph import Graph, Node, Role, TensorSpec
from regional_explorer.record.grouping import grouped
from regional_explorer.record.record import Record
from regional_explorer.record.session import Session

EAGER_OPS = "eager ops"
"""The name for ops outside of partitions, each of which is its own kernel."""

LOW_PRECISION = frozenset({"bfloat16", "float16"})


class Border(Record, frozen=True):
    """The tensors computed on one side and read on another; a side is a partition, or an op that runs eagerly.

    ``source`` and ``reader`` are the name of the region, or ``EAGER_OPS``. A tensor moves once when it is written,
    counted with its first reader, and once for each side that reads it. ``fused_bytes`` of ``moved_bytes`` do not move
    in full Inductor, which computes and reads them in one kernel; that holds for ``fused`` of the ``tensors`` entirely.
    """

    source: str
    reader: str
    tensors: int
    moved_bytes: int
    fused: int
    fused_bytes: int


class PhaseReach(Record, frozen=True):
    """Times of one phase, in seconds; ``full_wins`` says whether full Inductor is certainly faster than eager.

    ``full_loses`` says whether it is certainly not, ``full_gain_s`` by how much.

    ``share_by_round`` is the plan's part of full's gain over eager, by round: 0.0 if it is as slow as eager, 1.0 if it
    is as fast as full. ``withheld`` says whose results are wrong, so that there is no share.
    """

    phase: Phase
    eager_s: Figure
    regional_s: Figure
    full_s: Figure
    full_gain_s: Figure
    share_by_round: Figure
    full_wins: bool = True
    full_loses: bool = False
    withheld: str = ""

    @property
    def gain_s(self) -> Figure | None:
        """What full Inductor gains over eager; None if it is not certain to gain anything."""
        return self.full_gain_s if self.full_wins and self.full_gain_s.value > 0.0 else None

    @property
    def share(self) -> Figure | None:
        """The plan's part of that gain."""
        return None if self.gain_s is None or self.withheld else self.share_by_round


class RegionReach(Record, frozen=True):
    """What one region, measured alone, gains over eager; ``share`` is its part of full's total gain."""

    region: str
    gain_s: Figure | None
    share: Figure | None


class OpDifference(Record, frozen=True):
    """How Inductor's decomposition of an op changes its results, over all its ``nodes``, on the values of the call.

    ``eager_error`` and ``decomposed_error`` are against the op in float64, None if it does not run in float64.
    """

    op: str
    nodes: int
    bitwise: int
    max_difference: float
    eager_error: float | None
    decomposed_error: float | None


class BitwiseTrial(Record, frozen=True):
    """Full Inductor under a config, against eager: how many of ``tensors`` were bitwise equal; ``problem`` if none.

    Results that cannot be compared do not count.
    """

    config: Mapping[str, object]
    tensors: int = 0
    bitwise: int = 0
    max_difference: float = 0.0
    problem: str = ""

    @property
    def equal(self) -> bool:
        """Whether every output and gradient that was compared is bitwise equal to eager's."""
        return not self.problem and 0 < self.tensors == self.bitwise


class Roundings(Record, frozen=True):
    """How many results have a two-byte dtype, and how many of them full Inductor never rounds to it."""

    results: int
    elided: int


class Launches(Record, frozen=True):
    """The number of kernels that one call launches: in eager ops and regions under the plan, and in full Inductor."""

    eager_ops: int
    region_kernels: int | None
    full_kernels: int


class FullGraph(Record, frozen=True):
    """The code that Inductor generates for a whole captured graph; its positions refer to the nodes in ``names``."""

    graph: str
    names: tuple[str, ...]
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
                row["fused_bytes"] += result.bytes * (all_fused + (is_first and result.never_stored))
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
    return Roundings(len(results), sum(result.never_stored for result in results))


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


class _Result(Record, frozen=True):
    """A result: where it is computed, which nodes read it on which other side, and the kernels in full Inductor."""

    node: Node
    source: Side
    bytes: int
    readers: tuple[str, ...]
    read_by: Mapping[Side, tuple[str, ...]]
    escapes: bool
    kernels: Mapping[str, frozenset[int]]

    def is_fused_with(self, reader: str) -> bool:
        """Return whether every kernel of full Inductor that computes ``reader`` also computes this result."""
        kernels, reader_kernels = self.kernels.get(self.node.name, frozenset()), self.kernels.get(reader, frozenset())
        return bool(reader_kernels) and reader_kernels <= kernels

    @property
    def never_stored(self) -> bool:
        """Whether full Inductor never writes it to memory."""
        return not self.escapes and bool(self.readers) and all(map(self.is_fused_with, self.readers))


def _graph_results(session: Session, full_graph: FullGraph, *, crossing: bool = True) -> Iterator[_Result]:
    """Yield the results of a graph, with ``crossing`` only those that are read on another side."""
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
    """Return the bytes of a node's results; those with symbolic sizes count as 0."""
    return sum(map(_spec_bytes, node.values))


def _spec_bytes(spec: TensorSpec) -> int:
    sizes = [size for size in spec.shape if isinstance(size, int)]
    is_static = len(sizes) == len(spec.shape)
    return prod(sizes) * _item_bytes(spec.dtype) if is_static else 0


def _item_bytes(dtype: str) -> int:
    """Return the bytes of one element: the first number in the name is its bits, and none is smaller than a byte."""
    bits = re.search(r"\d+", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1
