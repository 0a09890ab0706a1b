"""Marks in the source: the key, name and config of each, and the regions that they make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regional_explorer.record.graph import Graph, GraphKind, Node, marked_region
from regional_explorer.record.region import Region, is_name
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.regions.subgraphs import subgraph_regions


def annotation_key(annotation: Any) -> str:
    """Return the key of a region that is marked in the source: its id, or the config of a mark without one.

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
    """Return the Inductor configs in an annotation, empty if it has none."""
    config = annotation.get("inductor_configs") if isinstance(annotation, Mapping) else None
    return dict(config) if isinstance(config, Mapping) else {}


def source_regions(graphs: Sequence[Graph]) -> list[Region]:
    """Return the regions marked in the source, in the order in which their first op runs.

    Bodies of ``nested_compile_region`` with options come last: their ops do not belong to a marked block around them.
    """
    regions: dict[str, Region] = {}
    defaults = 0
    for node in marked_nodes(graphs):
        key = annotation_key(node.annotation)
        if key in regions:
            continue
        if (named := annotation_name(node.annotation)) is not None:
            name = named
        else:
            defaults += 1
            name = "default" if defaults == 1 else f"default-{defaults}"
        selector = Selector(SelectorKind.ANNOTATION, (key,))
        regions[key] = Region(_free_name(name, regions), (selector,), annotated_config(node.annotation))
    for region in subgraph_regions(graphs):
        regions[region.selectors[0].patterns[0]] = replace(region, name=_free_name(region.name, regions))
    return list(regions.values())


def _free_name(name: str, regions: Mapping[str, Region]) -> str:
    """Return ``name``, with apostrophes if other regions have it."""
    names = {region.name for region in regions.values()}
    while name in names:
        name += "'"
    return name


def marked_nodes(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Yield the ops of the Dynamo graphs that carry a mark, then marked ops of other graphs that have no origin."""
    graphs = list(graphs)
    for graph in graphs:
        if graph.kind is GraphKind.DYNAMO:
            yield from (node for node in graph.ops if node.annotated)
    for graph in graphs:
        if graph.kind is not GraphKind.DYNAMO:
            yield from (node for node in graph.ops if node.annotated and node.origin is None)
