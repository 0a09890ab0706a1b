"""Partitions, their states, and the preview of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.record import Integer, Record


class State(StrEnum):
    """The state of a partition or a region; the worst comes first.

    ``STALE`` is to be compiled. ``COMPILED`` has no figures yet, ``MEASURED`` has. ``EAGER`` runs eagerly because it is
    disabled or could not be cut out. ``EMPTY`` is a region that selects no op of the traced graphs.
    """

    FAILED = "failed"
    STALE = "stale"
    EAGER = "eager"
    COMPILED = "compiled"
    MEASURED = "measured"
    EMPTY = "empty"


class Partition(Record, frozen=True):
    """A piece cut out of one graph for a region, and its state.

    ``nodes`` are the names of its ops in the graph ``graph``. ``artifact`` is the key of the compiled callable;
    partitions of equal structure and config share one. ``code_hash`` is that of the generated code, which artifacts of
    different configs may share.
    """

    id: str
    region: str
    instance: Integer
    graph: str
    nodes: tuple[str, ...]
    state: State
    config_requested: Mapping[str, Any] = {}
    artifact: str | None = None
    error: str | None = None
    code_hash: str | None = None


class Preview(Record, frozen=True):
    """The partitions that a plan would give, none of them compiled, and the diagnostics about them.

    Diagnostics that need a compile or a later call are not included.
    """

    partitions: tuple[Partition, ...]
    diagnostics: tuple[Diagnostic, ...]

    def counts(self, region: str) -> dict[str, int]:
        """Return how many partitions a region would have in each graph."""
        return Counter(part.graph for part in self.partitions if part.region == region)
