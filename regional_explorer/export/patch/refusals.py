"""Explains why no mark in the source can express a region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from regional_explorer.export.patch.sites import Sites
from regional_explorer.record.graph import Chain, Node, SourceLine
from regional_explorer.record.region import Region
from regional_explorer.record.selector import SelectorKind

MOST_NAMED_LINES = 3
"""How many source lines a reason names: enough to find the place."""


def why_unwritable(
    region: Region, region_origins: AbstractSet[int], sites: Sites, claims: Mapping[int, tuple[str, object]]
) -> str:
    """Return why no statements, function or call compute exactly the ops ``region_origins``.

    ``claims`` has the region of every op that is in one.
    """
    nodes = [sites.ops[origin] for origin in sorted(region_origins)]
    for node in nodes:
        if not node.stack:
            return f"torch records no source line for {node.name}"
        unread = [sites.unread[line.file] for line in node.stack if line.file in sites.unread]
        if unread:
            return unread[0]
    innermost = [frame.path[-1] for origin in region_origins for frame in sites.frames[origin] if frame.path]
    if any(statement.yields for statement in innermost):
        return "its lines hold a yield, and a mark around one would stay open while the generator waits"
    lines = dict.fromkeys(str(node.source) for node in nodes)
    shown_lines = ", ".join(list(lines)[:MOST_NAMED_LINES]) + (", …" if len(lines) > MOST_NAMED_LINES else "")
    if any(selector.kind is SelectorKind.NODES or selector.only for selector in region.selectors):
        return f"its nodes were selected one by one, and no statement computes just them ({shown_lines})"
    calls = {(node.stack, node.modules) for node in nodes}
    other_regions = dict.fromkeys(
        claims[origin][0] if origin in claims else None
        for origin, node in sites.ops.items()
        if str(node.source) in lines and not any(_is_from_run(node, *call) for call in calls)
    )
    if other_names := [repr(name) for name in other_regions if name is not None and name != region.name]:
        return f"the same lines run for region {other_names[0]} too ({shown_lines})"
    if None in other_regions:
        return f"the same lines also run where they are in no region ({shown_lines})"
    return f"it is part of an expression ({shown_lines})"


def _is_from_run(node: Node, stack: Sequence[SourceLine], modules: Chain) -> bool:
    """Return whether an op comes from the same run of its line as one with this stack and these modules."""
    shorter = min(len(modules), len(node.modules))
    return node.stack == stack and node.modules[:shorter] == modules[:shorter]
