"""Tables of generated code: kernels, their times, and what they use of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regional_explorer.errors import count, listing
from regional_explorer.record.artifact import (
    ArtifactCode,
    ArtifactKernelTimes,
    CodeDiff,
    GpuResources,
    Kernel,
    KernelPair,
    RefusedFusion,
)
from regional_explorer.record.gpu_targets import GPU_TARGETS, GpuTarget
from regional_explorer.record.grouping import grouped
from regional_explorer.record.region_code import LinkedKernel, PartitionCode, region_code
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S
from regional_explorer.style.element import LONG_TEXT, clean
from regional_explorer.style.formats import NONE, duration, significant, size
from regional_explorer.tables.table import Cell, Table

if TYPE_CHECKING:
    import pandas as pd


def resource_texts(resources: GpuResources) -> Mapping[str, str]:
    """Return the resources that a kernel takes, by the title of their column."""
    return {
        "registers": NONE if resources.registers is None else str(resources.registers),
        "spilled": NONE if resources.spilled_bytes is None else f"{resources.spilled_bytes} B",
        "shared": size(resources.shared_bytes),
        "occupancy": NONE if resources.occupancy is None else f"{100 * resources.occupancy:.0f} %",
        "launch": f"{resources.launch} (first of {resources.configs})" if resources.configs > 1 else resources.launch,
    }


def bound_text(bound_s: float | None) -> str:
    """Return a bound with ``≥``, which tells it from a time that was measured."""
    return NONE if bound_s is None else f"≥ {duration(bound_s)}"


def resource_changes(diff: CodeDiff) -> Iterator[str]:
    """Yield a line per kernel whose resources differ, and one for the sum of the bounds; none without a target."""
    for pair in diff.kernels:
        if changes := list(_kernel_changes(pair)):
            yield f"{_kernel_names(pair)}: {', '.join(changes)}"
    before, after = (bound_text(_bounds_s(code)) for code in (diff.before, diff.after))
    if before != after:
        yield f"bounds, added up: {before} → {after}; nothing was measured"


def _kernel_names(pair: KernelPair) -> str:
    names = [clean(kernel.name) for kernel in (pair.before, pair.after) if kernel is not None]
    return f"{' → '.join(dict.fromkeys(names))} ({pair.word})"


def _kernel_changes(pair: KernelPair) -> Iterator[str]:
    before, after = (
        None if kernel is None or kernel.gpu is None else resource_texts(kernel.gpu)
        for kernel in (pair.before, pair.after)
    )
    if before is not None and after is not None:
        yield from (f"{title} {text} → {after[title]}" for title, text in before.items() if text != after[title])
    elif (only := after or before) is not None:
        yield from (f"{title} {text}" for title, text in only.items())


def _bounds_s(code: ArtifactCode) -> float | None:
    """Return the sum of the bounds of all kernels; None if there is no target or one of them is unknown."""
    target = GPU_TARGETS.get(code.target)
    if target is None:
        return None
    bounds = [target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype) for kernel in code.kernels]
    return None if None in bounds else sum(bound for bound in bounds if bound is not None)


KERNEL_COLUMNS = ("", "kernel", "kind", "ops", "reads", "writes", "operations", "nodes", "lines")
GPU_COLUMNS = ("bound", "registers", "spilled", "shared", "occupancy", "launch")

KEPT_APART = "not fused with"
MOST_REFUSALS = 3


def kernels_table(code: PartitionCode) -> Table:
    """Return one row per kernel, in the order they run."""
    target = GPU_TARGETS.get(code.code.target)
    note = f"{code.coverage}." if code.kernels else ""
    gpu_columns = GPU_COLUMNS if target else ()
    refused = code.code.refused
    if refused:
        note += f"\nInductor refused to fuse {count(len(refused), 'pair')} of loops that touch the same data."
    return Table(
        title=f"Kernels of {code.partition.id}" + (f" for {target.title}, not run" if target else ""),
        columns=(*KERNEL_COLUMNS[:7], *gpu_columns, *KERNEL_COLUMNS[7:], *([KEPT_APART] if refused else ())),
        rows=tuple(
            (*_kernel_row(linked, target), *([Cell(refusals(linked, refused) or NONE)] if refused else ()))
            for linked in code.kernels
        ),
        empty=code.code.problem or "No kernel: nothing is left to compute.",
        note=note,
        figures=frozenset({"", "reads", "writes", "operations", *GPU_COLUMNS[:5]}),
    )


def refusals(linked: LinkedKernel, refused: Sequence[RefusedFusion]) -> str:
    """Return which kernels Inductor would not fuse a kernel with, why, and how many bytes they share."""
    index = linked.number - 1
    own_pairs = sorted((pair for pair in refused if index in (pair.first, pair.second)), key=lambda p: -p.shared_bytes)
    by_reason = grouped((clean(pair.reason, LONG_TEXT), pair) for pair in own_pairs)
    return "; ".join(
        f"{', '.join(dict.fromkeys(_partner(pair, index) for pair in pairs))}: {reason} ({size(pairs[0].shared_bytes)})"
        for reason, pairs in list(by_reason.items())[:MOST_REFUSALS]
    )


def _partner(pair: RefusedFusion, index: int) -> str:
    if pair.first == pair.second:
        return "another loop of it"
    return str((pair.second if index == pair.first else pair.first) + 1)


def _kernel_row(linked: LinkedKernel, target: GpuTarget | None) -> tuple[Cell, ...]:
    kernel = linked.kernel
    return (
        Cell(str(linked.number)),
        Cell(kernel.name),
        Cell(str(kernel.kind)),
        Cell(listing(kernel.ops, 6) or NONE),
        Cell(_bytes_text(kernel.bytes_read)),
        Cell(_bytes_text(kernel.bytes_written)),
        Cell(_operations_text(kernel)),
        *(_gpu_cells(kernel, target) if target else ()),
        Cell(listing([node.name for node in linked.nodes], 4) or NONE),
        Cell(listing([str(line) for line in linked.lines], 2) or NONE),
    )


def _gpu_cells(kernel: Kernel, target: GpuTarget) -> tuple[Cell, ...]:
    """Return the cells about registers, occupancy and bound on a GPU; ``≥`` marks the bound, which is not measured."""
    bound = bound_text(target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype))
    resources = kernel.gpu
    if resources is None:
        return (Cell(bound), *(Cell(NONE) for _ in GPU_COLUMNS[1:]))
    texts = resource_texts(resources)
    spill_tone = "warn" if resources.spilled_bytes else ""
    return (
        Cell(bound),
        *(Cell(texts[title], tone=spill_tone if title == "spilled" else "") for title in GPU_COLUMNS[1:]),
    )


def _bytes_text(number: int | None) -> str:
    return NONE if number is None else size(number)


def _operations_text(kernel: Kernel) -> str:
    number = kernel.operations
    if number is None:
        return NONE
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{significant(number / factor)} {unit}"
    return str(number)


KERNEL_TIME_COLUMNS = (
    "partition",
    "runs",
    "number",
    "kernel",
    "kind",
    "time_us",
    "iqr_us",
    "share",
    "bound_us",
    "bound_by",
    "times_bound",
    "wasted_us",
    "lines",
    "problem",
)
BETWEEN_KERNELS = "between kernels"
"""The row with the time of the generated code outside its kernels; it has no bound."""
AROUND_CODE = "around the generated code"
"""The row with the time of the wrapper that calls the generated code: checks of inputs, and of what autograd needs."""
UNACCOUNTED = "not accounted for"
"""The row with the difference between a call without clocks and the sum of the other rows."""


def kernel_times_frame(session: Session, region: str) -> pd.DataFrame:
    """Return one row per kernel of each distinct partition of a region, most wasted time first.

    ``runs`` counts the partitions that run this code. ``share`` is the share of the partition's time, measured without
    clocks. If the kernels, the time between and that around them differ from it by more than a tenth, a row says how
    much is ``not accounted for``. Without a known bound, no time counts as wasted.
    """
    from regional_explorer.tables.frame import ShownFrame  # which imports pandas

    parts = grouped((part.code.artifact, part) for part in region_code(session, session.plan[region].name))
    times = {kernel_times.artifact: kernel_times for kernel_times in session.kernel_times}
    rows = [row for key, equal in parts.items() if key in times for row in _partition_rows(equal, times[key])]
    rows.sort(key=lambda row: -(row["wasted_us"] or 0.0))
    frame = ShownFrame(rows, columns=list(KERNEL_TIME_COLUMNS))
    return ShownFrame(frame.astype({"number": "Int64"}))


def _partition_rows(equal_parts: list[PartitionCode], times: ArtifactKernelTimes) -> Iterator[dict[str, Any]]:
    part = equal_parts[0]
    common = {"partition": part.partition.id, "runs": len(equal_parts), "problem": times.problem}
    if times.problem is not None:
        yield dict.fromkeys(KERNEL_TIME_COLUMNS) | common
        return
    for linked, time in zip(part.kernels, times.kernels, strict=True):
        row = dict.fromkeys(KERNEL_TIME_COLUMNS) | common
        row |= {"number": linked.number, "kernel": linked.kernel.name, "kind": str(linked.kernel.kind)}
        row["lines"] = ", ".join(map(str, linked.lines))
        if time is not None:
            bound, wasted = time.bound_s, time.wasted_s
            row |= {
                "time_us": time.median_s * US_PER_S,
                "iqr_us": time.iqr_s * US_PER_S,
                "share": time.median_s / times.whole_s,
                "bound_us": None if bound is None else bound * US_PER_S,
                "bound_by": None if time.bound_by is None else str(time.bound_by),
                "times_bound": time.median_s / bound if bound else None,
                "wasted_us": None if wasted is None else wasted * US_PER_S,
            }
        yield row
    outside_s = {BETWEEN_KERNELS: times.between_s, AROUND_CODE: times.around_s}
    if not times.adds_up:
        outside_s[UNACCOUNTED] = times.unaccounted_s
    for name, seconds in outside_s.items():
        figures = {"kernel": name, "time_us": seconds * US_PER_S, "share": seconds / times.whole_s}
        yield dict.fromkeys(KERNEL_TIME_COLUMNS) | common | figures
