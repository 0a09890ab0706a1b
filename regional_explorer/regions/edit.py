"""Edits of a plan: mark, merge, split, carve; selectors that match nothing are refused."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from regional_explorer.errors import PlanError, SelectorError, did_you_mean, listing, shown_value
from regional_explorer.record.graph import (
    Graph,
    GraphBreak,
    GraphKind,
    Node,
    Role,
    SourceLine,
    UntracedOps,
    equal_layers,
    subgraph_names,
    subgraphs,
)
from regional_explorer.record.grouping import connected_components, grouped
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind, configs_text, require_name
from regional_explorer.regions.instances import direct_feeds
from regional_explorer.regions.select import (
    SUBGRAPH_KINDS,
    LineRange,
    assign,
    call_origins,
    module_glob,
    node_names,
    picked_origins,
)

MOST_HINTS = 8
LONGEST_SHOWN_PATTERN = 120
"""The maximum number of characters shown of a pattern."""

Among = Callable[[int | None], bool]


def require_match(
    name: str,
    chosen: Iterable[Selector],
    graphs: Sequence[Graph],
    among: Among = lambda _: True,
    breaks: Sequence[GraphBreak] = (),
) -> None:
    """Raise SelectorError if a pattern of a selector for region ``name`` picks nothing; the text lists near matches.

    It is raised, too, for the name of several nodes that belong to different operations of the program.

    ``among`` says which origins count; ``breaks`` are the graph breaks, which may be the cause. Among several node
    names, some may be nodes that no selector picks (an input, a sum of gradients), since a selection in the graph
    contains those too.
    """
    where = "of this call" if among(None) else "of the region"
    for selector in chosen:
        if selector.is_combined:
            unnarrowed = picked_origins(replace(selector, only=(), within=(), without=()), graphs)
            further = (*selector.within, *selector.without)
            require_match(name, further, graphs, functools.partial(_is_among_both, among, unnarrowed))
        for node in selector.only:
            if not any(map(among, picked_origins(Selector(SelectorKind.NODES, (node,)), graphs))):
                hint = _suggestions(SelectorKind.NODES, node, graphs, among)
                raise SelectorError(f"Region {name!r}: only: no operation {where} is called {node!r}.{hint}")
        for node in (*selector.only, *(selector.patterns if selector.kind is SelectorKind.NODES else ())):
            require_one_op(node, graphs, among)
        selector_matches = any(map(among, picked_origins(selector, graphs)))
        for pattern in selector.patterns:
            single = replace(selector, patterns=(pattern,))
            if (selector_matches and selector.only) or any(map(among, picked_origins(single, graphs))):
                if selector.kind is SelectorKind.LINES:
                    _require_one_file(pattern, graphs)
                continue
            names = (
                name for graph in graphs for node in graph.nodes for name in (node.name, f"{graph.id}:{node.name}")
            )
            is_node = selector.kind is SelectorKind.NODES and pattern in names
            if is_node and selector_matches:
                continue
            hint = (
                " It is an input, or a backward op that was not traced from a forward op: selectors cannot pick those."
                if is_node and among(None)
                else broken_at(single, breaks) or _suggestions(selector.kind, pattern, graphs, among)
            )
            shown = str(single)
            if len(shown) > LONGEST_SHOWN_PATTERN:
                shown = f"{shown[: LONGEST_SHOWN_PATTERN - 1]}…"
            raise SelectorError(f"Region {name!r}: {shown} matches no operation {where}.{hint}")


def _is_among_both(among: Among, unnarrowed: Collection[int], origin: int | None) -> bool:
    return origin in unnarrowed and among(origin)


def broken_at(selector: Selector, breaks: Sequence[GraphBreak]) -> str:
    """Return why the code that ``selector`` names runs eagerly, if a graph break is inside or near it; else empty."""
    for pattern in selector.patterns:
        for graph_break in breaks:
            because = f"{graph_break.place_and_caller}: {graph_break.reason.rstrip('.')}."
            for ops in graph_break.untraced:
                if _names_untraced(selector.kind, pattern, ops):
                    where = because if ops.is_cause_known else "in several places, listed in ex.diagnostics."
                    return f" Ops of {ops.place} run eagerly, in no graph: the graph broke {where}"
            if selector.kind is SelectorKind.LINES and any(map(LineRange.parse(pattern).contains, graph_break.stack)):
                return f" The graph broke {because}"
    return ""


def _names_untraced(kind: SelectorKind, pattern: str, ops: UntracedOps) -> bool:
    """Return whether a pattern names ops that run in no graph: by the module, the line or the operator."""
    match kind:
        case SelectorKind.MODULES if ops.module is not None:
            rule, parts = module_glob(pattern), ops.module.path.split(".")
            holders = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
            return any(map(rule.fullmatch, (*holders, *ops.module.aliases)))
        case SelectorKind.LINES:
            return ops.line is not None and LineRange.parse(pattern).contains(ops.line)
        case SelectorKind.OPS:
            return any(fnmatch.fnmatchcase(name, pattern) for name in Node("", Role.OP, ops.op).op_names)
    return False


def require_one_op(name: str, graphs: Sequence[Graph], among: Among) -> None:
    """Raise SelectorError if nodes called ``name`` come from several operations of the program.

    Each graph names its nodes itself: Dynamo by the user's variables, AOTAutograd by the operators.
    """
    full_names = {
        node.origin: f"{graph.id}:{node.name}"
        for graph in graphs
        for node in graph.ops
        if node.name == name and node.origin is not None and among(node.origin)
    }
    if len(full_names) > 1:
        raise SelectorError(
            f"Several nodes are called {name!r}. Say which: {listing(full_names.values(), MOST_HINTS)}."
        )


def _require_one_file(pattern: str, graphs: Sequence[Graph]) -> None:
    """Raise SelectorError if line numbers without a place are found in several files; the text says how to name one."""
    line_range = LineRange.parse(pattern)
    lines: dict[str, SourceLine] = {}
    if not line_range.place:
        stacks = (node.stack for graph in graphs for node in graph.ops)
        lines = {line.file: line for stack in stacks for line in stack if line_range.contains(line)}
    if len(lines) > 1:
        places = (line.in_function if line.in_cell else f"{_file_name(line)}:{line_range}" for line in lines.values())
        raise SelectorError(
            f"lines={pattern!r} is in {len(lines)} files. Name one of them: {' or '.join(sorted(places))}."
        )


def _file_name(line: SourceLine) -> str:
    return line.file.rsplit("/", 1)[-1]


def _suggestions(kind: SelectorKind, pattern: str, graphs: Sequence[Graph], among: Among) -> str:
    """Return names spelled like the pattern, else names with its last part, else a few examples."""
    if kind is SelectorKind.MODULES:
        return _module_suggestions(pattern, _module_classes(graphs, among))
    choices = _selectable_names(kind, pattern, graphs, among)
    if kind is SelectorKind.SUBGRAPHS and not choices:
        return " Torch inlines a body without options that is called once (inline_single_use_invoke_subgraph)."
    plain = pattern.replace("*", "").strip(".")
    ops = (node for graph in graphs for node in graph.ops if among(node.origin))
    short_names = {node.op for node in ops} if kind is SelectorKind.OPS else ()
    if similar := did_you_mean(plain, [*choices, *short_names]):
        return similar
    return _examples(kind, plain, choices)


def _examples(kind: SelectorKind, plain: str, choices: Sequence[str]) -> str:
    """Return names that contain the last part of a pattern, else any names."""
    tail = re.split(r"[.:/]", plain)[-1]
    same_tail = [name for name in choices if tail and tail in re.split(r"[.:/]", name)]
    examples = same_tail or choices
    return f" Examples of {kind}: {listing(examples, MOST_HINTS)}." if examples else ""


def _module_classes(graphs: Sequence[Graph], among: Among) -> dict[str, str]:
    """Return the paths of modules around ops, each with its class."""
    ops = (node for graph in graphs for node in graph.ops if among(node.origin))
    calls = {call for node in ops for call in node.modules}
    classes = {path: call.class_name for call in calls for path in (call.path, *call.aliases) if path}
    return dict(sorted(classes.items()))


def _module_suggestions(pattern: str, classes: Mapping[str, str]) -> str:
    """Return the paths that a module glob would match if its ``*`` were ``**``, else similar paths, else examples.

    One glob names equal layers; the layer with the pattern's own number is named too.
    """
    if not classes:
        return " The call runs no op inside a submodule: ops='*' marks all ops."
    deep = re.sub(r"\*+", "**", pattern)
    matches = {path: kind for path, kind in classes.items() if deep != pattern and module_glob(deep).fullmatch(path)}
    if matches:
        matched = listing(equal_layers(matches), MOST_HINTS)
        return f" '*' stays within one level of the path, '**' does not: {deep!r} matches {matched}."
    globs = list(equal_layers(classes))
    numbers = _numbers_in(pattern)
    same_number = [path for path in classes if numbers and _numbers_in(path) == numbers]
    return did_you_mean(pattern, [*same_number, *globs]) or _examples(SelectorKind.MODULES, pattern.strip("*."), globs)


def _numbers_in(path: str) -> list[str]:
    return [part for part in path.split(".") if part.isdigit()]


def _selectable_names(kind: SelectorKind, pattern: str, graphs: Sequence[Graph], among: Among) -> list[str]:
    """Return all names for a selector of this kind, in the form of ``pattern``: lines by file or by function, say."""
    ops = [(graph, node) for graph in graphs for node in graph.ops if among(node.origin)]
    place = pattern.partition(":")[0]
    match kind:
        case SelectorKind.LINES:
            lines = {line for _, node in ops for line in node.stack}
            lines_in_place = {line for line in lines if place in (line.function, line.scope)} or lines
            ordered = sorted(lines_in_place, key=lambda line: (line.file, line.line))
            by_file, bare = place.endswith(".py"), ":" not in pattern
            return list(
                dict.fromkeys(
                    str(line.line)
                    if bare and not line.in_library
                    else f"{_file_name(line)}:{line.line}"
                    if by_file or not line.def_line
                    else line.in_function
                    for line in ordered
                )
            )
        case SelectorKind.OPS:
            forward = {node.target for graph in graphs if graph.kind is not GraphKind.BACKWARD for node in graph.ops}
            names = {
                node.target for graph, node in ops if graph.kind is not GraphKind.BACKWARD or node.target not in forward
            }
        case SelectorKind.SUBGRAPHS:
            names = {name for graph in subgraphs(graphs) for name in subgraph_names(graph)}
        case _:
            names = {f"{graph.id}:{node.name}" if ":" in pattern else node.name for graph, node in ops}
    return sorted(names)


Patterns = str | Sequence[str] | None


def selectors(
    kinds: Mapping[str, Patterns],
    written: Iterable[str | Selector] = (),
    *,
    innermost: bool = False,
    only: Patterns = None,
) -> tuple[Selector, ...]:
    """Return selectors for keyword arguments such as ``{"modules": "layers.*.attn"}``; None means not given.

    ``written`` come before them, as texts such as ``-ops:aten.div*`` or as they are. ``only`` narrows each to the nodes
    with these names. SelectorError is raised if nothing is given.
    """
    only_nodes = () if only is None else _patterns("only", only)
    chosen = [
        Selector(SelectorKind(kind), _patterns(kind, patterns), innermost and kind == SelectorKind.LINES, only_nodes)
        for kind, patterns in kinds.items()
        if patterns is not None
    ]
    parsed = (selector if isinstance(selector, Selector) else Selector.parse(selector) for selector in written)
    chosen = [*(replace(selector, only=only_nodes) if only_nodes else selector for selector in parsed), *chosen]
    if not chosen:
        raise SelectorError(f"Say which ops: give {', '.join(f'{kind}=' for kind in kinds)}.")
    return tuple(chosen)


def _patterns(keyword: str, patterns: str | Sequence[str]) -> tuple[str, ...]:
    texts = tuple(patterns) if isinstance(patterns, Iterable) and not isinstance(patterns, str) else (patterns,)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise SelectorError(f"{keyword}={shown_value(patterns)}: give a pattern, or a list of patterns.")
    return texts


_WRITTEN_KINDS = (
    SelectorKind.MODULES,
    SelectorKind.LINES,
    SelectorKind.OPS,
    SelectorKind.NODES,
    SelectorKind.SUBGRAPHS,
)
_KIND_WORD = re.compile(rf"(?:^|,\s*)({'|'.join(_WRITTEN_KINDS)})[:\s]\s*")
LONGEST_SELECTION = 160


def selection_text(region: Region) -> str:
    """Return selectors as text for ``selectors_of_text``: ``modules layers.*.mlp, ops gelu``; empty if it says less."""
    text = ", ".join(f"{selector.kind} {','.join(selector.patterns)}" for selector in region.selectors)
    same_lines = len({s.innermost for s in region.selectors if s.kind is SelectorKind.LINES}) <= 1
    written = all(s.kind in _WRITTEN_KINDS and not s.only for s in region.selectors) and same_lines
    return text if written and not region.joined and not region.carved and len(text) <= LONGEST_SELECTION else ""


def selectors_of_text(text: str, *, innermost: bool = False) -> tuple[Selector, ...]:
    """Return the selectors in a text, ``modules layers.*.mlp, ops gelu``; ``innermost`` holds for line selectors.

    Raises:
        SelectorError: it does not begin with a kind, or a kind has no pattern.
    """
    before, *parts = _KIND_WORD.split(text.strip())
    if before or not parts:
        raise SelectorError(f"Write {', '.join(_WRITTEN_KINDS)} and a pattern, as in 'modules layers.*.mlp'.")
    return tuple(
        Selector(
            SelectorKind(kind),
            tuple(pattern.strip() for pattern in patterns.split(",") if pattern.strip()),
            innermost and kind == SelectorKind.LINES,
        )
        for kind, patterns in zip(parts[::2], parts[1::2], strict=True)
    )


def marked(
    plan: Plan,
    graphs: Sequence[Graph],
    name: str,
    chosen: tuple[Selector, ...],
    *,
    each: bool = False,
    breaks: Sequence[GraphBreak] = (),
) -> Plan:
    """Return the plan with the nodes that ``chosen`` picks marked as ``name``.

    An existing region of that name gets them in addition. With ``each``, every module that matches becomes a separate
    region, ``name[path]``. ``breaks`` are the graph breaks, for the message if nothing matches.
    """
    require_name(name)
    require_match(name, chosen, graphs, breaks=breaks)
    for region_name, selectors_of_region in _one_per_module(name, chosen, graphs) if each else [(name, chosen)]:
        if region_name in plan:
            selectors_of_both = (*plan[region_name].selectors, *selectors_of_region)
            plan = plan.changed(region_name, selectors=tuple(dict.fromkeys(selectors_of_both)))
        else:
            plan = plan.added(Region(region_name, selectors_of_region))
    return plan


def _one_per_module(
    name: str, chosen: Sequence[Selector], graphs: Sequence[Graph]
) -> list[tuple[str, tuple[Selector, ...]]]:
    if any(selector.kind is not SelectorKind.MODULES for selector in chosen):
        raise SelectorError("each=True makes one region per module: give modules= and no other selector.")
    instances = (instance for selector in chosen for instance in picked_origins(selector, graphs).values())
    paths = dict.fromkeys(instance[0] for instance in instances if instance is not None)
    return [(f"{name}[{path}]", (Selector(SelectorKind.MODULES, (path,), only=chosen[0].only),)) for path in paths]


def merged(plan: Plan, graphs: Sequence[Graph], names: Sequence[str], name: str | None = None) -> Plan:
    """Return the plan with the regions ``names`` merged into one, at the place of the first of them in the plan.

    The merged region has all their selectors, and is enabled if any of them was. Ops of different selectors become one
    instance if they feed each other directly: merging two modules of each layer gives one instance per layer. The
    configs must be equal; ``name`` is by default the first of ``names``.
    """
    if name is not None:
        require_name(name)
    to_merge = {name: plan[name] for name in names}
    if len(to_merge) < 2:  # noqa: PLR2004 - merging takes two regions
        raise PlanError(f"Name two regions or more to merge; {', '.join(map(repr, to_merge)) or 'none'} is not enough.")
    regions = [region for region in plan.regions if region.name in to_merge]
    first = regions[0]
    if other := next((region for region in regions if region.treatment != first.treatment), None):
        raise PlanError(
            f"Regions {first.name!r} and {other.name!r} have different passes or backends: give both the same."
        )
    if other := next((region for region in regions if region.configs != first.configs), None):
        raise PlanError(
            f"Regions {first.name!r} and {other.name!r} have different configs ({configs_text(first)}, "
            f"{configs_text(other)}). Give the config to use: config={{…}}."
        )
    merged_region = Region(
        name or names[0],
        tuple(dict.fromkeys(selector for region in regions for selector in region.selectors)),
        first.config,
        enabled=any(region.enabled for region in regions),
        joined=True,
        carved=_carved_selectors(plan, graphs, regions),
        backward_config=first.backward_config,
        treatment=first.treatment,
    )
    return plan.replaced(to_merge, merged_region)


def _carved_selectors(plan: Plan, graphs: Sequence[Graph], regions: Sequence[Region]) -> tuple[Selector, ...]:
    """Return selectors of the ops carved out of ``regions``; by node name if the regions have different selectors."""
    if len({region.carved for region in regions}) == 1:
        return regions[0].carved
    assignment = assign(graphs, plan)
    region_names = {region.name for region in regions}
    names = node_names(graphs, [o for o in assignment.carved if assignment.owners[o].region in region_names])
    return (Selector(SelectorKind.NODES, names),) if names else ()


def carved(plan: Plan, graphs: Sequence[Graph], name: str, chosen: tuple[Selector, ...]) -> Plan:
    """Return the plan with the ops of a region that ``chosen`` picks carved out, so that they run eagerly.

    An op is an operation of the program: all nodes that were traced from it are carved out, also in its backward.
    """
    region = plan[name]
    owners = assign(graphs, plan).owners
    region_origins = {origin for origin, claim in owners.items() if claim.region == name}
    require_match(name, chosen, graphs, region_origins.__contains__)
    new_plan = plan.changed(name, carved=tuple(dict.fromkeys((*region.carved, *chosen))))
    if region_origins <= assign(graphs, new_plan).carved:
        raise PlanError(f"That would carve out every op of region {name!r}: disable the region instead.")
    return new_plan


def uncarved(plan: Plan, graphs: Sequence[Graph], name: str, chosen: tuple[Selector, ...] = ()) -> Plan:
    """Return the plan with carved ops put back into their region: the ops that ``chosen`` picks, or all carved ops."""
    region = plan[name]
    if not region.carved:
        raise PlanError(
            f"The plan carves nothing out of region {name!r}. If a mark in the source does, edit the source."
        )
    if not chosen:
        return plan.changed(name, carved=())
    assignment = assign(graphs, plan)
    carved_origins = {origin for origin in assignment.carved if assignment.owners[origin].region == name}
    require_match(name, chosen, graphs, carved_origins.__contains__)
    put_back = {origin for selector in chosen for origin in picked_origins(selector, graphs)}
    still_carved: list[Selector] = []
    for selector in region.carved:
        picked = carved_origins & picked_origins(selector, graphs).keys()
        if not picked & put_back:
            still_carved.append(selector)
        elif remaining := node_names(graphs, picked - put_back):
            still_carved.append(Selector(SelectorKind.NODES, remaining))
    return plan.changed(name, carved=tuple(still_carved))


def split(plan: Plan, graphs: Sequence[Graph], name: str, at: str | None = None) -> Plan:
    """Return the plan with a region split into parts ``name.1``, ``name.2``, …, which keep its place and its config.

    Without ``at``, every instance becomes a region. With it, the instance that has this node, of any graph, and every
    instance of the same ops, is cut in two: the ops that the program runs before the operation that the node was traced
    from, and the rest. Other instances stay in the region.
    """
    region = plan[name]
    owners = assign(graphs, plan).owners
    origins = {origin for origin, claim in owners.items() if claim.region == name}
    if not origins:
        raise PlanError(f"Region {name!r} has no op in this call: there is nothing to split.")
    instance_ops = ((owners[node.origin].instance, node) for node in _ops_in_order(graphs) if node.origin in origins)
    instances = list(grouped(instance_ops).values())
    if at is None:
        bodies = (picked_origins(selector, graphs) for selector in region.selectors if selector.kind in SUBGRAPH_KINDS)
        calls = call_origins(graphs).intersection(itertools.chain(*bodies))
        parts, unsplit = _instance_parts(name, instances, graphs, calls), list[Node]()
    else:
        parts, unsplit = _halves(name, instances, _origin_of_node(graphs, name, origins, at), at)
    new_names = (new_name for number in itertools.count(1) if (new_name := f"{name}.{number}") not in plan)
    regions = [_region_part(region, graphs, nodes, new_name) for nodes, new_name in zip(parts, new_names, strict=False)]
    return plan.replaced({name}, *([_region_part(region, graphs, unsplit, name)] if unsplit else []), *regions)


def _ops_in_order(graphs: Sequence[Graph]) -> Iterator[Node]:
    """Yield the ops of Dynamo's graphs in the order of the program; the ops of a body stand where it is called."""
    dynamo = [graph for graph in graphs if graph.kind is GraphKind.DYNAMO]
    children = grouped((graph.parent, graph) for graph in dynamo)

    def ops_of(graph: Graph) -> Iterator[Node]:
        for node in graph.nodes:
            for body in children.get((graph.id, node.name), ()):
                yield from ops_of(body)
            if node.role is Role.OP:
                yield node

    for graph in children.get(None, ()):
        yield from ops_of(graph)


def _instance_parts(
    name: str, parts: list[list[Node]], graphs: Sequence[Graph], calls: AbstractSet[int]
) -> list[list[Node]]:
    """Return the nodes of each instance, or of each connected piece if there is only one instance.

    The ops in bodies are cut, not the ``calls`` of the bodies: those are no part by themselves.
    """
    if len(parts) == 1:
        nodes = {node.origin: node for node in parts[0] if node.origin is not None}
        feeds = direct_feeds(graphs)
        links = [(origin, source) for origin in nodes for source in feeds.get(origin, ())]
        parts = [[nodes[origin] for origin in piece] for piece in connected_components(list(nodes), links)]
    alone = [node for part in parts if all(node.origin in calls for node in part) for node in part]
    parts = [part for part in parts if any(node.origin not in calls for node in part)]
    if len(parts) < 2:  # noqa: PLR2004 - one part is the whole
        example = f" For example at={parts[0][len(parts[0]) // 2].name!r}." if parts and len(parts[0]) > 1 else ""
        raise PlanError(f"Region {name!r} is one connected piece: say at which node to split it.{example}")
    return [[*parts[0], *alone], *parts[1:]]


def _halves(name: str, instances: Sequence[list[Node]], origin: int, at: str) -> tuple[list[list[Node]], list[Node]]:
    """Return the nodes before ``origin`` and from it on, in all equal instances, and the nodes of other instances."""
    instance = next(nodes for nodes in instances if any(node.origin == origin for node in nodes))
    start = next(index for index, node in enumerate(instance) if node.origin == origin)
    if start == 0:
        raise PlanError(f"Region {name!r} begins with {at!r}: none of its ops runs before. Give a later node.")
    targets = [node.target for node in instance]
    equal = [nodes for nodes in instances if [node.target for node in nodes] == targets]
    unsplit = [node for nodes in instances if nodes not in equal for node in nodes]
    halves = [[node for nodes in equal for node in nodes[:start]], [node for nodes in equal for node in nodes[start:]]]
    return halves, unsplit


def _origin_of_node(graphs: Sequence[Graph], name: str, origins: Collection[int], at: str) -> int:
    """Return the origin of the node called ``at``."""
    nodes = [(f"{graph.id}:{node.name}", node) for graph in graphs for node in graph.ops if node.origin in origins]
    matches = [node.origin for full_name, node in nodes if at in (node.name, full_name)]
    if not matches:
        hint = (
            did_you_mean(at, {node.name for _, node in nodes})
            or f" It has {', '.join(full_name for full_name, _ in nodes[:8])}."
        )
        raise SelectorError(f"Region {name!r} has no node {at!r}.{hint}")
    require_one_op(at, graphs, origins.__contains__)
    return next(origin for origin in matches if origin is not None)


def _region_part(region: Region, graphs: Sequence[Graph], nodes: Sequence[Node], name: str) -> Region:
    """Return the part of ``region`` with ``nodes`` as a region called ``name``."""
    origins = {node.origin for node in nodes if node.origin is not None}
    narrowed = (_narrowed_selector(selector, graphs, origins) for selector in region.selectors)
    selectors = tuple(selector for selector in narrowed if selector is not None)
    return replace(
        region,
        name=name,
        selectors=selectors,
        joined=region.joined and len(selectors) > 1,
        carved=tuple(selector for selector in region.carved if origins & picked_origins(selector, graphs).keys()),
    )


def _narrowed_selector(selector: Selector, graphs: Sequence[Graph], origins: Collection[int]) -> Selector | None:
    """Return the selector narrowed to ``origins``, or None if it picks none of them."""
    picked = picked_origins(selector, graphs)
    narrowed = {origin: instance for origin, instance in picked.items() if origin in origins}
    if not narrowed or len(narrowed) == len(picked):
        return selector if narrowed else None
    paths = {instance[0] for instance in narrowed.values() if instance is not None}
    if selector.kind is SelectorKind.MODULES and len(paths) == 1:
        plain = Selector(SelectorKind.MODULES, tuple(paths))
        if picked_origins(plain, graphs) == narrowed:
            return plain
    return replace(selector, only=node_names(graphs, narrowed))
