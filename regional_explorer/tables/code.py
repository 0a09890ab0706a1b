"""Tables of compiles (costs, caches, patterns) and of generated code: kernels, their times, the stages before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from regional_explorer.errors import count, listing
from regional_explorer.record.artifact import (
    ArtifactCode,
    ArtifactCompile,
    ArtifactKernelTimes,
    CacheResult,
    CompilePhase,
    GpuResources,
    Kernel,
    KernelTime,
    RefusedFusion,
)
from regional_explorer.record.benchmark import CompileCost
from regional_explorer.record.figure import Figure, measured_once
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.graph import Node
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.region_code import (
    LinkedKernel,
    PartitionCode,
    PatternMatches,
    grouped_by_artifact,
    is_idle,
    pattern_match_counts,
    region_code,
    region_patterns,
    total_coverage,
)
from regional_explorer.record.session import Session
from regional_explorer.record.stages import PartitionStages, Stage
from regional_explorer.style.element import LONG_TEXT, clean
from regional_explorer.style.formats import NONE, duration, pattern_text, significant, size
from regional_explorer.tables.benchmark import variant
from regional_explorer.tables.table import Column, Number, Table, bound_columns, columns_of

# ------------------------------------------------------------------------------------------------------------- compiles


MOST_CHANGES = 6

_CACHE_TONES = {CacheResult.HIT: "good", CacheResult.BYPASS: "warn"}


class Compile(NamedTuple):
    """A compile: its cost, and the partition and phases if it made the artifact of a partition."""

    cost: CompileCost
    partition: Partition | None = None
    made: ArtifactCompile | None = None


def compile_costs_table(session: Session) -> Table[Compile]:
    """One row per compile: its subject, its seconds by phase, and what Inductor's cache answered.

    ``waited_s`` is the compile's part of the elapsed time: partitions are compiled side by side. The other columns are
    known of partitions. ``answer`` is hit, miss, bypass or off; ``why`` says why. ``changed`` lists the inputs, ops,
    configs and settings that differ from ``nearest``, the most similar artifact that this process compiled before;
    ``why`` gives their values too. ``pre_grad_passes`` says when the passes before autograd run, ``pre_grad_s`` how
    long they took. The phases add up to ``compile_s``: ``tracing_s`` is AOTAutograd and the graph passes, ``code_s``
    code generation, ``build_s`` the C++ compiler or Triton, ``cache_s`` computing keys and look-ups, ``other_s`` the
    time that belongs to no phase.
    """
    parts = [
        Compile(CompileCost(part.id, made.seconds, made.cache, made.overlapped_s), part, made)
        for part, made in session.compiled_partitions
    ]
    costs = ([session.toolchain] if session.toolchain else []), session.variant_costs
    before, after = (list(map(Compile, some)) for some in costs)
    of_made: tuple[Column[ArtifactCompile], ...] = (
        Column("answer", lambda made: made.answer, tone=lambda made: _CACHE_TONES.get(made.answer, "quiet")),
        Column("why", lambda made: made.why, text=_cache_reason),
        Column("changed", lambda made: ", ".join(change.part for change in made.changes)),
        Column("nearest", lambda made: made.nearest),
        Column("pre_grad_passes", lambda made: made.pre_grad_passes, "passes before autograd", tone="quiet"),
        Number("pre_grad_s", lambda made: made.pre_grad_s),
        *map(_phase_column, CompilePhase),
    )
    return Table(
        "Compile time",
        (
            Column("what", lambda row: variant(row.cost.what)),
            Column("region", lambda row: row.partition and row.partition.region),
            Number("compile_s", lambda row: measured_once(row.cost.seconds), "time"),
            Number("waited_s", lambda row: measured_once(row.cost.waited_s), "waited"),
            Column("cache", lambda row: row.cost.cache),
            Column("artifact", lambda row: row.partition and row.partition.artifact),
            *columns_of(lambda row: row.made, of_made),
        ),
        (*before, *parts, *after),
        heads=("what", "time", "waited", "cache"),
        shown=[*before, *(row for row in parts if row.cost.seconds), *after],
        fold="unless bad",
    )


def compile_tables(session: Session) -> list[Table[Compile]]:
    """Return the costs of all compiles, and the phases and the cache's answer for those of partitions."""
    costs = compile_costs_table(session)
    of_parts, phases = replace(costs, shown=[row for row in costs.rows if row.made]), map(_phase_head, CompilePhase)
    note = "Tracing includes the graph passes; code is its generation, build the C++ compiler or Triton."
    return [
        costs,
        replace(of_parts, title="Where compile time goes", heads=("what", "time", *phases), notes=lambda: [note]),
        replace(of_parts, title="Caches", heads=("what", "answer", "why", "passes before autograd")),
    ]


def _cache_reason(made: ArtifactCompile) -> str:
    if made.answer is not CacheResult.MISS or not made.changes or made.cold:
        return clean(made.why, LONG_TEXT)
    return clean(listing([str(change) for change in made.changes], MOST_CHANGES), LONG_TEXT)


def _phase_head(phase: CompilePhase) -> str:
    return "look-up" if phase is CompilePhase.CACHE else phase.name.lower()  # "cache" is whether it was cold


def _phase_column(phase: CompilePhase) -> Column[ArtifactCompile]:
    return Number(
        f"{phase.name.lower()}_s",
        lambda made: made.phases.get(phase, 0.0),
        _phase_head(phase),
        text=lambda made: duration(made.phases.get(phase) or None),
        tone="quiet",
    )


def patterns_table(session: Session) -> Table[PatternMatches]:
    """One row per pattern of Inductor's passes: how often it matched in the trace, in each region, in torch.compile.

    Only a trace with ``joint_passes`` runs such passes. A number is None if it is not known.
    """
    regions, full = _unknown_regions(session), _unknown_full(session)
    return Table(
        "Patterns that matched",
        (
            Column("pattern", lambda row: row.name, write=pattern_text),
            Number("trace", lambda row: row.trace),
            Column("regions", lambda row: row.regions, text=_matches_by_region),
            Number("torch_compile", lambda row: row.full, "torch.compile", dtype="Int64"),
        ),
        pattern_match_counts(session),
        full if session.full_cost else "",
        lambda: [regions, full],
        fold="closed",
    )


def _matches_by_region(row: PatternMatches) -> str:
    texts = {name: NONE if matches is None else str(matches) for name, matches in row.regions.items() if matches != 0}
    return listing([f"{name} {matches}" for name, matches in texts.items()]) or "0"


def _unknown_regions(session: Session) -> str:
    compiled = {part.region for part in session.partitions if part.artifact is not None}
    unknown = [
        repr(name) for name, patterns in region_patterns(session).items() if patterns is None and name in compiled
    ]
    return f"Not known for {listing(unknown)}: the code came from a cache. ex.code(…) finds out." if unknown else ""


def _unknown_full(session: Session) -> str:
    cost = session.full_cost
    if cost is None:
        return "Not known for torch.compile: it has not compiled the call. ex.benchmark() does that."
    came = "its code came" if cost.cache == "warm" else "some of its code may have come"
    return f"Not known for torch.compile: {came} from Inductor's cache." if cost.patterns is None else ""


# -------------------------------------------------------------------------------------------------------------- kernels


def resource_texts(resources: GpuResources) -> Mapping[str, str]:
    """Return the GPU resources of a kernel, by the title of their column."""
    return {
        "registers": NONE if resources.registers is None else str(resources.registers),
        "spilled": NONE if resources.spilled_bytes is None else f"{resources.spilled_bytes} B",
        "shared": size(resources.shared_bytes),
        "occupancy": NONE if resources.occupancy is None else f"{100 * resources.occupancy:.0f} %",
        "launch": f"{resources.launch} (first of {resources.configs})" if resources.configs > 1 else resources.launch,
    }


def bound_text(bound_s: float) -> str:
    """Return a bound with ``≥``, because it is not a measured time."""
    return f"≥ {duration(bound_s)}"


MOST_REFUSALS = 3


class LinkedRow(NamedTuple):
    """A kernel linked to nodes and lines, with the code that it belongs to."""

    code: PartitionCode
    linked: LinkedKernel

    @property
    def kernel(self) -> Kernel:
        """The kernel, without its links."""
        return self.linked.kernel

    @property
    def bound_s(self) -> float | None:
        """A lower bound of the kernel's time, from the data sheet of the GPU that the code is for."""
        kernel, target = self.kernel, GPU_TARGETS.get(self.code.code.target)
        return target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype) if target else None

    @property
    def refusals(self) -> str:
        """The kernels that Inductor refused to fuse with this kernel, why, and the bytes they share."""
        index = self.linked.number - 1
        own = [pair for pair in self.code.code.refused if index in (pair.first, pair.second)]
        by_reason = grouped((clean(p.reason, LONG_TEXT), p) for p in sorted(own, key=lambda p: -p.shared_bytes))
        return "; ".join(
            f"{', '.join(dict.fromkeys(_partner(p, index) for p in pairs))}: {reason} ({size(pairs[0].shared_bytes)})"
            for reason, pairs in list(by_reason.items())[:MOST_REFUSALS]
        )


def _partner(pair: RefusedFusion, index: int) -> str:
    if pair.first == pair.second:
        return "another loop of this kernel"
    return str((pair.second if index == pair.first else pair.first) + 1)


def patterns_note(code: ArtifactCode) -> str:
    """Return the patterns that matched and compute something; empty if none did, or if that is unknown."""
    counts = (code.patterns or {}).items()
    matched = [f"{pattern_text(name)} ({times}×)" for name, times in counts if not is_idle(name)]
    return f"Patterns that matched: {listing(matched)}." if matched else ""


def kernels_table(codes: Sequence[PartitionCode]) -> Table[LinkedRow]:
    """One row per kernel, in the order they run: its ops, bytes and operations, and its nodes and source lines.

    Code for a GPU that is not there has more columns: bound, registers, spilled and shared bytes, occupancy, launch
    config.
    """
    target = next((GPU_TARGETS[code.code.target] for code in codes if code.code.target), None)
    rows = [LinkedRow(code, linked) for code in codes for linked in code.kernels]
    refused = sum(len(code.code.refused) for code in codes)
    return Table(
        f"Kernels of {', '.join(code.partition.id for code in codes)}"
        + (f" for {target.title}, not run" if target else ""),
        (
            Column("partition", lambda row: row.code.partition.id),
            Number("number", lambda row: row.linked.number, ""),
            Column("kernel", lambda row: row.kernel.name),
            Column("kind", lambda row: row.kernel.kind),
            Column("ops", lambda row: ", ".join(row.kernel.ops), text=lambda row: listing(row.kernel.ops, 6) or NONE),
            Number("bytes_read", lambda row: row.kernel.bytes_read, "reads", write=size, dtype="Int64"),
            Number("bytes_written", lambda row: row.kernel.bytes_written, "writes", write=size, dtype="Int64"),
            Number("operations", lambda row: row.kernel.operations, write=_operations_text, dtype="Int64"),
            Column(
                "nodes",
                lambda row: ", ".join(node.name for node in row.linked.nodes),
                text=lambda row: listing([node.name for node in row.linked.nodes], 4) or NONE,
            ),
            Column(
                "lines",
                lambda row: ", ".join(map(str, row.linked.lines)),
                text=lambda row: listing(map(str, row.linked.lines), 2) or NONE,
            ),
            Column("not_fused_with", lambda row: row.refusals, write=lambda refusals: refusals or NONE),
            *(GPU_COLUMNS if target else ()),
        ),
        rows,
        next((code.code.problem for code in codes if code.code.problem), "No kernel: nothing is left to compute."),
        lambda: [
            f"{total_coverage([code.coverage for code in codes])}." if rows else "",
            f"Inductor refused to fuse {count(refused, 'pair')} of loops that touch the same data." if refused else "",
            *dict.fromkeys(patterns_note(code.code) for code in codes),
        ],
        heads=(
            *("", "kernel", "kind", "ops", "reads", "writes", "operations"),
            *(column.title for column in GPU_COLUMNS if target),
            *("nodes", "lines"),
            *(["not fused with"] if refused else []),
        ),
    )


def _operations_text(number: int) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{significant(number / factor)} {unit}"
    return str(number)


def _resource(name: str, title: str, dtype: str = "") -> Column[LinkedRow]:
    """Return a column with a GPU resource of kernels."""
    return Number(
        name,
        lambda row: getattr(row.kernel.gpu, name, None),
        text=lambda row: resource_texts(row.kernel.gpu)[title] if row.kernel.gpu else NONE,
        dtype=dtype,
    )


GPU_COLUMNS: tuple[Column[LinkedRow], ...] = (
    Number("bound_us", lambda row: row.bound_s, write=bound_text),
    _resource("registers", "registers", "Int64"),
    replace(
        _resource("spilled_bytes", "spilled", "Int64"),
        tone=lambda row: "warn" if row.kernel.gpu and row.kernel.gpu.spilled_bytes else "",
    ),
    _resource("shared_bytes", "shared", "Int64"),
    _resource("occupancy", "occupancy"),
    replace(_resource("launch", "launch"), right=False),
)
"""The extra columns for code for a GPU that is not there."""


BETWEEN_KERNELS = "between kernels"
"""The row with the time of the generated code outside its kernels; it has no bound."""
AROUND_CODE = "around the generated code"
"""The row with the time of the wrapper around the generated code: it checks inputs, and what autograd needs."""


class TimedRow(NamedTuple):
    """A kernel of the partitions ``equal``, whose times are ``times``, or the code outside of all kernels.

    ``time`` is None if the kernel was not timed. ``outside`` is the time of the code outside of all kernels.
    """

    equal: Sequence[PartitionCode]
    times: ArtifactKernelTimes
    name: str | None = None
    linked: LinkedKernel | None = None
    time: KernelTime | None = None
    outside: Figure | None = None

    @property
    def seconds(self) -> Figure | None:
        """The time of the row."""
        return self.time.seconds if self.time else self.outside


def kernel_times_table(session: Session, region: str | None) -> Table[TimedRow]:
    """One row per kernel of each distinct partition of a region, or of all regions, most wasted time first.

    ``runs`` counts the partitions that run this code. ``share`` is a part of all the time in, between and around the
    kernels, so that all shares add up to 1. ``with_clocks`` is the call's time with clocks around the kernels ÷ without
    them. Without a known bound, no time counts as wasted.
    """
    names = [each.name for each in session.plan.regions] if region is None else [session.plan[region].name]
    parts = [equal for name in names for equal in grouped_by_artifact(region_code(session, name))]
    rows = [row for equal in parts if equal[0].times is not None for row in _timed_rows(equal, equal[0].times)]
    return Table(
        f"Times of the kernels of {', '.join(names)}",
        (
            Column("region", lambda row: row.equal[0].partition.region),
            Column("partition", lambda row: row.equal[0].partition.id),
            Number("runs", lambda row: len(row.equal)),
            Number("number", lambda row: row.linked and row.linked.number, dtype="Int64"),
            Column("kernel", lambda row: row.name),
            Column("kind", lambda row: row.linked and row.linked.kernel.kind),
            Number("time_us", lambda row: row.seconds),
            *bound_columns("low_us", "high_us", lambda row: row.seconds)[:2],
            Number("share", lambda row: row.seconds and row.seconds.value / (row.times.parts_s or 1.0)),
            Number("with_clocks", lambda row: None if row.times.problem else row.times.with_clocks.value),
            Number("bound_us", lambda row: row.time and row.time.valid_bound_s),
            Column("bound_by", lambda row: row.time.bound_by if row.time and row.time.valid_bound_s else None),
            Number(
                "times_bound",
                lambda row: (
                    row.time.seconds.value / row.time.valid_bound_s if row.time and row.time.valid_bound_s else None
                ),
            ),
            Number("wasted_us", lambda row: row.time and row.time.wasted_s),
            Column("lines", lambda row: row.linked and ", ".join(map(str, row.linked.lines))),
            Column("problem", lambda row: row.times.problem),
        ),
        sorted(rows, key=lambda row: -((row.time and row.time.wasted_s) or 0.0)),
    )


def _timed_rows(equal: Sequence[PartitionCode], times: ArtifactKernelTimes) -> Iterator[TimedRow]:
    if times.problem is not None:
        yield TimedRow(equal, times)
        return
    for linked, time in zip(equal[0].kernels, times.kernels, strict=True):
        yield TimedRow(equal, times, linked.kernel.name, linked, time)
    yield TimedRow(equal, times, BETWEEN_KERNELS, outside=times.between)
    yield TimedRow(equal, times, AROUND_CODE, outside=times.around)


# --------------------------------------------------------------------------------------------------------------- stages


COUNTS = ("decomposed", "fused", "into", "replaced", "removed", "inserted", "elided")


class StageRow(NamedTuple):
    """A stage of a partition, and its nodes that the selected nodes were made from or became."""

    part: PartitionStages
    stage: Stage
    followed: frozenset[str]


def stages_table(parts: Sequence[PartitionStages], followed: Sequence[str] = ()) -> Table[StageRow]:
    """One row per partition and stage: its number of ops and views, and what became of the previous stage's ops."""
    head = ", ".join(followed)

    def notes() -> Iterator[str]:
        for part in parts:
            if part.equal:
                yield f"The same holds for {', '.join(part.equal)}."
            yield from (stage.note for stage in part.stages)
            yield part.problem or ""

    return Table(
        f"Stages of {', '.join(part.partition.id for part in parts)}",
        (
            Column("partition", lambda row: row.part.partition.id),
            Column("stage", lambda row: row.stage.kind, text=lambda row: row.stage.title),
            Number("ops", lambda row: row.stage.computing),
            Number("views", lambda row: len(row.stage.ops) - row.stage.computing),
            *map(_count_column, COUNTS),
            Column(
                "in_words", lambda row: str(row.stage.change or ""), "what it changed", write=lambda text: text or NONE
            ),
            Column("", lambda row: listing(sorted(row.followed), 8) or "none", head),
        ),
        [
            StageRow(part, stage, ops[stage.kind])
            for part in parts
            for ops in [part.followed(followed)]
            for stage in part.stages
        ],
        next((part.problem for part in parts if part.problem), "Nothing is known."),
        notes,
        heads=("stage", "ops", "views", "what it changed", *([head] if followed else [])),
    )


def _count_column(name: str) -> Column[StageRow]:
    """Return a column with the number of one kind of change since the previous stage."""
    return Number(name, lambda row: getattr(row.stage.change, name, None), dtype="Int64")


class NodeRow(NamedTuple):
    """A node of a stage, and the source lines that it comes from."""

    stage_row: StageRow
    node: Node
    lines: Sequence[object]


def stage_nodes_table(parts: Sequence[PartitionStages], followed: Sequence[str] = ()) -> Table[NodeRow]:
    """One row per node of each stage: its op, the previous stage's nodes that it comes from, and their lines."""
    lines = {part.partition.id: part.lines() for part in parts}
    is_followed: Column[NodeRow] = Column("followed", lambda row: row.node.name in row.stage_row.followed)
    return Table(
        "Nodes of stages",
        (
            Column("partition", lambda row: row.stage_row.part.partition.id),
            Column("stage", lambda row: row.stage_row.stage.kind),
            Column("node", lambda row: row.node.name),
            Column("op", lambda row: row.node.op),
            Column("comes_from", lambda row: ", ".join(row.stage_row.stage.sources.get(row.node.name, ()))),
            Column("lines", lambda row: ", ".join(map(str, row.lines))),
            *([is_followed] if followed else []),
        ),
        [
            NodeRow(row, op, lines[row.part.partition.id][row.stage.kind].get(op.name, ()))
            for row in stages_table(parts, followed).rows
            for op in row.stage.ops
        ],
    )
