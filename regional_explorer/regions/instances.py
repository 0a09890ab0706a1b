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
    own = grouped((owners[origin].region, origin) for origin in sorted(owners))
    feeds = direct_feeds(graphs)
    for region, origins in own.items():
        if region in joined:
            units = _units(origins, picked[region], feeds)
            groups = _joined(units, *_dependencies(graphs, units))
            instances: Mapping[int, Instance] = {
                origin: ("", number) for number, group in enumerate(groups) for unit in group for origin in units[unit]
            }
        else:
            loose = [origin for origin in origins if owners[origin].instance is None]
            instances = _pieces(loose, picked[region], feeds)
        for origin, instance in instances.items():
            owners[origin] = Claim(region, instance)


def _forward(graphs: Sequence[Graph]) -> Iterator[Graph]:
    return (graph for graph in graphs if graph.kind is not GraphKind.BACKWARD)


def direct_feeds(graphs: Sequence[Graph]) -> dict[int, set[int]]:
    """Return the origins that each origin takes a value from directly."""
    found: dict[int, set[int]] = {}
    for graph in _forward(graphs):
        origins = {node.name: node.origin for node in graph.ops if node.origin is not None}
        for node in graph.ops:
            if node.origin is not None:
                found.setdefault(node.origin, set()).update(origins[name] for name in node.inputs if name in origins)
    return found


def _pieces(loose: Sequence[int], picked: Sequence[Picked], feeds: Mapping[int, set[int]]) -> dict[int, Instance]:
    """Return the number of the connected piece that each origin of ``loose`` belongs to."""
    around = {origin for one in picked for origin in one.whole if one.whole is not one.part}
    items = sorted({*loose, *around})
    inside = set(items)
    links = [(origin, source) for origin in items for source in feeds.get(origin, ()) if source in inside]
    wanted = set(loose)
    pieces = ([origin for origin in piece if origin in wanted] for piece in connected(items, links))
    return {origin: ("", number) for number, piece in enumerate(filter(None, pieces)) for origin in piece}


# ------------------------------------------------------------------------------------------------------ merged regions


Unit = tuple[int, Instance]
"""An instance of what one selector picks: the selector's number, and which instance."""


def _units(origins: Sequence[int], picked: Sequence[Picked], feeds: Mapping[int, set[int]]) -> dict[Unit, list[int]]:
    """Return the origins of each unit, in the order in which units begin; the last selector that picks one has it."""
    by_selector = grouped((max(n for n, one in enumerate(picked) if origin in one.part), origin) for origin in origins)
    unit_of: dict[int, Unit] = {}
    for number, mine in by_selector.items():
        part = picked[number].part
        loose = [origin for origin in mine if part[origin] is None]
        instances = {**part, **_pieces(loose, [picked[number]], feeds)}
        unit_of.update({origin: (number, instances[origin]) for origin in mine})
    return grouped((unit_of[origin], origin) for origin in origins)


def _dependencies(
    graphs: Sequence[Graph], units: Mapping[Unit, Sequence[int]]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return which units feed each other directly, as pairs, and all units that each one depends on, as bit sets."""
    number = {origin: index for index, origins in enumerate(units.values()) for origin in origins}
    feeds: set[tuple[int, int]] = set()
    above = [0] * len(units)
    for graph in _forward(graphs):
        seen: dict[str, int] = {}
        home: dict[str, int] = {}
        for node in graph.nodes:
            mine = number.get(node.origin) if node.origin is not None else None
            waits = 0
            for source in node.inputs:
                waits |= seen.get(source, 0)
                if mine is not None and source in home and home[source] != mine:
                    feeds.add((home[source], mine))
            if mine is not None:
                home[node.name] = mine
                above[mine] |= waits & ~(1 << mine)
                waits |= 1 << mine
            seen[node.name] = waits
    return sorted(feeds, key=lambda pair: (pair[1], pair[0])), above


def _joined(
    units: Mapping[Unit, Sequence[int]], feeds: Sequence[tuple[int, int]], above: Sequence[int]
) -> list[list[Unit]]:
    """Group units that feed each other directly into instances, but no dependent units of the same selector.

    So merging two modules of each layer gives one instance per layer, although one layer feeds the next.
    """
    names = list(units)
    clash = [0] * len(names)
    for later, waits in enumerate(above):
        for earlier in range(len(names)):
            if waits >> earlier & 1 and names[earlier][0] == names[later][0]:
                clash[later] |= 1 << earlier
                clash[earlier] |= 1 << later
    group = list(range(len(names)))
    members = [1 << index for index in range(len(names))]
    for source, user in feeds:
        one, other = group[source], group[user]
        barred = 0
        for index, home in enumerate(group):
            if home == one:
                barred |= clash[index]
        if one != other and not barred & members[other]:
            members[one] |= members[other]
            group = [one if home == other else home for home in group]
    return list(grouped(zip(group, names, strict=True)).values())
