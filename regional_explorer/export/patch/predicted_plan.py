"""Predicts the plan that exploring the marked source would begin with: which mark owns each op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from regional_explorer.export.patch.new_marks import NewMark, Placement
from regional_explorer.export.patch.source_file import Function, Statement
from regional_explorer.export.patch.spans import StatementRange, WholeFunction
from regional_explorer.record.graph import Graph
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.instances import Instance
from regional_explorer.regions.select import node_names
from regional_explorer.regions.source_marks import annotation_key

OriginClaims = Mapping[int, tuple[str, Instance]]
"""The region of each op that is in one, and its instance, by origin."""


def predicted_plan(
    graphs: Sequence[Graph], plan: Plan, claims: OriginClaims, placement: Placement
) -> tuple[Plan, dict[str, str]]:
    """Return the plan that exploring the marked source would begin with.

    Each instance of a region of ``plan`` is a region of its own in it; the second value maps their names to the names
    of those regions.
    """
    owners = _predicted_owners(claims, placement)
    carved = {origin for origin, (_, _, eager) in owners.items() if eager}
    origins_by_owner = grouped((owners[origin][:2], origin) for origin in sorted(owners))
    names: dict[str, str] = {}
    regions = [*placement.kept.values()]
    for number, ((name, _), origins) in enumerate(origins_by_owner.items()):
        if name not in placement.kept:
            names[f"{name} {number}"] = name
            regions.append(
                _region_of_nodes(graphs, f"{name} {number}", plan[name], set(origins), carved.intersection(origins))
            )
    return replace(plan, regions=(*regions, *map(plan.__getitem__, placement.refused))), names


def _region_of_nodes(
    graphs: Sequence[Graph], name: str, region: Region, origins: AbstractSet[int], carved: AbstractSet[int]
) -> Region:
    nodes = Selector(SelectorKind.NODES, node_names(graphs, origins))
    left_out = (Selector(SelectorKind.NODES, node_names(graphs, carved)),) if carved else ()
    return Region(name, (nodes,), region.config, carved=left_out)


def _predicted_owners(claims: OriginClaims, placement: Placement) -> dict[int, tuple[str, Any, bool]]:
    """Return by op the region of the innermost mark around it, which instance, and whether it is carved out."""
    sites = placement.sites
    marks_at: dict[Any, list[NewMark]] = {}
    for mark in placement.marks:
        span = mark.span
        span_sites: Sequence[Function | Statement] = (
            span.statements
            if isinstance(span, StatementRange)
            else [span.function if isinstance(span, WholeFunction) else span.statement]
        )
        for site in span_sites:
            marks_at.setdefault(site, []).append(mark)
    for site_marks in marks_at.values():
        site_marks.sort(key=lambda mark: -len(sites.ops_of(mark.span)))
    kept_by_key = {key: name for name, region in placement.kept.items() for key in annotation_keys(region)}
    owners: dict[int, tuple[str, Any, bool]] = {}
    for origin, node in sites.ops.items():
        kept_region = kept_by_key.get(annotation_key(node.annotation)) if node.annotated else None
        owner = (kept_region, None, False) if kept_region is not None else None
        for site in (site for frame in sites.frames[origin] for site in frame.around):
            if site.mark is not None and site.mark.value is not None and kept_region is not None:
                owner = (kept_region, None, False)
            for mark in marks_at.get(site, ()):
                if origin in sites.ops_of(mark.span):
                    owner = _owner_below(mark, origin, owner, claims, placement)
            if site in placement.staying:  # inside what surrounds it
                owner = None
        if owner is not None:
            owners[origin] = owner
    return owners


def _owner_below(mark: NewMark, origin: int, outer: Any, claims: OriginClaims, placement: Placement) -> Any:
    """Return the owner of an op inside ``mark``; ``outer`` is its owner by the marks around ``mark``."""
    if mark.carve:
        return (*outer[:2], True) if outer is not None else None
    numbers = tuple(part for part in mark.instance if isinstance(part, int))
    iteration: object = None
    if mark.by_number and isinstance(mark.span, StatementRange):
        iteration = placement.sites.iteration(mark.span.function, origin)
    elif len(numbers) < len(mark.instance):
        iteration = claims.get(origin, ("", None))[1]
    return mark.region.name, (numbers, iteration), False


def annotation_keys(region: Region) -> Iterator[str]:
    """Yield the keys of the marks in the source that a region stands for."""
    return (key for sel in region.selectors if sel.kind is SelectorKind.ANNOTATION for key in sel.patterns)
