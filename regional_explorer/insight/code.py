"""The generated code of a region: what ``ex.code("mlp")`` returns and how it shows itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regional_explorer.record.region_code import Coverage, PartitionCode, region_code, total_coverage
from regional_explorer.record.session import Session
from regional_explorer.render.report.code_html import code_html
from regional_explorer.render.report.code_text import code_text

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
)


@dataclass(frozen=True)
class RegionCode:
    """The generated code of a region, one entry per partition whose code is known; it shows itself as text or HTML."""

    region: str
    partitions: tuple[PartitionCode, ...]

    @classmethod
    def of(cls, session: Session, region: str) -> RegionCode:
        """Return the code that ``session`` has of a region.

        Raises:
            UnknownRegionError: there is no such region.
        """
        name = session.plan[region].name
        return cls(name, region_code(session, name))

    def __iter__(self) -> Iterator[PartitionCode]:
        """Iterate over the partitions."""
        return iter(self.partitions)

    @property
    def coverage(self) -> Coverage:
        """How many nodes and kernels are linked to each other."""
        return total_coverage(tuple(part.coverage for part in self.partitions))

    @property
    def kernels(self) -> pd.DataFrame:
        """One row per kernel, in the order they run: what it computes, what it moves, where it comes from."""
        import pandas as pd

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
            )
            for part in self.partitions
            for linked in part.kernels
        ]
        whole = dict.fromkeys(("bytes_read", "bytes_written", "operations"), "Int64")
        return pd.DataFrame(rows, columns=list(KERNEL_COLUMNS)).astype(whole)

    def __str__(self) -> str:
        """Return the kernels and the code of all partitions as text."""
        return code_text(self.region, self.partitions)

    __repr__ = __str__

    def _repr_mimebundle_(self, **_wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        return {"text/plain": str(self), "text/html": code_html(self.region, self.partitions)}
