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
        came: dict[Claim, tuple[Claim, tuple[str, ...]]] = {}
        queue = [start]
        for unit in queue:
            for target, path in _reached(evidence, graph, unit, members[unit], claims):
                if target == start and unit != start:
                    paths = [CyclePath(unit.region, start.region, path)]
                    while unit != start:
                        before, path_here = came[unit]
                        paths.append(CyclePath(before.region, unit.region, path_here))
                        unit = before  # noqa: PLW2901 - walks back, then returns
                    return tuple(reversed(paths))
                if target != start and target not in came:
                    came[target] = (unit, path)
                    queue.append(target)
    return ()


def _reached(
    evidence: Evidence, graph: str, unit: Claim, nodes: Sequence[str], claims: dict[str, Claim]
) -> Iterator[tuple[Claim, tuple[str, ...]]]:
    """Yield the other instances that ``unit`` feeds, directly or through ops outside all of them, with the path."""
    users = evidence.users(graph, random=True)
    before: dict[str, str] = {}
    queue = list(nodes)
    seen = set(nodes)
    for name in queue:
        for user in users.get(name, ()):
            if user in seen:
                continue
            seen.add(user)
            before[user] = name
            claim = claims.get(user)
            if claim is None:
                queue.append(user)
            elif claim != unit:
                path = [user]
                while path[-1] in before:
                    path.append(before[path[-1]])
                yield claim, tuple(reversed(path))
