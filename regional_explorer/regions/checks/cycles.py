"""Finds the paths by which regions depend on each other in a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regional_explorer.record.grouping import grouped
from regional_explorer.regions.checks.evidence import Evidence
from regional_explorer.regions.instances import Claim


@dataclass(frozen=True)
class CyclePath:
    """One part of a cycle: a path of nodes from region ``start`` to region ``end``."""

    start: str
    end: str
    path: tuple[str, ...]


Cycle = tuple[CyclePath, ...]


def shortest_cycle(evidence: Evidence, graph: str, regions: Sequence[str]) -> Cycle:
    """Return a shortest cycle among the instances of ``regions`` in ``graph``, region by region; empty if none."""
    claims = {name: claim for name, claim in evidence.claims[graph].items() if claim.region in regions}
    members = grouped((claim, name) for name, claim in claims.items())
    for start in sorted(members, key=lambda claim: regions.index(claim.region)):
        came_from: dict[Claim, tuple[Claim, tuple[str, ...]]] = {}
        queue = [start]
        for instance in queue:
            for target, path in _fed_instances(evidence, graph, instance, members[instance], claims):
                if target == start and instance != start:
                    paths = [CyclePath(instance.region, start.region, path)]
                    while instance != start:
                        previous, path_here = came_from[instance]
                        paths.append(CyclePath(previous.region, instance.region, path_here))
                        instance = previous  # noqa: PLW2901 - walks back, then returns
                    return tuple(reversed(paths))
                if target != start and target not in came_from:
                    came_from[target] = (instance, path)
                    queue.append(target)
    return ()


def _fed_instances(
    evidence: Evidence, graph: str, instance: Claim, nodes: Sequence[str], claims: dict[str, Claim]
) -> Iterator[tuple[Claim, tuple[str, ...]]]:
    """Yield the other instances that ``instance`` feeds, directly or through ops outside all of them, with the path."""
    users = evidence.users(graph, random=True)
    came_from: dict[str, str] = {}
    queue = list(nodes)
    visited = set(nodes)
    for name in queue:
        for user in users.get(name, ()):
            if user in visited:
                continue
            visited.add(user)
            came_from[user] = name
            claim = claims.get(user)
            if claim is None:
                queue.append(user)
            elif claim != instance:
                path = [user]
                while path[-1] in came_from:
                    path.append(came_from[path[-1]])
                yield claim, tuple(reversed(path))
