"""The stages of a partition, from the user's ops to kernels, and the change in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec.structs import replace

from regional_explorer.errors import InvalidArgumentError, count, did_you_mean, listing, shown_value
from regional_explorer.record import Record
from regional_explorer.record.artifact import LoweredGraph
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.region_code import PartitionCode, grouped_by_artifact
from regional_explorer.record.session import Session

NONCOMPUTING_OPS = frozenset(
    {"_unsafe_view", "alias", "as_strided", "chunk", "detach", "expand", "flatten", "getitem", "permute", "reshape"}
    | {"select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze"}
    | {"view", "view_as", "T", "mT", "empty_strided", "empty"}
)
"""Ops that compute nothing: they view data, or allocate memory."""

MOST_EXAMPLES = 3


class Change(Record, frozen=True):
    """The number of ops and views before and after a stage, and what became of the ops."""

    ops_before: int
    ops: int
    """Ops after; kernels, if ``kernels``."""
    views_before: int
    decomposed: int = 0
    """The number of ops that became several ops, or that several kernels compute."""
    fused: int = 0
    """The number of ops that were combined."""
    into: int = 0
    """The number of ops that the fused ops became."""
    replaced: int = 0
    """The number of ops that another op replaced."""
    removed: int = 0
    """The number of ops without a successor."""
    inserted: int = 0
    """The number of ops without a predecessor."""
    elided: int = 0
    """The number of views that were removed."""
    kernels: bool = False
    """Whether ops became kernels."""
    examples: tuple[str, ...] = ()
    """Decomposed, fused and replaced ops, in words."""

    def __str__(self) -> str:
        """Return for example ``7 ops → 3: 6 fused into 2 (mul, erf, add → cpp_fused_gelu_0); 4 of 5 views elided``."""
        effects = [
            f"{self.decomposed} {'computed in several' if self.kernels else 'decomposed'}" if self.decomposed else "",
            f"{self.fused} fused into {self.into}" if self.fused else "",
            f"{self.replaced} replaced by another" if self.replaced and not self.kernels else "",
            f"{self.removed} removed" if self.removed else "",
            f"{self.inserted} inserted" if self.inserted else "",
        ]
        summary = ", ".join(filter(None, effects)) or ("one for each" if self.kernels else "none changed")
        examples = f" ({'; '.join(self.examples)})" if self.examples else ""
        views = f"; {self.elided} of {self.views_before} views elided" if self.elided else ""
        after = count(self.ops, "kernel") if self.kernels else f"{self.ops}"
        return f"{count(self.ops_before, 'op')} → {after}: {summary}{examples}{views}."


def computes(node: Node) -> bool:
    """Return whether a node of a stage does more than view data or allocate memory."""
    return node.op not in NONCOMPUTING_OPS


def stage_change(
    before: Sequence[Node], after: Sequence[Node], sources: Mapping[str, tuple[str, ...]], *, kernels: bool = False
) -> Change:
    """Return how a stage changed the ops ``before``; ``sources`` says what each node of ``after`` comes from."""
    by_name = {node.name: node for node in before}
    parents = {node.name: [by_name[name] for name in sources.get(node.name, ()) if name in by_name] for node in after}
    became = grouped((source.name, node) for node in after for source in parents[node.name])
    ops = [node for node in before if computes(node)]
    new_ops = {node.name: [new for new in became.get(node.name, ()) if computes(new)] for node in ops}
    joint = {node.name for node in after if computes(node) and len([s for s in parents[node.name] if computes(s)]) > 1}
    decomposed = [node for node in ops if len(new_ops[node.name]) > 1]
    fused = [node for node in ops if any(new.name in joint for new in new_ops[node.name])]
    single = [node for node in ops if len(new_ops[node.name]) == 1 and new_ops[node.name][0].name not in joint]
    replaced = [node for node in single if new_ops[node.name][0].op != node.op]
    return Change(
        ops_before=len(ops),
        ops=sum(computes(node) for node in after),
        views_before=len(before) - len(ops),
        decomposed=len(decomposed),
        fused=len(fused),
        into=len(joint),
        replaced=len(replaced),
        removed=sum(not new_ops[node.name] for node in ops),
        inserted=sum(computes(node) and not parents[node.name] for node in after),
        elided=sum(not computes(node) and node.name not in became for node in before),
        kernels=kernels,
        examples=tuple(
            dict.fromkeys(
                [
                    *(f"{node.op} → {_counted_ops(new_ops[node.name])}" for node in decomposed[:MOST_EXAMPLES]),
                    *(
                        f"{_counted_ops([s for s in parents[node.name] if computes(s)])} → {node.op}"
                        for node in [new for new in after if new.name in joint][:MOST_EXAMPLES]
                    ),
                    *(f"{node.op} → {new_ops[node.name][0].op}" for node in replaced[:MOST_EXAMPLES] if not kernels),
                ]
            )
        ),
    )


def _counted_ops(nodes: Sequence[Node]) -> str:
    """Return the ops of nodes, each once: ``mul ×3, erf, add``."""
    counts = Counter(node.op for node in nodes)
    return listing((f"{op} ×{number}" if number > 1 else op for op, number in counts.items()), 6)


MOST_NAMED_NODES = 12
"""The maximum number of nodes that an error names."""

Sources = Mapping[str, tuple[str, ...]]
"""The nodes of the previous stage that each node comes from, by its name."""


class StageKind(StrEnum):
    """The stages, in order: in Dynamo's and AOTAutograd's graphs, as cut out, and as Inductor transforms it."""

    DYNAMO = "dynamo"
    AOT = "aot"
    PARTITION = "partition"
    AFTER_PASSES = "after passes"
    OUTPUT = "output"


class Stage(Record, frozen=True):
    """One stage of a partition; for Dynamo's and AOTAutograd's graphs, the region's part of the graph."""

    kind: StageKind
    title: str
    """The title that people read."""
    nodes: tuple[Node, ...]
    """Its nodes and their inputs."""
    sources: Sources
    """The nodes of the previous stage that each node comes from, by name."""
    change: Change | None = None
    """The change from the previous stage."""
    note: str = ""
    """A remark on what is missing."""

    @property
    def ops(self) -> tuple[Node, ...]:
        """The nodes that are ops, views included."""
        return tuple(node for node in self.nodes if node.role is Role.OP)

    @property
    def computing(self) -> int:
        """How many of its ops compute something."""
        return sum(map(computes, self.ops))


class PartitionStages(Record, frozen=True):
    """The stages of one partition."""

    partition: Partition
    stages: tuple[Stage, ...]
    """Its stages in order."""
    equal: tuple[str, ...] = ()
    """The ids of equal partitions."""
    problem: str | None = None
    """Why stages are missing."""

    def followed(self, names: Collection[str]) -> Mapping[StageKind, frozenset[str]]:
        """Return the nodes called ``names`` with their predecessors and successors, by stage."""
        named = [{node.name for node in stage.ops} & set(names) for stage in self.stages]
        down = [set(stage_names) for stage_names in named]
        for index in range(1, len(self.stages)):
            sources = self.stages[index].sources
            down[index] |= {name for name, above in sources.items() if down[index - 1] & set(above)}
        up = [set(stage_names) for stage_names in named]
        for index in range(len(self.stages) - 1, 0, -1):
            sources = self.stages[index].sources
            up[index - 1] |= {above for name in up[index] for above in sources.get(name, ())}
        return {stage.kind: frozenset(above | below) for stage, above, below in zip(self.stages, up, down, strict=True)}

    def lines(self) -> Mapping[StageKind, Mapping[str, tuple[SourceLine, ...]]]:
        """Return the source lines that each node of each stage comes from."""
        by_stage: dict[StageKind, Mapping[str, tuple[SourceLine, ...]]] = {}
        previous: Mapping[str, tuple[SourceLine, ...]] = {}
        for stage in self.stages:
            node_lines: dict[str, tuple[SourceLine, ...]] = {}
            for node in stage.ops:
                inherited = [line for source in stage.sources.get(node.name, ()) for line in previous.get(source, ())]
                node_lines[node.name] = tuple(dict.fromkeys(inherited)) or ((node.source,) if node.source else ())
            by_stage[stage.kind] = previous = node_lines
        return by_stage


def region_stages(session: Session, codes: Iterable[PartitionCode]) -> tuple[PartitionStages, ...]:
    """Return the stages of the distinct partitions among ``codes``."""
    return tuple(
        PartitionStages(
            first.partition,
            _with_changes([*_partition_stages(session, first)]),
            tuple(code.partition.id for code in equal),
            first.code.problem,
        )
        for first, *equal in grouped_by_artifact(codes)
    )


def check_followed(partitions: Sequence[PartitionStages], names: Sequence[str]) -> None:
    """Raise InvalidArgumentError if no stage has a node of one of the names."""
    ops = {node.name for partition in partitions for stage in partition.stages for node in stage.ops}
    for name in names:
        if name not in ops:
            listed = f"Nodes: {listing(sorted(ops), MOST_NAMED_NODES)}." if ops else "There is no node."
            raise InvalidArgumentError(
                f"No stage has a node called {shown_value(name)}.{did_you_mean(name, sorted(ops))} {listed}"
            )


def _with_changes(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    changes = (
        stage_change(before.ops, stage.ops, stage.sources, kernels=stage.kind is StageKind.OUTPUT)
        for before, stage in pairwise(stages)
    )
    return tuple(replace(stage, change=effect) for stage, effect in zip(stages, (None, *changes), strict=True))


def _partition_stages(session: Session, partition_code: PartitionCode) -> Iterator[Stage]:
    part, code = partition_code.partition, partition_code.code
    graph = session.graph(part.graph)
    region_nodes = _region_nodes_around(session, part, graph)
    region_origins = {node.origin for node in graph.nodes if node.name in region_nodes} - {None}
    dynamo, by_origin = _dynamo_excerpt(session, graph.frame, region_origins)
    aot_sources = {
        node.name: tuple(by_origin.get(node.origin, ())) for node in graph.nodes if node.name in region_nodes
    }
    yield Stage(StageKind.DYNAMO, "Dynamo's graph", dynamo, {})
    yield Stage(StageKind.AOT, f"AOTAutograd's {graph.kind} graph", _excerpt(graph, region_nodes), aot_sources)
    yield Stage(
        StageKind.PARTITION, f"Partition {part.id}", _excerpt(graph, set(part.nodes)), {n: (n,) for n in part.nodes}
    )
    lowered = code.after_passes
    if lowered is None:
        return
    yield Stage(StageKind.AFTER_PASSES, "After Inductor's passes", lowered.nodes, _came_from(partition_code, lowered))
    lowered_names = {node.name for node in lowered.nodes}
    origins = [tuple(name for name in kernel.origins if name in lowered_names) for kernel in code.kernels]
    if code.output is not None:
        sources = {name: tuple(o for k in kernels for o in origins[k]) for name, kernels in code.output.sources.items()}
        yield Stage(StageKind.OUTPUT, "Inductor's output, as a graph", code.output.nodes, sources)
    else:
        note = (
            code.output_problem
            or "C++ code has no such graph: these are its kernels, and which reads the results of which."
        )
        names = [f"kernel_{number}" for number in range(1, len(code.kernels) + 1)]
        nodes = tuple(
            Node(name, Role.OP, kernel.name, inputs=tuple(names[position] for position in kernel.reads_from))
            for name, kernel in zip(names, code.kernels, strict=True)
        )
        sources = dict(zip(names, origins, strict=True))
        yield Stage(StageKind.OUTPUT, "Inductor's output", nodes, sources, note=note)


def _came_from(code: PartitionCode, lowered: LoweredGraph) -> Sources:
    """Return the nodes of the partition that each node after the passes comes from.

    Of an op that Inductor does not record, only the readers are known. A reader that became another op, such as an
    ``add`` that became an ``addmm``, contains the op. If the reader is unchanged, the op was removed.
    """
    became = Counter(position for positions in lowered.sources.values() for position in positions)
    sources = {}
    for node in lowered.nodes:
        recorded = lowered.sources.get(node.name, ())
        stayed = any(became[position] > 1 or code.nodes[position].op == node.op for position in recorded)
        inferred = () if stayed else lowered.inferred.get(node.name, ())
        if recorded or inferred:
            sources[node.name] = tuple(code.partition.nodes[position] for position in sorted({*recorded, *inferred}))
    return sources


def _region_nodes_around(session: Session, part: Partition, graph: Graph) -> set[str]:
    """Return the region's nodes around a partition: the nodes of its instance, and adjacent nodes that were not cut."""
    instance = {
        name
        for other in session.partitions
        if (other.region, other.instance, other.graph) == (part.region, part.instance, part.graph)
        for name in other.nodes
    }
    cut = {name for other in session.partitions if other.graph == part.graph for name in other.nodes}
    uncut = set(session.members.get(part.region, {}).get(part.graph, ())) - cut
    readers = {node.name for node in graph.nodes if node.name in uncut and instance & set(node.inputs)}
    inputs = {name for node in graph.nodes if node.name in instance for name in node.inputs if name in uncut}
    return instance | readers | inputs


def _dynamo_excerpt(
    session: Session, frame: int, origins: Collection[int | None]
) -> tuple[tuple[Node, ...], Mapping[int | None, Sequence[str]]]:
    """Return the nodes of Dynamo's graph and its bodies with the given origins, and their names by origin."""
    nodes: dict[str, Node] = {}
    for graph in session.graphs:
        if graph.kind is GraphKind.DYNAMO and graph.frame == frame:
            inside = {node.name for node in graph.nodes if node.origin in origins and node.role is Role.OP}
            for node in _excerpt(graph, inside, prefix=f"{graph.id}:" if nodes else ""):
                nodes.setdefault(node.name, node)
    inside_nodes = [node for node in nodes.values() if node.origin in origins and node.role is Role.OP]
    return tuple(nodes.values()), grouped((node.origin, node.name) for node in inside_nodes)


def _excerpt(graph: Graph, inside: Collection[str], prefix: str = "") -> tuple[Node, ...]:
    """Return the nodes ``inside`` a part of a graph, with its inputs, and an output for results read outside."""
    nodes = graph.by_name
    ops = [node for node in graph.nodes if node.name in inside]
    sources = [nodes[name] for name in dict.fromkeys(name for op in ops for name in op.inputs) if name not in inside]
    inputs = [
        Node(node.name, Role.INPUT if node.role is Role.OP else node.role, node.target, values=node.values, label=label)
        for node in sources
        for label in [node.label or node.name]
    ]
    read_outside = {name for node in graph.nodes if node.name not in inside for name in node.inputs}
    output = Node("output", Role.OUTPUT, "output", inputs=tuple(op.name for op in ops if op.name in read_outside))
    excerpt = [*inputs, *ops, *([output] if output.inputs else [])]
    return tuple(
        replace(node, name=f"{prefix}{node.name}", inputs=tuple(f"{prefix}{name}" for name in node.inputs))
        if prefix
        else node
        for node in excerpt
    )
