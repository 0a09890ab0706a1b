"""Numbers the instances of a region by the origins of its ops: module calls, or ops that feed each other directly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.grouping import connected, grouped

Instance = tuple[str, int] | None
"""What identifies an instance within its region: module path and call, or the number of the connected piece;
None for nodes that no Dynamo node was traced to."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The region and the instance that a node belongs to."""

    region: str
    instance: Instance = None


@dataclass(frozen=True, slots=True)
class Picked:
    """The origins that one selector picks (``part``), and those that it would pick without ``only`` (``whole``)."""

    part: Mapping[int, Instance]
    whole: Mapping[int, Instance]


def number_instances(
    graphs: Sequence[Graph],
    owners: dict[int, Claim],
    picked: Mapping[str, Sequence[Picked]],
    joined: Collection[str],
) -> None:
    """Number the instances that no module call identifies: ops that feed each other directly are one instance.

    Dynamo's graphs and the forward decide this (a write in place shows only in the forward). The backward of an
    instance then belongs to one instance too, even if its ops are not connected. Carved ops connect the ops of an
    instance, as in a module call, and a part of a region is connected as the whole region is.

    Args:
        graphs: the recorded graphs.
        owners: the claim on each origin; its instance is set here.
        picked: the origins that each selector of each region picks.
        joined: the merged regions: what feeds each other directly is one instance, whichever selector picked it.
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
    inside = set(origins)
    links = [(origin, source) for origin in origins for source in feeds.get(origin, ()) if source in inside]
    loose_set = set(loose)
    pieces = ([origin for origin in piece if origin in loose_set] for piece in connected(origins, links))
    return {origin: ("", number) for number, piece in enumerate(filter(None, pieces)) for origin in piece}


# ------------------------------------------------------------------------------------------------------ merged regions


Unit = tuple[int, Instance]
"""An instance of what one selector picks: the selector's number, and which instance."""


def _units(origins: Sequence[int], picked: Sequence[Picked], feeds: Mapping[int, set[int]]) -> dict[Unit, list[int]]:
    """Return the origins of each unit, in the order in which units begin; the last selector that picks one has it."""
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
    """Return which units feed each other directly, as pairs, and all units that each one depends on, as bit sets."""
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
    """Group units that feed each other directly into instances, but no dependent units of the same selector.

    So merging two modules of each layer gives one instance per layer, although one layer feeds the next.
    """
    ordered = list(units)
    clash = [0] * len(ordered)
    for later, ancestors in enumerate(unit_ancestors):
        for earlier in range(len(ordered)):
            if ancestors >> earlier & 1 and ordered[earlier][0] == ordered[later][0]:
                clash[later] |= 1 << earlier
                clash[earlier] |= 1 << later
    group_of = list(range(len(ordered)))
    members = [1 << index for index in range(len(ordered))]
    for source, user in feeds:
        group, other = group_of[source], group_of[user]
        barred = 0
        for index, unit_group in enumerate(group_of):
            if unit_group == group:
                barred |= clash[index]
        if group != other and not barred & members[other]:
            members[group] |= members[other]
            group_of = [group if unit_group == other else unit_group for unit_group in group_of]
    return list(grouped(zip(group_of, ordered, strict=True)).values())
