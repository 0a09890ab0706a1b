"""The code of a region before and after a change: the result of ``ex.code("mlp").diff(other)``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regional_explorer.record.code_diff import CodeDiff
from regional_explorer.render.report.diff_html import diff_html, diff_text


@dataclass(frozen=True)
class CodeDiffs:
    """The differences in the code of a region's partitions; displayed as text or HTML."""

    region: str
    partitions: tuple[CodeDiff, ...]

    @property
    def same(self) -> bool:
        """Whether nothing changed in any partition."""
        return all(part.same for part in self.partitions)

    def __iter__(self) -> Iterator[CodeDiff]:
        """Iterate over the partitions."""
        return iter(self.partitions)

    def __str__(self) -> str:
        """Return the differences as text."""
        return diff_text(self.region, self.partitions)

    __repr__ = __str__

    def _repr_mimebundle_(self, **_wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        return {"text/plain": str(self), "text/html": diff_html(self.region, self.partitions)}
