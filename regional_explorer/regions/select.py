"""Evaluates selectors on recorded graphs, marks in the source among them: which region has which op."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from regional_explorer.errors import SelectorError
from regional_explorer.record.graph import (
    Chain,
    Graph,
    GraphKind,
    Node,
    SourceLine,
    marked_region,
    short_name,
    subgraph_names,
    subgraphs,
    traced_from,
)
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import CutRule, Plan, Region, Selector, SelectorKind, is_name
from regional_explorer.regions.instances import Claim, Claims, Instance, PickedOrigins, number_instances, with_sums

SUBGRAPH_KINDS = (SelectorKind.SUBGRAPH, SelectorKind.SUBGRAPHS)
"""The selectors that pick whole bodies."""


EVERY_OP = "*"
"""The op pattern that picks every op, as one instance, connected or not, including ops without an origin."""

_WHOLE_GRAPH = ("*", 0)


def body_regions(plan: Plan) -> set[str]:
    """Return the names of the regions that select whole bodies."""
    return {region.name for region in plan.regions if any(map(region.patterns, SUBGRAPH_KINDS))}


def subgraph_key(graph: Graph) -> str:
    """Return the key of a body with options: the function's name and its configs, which closures may change."""
    options = graph.options
    configs = (options.config, options.backward_config) if options is not None else ()
    return f"{graph.name}:{json.dumps(configs, sort_keys=True, default=repr)}"


def pick_subgraphs(selector: Selector, graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins of the ops in the bodies that ``selector`` picks, and of these bodies' calls."""
    return {
        node.origin: (graph.id, 0)
        for graph in subgraphs(graphs)
        if _matches_subgraph(selector, graph)
        for node in (*graph.ops, *calls_of(graph, graphs))
        if node.origin is not None
    }


def _matches_subgraph(selector: Selector, graph: Graph) -> bool:
    if selector.kind is SelectorKind.SUBGRAPH:
        return graph.options is not None and subgraph_key(graph) in selector.patterns
    return any(fnmatch.fnmatchcase(name, pattern) for name in subgraph_names(graph) for pattern in selector.patterns)


def calls_of(body: Graph, graphs: Sequence[Graph]) -> list[Node]:
    """Return the ops that run ``body``; several may share it."""
    if body.parent is None:
        return []
    outer = next(graph for graph in graphs if graph.id == body.parent[0])
    holders = outer.holding(body.parent[1])
    return [op for op in outer.ops if holders.intersection(op.inputs)]


def call_origins(graphs: Sequence[Graph]) -> set[int]:
    """Return the origins of all calls of bodies."""
    calls = (call for graph in subgraphs(graphs) for call in calls_of(graph, graphs))
    return {call.origin for call in calls if call.origin is not None}


def annotation_key(annotation: Any) -> str:
    """Return the key of a region that is marked in the source: its id, or the config of a mark without an id.

    Upstream puts all marks without an id into one default region and compiles it under the first config it meets. Here
    they are one region if their configs are equal.
    """
    if (marked := marked_region(annotation)) is not None:
        return f"id:{marked[0]}"
    return f"default:{json.dumps(annotated_config(annotation), sort_keys=True)}"


def annotation_name(annotation: Any) -> str | None:
    """Return the name of the region that a mark belongs to, or None for a mark without an id."""
    if (marked := marked_region(annotation)) is None:
        return None
    name = str(marked[0])
    return name if is_name(name) else repr(name)  # an id may be empty or have line breaks, a region's name must not


def annotated_config(annotation: Any) -> dict[str, Any]:
    """Return the Inductor configs in an annotation; empty if it has none."""
    config = annotation.get("inductor_configs") if isinstance(annotation, Mapping) else None
    return dict(config) if isinstance(config, Mapping) else {}


def source_regions(graphs: Sequence[Graph]) -> list[Region]:
    """Return the regions marked in the source, in the order in which their first op runs.

    Functions of ``nested_compile_region`` with options come last: their ops do not belong to a marked block around
    them. Bodies of one function for different shapes are instances of one region.
    """
    regions: dict[str, Region] = {}
    for node in marked_nodes(graphs):
        key = annotation_key(node.annotation)
        if key in regions:
            continue
        defaults = sum(key_.startswith("default:") for key_ in regions)
        name = annotation_name(node.annotation) or (f"default-{defaults + 1}" if defaults else "default")
        selector = Selector(SelectorKind.ANNOTATION, (key,))
        regions[key] = Region(_free_name(name, regions), (selector,), annotated_config(node.annotation))
    for body in subgraphs(graphs):
        if (options := body.options) is not None and (key := subgraph_key(body)) not in regions:
            name, selector = _free_name(short_name(body.name), regions), Selector(SelectorKind.SUBGRAPH, (key,))
            regions[key] = Region(name, (selector,), options.config, backward_config=options.backward_config)
    return list(regions.values())


def _free_name(name: str, regions: Mapping[str, Region]) -> str:
    """Return ``name``, with apostrophes if other regions have it."""
    names = {region.name for region in regions.values()}
    while name in names:
        name += "'"
    return name


def marked_nodes(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Yield the ops of the Dynamo graphs that carry a mark, then marked ops of other graphs that have no origin."""
    for graph in sorted(graphs, key=lambda graph: graph.kind is not GraphKind.DYNAMO):
        for node in graph.ops:
            if node.annotated and (graph.kind is GraphKind.DYNAMO or node.origin is None):
                yield node


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines ``first`` to ``last`` of ``place``, a file or a function (its ``def`` is line 1); if empty, of any file."""

    place: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> LineRange:
        """Parse ``place:3``, ``place:3-7`` or only the numbers.

        Raises:
            SelectorError: the text does not have that form.
        """
        match = re.fullmatch(r"\s*(?:(.+?)\s*:)?\s*(\d+)(?:\s*-\s*(\d+))?\s*", text)
        if match is None:
            raise SelectorError(
                f"lines={text!r} is not a line range. Write function:3-7 (counted from its def), file.py:10-20, "
                "or only 10-20."
            )
        first, last = int(match[2]), int(match[3] or match[2])
        if last < first:
            place = f"{match[1]}:" if match[1] else ""
            raise SelectorError(f"lines={text!r} ends before it begins. Did you mean {place}{last}-{first}?")
        return cls(match[1] or "", first, last)

    def __str__(self) -> str:
        """Return the line numbers only, ``3`` or ``3-7``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def contains(self, line: SourceLine) -> bool:
        """Return whether ``line`` is in the range."""
        if not self.place:
            return self.first <= line.line <= self.last and not line.in_library
        if self.place.endswith(".py"):
            is_same = line.file == self.place or line.file.endswith("/" + self.place.lstrip("/"))
            return is_same and self.first <= line.line <= self.last
        scope = f".{line.scope or line.function}"
        if self.place != line.function and not scope.endswith(f".{self.place}"):
            return False
        return line.def_line > 0 and self.first <= line.line - line.def_line + 1 <= self.last


def pick_modules(patterns: Sequence[str], graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins of the ops in modules that a pattern matches, each with the module call that it belongs to.

    A pattern that is the path of a module means that module: names may have characters of globs, as in ``acts.a[0]``.
    """
    rules = [
        re.compile(re.escape(pattern)) if _is_literal_path(pattern, graphs) else module_glob(pattern)
        for pattern in patterns
    ]
    shared = _shared_callers(graphs)
    return {
        node.origin: instance
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.origin is not None and (instance := _instance_of(node.modules, rules, shared[graph.id])) is not None
    }


def _is_literal_path(pattern: str, graphs: Sequence[Graph]) -> bool:
    """Return whether a pattern with characters of a glob is the literal path of a module around an op."""
    if not re.search(r"[*?[]", pattern):
        return False
    chains = {node.modules for graph in graphs if graph.kind is GraphKind.DYNAMO for node in graph.ops}
    paths = (path for calls in chains for call in calls for path in (call.path, *call.aliases))
    return any(f"{path}.".startswith(f"{pattern}.") for path in paths)


def _shared_callers(graphs: Sequence[Graph]) -> dict[str, list[list[Chain]]]:
    """Return, for each graph and each shared body around it, the modules around the calls of that body.

    A mark on one of these modules holds for that call only, so it picks nothing inside: other calls run the same body.
    """
    shared: dict[str, list[list[Chain]]] = {}
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            outer = shared[graph.parent[0]] if graph.parent is not None else []
            callers = [call.modules for call in calls_of(graph, graphs)]
            shared[graph.id] = [*outer, *([callers] if len(callers) > 1 else [])]
    return shared


def _instance_of(calls: Chain, rules: Sequence[re.Pattern[str]], shared: Sequence[Sequence[Chain]]) -> Instance:
    """Return the outermost matching module call around an op; if none matches, the outermost matching module.

    The root has no path, so no rule matches it. A module may contain called modules without being called itself, as a
    ModuleList, or without a record of its call, as a layer that runs in pieces because of a graph break. The calls
    around a body that several calls share are left out: ``shared`` has the callers of each.
    """
    skip = max((len(traced_from(calls, callers)) for callers in shared), default=0)
    for call in calls[skip:]:
        if any(path and rule.fullmatch(path) for rule in rules for path in (call.path, *call.aliases)):
            return call.path, call.call
    skipped_depth = _path_depth(calls[skip - 1].path) if skip else 0
    for call in calls[skip:]:
        for path in sorted((call.path, *call.aliases), key=_path_depth):
            parts = path.split(".")
            # An alias may be longer, or shorter: without the name of the root.
            first_depth = max(0, skipped_depth + len(parts) - _path_depth(call.path))
            for holder in (".".join(parts[:depth]) for depth in range(first_depth + 1, len(parts))):
                if any(rule.fullmatch(holder) for rule in rules):
                    root = call.path.removesuffix(path) if call.path.endswith(f".{path}") else ""
                    return f"{root}{holder}", 0
    return None


def _path_depth(path: str) -> int:
    return len(path.split(".")) if path else 0


def module_glob(pattern: str) -> re.Pattern[str]:
    """Return a module glob as a regular expression: ``*`` stays within one level of the path, ``**`` does not.

    ``?`` and ``[0-3]`` or ``[!0-3]`` stand for one character of a level.
    """
    special = {"**": ".*", "*": "[^.]*", "?": "[^.]"}

    def token_regex(token: str) -> str:
        if token.startswith("["):
            return rf"(?!\.){fnmatch.translate(token)[:-2]}"  # without the anchor for the end of the text
        return special.get(token) or re.escape(token)

    return re.compile("".join(map(token_regex, re.split(r"(\*\*|\*|\?|\[!?[^]]+\])", pattern))))


@dataclass(frozen=True)
class Assignment:
    """The claim on each origin and node, and the origins that the plan carves out.

    ``overruled`` are the origins that later regions took over, by the region that lost them and the region that has
    them; ``claims`` are by graph and node, without the carved nodes; ``carved_claims`` has the claims of these.
    """

    owners: Mapping[int, Claim]
    by_annotation: Mapping[str, str] = field(default_factory=dict)
    overruled: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    carved: frozenset[int] = frozenset()
    claims: Mapping[str, Claims] = field(default_factory=dict)
    carved_claims: Mapping[str, Claims] = field(default_factory=dict)

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

    def claim(self, graph_id: str, name: str, *, with_carved: bool = False) -> Claim | None:
        """Return the claim on a node of a graph, or None. Carved ops have none unless ``with_carved``."""
        claim = self.claims.get(graph_id, {}).get(name)
        return self.carved_claims.get(graph_id, {}).get(name) if claim is None and with_carved else claim


def assign(
    graphs: Sequence[Graph],
    plan: Plan,
    picked_cache: MutableMapping[Selector, Mapping[int, Instance]] | None = None,
    pending: Sequence[Graph] = (),
) -> Assignment:
    """Return the region of each node; a node that two regions pick belongs to the later region in the plan.

    ``known`` holds what selectors pick in these graphs, and is added to. ``pending`` are backwards of these graphs that
    are not among them yet.
    """
    picked_cache = {} if picked_cache is None else picked_cache

    def picked_by(selector: Selector) -> Mapping[int, Instance]:
        if selector not in picked_cache:
            picked_cache[selector] = picked_origins(selector, graphs, pending)
        return picked_cache[selector]

    by_annotation = {
        pattern: region.name for region in plan.regions for pattern in region.patterns(SelectorKind.ANNOTATION)
    }
    owners: dict[int, Claim] = {}
    overruled: list[tuple[str, int]] = []
    calls: set[int] = set()
    all_calls = call_origins(graphs)
    for region in plan.regions:
        for selector in region.selectors:
            origins = picked_by(selector)
            calls = calls | (all_calls & origins.keys()) if selector.kind in SUBGRAPH_KINDS else calls - origins.keys()
            for origin, instance in origins.items():
                earlier = owners.get(origin)
                if earlier is not None and earlier.region != region.name:
                    overruled.append((earlier.region, origin))
                owners[origin] = Claim(region.name, instance)
    lost = grouped(((loser, owners[origin].region), origin) for loser, origin in overruled)
    carved = frozenset(
        origin
        for region in plan.regions
        for selector in region.carved
        for origin in picked_by(selector)
        if origin in owners and owners[origin].region == region.name
    )
    picked = {
        region.name: [
            PickedOrigins(picked_by(selector), picked_by(replace(selector, only=()))) for selector in region.selectors
        ]
        for region in plan.regions
    }
    number_instances(graphs, owners, picked, {region.name for region in plan.regions if region.joined})
    claims: dict[str, Claims] = {}
    carved_claims: dict[str, Claims] = {}
    assignment = Assignment(owners, by_annotation, lost, carved, claims, carved_claims)
    region_of_all = next((region.name for region in plan.regions if _has_every_op(region)), None)
    rest = Claim(region_of_all, _WHOLE_GRAPH) if region_of_all is not None and plan.cut is CutRule.INSTANCES else None
    for graph in (*graphs, *pending):
        graph_claims = _claims_on(graph, assignment, calls, body_regions(plan), rest)
        eager = {node.name for node in graph.ops if assignment.is_carved(node)}
        carved_claims[graph.id] = {name: claim for name, claim in graph_claims.items() if name in eager}
        claims[graph.id] = {name: claim for name, claim in graph_claims.items() if name not in eager}
        if plan.cut is CutRule.INSTANCES and graph.kind is not GraphKind.DYNAMO:
            claims[graph.id] = with_sums(graph, claims[graph.id])
    return assignment


def _has_every_op(region: Region) -> bool:
    rules = (rule for rule in region.selectors if rule.kind is SelectorKind.OPS and not rule.only)
    return any(EVERY_OP in rule.patterns for rule in rules)


def _claims_on(
    graph: Graph, assignment: Assignment, calls: Collection[int], bodies: Collection[str], rest: Claim | None
) -> Claims:
    """Return the claims on the nodes of a graph, carved ones included, by their origins or marks.

    ``calls`` are the origins of calls of bodies that are regions: the ops inside are cut, not the call. ``bodies`` are
    the regions that select whole bodies. If AOTAutograd traced such a body, the region claims also its ops without an
    origin, as upstream compiles it: sums of gradients, and ops that the body's own partitioner or decompositions made.
    Other ops without an origin and a mark get the claim ``rest``, except for AOTAutograd's copies into inputs.
    """
    origins = (op.origin for op in graph.ops if op.origin is not None and op.origin not in calls)
    owners = {origin: assignment.owners.get(origin) for origin in origins}
    distinct = set(owners.values())
    single = distinct.pop() if graph.kind is not GraphKind.DYNAMO and graph.parent and len(distinct) == 1 else None
    claims: Claims = {}
    for node in graph.ops:
        if node.origin is not None:
            claim = owners.get(node.origin)
        elif single is not None and single.region in bodies:
            claim = single
        else:
            # A graph break in a callee leaves the forward unmarked while its backward has the mark, without an origin.
            name = assignment.by_annotation.get(annotation_key(node.annotation)) if node.annotated else None
            claim = Claim(name) if name is not None else None if node.op.endswith("_") else rest
        if claim is not None:
            claims[node.name] = claim
    return claims


def picked_origins(selector: Selector, graphs: Sequence[Graph], pending: Sequence[Graph] = ()) -> dict[int, Instance]:
    """Return the origins that ``selector`` picks, each with its instance."""
    if selector.only:
        only_origins = _pick_nodes(selector.only, (*graphs, *pending))
        unnarrowed = picked_origins(replace(selector, only=()), graphs, pending)
        return {origin: instance for origin, instance in unnarrowed.items() if origin in only_origins}
    if selector.is_combined:
        unnarrowed = picked_origins(replace(selector, within=(), without=()), graphs, pending)
        origins = set(unnarrowed).intersection(*(picked_origins(other, graphs, pending) for other in selector.within))
        origins = origins.difference(*(picked_origins(other, graphs, pending) for other in selector.without))
        return {origin: instance for origin, instance in unnarrowed.items() if origin in origins}
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
            return dict.fromkeys(
                (origin for pattern in selector.patterns for origin in _pick_operators(pattern, graphs, pending)),
                _WHOLE_GRAPH if EVERY_OP in selector.patterns else None,
            )
        case SelectorKind.NODES:
            return _pick_nodes(selector.patterns, (*graphs, *pending))
        case SelectorKind.SUBGRAPH | SelectorKind.SUBGRAPHS:
            return pick_subgraphs(selector, graphs)


def node_names(graphs: Sequence[Graph], origins: Collection[int]) -> tuple[str, ...]:
    """Return the names of the Dynamo nodes of ``origins``, as node selectors use them."""
    dynamo = (graph for graph in graphs if graph.kind is GraphKind.DYNAMO)
    return tuple(f"{graph.id}:{node.name}" for graph in dynamo for node in graph.ops if node.origin in origins)


def _dynamo_ops_with_origin(graphs: Sequence[Graph]) -> Iterator[tuple[int, Node]]:
    dynamo = (graph for graph in graphs if graph.kind is GraphKind.DYNAMO)
    return ((node.origin, node) for graph in dynamo for node in graph.ops if node.origin is not None)


def _pick_ops(graphs: Sequence[Graph], matches: Callable[[Graph, Node], bool]) -> dict[int, Instance]:
    return {
        node.origin: None for graph in graphs for node in graph.ops if node.origin is not None and matches(graph, node)
    }


def operator_names(graph: Graph, node: Node) -> tuple[str, ...]:
    """Return the names by which a pattern can pick the operator of a node; empty for arithmetic on sizes.

    AOTAutograd may compute a linear's sizes by a ``mul``: that is no reason to pick the linear.
    """
    of_sizes = graph.kind is not GraphKind.DYNAMO and not node.values and "." not in node.target
    return () if of_sizes else node.op_names


def _pick_operators(pattern: str, graphs: Sequence[Graph], pending: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins of the ops with a matching name; backward ops count only if no other op matches.

    Otherwise ``aten.cos*`` would also pick the sine, whose backward is a cosine. Of ``pending`` backwards, only ops
    called "backward" count: a forward that is still to come may have a cosine, but none has a ``gelu_backward``.
    """

    def matches(graph: Graph, node: Node) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in operator_names(graph, node))

    def is_backward(graph: Graph, node: Node) -> bool:
        return "backward" in node.op and matches(graph, node)

    forward = [graph for graph in graphs if graph.kind is not GraphKind.BACKWARD]
    return _pick_ops(forward, matches) or _pick_ops(graphs, matches) | _pick_ops(pending, is_backward)


def _pick_nodes(names: Sequence[str], graphs: Sequence[Graph]) -> dict[int, Instance]:
    name_set = set(names)
    return _pick_ops(graphs, lambda graph, node: node.name in name_set or f"{graph.id}:{node.name}" in name_set)


def members(graphs: Sequence[Graph], assignment: Assignment) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the node names of each region, by graph."""
    by_graph = grouped(
        ((claim.region, graph.id), name)
        for graph in graphs
        for name, claim in assignment.claims.get(graph.id, {}).items()
    )
    by_region = grouped((region, (graph_id, tuple(names))) for (region, graph_id), names in by_graph.items())
    return {region: dict(graphs_of_region) for region, graphs_of_region in by_region.items()}
