"""The seconds that a compile is expected to take, from the graphs alone, before anything is compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.graph import Graph, GraphKind, Node
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.session import Session

PIECE_S, OP_S, REDUCTION_S, TRACED_S = 1.6, 0.014, 1.0, 0.014
"""The seconds for each piece, each op of it and each kind of reduction, and for each op that ``torch.compile`` traces.

Fitted to compiles with empty caches on two x86-64 cores: ``python -m benchmarks expected``.
"""

_REDUCTIONS = ("norm", "softmax", "sum", "mean", "nll", "max", "var")
"""Parts of the names of ops that reduce: a kernel around one takes a C++ compiler about a second."""


class CompileWork(NamedTuple):
    """The work of a compile."""

    pieces: int = 0
    """How many pieces that differ are compiled."""
    ops: int = 0
    """How many ops these have."""
    reductions: int = 0
    """How many reductions differ among these: equal ones mostly share a kernel, which is built once."""
    traced: int = 0
    """How many ops are traced first."""

    @classmethod
    def of(cls, pieces: Iterable[Sequence[Node]], *, traced: bool = False) -> CompileWork:
        """Return the work of compiling ``pieces``, of which equal ones are compiled once."""
        distinct = {tuple((node.target, node.values) for node in piece) for piece in pieces if piece}
        ops = [op for piece in distinct for op in piece]
        reductions = {op for op in ops if any(word in op[0] for word in _REDUCTIONS)}
        return cls(len(distinct), len(ops), len(reductions), len(ops) if traced else 0)

    @property
    def seconds(self) -> float:
        """How long it takes with empty caches on the machine of the constants."""
        of_ops_s = OP_S * self.ops + REDUCTION_S * self.reductions + TRACED_S * self.traced
        return PIECE_S * self.pieces + of_ops_s


def _running(graphs: Iterable[Graph]) -> Iterator[Graph]:
    return (graph for graph in graphs if graph.kind is not GraphKind.DYNAMO)


def _whole_call(session: Session) -> CompileWork:
    explored = (graph for graph in _running(session.graphs) if graph.id not in session.late_graphs)
    return CompileWork.of((graph.ops for graph in explored), traced=True)


def work_of_origins(graphs: Sequence[Graph], instances: Iterable[Collection[int]]) -> CompileWork:
    """Return the work of a region that is not cut yet, from the origins of each of its instances."""
    instance_of = {origin: number for number, origins in enumerate(instances) for origin in origins}
    pieces = grouped(
        ((graph.id, instance_of[node.origin]), node)
        for graph in _running(graphs)
        for node in graph.ops
        if node.origin in instance_of
    )
    return CompileWork.of(pieces.values())


def _work_of_partitions(graphs: Sequence[Graph], partitions: Iterable[Partition]) -> CompileWork:
    by_graph = {graph.id: graph for graph in graphs}
    return CompileWork.of([by_graph[part.graph].by_name[name] for name in part.nodes] for part in partitions)


def expected_compile_s(session: Session, partitions: Iterable[Partition] | None = None) -> float | None:
    """Return the seconds that compiling ``partitions`` is expected to take, by default the whole call.

    The whole call is compiled by ``torch.compile``, which traces it first. None if there is nothing to compile.
    """
    work = _whole_call(session) if partitions is None else _work_of_partitions(session.graphs, partitions)
    return work.seconds * session.compile_rate if work.ops else None


def expected_plan_s(session: Session) -> float | None:
    """Return the seconds that compiling the stale partitions of the plan is expected to take; None without any."""
    return expected_compile_s(session, [part for part in session.partitions if part.state is State.STALE])


def compiles_seen(session: Session) -> dict[str, tuple[float, float]]:
    """Return the expected and the real seconds of each compile of a session that no cache shortened, by its key."""
    seen = {
        part.artifact or "": (_work_of_partitions(session.graphs, [part]).seconds, compiled.waited_s)
        for part, compiled in session.compiled_partitions
        if compiled.cache == "cold"
    }
    full = session.full_cost
    if full is not None and full.cache == "cold":
        seen[f"{VariantName.FULL} {session.title}"] = _whole_call(session).seconds, full.waited_s
    return seen


def compile_rate(seen: Mapping[str, tuple[float, float]]) -> float:
    """Return the real seconds of all compiles seen so far ÷ the expected seconds; 1 before the first."""
    expected_s, real_s = (sum(seconds) for seconds in zip(*seen.values(), strict=True)) if seen else (0.0, 0.0)
    return real_s / expected_s if expected_s > 0.0 and real_s > 0.0 else 1.0
