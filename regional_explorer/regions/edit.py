"""Edits of a plan: marks, merges and carves regions; each edit returns a new plan. ``split`` splits regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from regional_explorer.errors import PlanError, SelectorError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.record.graph import Graph, GraphBreak
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region, configs_text, require_name
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.required_match import require_match
from regional_explorer.regions.select import assign, node_names, picks

Patterns = str | Sequence[str] | None


def selectors(kinds: Mapping[str, Patterns], *, innermost: bool = False, only: Patterns = None) -> tuple[Selector, ...]:
    """Return selectors for keyword arguments such as ``{"modules": "layers.*.attn"}``; None means not given.

    ``only`` narrows each to the nodes with these names.

    Raises:
        SelectorError: nothing is given, or a pattern is not a string.
    """
    only_nodes = () if only is None else _patterns("only", only)
    chosen = [
        Selector(SelectorKind(kind), _patterns(kind, patterns), innermost and kind == SelectorKind.LINES, only_nodes)
        for kind, patterns in kinds.items()
        if patterns is not None
    ]
    if not chosen:
        raise SelectorError(f"Say which ops: give {', '.join(f'{kind}=' for kind in kinds)}.")
    return tuple(chosen)


def _patterns(keyword: str, patterns: str | Sequence[str]) -> tuple[str, ...]:
    texts = tuple(patterns) if isinstance(patterns, Iterable) and not isinstance(patterns, str) else (patterns,)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise SelectorError(f"{keyword}={shown_value(patterns)}: give a pattern, or a list of patterns.")
    return texts


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

    Raises:
        SelectorError: a selector matches nothing, or nodes of one name.
        PlanError: the name is not a string.
    """
    require_name(name)
    require_match(name, chosen, graphs, breaks=breaks)
    for region_name, selectors_of_region in _one_per_module(name, chosen, graphs) if each else [(name, chosen)]:
        if region_name in plan:
            both = (*plan[region_name].selectors, *selectors_of_region)
            plan = plan.changed(region_name, selectors=tuple(dict.fromkeys(both)))
        else:
            plan = plan.added(Region(region_name, selectors_of_region))
    return plan


def _one_per_module(
    name: str, chosen: Sequence[Selector], graphs: Sequence[Graph]
) -> list[tuple[str, tuple[Selector, ...]]]:
    if any(selector.kind is not SelectorKind.MODULES for selector in chosen):
        raise SelectorError("each=True makes one region per module: give modules= and no other selector.")
    instances = (instance for selector in chosen for instance in picks(selector, graphs).values())
    paths = dict.fromkeys(instance[0] for instance in instances if instance is not None)
    return [(f"{name}[{path}]", (Selector(SelectorKind.MODULES, (path,), only=chosen[0].only),)) for path in paths]


def merged(plan: Plan, graphs: Sequence[Graph], names: Sequence[str], name: str | None = None) -> Plan:
    """Return the plan with the regions ``names`` merged into one, at the place of the first of them in the plan.

    It has the selectors of all of them and is enabled if any was. Ops of different selectors become one instance if
    they feed each other directly: merging two modules of each layer gives one instance per layer.

    Args:
        plan: the plan.
        graphs: the recorded graphs.
        names: two or more regions with equal configs.
        name: the name of the merged region; by default the first of ``names``.

    Raises:
        UnknownRegionError, PlanError: there is nothing to merge, configs differ, or the name is taken.
    """
    if name is not None:
        require_name(name)
    to_merge = {str(name): plan[name] for name in names}
    if len(to_merge) < 2:  # noqa: PLR2004 - merging takes two regions
        raise PlanError(f"Name two regions or more to merge; {', '.join(map(repr, to_merge)) or 'none'} is not enough.")
    regions = [region for region in plan.regions if region.name in to_merge]
    first = regions[0]
    if other := next((region for region in regions if region.configs != first.configs), None):
        raise PlanError(
            f"Regions {first.name!r} and {other.name!r} have different configs ({configs_text(first)}, "
            f"{configs_text(other)}). Say which one counts: config={{…}}."
        )
    merged_region = Region(
        name or names[0],
        tuple(dict.fromkeys(selector for region in regions for selector in region.selectors)),
        first.config,
        enabled=any(region.enabled for region in regions),
        joined=True,
        carved=_carved_selectors(plan, graphs, regions),
        backward_config=first.backward_config,
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

    An op is an operation of the program: all nodes that were traced from it are carved out, those of its backward too.

    Raises:
        UnknownRegionError, SelectorError: a selector matches no op of the region.
        PlanError: no op of the region would be left.
    """
    region = plan[name]
    owners = assign(graphs, plan).owners
    region_origins = {origin for origin, claim in owners.items() if claim.region == name}
    require_match(name, chosen, graphs, region_origins.__contains__)
    new_plan = plan.changed(name, carved=tuple(dict.fromkeys((*region.carved, *chosen))))
    if region_origins <= assign(graphs, new_plan).carved:
        raise PlanError(f"That is all of region {name!r}: to let it run eagerly, disable it.")
    return new_plan


def uncarved(plan: Plan, graphs: Sequence[Graph], name: str, chosen: tuple[Selector, ...] = ()) -> Plan:
    """Return the plan with carved ops put back into their region: those that ``chosen`` picks, or all of them.

    Raises:
        UnknownRegionError, SelectorError: a selector matches no carved op.
        PlanError: the plan carves nothing out of this region.
    """
    region = plan[name]
    if not region.carved:
        raise PlanError(f"The plan carves nothing out of region {name!r}; marks in the source are changed there.")
    if not chosen:
        return plan.changed(name, carved=())
    assignment = assign(graphs, plan)
    carved_origins = {origin for origin in assignment.carved if assignment.owners[origin].region == name}
    require_match(name, chosen, graphs, carved_origins.__contains__)
    put_back = {origin for selector in chosen for origin in picks(selector, graphs)}
    still_carved: list[Selector] = []
    for selector in region.carved:
        picked = carved_origins & picks(selector, graphs).keys()
        if not picked & put_back:
            still_carved.append(selector)
        elif remaining := node_names(graphs, picked - put_back):
            still_carved.append(Selector(SelectorKind.NODES, remaining))
    return plan.changed(name, carved=tuple(still_carved))
