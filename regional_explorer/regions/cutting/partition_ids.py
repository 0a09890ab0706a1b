"""The ids of partitions: region, instance and graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from regional_explorer.regions.instances import Claim, Instance


class PartitionId(NamedTuple):
    """The id of a partition, and the number of its instance within the region."""

    name: str
    instance: int


@dataclass
class PartitionNumbering:
    """Numbers partitions in the order in which they are cut.

    An id consists of region, instance and graph, and a number if the instance was split. Instances that are known by a
    module call are numbered over all graphs, others by their order in their graph.
    """

    _instances: dict[str, dict[Instance, int]] = field(default_factory=dict)
    _unnamed: dict[tuple[Claim, str], int] = field(default_factory=dict)
    _pieces: dict[str, int] = field(default_factory=dict)

    def number(self, claim: Claim, graph_id: str) -> PartitionId:
        """Return the id of the next partition that is cut out of ``graph_id`` for ``claim``."""
        if claim.instance is not None:
            numbers = self._instances.setdefault(claim.region, {})
            instance = numbers.setdefault(claim.instance, len(numbers))
        else:
            instance = self._unnamed[claim, graph_id] = self._unnamed.get((claim, graph_id), -1) + 1
        base = f"{claim.region}.{instance}/{graph_id}"
        count = self._pieces[base] = self._pieces.get(base, -1) + 1
        return PartitionId(base if count == 0 else f"{base}.{count}", instance)
