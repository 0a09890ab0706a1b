"""The kernels of a partition as a table."""

from __future__ import annotations

from regional_explorer.record.kernels import Kernel
from regional_explorer.record.region_code import LinkedKernel, PartitionCode
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.figures import NONE, count, listing, significant, size

COLUMNS = ("", "kernel", "kind", "ops", "reads", "writes", "operations", "nodes", "lines")


def kernels_table(code: PartitionCode) -> Table:
    """Return one row per kernel, in the order they run."""
    note = f"{code.coverage}." if code.kernels else ""
    refused = count(len(code.code.refused), "pair") if code.code.refused else ""
    if refused:
        note += f"\nInductor refused to fuse {refused} of kernels that touch the same data."
    return Table(
        title=f"Kernels of {code.partition.id}",
        columns=COLUMNS,
        rows=tuple(_row(linked) for linked in code.kernels),
        empty=code.code.problem or "No kernel: nothing is left to compute.",
        note=note,
        figures=frozenset({"", "reads", "writes", "operations"}),
    )


def _row(linked: LinkedKernel) -> tuple[Cell, ...]:
    kernel = linked.kernel
    return (
        Cell(str(linked.number)),
        Cell(kernel.name),
        Cell(str(kernel.kind)),
        Cell(listing(kernel.ops, 6) or NONE),
        Cell(_bytes(kernel.bytes_read)),
        Cell(_bytes(kernel.bytes_written)),
        Cell(_operations(kernel)),
        Cell(listing([node.name for node in linked.nodes], 4) or NONE),
        Cell(listing([str(line) for line in linked.lines], 2) or NONE),
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
