"""Diagnostics about how instances became partitions: merged, joined, split by ops between, or in a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import GraphKind, MarkedBlock, Node, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Cut
from regional_explorer.record.region import Region
from regional_explorer.record.selector import SelectorKind
from regional_explorer.regions.checks.cycles import Cycle, shortest_cycle
from regional_explorer.regions.checks.evidence import Evidence, lines, path_between
from regional_explorer.regions.select import picks


def check_merged(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-merged`` per region whose partitions serve several marked blocks or module calls."""
    for region in evidence.plan.regions:
        if region.joined and evidence.plan.cut is not Cut.UPSTREAM:
            continue  # as requested
        marked = any(selector.kind is SelectorKind.ANNOTATION for selector in region.selectors)
        served = {
            part.id: units
            for part in evidence.partitions
            if part.region == region.name and len(units := _blocks_or_instances(evidence, part, marked=marked)) > 1
        }
        if not served:
            continue
        busiest = max(served, key=lambda part_id: len(served[part_id]))
        part = next(part for part in evidence.partitions if part.id == busiest)
        upstream_cut = evidence.plan.cut is Cut.UPSTREAM
        what = "marked blocks" if marked else "module calls"
        why = (
            "cut='upstream' joins all ops that no path through other ops keeps apart, also those side by side"
            if upstream_cut
            else "they carry one name and feed each other directly"
        )
        where = tuple(dict.fromkeys(line for units in served.values() for line in units.values() if line))
        yield Diagnostic(
            DiagnosticCode.REGION_MERGED,
            f"{count(len(served), 'partition')} of region {region.name!r} for several {what} ({busiest} serves "
            f"{len(served[busiest])}): {why}.",
            Severity.INFO,
            region=region.name,
            graph=part.graph,
            nodes=part.nodes,
            where=where,
            upstream="the same." if upstream_cut else "the same; it also joins blocks that merely lie side by side.",
            remedy="Use cut='instances'."
            if upstream_cut
            else "Give blocks that should be compiled apart names of their own.",
        )


def _blocks_or_instances(evidence: Evidence, part: Partition, *, marked: bool) -> dict[object, SourceLine | None]:
    """Return the marked blocks of a partition by number, or its instances if not ``marked``, each with its line."""
    nodes, claims = evidence.nodes[part.graph], evidence.claims[part.graph]
    units: dict[object, SourceLine | None] = {}
    for name in part.nodes:
        node = nodes[name]
        blocks: tuple[MarkedBlock, ...] = evidence.blocks.get(node.origin, ()) if node.origin is not None else ()
        if marked and blocks:
            units.setdefault(blocks[-1].number, blocks[-1].source or node.source)
        elif node.origin is not None and name in claims and claims[name].instance is not None:
            units.setdefault(claims[name].instance, node.source)
    return units


def check_split(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-split`` per region and cause: an instance that became several partitions of one graph.

    Splits by a sum of gradients are reported as ``backward-unmarked``, those because of a cycle as ``region-cycle``.
    """
    causes: dict[tuple[str, str, str], list[tuple[list[Partition], list[Node], bool]]] = {}
    circular = {(graph, region) for graph, regions in evidence.cyclic for region in regions}
    for (region, _, graph), cut in evidence.instances.items():
        # Forward ops that the backward repeats are a separate piece, which does not count as a split.
        partitions = [part for part in cut if not any(evidence.nodes[graph][name].recompute for name in part.nodes)]
        if len(partitions) < 2 or (graph, region) in circular:  # noqa: PLR2004 - one partition is whole
            continue
        between, drawn = _separating_ops(evidence, partitions)
        kind = str(evidence.by_id[graph].kind)
        if kind == GraphKind.BACKWARD and between and all(node.origin is None for node in between):
            continue
        causes.setdefault((region, kind, between[0].op if between else ""), []).append((partitions, between, drawn))
    for (region, kind, _), cases in causes.items():
        partitions, between, drawn = cases[0]
        carved = bool(between) and all(map(evidence.assignment.is_carved, between))
        stays = any(node in evidence.left_to_eager.get(partitions[0].graph, ()) for node in between)
        via = listing((node.name for node in between), joint=" → ") if between else "a write in place"
        reason = (
            f"random numbers are drawn in the order of the program, and {via} draws between them"
            if drawn
            else f"a path from one part to the next runs through {via}, "
            + ("which stays eager" if stays else "outside the region")
        )
        yield Diagnostic(
            DiagnosticCode.REGION_SPLIT,
            f"{count(len(cases), 'instance')} of region {region!r} {'was' if len(cases) == 1 else 'were'} cut into "
            f"{len(partitions)} partitions in the {kind} ({partitions[0].id}, …): {reason}.",
            Severity.INFO if carved else Severity.WARNING,
            region=region,
            graph=partitions[0].graph,
            nodes=tuple(node.name for node in between),
            where=lines(between),
            upstream="one piece, which draws in another order: other numbers with the same seed."
            if drawn
            else "the same.",
            remedy="Nothing, if these ops are to stay eager."
            if carved or stays or not between
            else _how_to_include(region, partitions[0].graph, between),
        )


def _how_to_include(region: str, graph: str, ops: Sequence[Node]) -> str:
    """Return the call that adds ops to a region: selectors match only those with an origin."""
    if (name := next((node.name for node in ops if node.origin is not None), None)) is None:
        return "Nothing: torch added these ops while tracing, and no selector matches them."
    return f"Include the ops between in the region, for example ex.mark({region!r}, nodes='{graph}:{name}')."


def check_left_to_eager(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-shrunk`` per region and graph with ops that cannot be part of a partition."""
    for graph, left in evidence.left_to_eager.items():
        claims = evidence.claims[graph]
        for region, nodes in grouped((claims[node.name].region, node) for node in left).items():
            yield Diagnostic(
                DiagnosticCode.REGION_SHRUNK,
                f"Region {region!r} leaves {count(len(nodes), 'op')} to eager: {listing(node.name for node in nodes)}. "
                "A partition takes tensors and sizes, no other numbers, writes to none of its inputs, and addresses no "
                "storage by as_strided behind its start.",
                region=region,
                graph=graph,
                nodes=tuple(node.name for node in nodes),
                where=lines(nodes),
                remedy="Nothing, if they are to stay eager; a number that .item() gives can stay a tensor instead.",
            )


def check_joined(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-split`` per selector of a merged region whose ops share no instance with other selectors'."""
    if evidence.plan.cut is Cut.UPSTREAM:
        return
    for region in evidence.plan.regions:
        if not region.joined:
            continue
        selector_of = {
            origin: number
            for number, selector in enumerate(region.selectors)
            for origin in picks(selector, evidence.graphs)
        }
        claims = {origin: claim for origin, claim in evidence.assignment.owners.items() if claim.region == region.name}
        by_instance = grouped((claim.instance, selector_of[origin]) for origin, claim in claims.items())
        connected = {number for numbers in by_instance.values() if len(set(numbers)) > 1 for number in numbers}
        for number in sorted(set(selector_of.values()) - connected):
            piece = frozenset(origin for origin in claims if selector_of[origin] == number)
            if piece and piece != claims.keys():
                yield _separate_piece(evidence, region, number, piece, claims.keys() - piece)


def _separate_piece(
    evidence: Evidence, region: Region, number: int, piece: AbstractSet[int], remaining: AbstractSet[int]
) -> Diagnostic:
    between: list[Node] = []
    graph = next(graph for graph in evidence.graphs if any(node.origin in piece for node in graph.ops))
    for start, goal in ((piece, remaining), (remaining, piece)):
        first, last = ({node.name for node in graph.ops if node.origin in side} for side in (start, goal))
        path = path_between(evidence.users(graph.id), first, frozenset(last), frozenset())
        if path is not None and not between:
            between = [evidence.nodes[graph.id][name] for name in path[1:-1]]
    path_text = listing((node.name for node in between), joint=" → ")
    why = f"{path_text} lies between" if between else "no path connects them"
    return Diagnostic(
        DiagnosticCode.REGION_SPLIT,
        f"What {region.selectors[number]} picks stays a separate piece in the merged region {region.name!r}: it "
        f"neither feeds the rest directly nor is fed by it; {why}.",
        region=region.name,
        graph=graph.id,
        nodes=tuple(node.name for node in between),
        where=lines(between),
        upstream="blocks with the same name that do not feed each other directly are merged only if they lie side by "
        "side.",
        remedy=_how_to_include(region.name, graph.id, between) if between else "Keep them separate.",
    )


def _separating_ops(evidence: Evidence, partitions: list[Partition]) -> tuple[list[Node], bool]:
    """Return the ops that separate two partitions of one instance, and whether only their random draws do so."""
    graph = partitions[0].graph
    own_nodes = frozenset(name for part in partitions for name in part.nodes)
    for drawn in (False, True):
        users = evidence.users(graph, random=drawn)
        for index, part in enumerate(partitions[1:], start=1):
            earlier = [name for previous in partitions[:index] for name in previous.nodes]
            path = path_between(users, earlier, frozenset(part.nodes), own_nodes)
            if path is not None:
                return [evidence.nodes[graph][name] for name in path[1:-1]], drawn
    return [], False


def check_cycles(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-cycle`` per set of regions that feed each other in a cycle."""
    graphs_of = grouped((regions, graph) for graph, regions in dict.fromkeys(evidence.cyclic))
    for regions, graphs in graphs_of.items():
        order = [region.name for region in evidence.plan.regions if region.name in regions]
        cycle = shortest_cycle(evidence, graphs[0], order)
        split = [
            partitions
            for (region, _, graph), partitions in evidence.instances.items()
            if region in regions and graph == graphs[0] and len(partitions) > 1
        ]
        yield _region_cycle(evidence, order, graphs, cycle, split)


def _region_cycle(
    evidence: Evidence, order: list[str], graphs: list[str], cycle: Cycle, split: list[list[Partition]]
) -> Diagnostic:
    nodes = evidence.nodes[graphs[0]]
    paths = "; ".join(f"{path.start} → {path.end} through {' → '.join(path.path)}" for path in cycle)
    starts = [nodes[part.nodes[0]] for partitions in split for part in partitions[1:]]
    split_regions = ", ".join(dict.fromkeys(partitions[0].region for partitions in split))
    consequence = (
        f"{split_regions} was split before {listing(node.name for node in starts)}; the regions named first stay whole"
        if split
        else "one waits for the other"
    )
    several = len(order) > 1
    who = f"Regions {' and '.join(map(repr, order))}" if several else f"Instances of region {order[0]!r}"
    return Diagnostic(
        DiagnosticCode.REGION_CYCLE,
        f"{who} feed each other both ways in {', '.join(graphs)} ({paths}), so they cannot all run as one call each: "
        f"{consequence}.",
        region=order[0],
        graph=graphs[0],
        nodes=tuple(dict.fromkeys(name for path in cycle for name in path.path)),
        where=lines(nodes[name] for path in cycle for name in path.path),
        upstream=(
            "it fails with 'Invalid partition, found dependency cycles', without any names."
            if several
            else "it keeps the instances of one region free of cycles as well."
        ),
        remedy="Move the op where the paths meet into one of the regions, or reorder the plan: the first stays whole.",
    )
