"""The preview of a plan: its partitions and diagnostics, before it is applied."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.partition import Partition


@dataclass(frozen=True, slots=True)
class Preview:
    """The partitions that a plan would give, none of them compiled, and the diagnostics about them.

    Diagnostics that need a compile or a later call are not included.
    """

    partitions: tuple[Partition, ...]
    diagnostics: tuple[Diagnostic, ...]

    def counts(self, region: str) -> dict[str, int]:
        """Return how many partitions a region would have in each graph."""
        return Counter(part.graph for part in self.partitions if part.region == region)
