"""Assigns nodes to regions: evaluates selectors on recorded graphs; claims by origin, overruled and carved ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from regional_explorer.record.graph import Graph, GraphKind, Node, Role, marked_region
from regional_explorer.record.plan import Cut, Plan
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.instances import Claim, Instance, Picked, number_instances
from regional_explorer.regions.line_ranges import LineRange
from regional_explorer.regions.module_selector import pick_modules
from regional_explorer.regions.source_marks import annotation_key
from regional_explorer.regions.subgraphs import SUBGRAPH_KINDS, body_regions, call_origins, pick_subgraphs, whole_bodies
from regional_explorer.regions.sums import claims_of_sums


@dataclass(frozen=True)
class Assignment:
    """The claim on each origin, the origins that a later region took over, and those that the plan carves out.

    ``calls`` are the origins of calls of bodies that are regions: the ops inside are cut, not the call. ``bodies`` has,
    by graph, the claim on a whole body, its ops without an origin included. ``sums`` has, by graph and node, the claims
    on other ops without an origin.
    """

    owners: Mapping[int, Claim]
    by_annotation: Mapping[str, str] = field(default_factory=dict)
    overruled: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    carved: frozenset[int] = frozenset()
    calls: frozenset[int] = frozenset()
    bodies: Mapping[str, Claim] = field(default_factory=dict)
    sums: Mapping[str, Mapping[str, Claim]] = field(default_factory=dict)

    def is_carved(self, node: Node) -> bool:
        """Return whether ``node`` is carved out of its region, in the source or by the plan."""
        return node.carved or node.origin in self.carved

    def with_carved_marked(self, graphs: Iterable[Graph]) -> Iterator[Graph]:
        """Yield the graphs, with ``carved`` set on the nodes that the plan carves out."""
        for graph in graphs:
            if self.carved and any(node.origin in self.carved for node in graph.nodes):
                yield replace(graph, nodes=tuple(replace(node, carved=self.is_carved(node)) for node in graph.nodes))
            else:
                yield graph

    def claim(self, graph_id: str, node: Node, *, with_carved: bool = False) -> Claim | None:
        """Return the claim on ``node`` of a graph, or None. Carved ops have none unless ``with_carved``."""
        if node.role is not Role.OP or (self.is_carved(node) and not with_carved):
            return None
        if node.origin is not None:
            return self.owners.get(node.origin) if node.origin not in self.calls else None
        if graph_id in self.bodies:
            return self.bodies[graph_id]
        if (claim := self.sums.get(graph_id, {}).get(node.name)) is not None:
            return claim
        # A graph break in a callee leaves the forward unmarked while its backward carries the mark, without an origin.
        name = self.by_annotation.get(annotation_key(node.annotation)) if node.annotated else None
        return Claim(name) if name is not None else None


def assign(
    graphs: Sequence[Graph], plan: Plan, known: MutableMapping[Selector, Mapping[int, Instance]] | None = None
) -> Assignment:
    """Return the region of each node; if two regions pick one, it belongs to the later one in the plan.

    ``known`` holds what selectors pick in these graphs, and is added to.
    """
    known = {} if known is None else known

    def picked_by(selector: Selector) -> Mapping[int, Instance]:
        if selector not in known:
            known[selector] = picks(selector, graphs)
        return known[selector]

    owners: dict[int, Claim] = {}
    overruled: dict[tuple[str, str], list[int]] = {}
    by_annotation: dict[str, str] = {}
    picked: dict[str, list[Picked]] = {}
    calls: set[int] = set()
    all_calls = call_origins(graphs)
    for region in plan.regions:
        for selector in region.selectors:
            if selector.kind is SelectorKind.ANNOTATION:
                by_annotation.update(dict.fromkeys(selector.patterns, region.name))
            origins = picked_by(selector)
            unnarrowed = picked_by(replace(selector, only=())) if selector.only else origins
            picked.setdefault(region.name, []).append(Picked(origins, unnarrowed))
            calls = calls | (all_calls & origins.keys()) if selector.kind in SUBGRAPH_KINDS else calls - origins.keys()
            for origin, instance in origins.items():
                earlier = owners.get(origin)
                if earlier is not None and earlier.region != region.name:
                    overruled.setdefault((earlier.region, region.name), []).append(origin)
                owners[origin] = Claim(region.name, instance)
    carved = frozenset(
        origin
        for region in plan.regions
        for selector in region.carved
        for origin in picked_by(selector)
        if origin in owners and owners[origin].region == region.name
    )
    joined = [region.name for region in plan.regions if region.joined]
    number_instances(graphs, owners, picked, joined)
    assigned = Assignment(
        owners,
        by_annotation,
        {regions: tuple(lost) for regions, lost in overruled.items()},
        carved,
        frozenset(calls),
        whole_bodies(graphs, owners, body_regions(plan), calls),
    )
    return replace(assigned, sums=claims_of_sums(graphs, assigned.claim)) if plan.cut is Cut.INSTANCES else assigned


def picks(selector: Selector, graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins that ``selector`` picks, each with its instance."""
    instances = _picks_without_only(selector, graphs)
    if not selector.only:
        return instances
    only_origins = _pick_nodes(selector.only, graphs)
    return {origin: instance for origin, instance in instances.items() if origin in only_origins}


def _picks_without_only(selector: Selector, graphs: Sequence[Graph]) -> dict[int, Instance]:
    match selector.kind:
        case SelectorKind.ANNOTATION:
            keys = set(selector.patterns)
            return {
                origin: (marked[1], 0) if (marked := marked_region(node.annotation)) and marked[1] else None
                for origin, node in _dynamo_ops_with_origin(graphs)
                if node.annotated and annotation_key(node.annotation) in keys
            }
        case SelectorKind.MODULES:
            return pick_modules(selector.patterns, graphs)
        case SelectorKind.LINES:
            ranges = [LineRange.parse(pattern) for pattern in selector.patterns]
            return {
                origin: None
                for origin, node in _dynamo_ops_with_origin(graphs)
                for stack in [node.stack[-1:] if selector.innermost else node.stack]
                if any(lines.contains(line) for lines in ranges for line in stack)
            }
        case SelectorKind.OPS:
            return {
                origin: instance
                for pattern in selector.patterns
                for origin, instance in _pick_operators(pattern, graphs).items()
            }
        case SelectorKind.NODES:
            return _pick_nodes(selector.patterns, graphs)
        case SelectorKind.SUBGRAPH | SelectorKind.SUBGRAPHS:
            return pick_subgraphs(selector, graphs)


def node_names(graphs: Sequence[Graph], origins: Collection[int]) -> tuple[str, ...]:
    """Return the names of the Dynamo nodes of ``origins``, as node selectors use them."""
    return tuple(
        f"{graph.id}:{node.name}"
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.origin in origins
    )


def _dynamo_ops_with_origin(graphs: Sequence[Graph]) -> Iterator[tuple[int, Node]]:
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            yield from ((node.origin, node) for node in graph.ops if node.origin is not None)


def _pick_ops(graphs: Sequence[Graph], matches: Callable[[Graph, Node], bool]) -> dict[int, Instance]:
    return {
        node.origin: None for graph in graphs for node in graph.ops if node.origin is not None and matches(graph, node)
    }


def _pick_operators(pattern: str, graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins of the ops with a matching name; of backward ops only if no other op has one.

    Else ``aten.cos*`` would pick the sine whose backward is a cosine, too.
    """

    def matches(_: Graph, node: Node) -> bool:
        return any(fnmatchcase(name, pattern) for name in node.op_names)

    forward = [graph for graph in graphs if graph.kind is not GraphKind.BACKWARD]
    return _pick_ops(forward, matches) or _pick_ops(graphs, matches)


def _pick_nodes(names: Sequence[str], graphs: Sequence[Graph]) -> dict[int, Instance]:
    name_set = set(names)
    return _pick_ops(graphs, lambda graph, node: node.name in name_set or f"{graph.id}:{node.name}" in name_set)


def members(graphs: Sequence[Graph], assignment: Assignment) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the node names of each region, by graph."""
    regions: dict[str, dict[str, list[str]]] = {}
    for graph in graphs:
        for node in graph.ops:
            if (claim := assignment.claim(graph.id, node)) is not None:
                regions.setdefault(claim.region, {}).setdefault(graph.id, []).append(node.name)
    return {region: {graph: tuple(names) for graph, names in by_graph.items()} for region, by_graph in regions.items()}
