"""How partitions are called: by region, instance and graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regional_explorer.regions.instances import Claim, Instance


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition comes from: who has its nodes, and the graph they are in."""

    claim: Claim
    graph_id: str


def numbered(places: Sequence[Place]) -> list[tuple[str, int]]:
    """Return for each partition its id and the number of its instance.

    The id is made of region, instance and graph, and a number if the instance was split. Module calls are numbered by
    call, others by their order in the graph.
    """
    numbers: dict[str, dict[Instance, int]] = {}
    counters: dict[Place, int] = {}
    taken: dict[str, int] = {}
    found = []
    for place in places:
        claim = place.claim
        if claim.instance is not None:
            known = numbers.setdefault(claim.region, {})
            instance = known.setdefault(claim.instance, len(known))
        else:
            instance = counters[place] = counters.get(place, -1) + 1
        base = f"{claim.region}.{instance}/{place.graph_id}"
        count = taken[base] = taken.get(base, -1) + 1
        found.append((base if count == 0 else f"{base}.{count}", instance))
    return found
