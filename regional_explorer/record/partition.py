"""Partitions, their states, and the preview of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from regional_explorer.record import Integer, Record
from regional_explorer.record.diagnostic import Diagnostic


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
    """A piece cut out of one graph for a region, and its state."""

    id: str
    """Its id: region, instance and graph."""
    region: str
    instance: Integer
    graph: str
    """The id of the graph."""
    nodes: tuple[str, ...]
    """The names of its ops in that graph."""
    state: State
    config_requested: Mapping[str, Any] = {}
    """The config of the plan."""
    artifact: str | None = None
    """The key of the compiled callable; partitions of equal structure and config share one."""
    error: str | None = None
    """Why it did not compile."""
    code_hash: str | None = None
    """The hash of the generated code, which artifacts of different configs may share."""
    same_without: tuple[tuple[str, ...], ...] = ()
    """Sets of its config keys that are known not to change the code."""
    compiles_without: tuple[str, ...] = ()
    """If it did not compile: the config keys that are known to cause that."""

    @property
    def as_cut(self) -> Partition:
        """What the cut made, without config and artifact; all of it if it failed."""
        cut = self.id, self.region, self.instance, self.graph, self.nodes
        return self if self.error else Partition(*cut, State.STALE)


def keys_of_same_code(partitions: Iterable[Partition]) -> list[tuple[str, ...]]:
    """Return the largest sets of config keys that are known not to change the code of any of the partitions."""
    first, *others = [{frozenset(keys): keys for keys in part.same_without} for part in partitions] or [{}]
    common = [keys for keys in first if all(keys in sets for sets in others)]
    return [first[keys] for keys in common if not any(keys < larger for larger in common)]


class PartitionContent(NamedTuple):
    """The content of a partition, without its names. Partitions of equal code have equal contents under any config."""

    graph: str
    """The id of the graph."""
    nodes: tuple[str, ...]
    """The names of its ops."""
    code: str | None
    """The hash of the code that runs; the key of the artifact if the code is not known; None if it runs eagerly."""
    state: State


PlanContent = tuple[PartitionContent, ...]
"""The contents of the partitions in the order in which they are cut; all other nodes run eagerly."""


def partition_content(partition: Partition) -> PartitionContent:
    """Return the content of a partition; partitions of different regions may have equal content."""
    state = State.COMPILED if partition.state is State.MEASURED else partition.state
    return PartitionContent(partition.graph, partition.nodes, partition.code_hash or partition.artifact, state)


def plan_content(partitions: Iterable[Partition]) -> PlanContent:
    """Return the content of a plan, given its partitions; plans that differ only in names have equal content."""
    return tuple(map(partition_content, partitions))


class Preview(Record, frozen=True):
    """The result of a plan before anything is compiled."""

    partitions: tuple[Partition, ...]
    """The partitions, none of them compiled."""
    diagnostics: tuple[Diagnostic, ...]
    """The diagnostics about them, without those that need a compile or a later call."""

    def counts(self, region: str) -> dict[str, int]:
        """Return how many partitions a region would have in each graph."""
        return Counter(part.graph for part in self.partitions if part.region == region)
