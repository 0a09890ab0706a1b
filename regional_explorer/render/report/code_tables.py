"""The kernels of a partition as a table."""

from __future__ import annotations

from regional_explorer.record.gpu_targets import GPU_TARGETS, GpuTarget
from regional_explorer.record.kernels import Kernel
from regional_explorer.record.region_code import LinkedKernel, PartitionCode
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.figures import NONE, count, duration, listing, significant, size

COLUMNS = ("", "kernel", "kind", "ops", "reads", "writes", "operations", "nodes", "lines")
GPU_COLUMNS = ("bound", "registers", "spilled", "shared", "occupancy", "launch")


def kernels_table(code: PartitionCode) -> Table:
    """Return one row per kernel, in the order they run."""
    target = GPU_TARGETS.get(code.code.target)
    note = f"{code.coverage}." if code.kernels else ""
    refused = count(len(code.code.refused), "pair") if code.code.refused else ""
    if refused:
        note += f"\nInductor refused to fuse {refused} of kernels that touch the same data."
    return Table(
        title=f"Kernels of {code.partition.id}" + (f" for {target.title}, which is not here" if target else ""),
        columns=(*COLUMNS[:7], *GPU_COLUMNS, *COLUMNS[7:]) if target else COLUMNS,
        rows=tuple(_row(linked, target) for linked in code.kernels),
        empty=code.code.problem or "No kernel: nothing is left to compute.",
        note=note,
        figures=frozenset({"", "reads", "writes", "operations", *GPU_COLUMNS[:5]}),
    )


def _row(linked: LinkedKernel, target: GpuTarget | None) -> tuple[Cell, ...]:
    kernel = linked.kernel
    return (
        Cell(str(linked.number)),
        Cell(kernel.name),
        Cell(str(kernel.kind)),
        Cell(listing(kernel.ops, 6) or NONE),
        Cell(_bytes(kernel.bytes_read)),
        Cell(_bytes(kernel.bytes_written)),
        Cell(_operations(kernel)),
        *(_gpu_cells(kernel, target) if target else ()),
        Cell(listing([node.name for node in linked.nodes], 4) or NONE),
        Cell(listing([str(line) for line in linked.lines], 2) or NONE),
    )


def _gpu_cells(kernel: Kernel, target: GpuTarget) -> tuple[Cell, ...]:
    """Return the cells about registers, occupancy and bound on a GPU; the bound has a sign, as it is not measured."""
    bound = target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype)
    found = kernel.gpu
    if found is None:
        return (Cell(f"≥ {duration(bound)}" if bound is not None else NONE), *(Cell(NONE) for _ in GPU_COLUMNS[1:]))
    spilled = "" if not found.spilled_bytes else "warn"
    return (
        Cell(f"≥ {duration(bound)}" if bound is not None else NONE),
        Cell(NONE if found.registers is None else str(found.registers)),
        Cell(NONE if found.spilled_bytes is None else f"{found.spilled_bytes} B", tone=spilled),
        Cell(_bytes(found.shared_bytes)),
        Cell(NONE if found.occupancy is None else f"{100 * found.occupancy:.0f} %"),
        Cell(f"{found.launch} (first of {found.configs})" if found.configs > 1 else found.launch),
    )


def _bytes(number: int | None) -> str:
    return NONE if number is None else size(number)


def _operations(kernel: Kernel) -> str:
    number = kernel.operations
    if number is None:
        return NONE
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{significant(number / factor)} {unit}"
    return str(number)
