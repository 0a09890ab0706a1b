"""The generated code of a region: the result of ``ex.code("mlp")`` and how it is displayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regional_explorer.errors import InvalidArgumentError
from regional_explorer.errors.arguments import check_argument
from regional_explorer.insight.diff import CodeDiffs
from regional_explorer.record.code_diff import CodeDiff
from regional_explorer.record.gpu_targets import GPU_TARGETS, GpuTarget
from regional_explorer.record.kernels import ArtifactCode, Kernel
from regional_explorer.record.region_code import Coverage, PartitionCode, region_code, total_coverage
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S
from regional_explorer.render.report.code_html import code_html
from regional_explorer.render.report.code_tables import refusals
from regional_explorer.render.report.code_text import code_text
from regional_explorer.render.style.formats import config_text, size

if TYPE_CHECKING:
    import pandas as pd

KERNEL_COLUMNS = (
    "partition",
    "number",
    "kernel",
    "kind",
    "ops",
    "bytes_read",
    "bytes_written",
    "operations",
    "nodes",
    "lines",
    "not_fused_with",
)
GPU_COLUMNS = ("bound_us", "registers", "spilled_bytes", "shared_bytes", "occupancy", "launch")
"""More columns where the code is for a GPU that is not there."""


@dataclass(frozen=True)
class RegionCode:
    """The generated code of a region, one entry per partition whose code is known; displayed as text or HTML."""

    region: str
    partitions: tuple[PartitionCode, ...]
    note: str = ""

    @classmethod
    def of(cls, session: Session, region: str) -> RegionCode:
        """Return the code of a region that ``session`` holds.

        Raises:
            UnknownRegionError: there is no such region.
        """
        name = session.plan[region].name
        return cls(name, region_code(session, name))

    @classmethod
    def under(
        cls,
        session: Session,
        region: str,
        config: Mapping[str, Any],
        target: GpuTarget | None,
        codes: Mapping[str, ArtifactCode],
    ) -> RegionCode:
        """Return code that was generated but not compiled; ``codes`` has it by partition id."""
        graphs = {graph.id: graph.by_name() for graph in session.graphs}
        parts = tuple(
            PartitionCode(part, codes[part.id], tuple(graphs[part.graph][name] for name in part.nodes))
            for part in session.partitions
            if part.id in codes
        )
        notes = [f"Generated under {config_text(config)}, not compiled." if config else "", _gpu_note(target)]
        return cls(region, parts, " ".join(filter(None, notes)))

    def diff(self, other: RegionCode) -> CodeDiffs:
        """Return how the code of ``other`` differs: ``ex.code("mlp").diff(ex.code("mlp", config={…}))``.

        Raises:
            InvalidArgumentError: ``other`` is not code, or is for another region.
        """
        check_argument("other", other, RegionCode, "what ex.code(…) returns")
        if other.region != self.region:
            raise InvalidArgumentError(f"The code of {self.region!r} cannot be compared with that of {other.region!r}.")
        after = {part.partition.id: part.code for part in other.partitions}
        pairs = ((part.partition.id, part.code) for part in self.partitions if part.partition.id in after)
        return CodeDiffs(self.region, tuple(CodeDiff(name, before, after[name]) for name, before in pairs))

    def __iter__(self) -> Iterator[PartitionCode]:
        """Iterate over the partitions."""
        return iter(self.partitions)

    @property
    def coverage(self) -> Coverage:
        """How many nodes and kernels are linked to each other."""
        return total_coverage(tuple(part.coverage for part in self.partitions))

    @property
    def kernels(self) -> pd.DataFrame:
        """One row per kernel, in the order they run: its ops, bytes and operations, and its nodes and source lines.

        For a GPU that is not there also its bound, registers, spilled and shared bytes, occupancy and launch config.
        """
        from regional_explorer.render.report.shown_frame import ShownFrame  # which imports pandas

        rows = [
            (
                part.partition.id,
                linked.number,
                linked.kernel.name,
                str(linked.kernel.kind),
                ", ".join(linked.kernel.ops),
                linked.kernel.bytes_read,
                linked.kernel.bytes_written,
                linked.kernel.operations,
                ", ".join(node.name for node in linked.nodes),
                ", ".join(map(str, linked.lines)),
                refusals(linked, part.code.refused),
                *_gpu_figures(linked.kernel, part.code.target),
            )
            for part in self.partitions
            for linked in part.kernels
        ]
        gpu_columns = GPU_COLUMNS if any(part.code.target for part in self.partitions) else ()
        frame = ShownFrame(rows, columns=[*KERNEL_COLUMNS, *gpu_columns])
        integers = ("bytes_read", "bytes_written", "operations", "registers", "spilled_bytes", "shared_bytes")
        return ShownFrame(frame.astype({column: "Int64" for column in integers if column in frame}))

    def __str__(self) -> str:
        """Return the kernels and the code of all partitions as text."""
        return code_text(self.region, self.partitions, self.note)

    __repr__ = __str__

    def _repr_mimebundle_(self, **_wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        return {"text/plain": str(self), "text/html": code_html(self.region, self.partitions, self.note)}


def _gpu_figures(kernel: Kernel, target_name: str) -> tuple[Any, ...]:
    target = GPU_TARGETS.get(target_name)
    if target is None:
        return ()
    bound_s = target.bound_s(kernel.bytes_moved, kernel.operations, kernel.dtype)
    resources = (getattr(kernel.gpu, column, None) for column in GPU_COLUMNS[1:])
    return (None if bound_s is None else bound_s * US_PER_S, *resources)


def _gpu_note(target: GpuTarget | None) -> str:
    if target is None:
        return ""
    return (
        f"Generated for {target.title}, not run. Bounds come from its data sheet ({target.source}: "
        f"{target.memory_gb_s:,} GB/s); nothing was measured. They hold for data in memory: data still in its "
        f"{_cache_sizes(target)} moves faster. Launch costs are not included. "
        "Registers are those of the first launch config: nothing was autotuned. "
        "For extern calls only bytes and operations are known. The assembly of each kernel is in kernel.gpu.assembly."
    )


def _cache_sizes(target: GpuTarget) -> str:
    shared = f" or {size(target.last_cache_bytes)} of Infinity Cache" if target.last_cache_bytes else ""
    return f"{size(target.l2_bytes)} of L2 cache{shared}"
