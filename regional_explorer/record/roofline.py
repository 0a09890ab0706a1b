"""A plan against full Inductor: the gain it reaches, the bytes that cross partitions, roundings, launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from regional_explorer.record.graph import Graph, Node, Role, TensorSpec
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Phase

EAGER_OPS = "eager ops"
"""The name for ops outside of partitions, each of which is its own kernel."""

LOW_PRECISION = {"bfloat16": 2, "float16": 2}
_BYTES = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "bool": 1, "uint8": 1, "int8": 1, "int16": 2}


@dataclass(frozen=True, slots=True)
class Border:
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


@dataclass(frozen=True, slots=True)
class Reach:
    """Times of one phase, in seconds; ``full_wins`` says whether full Inductor is certainly faster than eager."""

    phase: Phase
    eager_s: float
    regional_s: float
    full_s: float
    full_wins: bool = True

    @property
    def gain_s(self) -> float | None:
        """What full Inductor gains over eager; None if it is not certain to gain anything."""
        return self.eager_s - self.full_s if self.full_wins and self.eager_s > self.full_s else None

    @property
    def share(self) -> float | None:
        """The plan's part of that gain: 0.0 if it is as slow as eager, 1.0 if it is as fast as full."""
        return None if self.gain_s is None else (self.eager_s - self.regional_s) / self.gain_s


@dataclass(frozen=True, slots=True)
class RegionReach:
    """What one region, measured alone, gains over eager; ``share`` is its part of full's total gain."""

    region: str
    gain_s: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class OpDifference:
    """How Inductor's decomposition of an op changes its results, over all its ``nodes``, on the values of the call.

    ``eager_error`` and ``decomposed_error`` are against the op in float64, None if it does not run in float64.
    """

    op: str
    nodes: int
    bitwise: int
    max_difference: float
    eager_error: float | None
    decomposed_error: float | None


@dataclass(frozen=True, slots=True)
class BitwiseTrial:
    """Full Inductor under a config, against eager: how many of ``tensors`` were bitwise equal; ``problem`` if none."""

    config: Mapping[str, object]
    tensors: int = 0
    bitwise: int = 0
    max_difference: float = 0.0
    problem: str = ""

    @property
    def equal(self) -> bool:
        """Whether every output and gradient is bitwise equal to eager's."""
        return not self.problem and self.bitwise == self.tensors


@dataclass(frozen=True, slots=True)
class Roundings:
    """How many results have a two-byte dtype, and how many of them full Inductor never rounds to it."""

    results: int
    elided: int


@dataclass(frozen=True, slots=True)
class Launches:
    """The number of kernels that one call launches: in eager ops and regions under the plan, and in full Inductor."""

    eager_ops: int
    region_kernels: int | None
    full_kernels: int


@dataclass(frozen=True)
class FullGraph:
    """The code that Inductor generates for a whole captured graph; its positions refer to the nodes in ``names``."""

    graph: str
    names: tuple[str, ...]
    code: ArtifactCode


def borders(session: Session, full: Mapping[str, FullGraph]) -> tuple[Border, ...]:
    """Return the tensors that cross between partitions and eager ops, for the graphs in ``full``, by fused bytes."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for found in full.values():
        for value in _values(session, found):
            for number, (reader, readers) in enumerate(value.read_by.items()):
                first, together = number == 0, all(map(value.is_fused_with, readers))
                row = sums[value.source[0], reader[0]]
                row["tensors"] += 1
                row["fused"] += together
                row["moved_bytes"] += value.bytes * (2 if first else 1)
                row["fused_bytes"] += value.bytes * (together + (first and value.never_stored))
    rows = (
        Border(*sides, row["tensors"], row["moved_bytes"], row["fused"], row["fused_bytes"])
        for sides, row in sums.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.fused_bytes, -row.moved_bytes)))


def roundings(session: Session, full: Mapping[str, FullGraph]) -> Roundings:
    """Return how many results have a two-byte dtype, and how many of them full Inductor keeps in a wider one."""
    found = [
        value
        for graph in full.values()
        for value in _values(session, graph, crossing=False)
        if value.node.values and value.node.values[0].dtype in LOW_PRECISION
    ]
    return Roundings(len(found), sum(value.never_stored for value in found))


def eager_ops(session: Session, full: Mapping[str, FullGraph]) -> int:
    """Return how many ops that compute something run outside of partitions."""
    inside = {(part.graph, name) for part in session.partitions if part.artifact for name in part.nodes}
    total = 0
    for found in full.values():
        views = {found.names[place] for place in found.code.views}
        ops = session.graph(found.graph).ops
        total += sum(node.name not in views and (found.graph, node.name) not in inside for node in ops)
    return total


Side = tuple[str, str]
"""The name of the region, or ``EAGER_OPS``, and the partition or op."""


@dataclass(frozen=True)
class _Value:
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
        mine, theirs = self.kernels.get(self.node.name, frozenset()), self.kernels.get(reader, frozenset())
        return bool(theirs) and theirs <= mine

    @property
    def never_stored(self) -> bool:
        """Whether full Inductor never writes it to memory."""
        return not self.escapes and bool(self.readers) and all(map(self.is_fused_with, self.readers))


def _values(session: Session, found: FullGraph, *, crossing: bool = True) -> Iterator[_Value]:
    """Yield the results of a graph, with ``crossing`` only those that are read on another side."""
    graph = session.graph(found.graph)
    nodes = graph.by_name()
    views = {found.names[place] for place in found.code.views}
    kernels: dict[str, set[int]] = {}
    for number, kernel in enumerate(found.code.kernels):
        for place in (*kernel.nodes, *kernel.inferred):
            kernels.setdefault(found.names[place], set()).add(number)
    sides: dict[str, Side] = {
        name: (part.region, part.id)
        for part in session.partitions
        if part.graph == graph.id and part.artifact
        for name in part.nodes
    }
    readers, escaping = _readers(graph, views)
    for name, read in readers.items():
        source = sides.get(name, (EAGER_OPS, name))
        others: dict[Side, list[str]] = {}
        for reader in read:
            side = sides.get(reader, (EAGER_OPS, reader))
            if side != source:
                others.setdefault(side, []).append(reader)
        if others or not crossing:
            yield _Value(
                nodes[name],
                source,
                size_of(nodes[name]),
                tuple(read),
                {side: tuple(inside) for side, inside in others.items()},
                name in escaping,
                {key: frozenset(value) for key, value in kernels.items()},
            )


def _readers(graph: Graph, views: set[str]) -> tuple[dict[str, list[str]], set[str]]:
    """Return the nodes that read each result, through views, and the results that leave the graph."""
    base: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    escaping: set[str] = set()
    for node in graph.nodes:
        above = dict.fromkeys(base[name] for name in node.inputs if name in base)
        if node.role is Role.OUTPUT:
            escaping |= set(above)
        elif node.role is Role.OP and node.name in views:
            if node.inputs and node.inputs[0] in base:
                base[node.name] = base[node.inputs[0]]
        elif node.role is Role.OP:
            base[node.name] = node.name
            readers[node.name] = []
            for name in above:
                readers[name].append(node.name)
    return readers, escaping


def size_of(node: Node) -> int:
    """Return the bytes of a node's results; those with symbolic sizes count as 0."""
    return sum(map(_bytes, node.values))


def _bytes(spec: TensorSpec) -> int:
    sizes = [size for size in spec.shape if isinstance(size, int)]
    known = len(sizes) == len(spec.shape)
    return prod(sizes) * LOW_PRECISION.get(spec.dtype, _BYTES.get(spec.dtype, 4)) if known else 0
