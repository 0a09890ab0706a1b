"""Selects the nodes of regions: set operations on the origins stamped at capture, so marking never traces again."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regional_explorer.record.graph import Chain, Graph, GraphKind, ModuleCall, Node, Role, marked_region, traced_from
from regional_explorer.record.region import Cut, Plan, Region, Selector, SelectorKind
from regional_explorer.regions.instances import Claim, Instance, Picked, number_instances
from regional_explorer.regions.line_ranges import LineRange
from regional_explorer.regions.subgraphs import KINDS as SUBGRAPH_KINDS
from regional_explorer.regions.subgraphs import call_origins, pick_subgraphs, subgraph_regions, whole_bodies
from regional_explorer.regions.sums import claims_of_sums


@dataclass(frozen=True)
class Assignment:
    """The region of each origin, the regions that lost one to a later region, and the origins that the plan carves out.

    ``calls`` are the origins of calls of bodies that are regions: the ops inside are cut, not the call. ``bodies`` has
    by graph who has a body as a whole, with what no origin stands behind.
    ``sums`` has, by graph and node, who has the ops that no origin stands behind.
    """

    owners: Mapping[int, Claim]
    by_annotation: Mapping[str, str] = field(default_factory=dict)
    overruled: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    carved: frozenset[int] = frozenset()
    calls: frozenset[int] = frozenset()
    bodies: Mapping[str, Claim] = field(default_factory=dict)
    sums: Mapping[str, Mapping[str, Claim]] = field(default_factory=dict)

    def is_carved(self, node: Node) -> bool:
        """Return whether ``node`` was carved out of its region, in the source or by the plan."""
        return node.carved or node.origin in self.carved

    def with_carved_marked(self, graphs: Iterable[Graph]) -> Iterator[Graph]:
        """Yield the graphs with what the plan carves out marked as carved."""
        for graph in graphs:
            if self.carved and any(node.origin in self.carved for node in graph.nodes):
                yield replace(graph, nodes=tuple(replace(n, carved=self.is_carved(n)) for n in graph.nodes))
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


def annotation_key(annotation: Any) -> str:
    """Return what identifies a region marked in the source: its id, or the config of a mark without one.

    Upstream puts all marks without an id into one default region and compiles it under the first config it meets. They
    stay one region here as long as their configs agree.
    """
    if (marked := marked_region(annotation)) is not None:
        return f"id:{marked[0]}"
    return f"default:{json.dumps(annotated_config(annotation), sort_keys=True)}"


def annotation_name(annotation: Any) -> str | None:
    """Return the name of the region that a mark is of, None for a mark without an id."""
    if (marked := marked_region(annotation)) is None:
        return None
    name = str(marked[0])
    return name if name.strip() else repr(name)  # an id may be an empty text, a region's name may not


def annotated_config(annotation: Any) -> dict[str, Any]:
    """Return the Inductor configs inside an annotation, or none."""
    config = annotation.get("inductor_configs") if isinstance(annotation, Mapping) else None
    return dict(config) if isinstance(config, Mapping) else {}


def source_regions(graphs: Sequence[Graph]) -> list[Region]:
    """Return the regions marked in the source, in the order in which their first op runs.

    Bodies of ``nested_compile_region`` with options come last: a marked block around one gives its ops away to it.
    """
    found: dict[str, Region] = {}
    defaults = 0
    for node in marked_nodes(graphs):
        key = annotation_key(node.annotation)
        if key in found:
            continue
        if (named := annotation_name(node.annotation)) is not None:
            name = named
        else:
            defaults += 1
            name = "default" if defaults == 1 else f"default-{defaults}"
        while any(region.name == name for region in found.values()):
            name += "'"
        selector = Selector(SelectorKind.ANNOTATION, (key,))
        found[key] = Region(name, (selector,), annotated_config(node.annotation))
    for region in subgraph_regions(graphs):
        name = region.name
        while any(other.name == name for other in found.values()):
            name += "'"
        found[region.selectors[0].patterns[0]] = replace(region, name=name)
    return list(found.values())


def marked_nodes(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Yield the ops of the Dynamo graphs that carry a mark, then backward ops that alone carry one."""
    graphs = list(graphs)
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            yield from (node for node in graph.ops if node.annotated)
    for graph in graphs:
        if graph.kind is not GraphKind.DYNAMO:
            yield from (node for node in graph.ops if node.annotated and node.origin is None)


def assign(graphs: Sequence[Graph], plan: Plan) -> Assignment:
    """Return the region of each node; where two regions claim one, the later of the plan has it."""
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
            found = picks(selector, graphs)
            whole = picks(replace(selector, only=()), graphs) if selector.only else found
            picked.setdefault(region.name, []).append(Picked(found, whole))
            calls = calls | (all_calls & found.keys()) if selector.kind in SUBGRAPH_KINDS else calls - found.keys()
            for origin, instance in found.items():
                before = owners.get(origin)
                if before is not None and before.region != region.name:
                    overruled.setdefault((before.region, region.name), []).append(origin)
                owners[origin] = Claim(region.name, instance)
    carved = frozenset(
        origin
        for region in plan.regions
        for selector in region.carved
        for origin in picks(selector, graphs)
        if origin in owners and owners[origin].region == region.name
    )
    joined = [region.name for region in plan.regions if region.joined]
    number_instances(graphs, owners, picked, joined)
    by_body = {region.name for region in plan.regions if any(one.kind in SUBGRAPH_KINDS for one in region.selectors)}
    assigned = Assignment(
        owners,
        by_annotation,
        {key: tuple(value) for key, value in overruled.items()},
        carved,
        frozenset(calls),
        whole_bodies(graphs, owners, by_body, calls),
    )
    return replace(assigned, sums=claims_of_sums(graphs, assigned.claim)) if plan.cut is Cut.INSTANCES else assigned


def picks(selector: Selector, graphs: Sequence[Graph]) -> dict[int, Instance]:
    """Return the origins that ``selector`` picks, each with its instance."""
    found = _picks(selector, graphs)
    if not selector.only:
        return found
    kept = _pick_nodes(selector.only, graphs)
    return {origin: instance for origin, instance in found.items() if origin in kept}


def _picks(selector: Selector, graphs: Sequence[Graph]) -> dict[int, Instance]:
    match selector.kind:
        case SelectorKind.ANNOTATION:
            wanted = set(selector.patterns)
            return {
                origin: (marked[1], 0) if (marked := marked_region(node.annotation)) and marked[1] else None
                for origin, node in _dynamo_ops(graphs)
                if node.annotated and annotation_key(node.annotation) in wanted
            }
        case SelectorKind.MODULES:
            return _pick_modules(selector.patterns, graphs)
        case SelectorKind.LINES:
            ranges = [LineRange.parse(pattern) for pattern in selector.patterns]
            return {
                origin: None
                for origin, node in _dynamo_ops(graphs)
                for stack in [node.stack[-1:] if selector.innermost else node.stack]
                if any(lines.holds(line) for lines in ranges for line in stack)
            }
        case SelectorKind.OPS:
            return _pick(graphs, lambda _, node: any(_is_op(node, pattern) for pattern in selector.patterns))
        case SelectorKind.NODES:
            return _pick_nodes(selector.patterns, graphs)
        case SelectorKind.SUBGRAPH | SelectorKind.SUBGRAPHS:
            return pick_subgraphs(selector, graphs)


def node_names(graphs: Sequence[Graph], origins: Collection[int]) -> tuple[str, ...]:
    """Return the Dynamo nodes of ``origins`` as node selectors name them."""
    return tuple(
        f"{graph.id}:{node.name}"
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.origin in origins
    )


def _dynamo_ops(graphs: Sequence[Graph]) -> Iterator[tuple[int, Node]]:
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            yield from ((node.origin, node) for node in graph.ops if node.origin is not None)


def _pick(graphs: Sequence[Graph], wanted: Any) -> dict[int, Instance]:
    return {
        node.origin: None for graph in graphs for node in graph.ops if node.origin is not None and wanted(graph, node)
    }


def _is_op(node: Node, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in node.op_names)


def _pick_nodes(names: Sequence[str], graphs: Sequence[Graph]) -> dict[int, Instance]:
    wanted = set(names)
    return _pick(graphs, lambda graph, node: node.name in wanted or f"{graph.id}:{node.name}" in wanted)


def _pick_modules(patterns: Sequence[str], graphs: Sequence[Graph]) -> dict[int, Instance]:
    rules = [module_glob(pattern) for pattern in patterns]
    shared = _shared_with(graphs)
    found: dict[int, Instance] = {}
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            for node in graph.ops:
                above = max((len(traced_from(node.modules, callers)) for callers in shared[graph.id]), default=0)
                instance = _instance_of(node.modules, rules, above)
                if instance is not None and node.origin is not None:
                    found[node.origin] = instance
    return found


def _shared_with(graphs: Sequence[Graph]) -> dict[str, list[list[Chain]]]:
    """Return by graph whose body several calls share, and bodies inside, the modules around each of the calls.

    A mark on one of these modules is of that call alone: the others run the same body, and nobody marked them.
    """
    by_id: dict[str, Graph] = {}
    found: dict[str, list[list[Chain]]] = {}
    for graph in graphs:
        if graph.kind is not GraphKind.DYNAMO:
            continue
        by_id[graph.id], found[graph.id] = graph, []
        if graph.parent is not None:
            outer = by_id[graph.parent[0]]
            held = outer.holding(graph.parent[1])
            callers = [op.modules for op in outer.ops if held.intersection(op.inputs)]
            found[graph.id] = [*found[outer.id], *([callers] if len(callers) > 1 else [])]
    return found


def _instance_of(calls: Sequence[ModuleCall], rules: Sequence[re.Pattern[str]], above: int) -> Instance:
    """Return the outermost module call around an op that a rule matches, else the outermost module that holds one.

    A module may hold what is called without being called itself, or without the trace knowing: a ModuleList, or a
    layer that a graph break runs piece by piece. The first ``above`` calls are not asked.
    """
    for call in calls[above:]:
        if any(rule.fullmatch(path) for rule in rules for path in (call.path, *call.aliases)):
            return call.path, call.call
    covered = _depth(calls[above - 1].path) if above else 0
    for call in calls[above:]:
        for path in (call.path, *call.aliases):
            parts = path.split(".")
            first = covered + len(parts) - _depth(call.path)  # another name of it may be longer
            for holder in (".".join(parts[:depth]) for depth in range(first + 1, len(parts))):
                if any(rule.fullmatch(holder) for rule in rules):
                    return holder, 0
    return None


def _depth(path: str) -> int:
    return len(path.split(".")) if path else 0


def module_glob(pattern: str) -> re.Pattern[str]:
    """Return a module glob as a regular expression: ``*`` stays within one level of the path, ``**`` does not.

    ``?`` and ``[0-3]`` or ``[!0-3]`` stand for one character of a level.
    """
    special = {"**": ".*", "*": "[^.]*", "?": "[^.]"}

    def expression(part: str) -> str:
        if part.startswith("["):
            return rf"(?!\.){fnmatch.translate(part)[:-2]}"  # without its mark for the end of the text
        return special.get(part) or re.escape(part)

    return re.compile("".join(map(expression, re.split(r"(\*\*|\*|\?|\[!?[^]]+\])", pattern))))


def members(graphs: Sequence[Graph], assignment: Assignment) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the names of each region's nodes, per graph."""
    found: dict[str, dict[str, list[str]]] = {}
    for graph in graphs:
        for node in graph.ops:
            if (claim := assignment.claim(graph.id, node)) is not None:
                found.setdefault(claim.region, {}).setdefault(graph.id, []).append(node.name)
    return {region: {graph: tuple(names) for graph, names in held.items()} for region, held in found.items()}
