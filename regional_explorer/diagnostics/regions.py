"""Diagnostics about regions: empty, shrunk, grown, merged, split, in a cycle, failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from regional_explorer.diagnostics.evidence import Evidence, lines, nodes_between, paths_from
from regional_explorer.errors import count, listing
from regional_explorer.record.action import (
    carve_action,
    configure_action,
    disable_action,
    mark_nodes_action,
    merge_action,
    unmark_action,
)
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode, Severity, in_sentences
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import CutRule, Direction, Region, Selector, SelectorKind, config_texts
from regional_explorer.regions.edit import broken_at
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.select import body_regions, calls_of, picked_origins
from regional_explorer.torch_api.dynamo import FoldedOp
from regional_explorer.torch_api.torch_errors import op_of_assert

PASSING_OPS = frozenset({"clone", "copy", "alias", "lift_fresh_copy", "add", "sub"})
"""Ops that pass a gradient on unchanged: the backward has no op for them."""

WRITING_OPS = frozenset(
    {
        "setitem",
        *("iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow", "irshift", "isub"),
        *("itruediv", "ixor"),
    }
)
"""Ops that write in place although their name does not end in ``_``: item assignments and augmented assignments."""


def check_empty(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-empty`` per region without ops in any graph, or without ops in the backward."""
    places_by_region: dict[str, set[tuple[int, GraphKind]]] = {region.name: set() for region in evidence.plan.regions}
    for graph in (*evidence.graphs, *evidence.pending):
        for claim in evidence.assignment.claims.get(graph.id, {}).values():
            if graph.kind is not GraphKind.DYNAMO:
                places_by_region[claim.region].add((graph.frame, graph.kind))
    trained_frames = {graph.frame for graph in evidence.of_kind(GraphKind.BACKWARD)}
    for region, places in places_by_region.items():
        if not places:
            yield _empty_everywhere(evidence, region)
            continue
        forward_frames = {frame for frame, kind in places if kind is GraphKind.FORWARD and frame in trained_frames}
        if forward_frames and not any(kind is GraphKind.BACKWARD for _, kind in places):
            yield _without_backward(evidence, region)


def _without_backward(evidence: Evidence, region: str) -> Diagnostic:
    requested = _requested_ops(evidence, region)
    retraced = _ops_traced_again(evidence, region)
    unmarked = any(node.origin is None for graph in evidence.of_kind(GraphKind.BACKWARD) for node in graph.ops)
    forward_ops = dict.fromkeys(
        evidence.nodes[graph.id][name].op
        for graph in evidence.of_kind(GraphKind.FORWARD)
        for name, claim in evidence.claims[graph.id].items()
        if claim.region == region
    )
    passing = [op for op in forward_ops if op in PASSING_OPS]
    why = "no gradient flows through it"
    remedy: str | Advice = "No change is needed if its results need no gradient."
    if retraced:
        why = f"torch traces the backward of {listing(retraced)} again, and marks inside do not reach it"
        whole_op = mark_nodes_action(region, retraced[0])
        remedy = ("Mark the whole op to have its backward compiled, for example ", whole_op, ".")
    elif own := _backward_of_its_own(evidence, region):
        why = "an autograd function has a backward of its own, which the marks of its forward do not reach"
        remedy = ("Mark that backward too, for example ", mark_nodes_action(region, *own), ".")
    elif unmarked and any(node.op.endswith("_") or node.op in WRITING_OPS for node in requested):
        why = "the backward ops of writes in place belong to no region"
        remedy = "Avoid the write in place (x = x.mul(2) in place of x.mul_(2)), or leave its backward to eager."
    elif len(passing) == len(forward_ops):
        why = f"a gradient passes unchanged through {listing(passing)}, so there is nothing to compute"
        remedy = "No change is needed: a copy or a sum has no backward of its own."
    elif passing:
        why += f", or a gradient passes unchanged through {listing(passing)}"
    return DiagnosticCode.REGION_EMPTY.finding(
        f"Region {region!r} has no op in the backward",
        f": {why}.",
        region=region,
        where=lines(requested)[:1],
        remedy=remedy,
        severity=Severity.INFO,
        upstream="the same.",
    )


def _ops_traced_again(evidence: Evidence, region: str) -> list[str]:
    """Return the higher-order ops (cond, for example) that hold all of a region, if their backwards have no origins."""

    def holder(graph: Graph) -> Node | None:
        return evidence.nodes[graph.parent[0]][graph.parent[1]] if graph.parent else None

    retraced = {
        holding_op.origin
        for graph in evidence.of_kind(GraphKind.BACKWARD)
        if (holding_op := holder(graph)) and graph.ops and all(node.origin is None for node in graph.ops)
    }
    names: list[str] = []
    for graph in evidence.of_kind(GraphKind.FORWARD):
        if any(claim.region == region for claim in evidence.claims[graph.id].values()):
            holding_op = holder(graph)
            if graph.parent is None or holding_op is None or holding_op.origin not in retraced:
                return []
            names += [f"{graph.parent[0]}:{user}" for user in evidence.users(graph.parent[0])[holding_op.name]]
    return list(dict.fromkeys(names))


def _backward_of_its_own(evidence: Evidence, region: str) -> list[str]:
    """Return the ops in the backward of the autograd functions whose forward holds all of a region."""
    requested = {node.origin for node in _requested_ops(evidence, region)}
    graphs = list(evidence.of_kind(GraphKind.DYNAMO))

    def function(graph: Graph) -> tuple[str, str] | None:
        """Return the op that runs an autograd function, if ``graph`` is the function's forward or backward."""
        if graph.parent is None:
            return None
        outer, body = graph.parent
        ops = (name for name in evidence.users(outer)[body] if evidence.nodes[outer][name].op == _AUTOGRAD_FUNCTION)
        return next(((outer, name) for name in ops), None)

    functions = {function(graph) for graph in graphs if any(node.origin in requested for node in graph.ops)}
    if None in functions:
        return []
    backwards = [graph for graph in graphs if "/bwd_body" in graph.id and function(graph) in functions]
    return [f"{graph.id}:{node.name}" for graph in backwards for node in graph.ops if node.op != "_set_grad_enabled"]


_AUTOGRAD_FUNCTION = "autograd_function_apply"
"""The higher-order op that Dynamo traces an autograd function to."""


def _empty_everywhere(evidence: Evidence, region: str) -> Diagnostic:
    overruled = evidence.assignment.overruled
    winners = [winner for loser, winner in overruled if loser == region]
    requested = _requested_ops(evidence, region)
    if winners:
        lost_origins = [origin for (loser, _), origins in overruled.items() if loser == region for origin in origins]
        requested = evidence.dynamo_nodes(lost_origins)
        why = f"all its ops belong to {', '.join(map(repr, winners))}, later in the plan"
        remedy: str | Advice = (
            "If two regions claim an op, the later one has it: unmark one of them, or reorder the plan."
        )
    elif requested and all(map(evidence.assignment.is_carved, requested)):
        why = "all its ops are carved out, and run eagerly"
        remedy = ("Carve out less, or ", unmark_action(region), ".")
    elif requested:
        why = f"{listing(node.name for node in requested)} left no op when AOTAutograd traced the graph"
        remedy = "Include ops that compute something: tracing drops a view or a copy that changes nothing."
    else:
        causes = (broken_at(selector, evidence.breaks) for selector in evidence.plan[region].selectors)
        cause = next(filter(None, causes), "").rstrip(".")
        why = f"its selectors match nothing in this call{f'.{cause}' if cause else ''}"
        remedy = ("Mark it again, or ", unmark_action(region), ".")
    return DiagnosticCode.REGION_EMPTY.finding(
        f"Region {region!r} has no op in any graph", f": {why}.", region=region, where=requested, remedy=remedy
    )


def _requested_ops(evidence: Evidence, region: str) -> list[Node]:
    owners = evidence.assignment.owners.items()
    return evidence.dynamo_nodes(origin for origin, claim in owners if claim.region == region)


def check_moved(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield ``region-shrunk`` for ops that were folded into equal ops outside, or that a later mark claims."""
    region_of: dict[int | None, str] = {o: claim.region for o, claim in evidence.assignment.owners.items()}
    folded_away = grouped(
        (region_of[fold.origin], fold)
        for fold in evidence.folded
        if fold.origin in region_of and region_of[fold.origin] != region_of.get(fold.into_origin)
    )
    for region, folds in folded_away.items():
        yield _shrunk_by_folding(evidence, region, folds)
    remaining = set(region_of.values())
    for (loser, winner), origins in evidence.assignment.overruled.items():
        nodes = evidence.dynamo_nodes(origins)
        if loser in remaining and nodes:
            belong = "belongs" if len(nodes) == 1 else "belong"
            yield DiagnosticCode.REGION_SHRUNK.finding(
                f"{count(len(nodes), 'op')} that region {loser!r} requested {belong} to {winner!r}, later in the plan",
                f": {listing(node.name for node in nodes)}.",
                region=loser,
                where=nodes,
                remedy="If two regions claim an op, the later one has it: reorder the plan, or mark less.",
                upstream="an inner annotation replaces the outer one in the same way.",
            )


def _shrunk_by_folding(evidence: Evidence, region: str, folds: list[FoldedOp]) -> Diagnostic:
    kept = [
        (graph.id, fold.into)
        for graph in evidence.graphs
        for fold in folds
        if graph.kind is not GraphKind.DYNAMO
        and (node := evidence.nodes[graph.id].get(fold.into)) is not None
        and node.origin == fold.into_origin
    ]
    graph_id = kept[0][0] if kept else None
    pairs = listing(f"{fold.name} into {fold.into}" for fold in folds)
    return DiagnosticCode.REGION_SHRUNK.finding(
        f"Region {region!r} lost {count(len(folds), 'op')} to equal ops outside ({pairs})",
        ". The min-cut partitioner removes common subexpressions and keeps the first occurrence.",
        region=region,
        graph=graph_id,
        at=sorted({name for place, name in kept if place == graph_id}),
        where=evidence.dynamo_nodes(origin for fold in folds for origin in (fold.origin, fold.into_origin)),
        remedy="Explore with the default partitioner, or compute the shared value once, in the region it should be in."
        if evidence.min_cut
        else "Compute the shared value once, in the region it should be in.",
        severity=Severity.WARNING,
    )


def shortest_cycle(
    evidence: Evidence, graph: str, regions: Sequence[str], moved: Mapping[str, Claim] | None = None
) -> list[list[str]]:
    """Return a shortest cycle among the instances of ``regions``, as paths between instances; empty if there is none.

    ``moved`` has claims that replace the claims on some nodes.
    """
    all_claims = {**evidence.claims[graph], **(moved or {})}
    claims = {name: claim for name, claim in all_claims.items() if claim.region in regions}
    members, users = grouped((claim, name) for name, claim in claims.items()), evidence.users(graph, random=True)
    for start in sorted(members, key=lambda claim: regions.index(claim.region)):
        path_to: dict[Claim, list[str]] = {}
        queue = [start]
        for instance in queue:
            # Directly, or through ops outside of all instances.
            for path in paths_from(users, members[instance], claims):
                target = claims[path[-1]]
                if target == instance:
                    continue
                if target == start:
                    cycle = [path]
                    while (source := claims[cycle[0][0]]) != start:
                        cycle.insert(0, path_to[source])
                    return cycle
                if target not in path_to:
                    path_to[target] = path
                    queue.append(target)
    return []


def check_merged(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-merged`` per region whose partitions serve several marked blocks or module calls."""
    for region in evidence.plan.regions:
        if region.joined and evidence.plan.cut is not CutRule.UPSTREAM:
            continue  # as requested
        marked = bool(region.patterns(SelectorKind.ANNOTATION))
        served = [
            (part, units)
            for part in evidence.partitions
            if part.region == region.name and len(units := _blocks_or_instances(evidence, part, marked=marked)) > 1
        ]
        if not served:
            continue
        busiest, most_units = max(served, key=lambda pair: len(pair[1]))
        upstream_cut = evidence.plan.cut is CutRule.UPSTREAM
        units_name = "marked blocks" if marked else "module calls"
        why = (
            "cut='upstream' joins ops, even side by side, unless a path through other ops separates them"
            if upstream_cut
            else "they carry one name and feed each other directly"
        )
        yield DiagnosticCode.REGION_MERGED.finding(
            f"{count(len(served), 'partition')} of region {region.name!r} {'serves' if len(served) == 1 else 'serve'} "
            f"several {units_name} ({busiest.id}: {len(most_units)})",
            f": {why}.",
            region=region.name,
            graph=busiest.graph,
            at=busiest.nodes,
            where=(line for _, units in served for line in units.values()),
            remedy="Use cut='instances'."
            if upstream_cut
            else "To compile the blocks separately, give each a name of its own.",
            upstream="the same." if upstream_cut else "the same; it also joins blocks that merely lie side by side.",
        )


def _blocks_or_instances(evidence: Evidence, part: Partition, *, marked: bool) -> dict[object, SourceLine | None]:
    """Return the lines of the marked blocks of a partition by number; if not ``marked``, the lines of its instances."""
    nodes, claims = evidence.nodes[part.graph], evidence.claims[part.graph]
    units: dict[object, SourceLine | None] = {}
    for name in part.nodes:
        node = nodes[name]
        if node.origin is None:
            continue
        if marked:
            for block in evidence.blocks.get(node.origin, ())[-1:]:
                if evidence.region_of_mark(block.annotation) == part.region:  # else ex.mark added the op
                    units.setdefault(block.number, block.source or node.source)
        elif name in claims and claims[name].instance is not None:
            units.setdefault(claims[name].instance, node.source)
    return units


def check_split(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-split`` per region and cause: an instance that became several partitions of one graph.

    A split by a sum of gradients is reported as ``backward-unmarked``, a split because of a cycle as ``region-cycle``.
    """
    causes: dict[tuple[str, str, str], list[tuple[list[Partition], list[Node], bool]]] = {}
    circular = {(graph, region) for graph, regions in evidence.cyclic for region in regions}
    for (region, _, graph), cut in evidence.instances.items():
        # Forward ops that the backward repeats are a separate piece, which does not count as a split.
        partitions = [part for part in cut if not any(evidence.nodes[graph][name].recompute for name in part.nodes)]
        if len(partitions) < 2 or (graph, region) in circular:  # noqa: PLR2004 - one partition is whole
            continue
        between, is_random = _separating_ops(evidence, partitions)
        kind = str(evidence.by_id[graph].kind)
        if kind == GraphKind.BACKWARD and between and all(node.origin is None for node in between):
            continue
        causes.setdefault((region, kind, between[0].op if between else ""), []).append((partitions, between, is_random))
    for (region, kind, _), cases in causes.items():
        partitions, between, is_random = cases[0]
        carved = bool(between) and all(map(evidence.assignment.is_carved, between))
        stays = any(node in evidence.ops_left_to_eager.get(partitions[0].graph, ()) for node in between)
        via = listing((node.name for node in between), joint=" → ") if between else "a write in place"
        reason = (
            f"random numbers are drawn in the order of the program, and {via} draws between them"
            if is_random
            else f"a path from one part to the next runs through {via}, "
            + ("which stays eager" if stays else "outside the region")
        )
        yield DiagnosticCode.REGION_SPLIT.finding(
            f"{count(len(cases), 'instance')} of region {region!r} {'was' if len(cases) == 1 else 'were'} cut into "
            f"{len(partitions)} partitions in the {kind} ({partitions[0].id}, …)",
            f": {reason}.",
            region=region,
            graph=partitions[0].graph,
            at=between,
            remedy="No change is needed if these ops are to stay eager."
            if carved or stays or not between
            else "In the program, draw these numbers before the region's first draw, or after its last."
            if is_random
            else _how_to_include(evidence, region, partitions[0].graph, _all_separating_ops(evidence, cases)),
            severity=Severity.INFO if carved else Severity.WARNING,
            upstream="one piece, which draws in another order: other numbers with the same seed."
            if is_random
            else "the same.",
        )


MOST_INCLUDED = 8
"""The maximum number of ops named in a call that adds them."""


def _how_to_include(evidence: Evidence, region: str, graph_id: str, ops: Sequence[Node]) -> str | Advice:
    """Return the call that adds ops to a region, as far as they have an origin.

    If other regions have some of the ops, the call merges the regions: a region later in the plan would keep its ops.
    """
    names = dict.fromkeys(f"{graph_id}:{node.name}" for node in ops if node.origin is not None)
    if not names:
        return "No change is possible: torch added these ops while tracing, and no selector matches them."
    claims = (evidence.assignment.claim(graph_id, node.name) for node in ops)
    owners = dict.fromkeys(claim.region for claim in claims if claim is not None and claim.region != region)
    if owners:
        return "Make one region of them: ", merge_action(region, *owners), "."
    shown = list(names)[:MOST_INCLUDED]
    more = f" {count(len(names) - len(shown), 'more op')} are between as well." if len(names) > len(shown) else ""
    return "Include the ops between in the region: ", mark_nodes_action(region, *shown), f".{more}"


def check_left_to_eager(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-shrunk`` per region, graph and cause with ops that cannot be part of a partition."""
    for graph, eager_nodes in evidence.ops_left_to_eager.items():
        claims = evidence.claims[graph]
        by_cause = grouped(
            ((claims[node.name].region, _eager_source(evidence, graph, node)), node) for node in eager_nodes
        )
        for (region, source), nodes in by_cause.items():
            reason = (
                f"These are results of {source}, which runs eagerly"
                + (", so that a checkpoint repeats it with the same random numbers." if "rng_state" in source else ".")
                if source
                else "A partition takes only tensors and sizes, does not write to its inputs, and does not "
                "apply as_strided to an input or to a part of a storage."
            )
            yield DiagnosticCode.REGION_SHRUNK.finding(
                f"Region {region!r} leaves {count(len(nodes), 'op')} to eager",
                f": {listing(node.name for node in nodes)}. {reason}",
                region=region,
                graph=graph,
                at=nodes,
                remedy="No change is needed if they are to stay eager."
                + ("" if source else " Else keep a tensor in place of the number that .item() gives."),
                severity=Severity.WARNING,
                upstream="",
            )


def _eager_source(evidence: Evidence, graph: str, node: Node) -> str:
    """Return the op outside of regions that has ``node`` among its results; empty if there is none."""
    while node.op == "getitem":
        node = evidence.nodes[graph][node.inputs[0]]
    return node.op if node.role is Role.OP and node.name not in evidence.claims[graph] else ""


def check_joined(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-split`` per selector of a merged region that shares no instance with the other selectors."""
    if evidence.plan.cut is CutRule.UPSTREAM:
        return
    for region in evidence.plan.regions:
        if not region.joined:
            continue
        selector_of = {
            origin: number
            for number, selector in enumerate(region.selectors)
            for origin in picked_origins(selector, evidence.graphs, evidence.pending)
        }
        claims = {origin: claim for origin, claim in evidence.assignment.owners.items() if claim.region == region.name}
        by_instance = grouped((claim.instance, selector_of[origin]) for origin, claim in claims.items())
        connected_components = {
            number for numbers in by_instance.values() if len(set(numbers)) > 1 for number in numbers
        }
        for number in sorted(set(selector_of.values()) - connected_components):
            piece = frozenset(origin for origin in claims if selector_of[origin] == number)
            if piece and piece != claims.keys():
                yield _separate_piece(evidence, region, number, piece, claims.keys() - piece)


def _separate_piece(
    evidence: Evidence, region: Region, number: int, piece: AbstractSet[int], remaining: AbstractSet[int]
) -> Diagnostic:
    graph = next(graph for graph in evidence.graphs if any(node.origin in piece for node in graph.ops))
    inside, outside = ({node.name for node in graph.ops if node.origin in side} for side in (piece, remaining))
    users = evidence.users(graph.id)
    names = nodes_between(users, inside, outside) or nodes_between(users, outside, inside)
    between = [evidence.nodes[graph.id][name] for name in names]
    path_text = listing((node.name for node in between), joint=" → ")
    why = f"{path_text} lies between" if between else "no path connects them"
    return DiagnosticCode.REGION_SPLIT.finding(
        f"The ops of {region.selectors[number]} stay a separate piece of the merged region {region.name!r}",
        f": no direct path connects them with its other ops; {why}.",
        region=region.name,
        graph=graph.id,
        at=between,
        remedy=_how_to_include(evidence, region.name, graph.id, between) if between else "Keep them separate.",
        upstream="blocks with the same name that do not feed each other directly are merged only if they lie side by "
        "side.",
    )


def _separating_ops(evidence: Evidence, partitions: list[Partition]) -> tuple[list[Node], bool]:
    """Return the ops that separate two partitions of one instance, and whether only the order of random ops does so."""
    for is_random in (False, True):
        if nodes := next(_between_partitions(evidence, partitions, random=is_random), None):
            return nodes, is_random
    return [], False


def _all_separating_ops(evidence: Evidence, cases: Sequence[tuple[list[Partition], list[Node], bool]]) -> list[Node]:
    """Return the ops that separate the partitions of each instance, for the instances in the first case's graph."""
    graph = cases[0][0][0].graph
    instances = (partitions for partitions, _, _ in cases if partitions[0].graph == graph)
    return [
        node
        for partitions in instances
        for nodes in _between_partitions(evidence, partitions, random=False)
        for node in nodes
    ]


def _between_partitions(evidence: Evidence, partitions: list[Partition], *, random: bool) -> Iterator[list[Node]]:
    """Yield the ops between each partition and the earlier ones; with ``random``, also by the order of random ops."""
    graph = partitions[0].graph
    own_nodes = frozenset(name for part in partitions for name in part.nodes)
    users = evidence.users(graph, random=random)
    for index, part in enumerate(partitions[1:], start=1):
        earlier = [name for previous in partitions[:index] for name in previous.nodes]
        if names := nodes_between(users, earlier, part.nodes, own_nodes):
            yield [evidence.nodes[graph][name] for name in names]


def check_cycles(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-cycle`` per set of regions that feed each other in a cycle."""
    graphs_of = grouped((regions, graph) for graph, regions in dict.fromkeys(evidence.cyclic))
    for regions, graphs in graphs_of.items():
        order = [region.name for region in evidence.plan.regions if region.name in regions]
        nodes, claims = evidence.nodes[graphs[0]], evidence.claims[graphs[0]]
        cycle = shortest_cycle(evidence, graphs[0], order)
        paths = "; ".join(
            f"{claims[path[0]].region} → {claims[path[-1]].region} through {' → '.join(path)}" for path in cycle
        )
        split = [
            partitions
            for (region, _, graph), partitions in evidence.instances.items()
            if region in regions and graph == graphs[0] and len(partitions) > 1
        ]
        starts = [nodes[part.nodes[0]] for partitions in split for part in partitions[1:]]
        split_regions = ", ".join(dict.fromkeys(partitions[0].region for partitions in split))
        consequence = (
            f"{split_regions} was split before {listing(node.name for node in starts)}; the regions named first stay "
            "whole"
            if split
            else "one waits for the other"
        )
        several = len(order) > 1
        subject = f"Regions {' and '.join(map(repr, order))}" if several else f"Instances of region {order[0]!r}"
        yield DiagnosticCode.REGION_CYCLE.finding(
            f"{subject} feed each other both ways in {', '.join(graphs)} ({paths}), so they cannot all run as one call "
            f"each",
            f": {consequence}.",
            region=order[0],
            graph=graphs[0],
            at=[nodes[name] for name in dict.fromkeys(name for path in cycle for name in path)],
            remedy=in_sentences(
                _how_to_uncross(evidence, graphs[0], order, cycle), "Or reorder the plan: the first stays whole."
            ),
            upstream="it fails with 'Invalid partition, found dependency cycles', without any names."
            if several
            else "it keeps the instances of one region free of cycles as well.",
        )


def _how_to_uncross(
    evidence: Evidence, graph: str, order: Sequence[str], cycle: Sequence[Sequence[str]]
) -> str | Advice:
    """Return the call that breaks the cycle by moving an op at the end of a path; general advice if none does."""
    claims = evidence.claims[graph]
    for path in cycle:
        for name, opposite in ((path[0], path[-1]), (path[-1], path[0])):
            target = claims[opposite]
            # If two regions claim an op, the later one in the plan has it.
            is_later = order.index(target.region) > order.index(claims[name].region)
            if (
                is_later
                and evidence.nodes[graph][name].origin is not None
                and not shortest_cycle(evidence, graph, order, {name: target})
            ):
                return "Move an op into the other region: ", mark_nodes_action(target.region, f"{graph}:{name}"), "."
    return "Move ops so that no region both feeds and needs another."


def check_shared(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-merged`` per region with partitions in a body that several calls share."""
    partition_nodes = {(part.graph, name) for part in evidence.partitions for name in part.nodes}
    shared_by_region: dict[str, list[tuple[Partition, list[Node]]]] = {}
    regions_of_bodies = body_regions(evidence.plan)
    for part in evidence.partitions:
        if part.region in regions_of_bodies:  # the body itself was marked
            continue
        body = evidence.by_id[part.graph]
        outer_id = body.parent[0] if body.parent is not None else ""
        calls = [call for call in calls_of(body, evidence.graphs) if (outer_id, call.name) not in partition_nodes]
        if len(calls) > 1:
            shared_by_region.setdefault(part.region, []).append((part, calls))
    for region, cases in shared_by_region.items():
        part, calls = cases[0]
        callers = dict.fromkeys(call.module_path or call.name for call in calls)
        yield DiagnosticCode.REGION_MERGED.finding(
            f"{count(len(cases), 'partition')} of region {region!r} in a body that {len(calls)} calls share "
            f"({listing(callers)})",
            ": torch traces a nested_compile_region once for all calls that are alike.",
            region=region,
            graph=part.graph,
            at=part.nodes,
            where=calls,
            remedy="To compile one of the calls, mark the call: the mark applies to that call only.",
            upstream="the same: one body, with its pieces, for all calls.",
        )


def check_failed(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-failed`` per region, error, and config keys at fault."""
    failed = [part for part in evidence.partitions if part.error is not None]
    failures = grouped(((part.region, part.error, part.compiles_without), part) for part in failed)
    for (region, error, keys), parts in failures.items():
        nodes = [evidence.nodes[parts[0].graph][name] for name in parts[0].nodes]
        op = op_of_assert(error or "")
        failing = [node for node in nodes if node.target == op]
        fact = "cannot run compiled"
        texts = evidence.plan[region].treatment.texts
        otherwise = f"Leave out {listing(texts)}, or " if texts else "Try another config, or "
        remedy: Advice = (otherwise, disable_action(region), ".")
        if failing:
            remedy = (
                carve_action(region, Selector(SelectorKind.OPS, (failing[0].target,))),
                " leaves the op to eager. If it is a custom op, ",
                "torch.library.opcheck compares its fake kernel with the real one.",
            )
        if keys:  # a compile without them was tried
            texts = config_texts({key: parts[0].config_requested[key] for key in keys})
            own_backward = evidence.plan[region].backward_config is not None
            direction = Direction.of_graph(parts[0].graph) if own_backward else None
            fact = f"does not compile with {' and '.join(texts)}"
            remedy = (configure_action(region, {}, direction, unset=keys), ".")
        yield DiagnosticCode.REGION_FAILED.finding(
            f"Region {region!r} {fact} and runs eagerly ({listing(part.id for part in parts)})",
            f": {error}",
            region=region,
            graph=parts[0].graph,
            at=failing or nodes,
            where=lines(failing or nodes)[:1],
            remedy=remedy,
        )
