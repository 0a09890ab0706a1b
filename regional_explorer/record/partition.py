"""Partitions, their states, and the preview of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

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
    different configs may share. ``same_without`` has the sets of keys of its config without which the code is
    the same, as far as that code was compiled or generated.
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
    same_without: tuple[tuple[str, ...], ...] = ()


def keys_of_same_code(partitions: Iterable[Partition]) -> list[tuple[str, ...]]:
    """Return the largest sets of config keys without which each of these partitions is known to have the same code."""
    first, *others = [{frozenset(keys): keys for keys in part.same_without} for part in partitions] or [{}]
    common = [keys for keys in first if all(keys in sets for sets in others)]
    return [first[keys] for keys in common if not any(keys < larger for larger in common)]


class PartitionContent(NamedTuple):
    """A partition without its names: its nodes, and the code that runs in their place (None: they run eagerly).

    Equal code counts as the same under any config. ``code`` is its hash, or if the code is not known, the key of the
    artifact, which depends on structure, layouts and config.
    """

    graph: str
    nodes: tuple[str, ...]
    code: str | None
    state: State


PlanContent = tuple[PartitionContent, ...]
"""The partitions in the order they are cut; all other nodes run eagerly."""


def partition_content(partition: Partition) -> PartitionContent:
    """Return the content of a partition: equal ones may belong to different regions."""
    state = State.COMPILED if partition.state is State.MEASURED else partition.state
    return PartitionContent(partition.graph, partition.nodes, partition.code_hash or partition.artifact, state)


def plan_content(partitions: Iterable[Partition]) -> PlanContent:
    """Return the content of a plan by its partitions: plans that differ only in names have equal content."""
    return tuple(map(partition_content, partitions))


class Preview(Record, frozen=True):
    """The partitions that a plan would give, none of them compiled, and the diagnostics about them.

    Diagnostics that need a compile or a later call are not included.
    """

    partitions: tuple[Partition, ...]
    diagnostics: tuple[Diagnostic, ...]

    def counts(self, region: str) -> dict[str, int]:
        """Return how many partitions a region would have in each graph."""
        return Counter(part.graph for part in self.partitions if part.region == region)
