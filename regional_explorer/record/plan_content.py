"""The content of partitions and plans, without names: the key under which measured figures are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from regional_explorer.record.partition import Partition, State
from regional_explorer.record.region_timing import current_timings
from regional_explorer.record.session import Session


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


def with_measured_states(session: Session) -> Session:
    """Return the session with each compiled partition in state ``measured`` if it has figures, else ``compiled``."""
    measured = {timing.partition for timing in current_timings(session)}

    def state(part: Partition) -> State:
        if part.state not in (State.COMPILED, State.MEASURED):
            return part.state
        return State.MEASURED if part.id in measured else State.COMPILED

    return replace(session, partitions=tuple(replace(part, state=state(part)) for part in session.partitions))
