"""Finds the instance of a region that each op belongs to: module calls, connected ops, sums of gradients."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.grouping import connected, grouped
from regional_explorer.regions.order import convex_parts, cycles, recorded_dependencies

Instance = tuple[str, int] | None
"""The identity of an instance within its region: module path and call, or the number of the connected piece;
None for nodes that no Dynamo node was traced to."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The region and the instance that a node belongs to."""

    region: str
    instance: Instance = None


@dataclass(frozen=True, slots=True)
class Picked:
    """The origins that a selector picks (``part``), and the origins it would pick without ``only`` (``whole``)."""

    part: Mapping[int, Instance]
    whole: Mapping[int, Instance]


def number_instances(
    graphs: Sequence[Graph],
    owners: dict[int, Claim],
    picked: Mapping[str, Sequence[Picked]],
    joined: Collection[str],
) -> None:
    """Number the instances outside of module calls: ops that feed each other directly are one instance.

    Dynamo's graphs and the forward decide this; a write in place shows only in the forward. The backward of an
    instance then belongs to one instance too, even if its ops are not connected. Carved ops connect the ops of an
    instance, as in a module call, and a part of a region is connected as the whole region is. In ``joined``, merged
    regions, what feeds each other directly is one instance, whichever of the region's selectors ``picked`` it.

    The instances are set in ``owners``, the claim on each origin.
    """
    by_region = grouped((owners[origin].region, origin) for origin in sorted(owners))
    feeds = direct_feeds(graphs)
    for region, origins in by_region.items():
        if region in joined:
            units = _units(origins, picked[region], feeds)
            groups = _joined_units(units, *_unit_dependencies(graphs, units))
            instances: Mapping[int, Instance] = {
                origin: ("", number) for number, group in enumerate(groups) for unit in group for origin in units[unit]
            }
        else:
            loose = [origin for origin in origins if owners[origin].instance is None]
            instances = _piece_of(loose, picked[region], feeds)
        for origin, instance in instances.items():
            owners[origin] = Claim(region, instance)


def _forward_graphs(graphs: Sequence[Graph]) -> Iterator[Graph]:
    return (graph for graph in graphs if graph.kind is not GraphKind.BACKWARD)


def direct_feeds(graphs: Sequence[Graph]) -> dict[int, set[int]]:
    """Return the origins that each origin takes a value from directly."""
    feeds: dict[int, set[int]] = {}
    for graph in _forward_graphs(graphs):
        origins = {node.name: node.origin for node in graph.ops if node.origin is not None}
        for node in graph.ops:
            if node.origin is not None:
                feeds.setdefault(node.origin, set()).update(origins[name] for name in node.inputs if name in origins)
    return feeds


def _piece_of(loose: Sequence[int], picked: Sequence[Picked], feeds: Mapping[int, set[int]]) -> dict[int, Instance]:
    """Return the number of the connected piece that each origin of ``loose`` belongs to."""
    unnarrowed = {origin for pick in picked for origin in pick.whole if pick.whole is not pick.part}
    origins = sorted({*loose, *unnarrowed})
    links = [(origin, source) for origin in origins for source in feeds.get(origin, ())]
    loose_set = set(loose)
    pieces = ([origin for origin in piece if origin in loose_set] for piece in connected(origins, links))
    return {origin: ("", number) for number, piece in enumerate(filter(None, pieces)) for origin in piece}


# ------------------------------------------------------------------------------------------------------ merged regions


Unit = tuple[int, Instance]
"""An instance of one selector's ops: the selector's number and the instance."""


def _units(origins: Sequence[int], picked: Sequence[Picked], feeds: Mapping[int, set[int]]) -> dict[Unit, list[int]]:
    """Return the origins of each unit, in the order in which units begin; an op's last selector decides its unit."""
    selected = grouped((max(n for n, pick in enumerate(picked) if origin in pick.part), origin) for origin in origins)
    unit_of: dict[int, Unit] = {}
    for number, selector_origins in selected.items():
        instance_of = picked[number].part
        loose = [origin for origin in selector_origins if instance_of[origin] is None]
        instances = {**instance_of, **_piece_of(loose, [picked[number]], feeds)}
        unit_of.update({origin: (number, instances[origin]) for origin in selector_origins})
    return grouped((unit_of[origin], origin) for origin in origins)


def _unit_dependencies(
    graphs: Sequence[Graph], units: Mapping[Unit, Sequence[int]]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the pairs of units that feed each other directly, and all units that each unit depends on, as bit sets."""
    unit_index = {origin: index for index, origins in enumerate(units.values()) for origin in origins}
    feeds: set[tuple[int, int]] = set()
    unit_ancestors = [0] * len(units)
    for graph in _forward_graphs(graphs):
        node_ancestors: dict[str, int] = {}
        unit_of: dict[str, int] = {}
        for node in graph.nodes:
            unit = unit_index.get(node.origin) if node.origin is not None else None
            ancestors = 0
            for source in node.inputs:
                ancestors |= node_ancestors.get(source, 0)
                if unit is not None and source in unit_of and unit_of[source] != unit:
                    feeds.add((unit_of[source], unit))
            if unit is not None:
                unit_of[node.name] = unit
                unit_ancestors[unit] |= ancestors & ~(1 << unit)
                ancestors |= 1 << unit
            node_ancestors[node.name] = ancestors
    return sorted(feeds, key=lambda pair: (pair[1], pair[0])), unit_ancestors


def _joined_units(
    units: Mapping[Unit, Sequence[int]], feeds: Sequence[tuple[int, int]], unit_ancestors: Sequence[int]
) -> list[list[Unit]]:
    """Group units into instances by direct feeds; no instance gets two dependent units of one selector.

    So merging two modules of each layer gives one instance per layer, although one layer feeds the next.
    """
    ordered = list(units)

    def clash(unit: int, other: int) -> bool:
        dependent = unit_ancestors[unit] >> other | unit_ancestors[other] >> unit
        return ordered[unit][0] == ordered[other][0] and bool(dependent & 1)

    group_of = [[index] for index in range(len(ordered))]
    for source, user in feeds:
        group, other_group = group_of[source], group_of[user]
        if group is not other_group and not any(clash(unit, other) for unit in group for other in other_group):
            group += other_group
            for other in other_group:
                group_of[other] = group
    return list(grouped((id(group_of[index]), unit) for index, unit in enumerate(ordered)).values())


Claims = dict[str, Claim]
"""The claims on the nodes of one graph, by name."""


def with_sums(graph: Graph, claims: Claims) -> Claims:
    """Return the claims on a graph's nodes, extended to ops without an origin inside of instances."""
    all_claims = claims | _without_cycles(graph, claims, claims_from_around(graph, claims))
    return {node.name: all_claims[node.name] for node in graph.ops if node.name in all_claims}


def claims_from_around(graph: Graph, claims: Mapping[str, Claim]) -> Claims:
    """Return claims on the ops without an origin, by the instances around them.

    Such an op belongs to the instance that all its inputs come from; inputs of the graph do not count. If the op feeds
    the instance too, its other inputs may be values that the instance depends on anyway: the gradient of a residual
    goes both past the branch and through it. An op that takes only inputs of the graph belongs to the instance that is
    its only user. So no partition depends on more with the op than without it.
    """
    users = graph.users
    used = users.keys() - claims.keys()
    loose = dict.fromkeys(node.name for node in graph.ops if node.name in used and _has_no_origin(node))
    if not loose:
        return {}
    node_claims = {name: claim for name, claim in claims.items() if claim.instance is not None}
    # The instances that each node feeds through loose ops, or is in.
    fed = {name: {claim} for name, claim in claims.items()}
    for name in reversed(loose):
        fed[name] = set[Claim]().union(*(fed.get(user, ()) for user in users[name]))
    free: set[str] = set()  # nodes that depend on no op of the program: inputs, and loose ops that read only these
    bit = {node.name: 1 << index for index, node in enumerate(graph.nodes)}
    ancestors: dict[str, int] = {}  # all of each node, as bit sets

    def surrounding_claim(node: Node) -> Claim | None:
        for claim in dict.fromkeys(node_claims[name] for name in node.inputs if name in node_claims):
            own_inputs = [name for name in node.inputs if node_claims.get(name) == claim]
            other_inputs = [name for name in node.inputs if name not in own_inputs and name not in free]
            above = _union(ancestors[name] for name in own_inputs)
            if not other_inputs or (claim in fed[node.name] and all(above & bit[name] for name in other_inputs)):
                return claim
        return None

    for node in graph.nodes:
        ancestors[node.name] = _union(ancestors[name] | bit[name] for name in node.inputs)
        if node.role is not Role.OP or (node.name in loose and free.issuperset(node.inputs)):
            free.add(node.name)
        elif node.name in loose and (claim := surrounding_claim(node)) is not None:
            node_claims[node.name] = claim
    for name in reversed(loose):
        user_claims = {node_claims.get(user) for user in users[name]}
        if name in free and len(user_claims) == 1 and (only_claim := user_claims.pop()) is not None:
            node_claims[name] = only_claim
    return {name: claim for name, claim in node_claims.items() if name in loose}


def _union(bit_sets: Iterable[int]) -> int:
    return functools.reduce(operator.or_, bit_sets, 0)


def _has_no_origin(node: Node) -> bool:
    """Return whether a node is a plain operator that autograd or AOTAutograd added.

    Ops that write, draw random numbers or run a body stay where they are.
    """
    if node.origin is not None or node.annotated or node.recompute or node.random or node.op.endswith("_"):
        return False
    return node.target == "getitem" or node.target.count(".") == 2  # noqa: PLR2004 - namespace.name.overload


# --------------------------------------------------------------------------------------------------------- cycles


def _without_cycles(graph: Graph, claims: Claims, sums: Claims) -> Claims:
    """Return the claims ``sums``, without those of instances that they would put into a cycle."""
    if not sums:
        return sums
    dependencies = recorded_dependencies(graph)
    known_cycles = _instance_cycles(dependencies, claims)
    while new_cycles := [cycle for cycle in _instance_cycles(dependencies, claims | sums) if cycle not in known_cycles]:
        remaining = {name: claim for name, claim in sums.items() if not any(claim in cycle for cycle in new_cycles)}
        if len(remaining) == len(sums):
            break
        sums = remaining
    return sums


def _instance_cycles(dependencies: Mapping[str, list[str]], claims: Claims) -> list[frozenset[Claim]]:
    """Return the sets of instances whose partitions would feed each other in a cycle."""
    names_by_claim = grouped((claims[name], name) for name in dependencies if name in claims)
    return cycles(dependencies, list(convex_parts(names_by_claim.items(), dependencies)))
