"""Tables of kernels: nodes, bytes, operations, time and bound, GPU resources, and the fusions refused."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.gpu_targets import GPU_TARGETS, GpuTarget
from regional_explorer.record.grouping import grouped
from regional_explorer.record.kernels import Kernel, RefusedFusion
from regional_explorer.record.region_code import LinkedKernel, PartitionCode
from regional_explorer.render.report.gpu_figures import bound_text, resource_texts
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.formats import NONE, significant, size
from regional_explorer.render.style.untrusted import LONG_TEXT, clean

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
