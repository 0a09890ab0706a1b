"""The ids of partitions: region, instance and graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regional_explorer.regions.instances import Claim, Instance


@dataclass(frozen=True, slots=True)
class PartitionOrigin:
    """Where a partition comes from: who has its nodes, and the graph they are in."""

    claim: Claim
    graph_id: str


def numbered(origins: Sequence[PartitionOrigin]) -> list[tuple[str, int]]:
    """Return for each partition its id and the number of its instance.

    The id is made of region, instance and graph, and a number if the instance was split. Module calls are numbered by
    call, others by their order in the graph.
    """
    numbers: dict[str, dict[Instance, int]] = {}
    counters: dict[PartitionOrigin, int] = {}
    taken: dict[str, int] = {}
    found = []
    for origin in origins:
        claim = origin.claim
        if claim.instance is not None:
            known = numbers.setdefault(claim.region, {})
            instance = known.setdefault(claim.instance, len(known))
        else:
            instance = counters[origin] = counters.get(origin, -1) + 1
        base = f"{claim.region}.{instance}/{origin.graph_id}"
        count = taken[base] = taken.get(base, -1) + 1
        found.append((base if count == 0 else f"{base}.{count}", instance))
    return found
