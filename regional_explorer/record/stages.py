"""The stages of a partition, from Dynamo's graph to Inductor's output, and the origins of the nodes in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from regional_explorer.errors import InvalidArgumentError, did_you_mean
from regional_explorer.errors.arguments import shown_value
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, SourceLine
from regional_explorer.record.kernels import LoweredGraph
from regional_explorer.record.partition import Partition
from regional_explorer.record.region_code import PartitionCode, by_artifact
from regional_explorer.record.session import Session
from regional_explorer.record.stage_change import Change, change, computes

Sources = Mapping[str, tuple[str, ...]]
"""The nodes of the previous stage that each node comes from, by its name."""


class StageKind(StrEnum):
    """The stages, in order: in Dynamo's and AOTAutograd's graphs, as cut out, and as Inductor transforms it."""

    DYNAMO = "dynamo"
    AOT = "aot"
    PARTITION = "partition"
    AFTER_PASSES = "after passes"
    OUTPUT = "output"


@dataclass(frozen=True)
class Stage:
    """One stage of a partition: its nodes and their inputs, what each comes from, and what this stage changed.

    For Dynamo's and AOTAutograd's graphs it has the part that belongs to the region. ``note`` says what is missing.
    """

    kind: StageKind
    title: str
    nodes: tuple[Node, ...]
    sources: Sources
    change: Change | None = None
    note: str = ""

    @property
    def ops(self) -> tuple[Node, ...]:
        """The nodes that are ops, views included."""
        return tuple(node for node in self.nodes if node.role is Role.OP)

    @property
    def computing(self) -> int:
        """How many of its ops compute something."""
        return sum(map(computes, self.ops))


@dataclass(frozen=True)
class PartitionStages:
    """The stages of one partition; ``equal`` are the ids of equal ones, ``problem`` says why stages are missing."""

    partition: Partition
    stages: tuple[Stage, ...]
    equal: tuple[str, ...] = ()
    problem: str | None = None

    def followed(self, names: Collection[str]) -> Mapping[StageKind, frozenset[str]]:
        """Return the nodes in every stage that come from the nodes called ``names``, or that those come from."""
        held = [{node.name for node in stage.ops} & set(names) for stage in self.stages]
        down = [set(one) for one in held]
        for place in range(1, len(self.stages)):
            sources = self.stages[place].sources
            down[place] |= {name for name, above in sources.items() if down[place - 1] & set(above)}
        up = [set(one) for one in held]
        for place in range(len(self.stages) - 1, 0, -1):
            sources = self.stages[place].sources
            up[place - 1] |= {above for name in up[place] for above in sources.get(name, ())}
        return {stage.kind: frozenset(above | below) for stage, above, below in zip(self.stages, up, down, strict=True)}

    def lines(self) -> Mapping[StageKind, Mapping[str, tuple[SourceLine, ...]]]:
        """Return the source lines that each node of each stage comes from."""
        found: dict[StageKind, Mapping[str, tuple[SourceLine, ...]]] = {}
        before: Mapping[str, tuple[SourceLine, ...]] = {}
        for stage in self.stages:
            mine: dict[str, tuple[SourceLine, ...]] = {}
            for node in stage.ops:
                above = [line for source in stage.sources.get(node.name, ()) for line in before.get(source, ())]
                mine[node.name] = tuple(dict.fromkeys(above)) or ((node.source,) if node.source else ())
            found[stage.kind] = before = mine
        return found


def region_stages(session: Session, codes: Iterable[PartitionCode]) -> tuple[PartitionStages, ...]:
    """Return the stages of the distinct partitions among ``codes``."""
    return tuple(
        PartitionStages(
            first.partition,
            _with_changes([*_stages(session, first)]),
            tuple(code.partition.id for code in rest),
            first.code.problem,
        )
        for first, *rest in by_artifact(codes)
    )


def check_followed(found: Sequence[PartitionStages], names: Sequence[str]) -> None:
    """Raise InvalidArgumentError if a name is not that of a node in any stage."""
    known = {node.name for one in found for stage in one.stages for node in stage.ops}
    for name in names:
        if name not in known:
            raise InvalidArgumentError(
                f"No stage has a node called {shown_value(name)}.{did_you_mean(name, sorted(known))} "
                f"Nodes: {', '.join(sorted(known)[:12])}{', …' if len(known) > 12 else ''}."  # noqa: PLR2004 - shown
            )


def _with_changes(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    changes = (
        change(before.ops, stage.ops, stage.sources, kernels=stage.kind is StageKind.OUTPUT)
        for before, stage in pairwise(stages)
    )
    return tuple(replace(stage, change=found) for stage, found in zip(stages, (None, *changes), strict=True))


def _stages(session: Session, found: PartitionCode) -> Iterator[Stage]:
    part, code = found.partition, found.code
    graph = session.graph(part.graph)
    around = _instance(session, part, graph)
    origins = {node.origin for node in graph.nodes if node.name in around} - {None}
    dynamo, by_origin = _dynamo(session, graph.frame, origins)
    above = {node.name: by_origin.get(node.origin, ()) for node in graph.nodes if node.name in around}
    yield Stage(StageKind.DYNAMO, "Dynamo's graph", dynamo, {})
    yield Stage(StageKind.AOT, f"AOTAutograd's {graph.kind} graph", _excerpt(graph, around), above)
    yield Stage(
        StageKind.PARTITION, f"Partition {part.id}", _excerpt(graph, set(part.nodes)), {n: (n,) for n in part.nodes}
    )
    passed = code.after_passes
    if passed is None:
        return
    yield Stage(StageKind.AFTER_PASSES, "After Inductor's passes", passed.nodes, _came_from(found, passed))
    known = {node.name for node in passed.nodes}
    origin = [tuple(name for name in kernel.origins if name in known) for kernel in code.kernels]
    if code.output is not None:
        sources = {name: tuple(o for k in kernels for o in origin[k]) for name, kernels in code.output.sources.items()}
        yield Stage(StageKind.OUTPUT, "Inductor's output, as a graph", code.output.nodes, sources)
    else:
        why = code.output_problem or "Of C++ there is no such graph: these are the kernels, and which reads which."
        names = [f"kernel_{number}" for number in range(1, len(code.kernels) + 1)]
        nodes = tuple(
            Node(name, Role.OP, kernel.name, inputs=tuple(names[place] for place in kernel.reads_from))
            for name, kernel in zip(names, code.kernels, strict=True)
        )
        sources = dict(zip(names, origin, strict=True))
        yield Stage(StageKind.OUTPUT, "Inductor's output", nodes, sources, note=why)


def _came_from(found: PartitionCode, passed: LoweredGraph) -> Sources:
    """Return the nodes of the partition that each node after the passes comes from.

    For an op that Inductor does not record, only its readers are known. If a reader became another op, such as an
    ``add`` that became an ``addmm``, it contains the op; if the reader is unchanged, the op was removed.
    """
    became = Counter(place for places in passed.sources.values() for place in places)
    sources = {}
    for node in passed.nodes:
        named = passed.sources.get(node.name, ())
        stayed = any(became[place] > 1 or found.nodes[place].op == node.op for place in named)
        more = () if stayed else passed.inferred.get(node.name, ())
        if named or more:
            sources[node.name] = tuple(found.partition.nodes[place] for place in sorted({*named, *more}))
    return sources


def _instance(session: Session, part: Partition, graph: Graph) -> set[str]:
    """Return the nodes of the region around a partition: those of its instance, and adjacent ones that were not cut."""
    mine = {
        name
        for other in session.partitions
        if (other.region, other.instance, other.graph) == (part.region, part.instance, part.graph)
        for name in other.nodes
    }
    cut = {name for other in session.partitions if other.graph == part.graph for name in other.nodes}
    rest = set(session.members.get(part.region, {}).get(part.graph, ())) - cut
    beside = {node.name for node in graph.nodes if node.name in rest and mine & set(node.inputs)}
    fed = {name for node in graph.nodes if node.name in mine for name in node.inputs if name in rest}
    return mine | beside | fed


def _dynamo(
    session: Session, frame: int, origins: Collection[int | None]
) -> tuple[tuple[Node, ...], dict[int | None, tuple[str, ...]]]:
    """Return the nodes of Dynamo's graph and its bodies that have these origins, and their names by origin."""
    nodes: list[Node] = []
    by_origin: dict[int | None, tuple[str, ...]] = {}
    taken: set[str] = set()
    for graph in session.graphs:
        if graph.kind is not GraphKind.DYNAMO or graph.frame != frame:
            continue
        inside = {node.name for node in graph.nodes if node.origin in origins and node.role is Role.OP}
        for node in _excerpt(graph, inside, prefix=f"{graph.id}:" if taken else ""):
            if node.name not in taken:
                taken.add(node.name)
                nodes.append(node)
                if node.origin in origins and node.role is Role.OP:
                    by_origin[node.origin] = (*by_origin.get(node.origin, ()), node.name)
    return tuple(nodes), by_origin


def _excerpt(graph: Graph, inside: Collection[str], prefix: str = "") -> tuple[Node, ...]:
    """Return the nodes ``inside`` a part of a graph, with inputs, and an output for what is read outside of it."""
    nodes = graph.by_name()
    ops = [node for node in graph.nodes if node.name in inside]
    fed = [nodes[name] for name in dict.fromkeys(name for op in ops for name in op.inputs) if name not in inside]
    inputs = [
        Node(node.name, Role.INPUT if node.role is Role.OP else node.role, node.target, values=node.values, label=label)
        for node in fed
        for label in [node.label or node.name]
    ]
    read = {name for node in graph.nodes if node.name not in inside for name in node.inputs}
    output = Node("output", Role.OUTPUT, "output", inputs=tuple(op.name for op in ops if op.name in read))
    found = [*inputs, *ops, *([output] if output.inputs else [])]
    return tuple(
        replace(node, name=f"{prefix}{node.name}", inputs=tuple(f"{prefix}{name}" for name in node.inputs))
        if prefix
        else node
        for node in found
    )
