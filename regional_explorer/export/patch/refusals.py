"""Explains why no mark in the source can express a region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from regional_explorer.export.patch.sites import Sites
from regional_explorer.record.graph import Chain, Node, SourceLine
from regional_explorer.record.region import Region
from regional_explorer.record.selector import SelectorKind

SHOWN = 3
"""How many source lines a reason names: enough to find the place."""


def why_unwritable(
    region: Region, own: AbstractSet[int], sites: Sites, claims: Mapping[int, tuple[str, object]]
) -> str:
    """Return why no statements, function or call compute exactly the ops ``own`` of a region.

    ``claims`` has the region of every op that is in one.
    """
    nodes = [sites.ops[origin] for origin in sorted(own)]
    for node in nodes:
        if not node.stack:
            return f"torch records no source line for {node.name}"
        unread = [sites.unread[line.file] for line in node.stack if line.file in sites.unread]
        if unread:
            return unread[0]
    lines = dict.fromkeys(str(node.source) for node in nodes)
    shown = ", ".join(list(lines)[:SHOWN]) + (", …" if len(lines) > SHOWN else "")
    if any(one.kind is SelectorKind.NODES or one.only for one in region.selectors):
        return f"its nodes were selected one by one, and no statement computes just them ({shown})"
    calls = {(node.stack, node.modules) for node in nodes}
    others = dict.fromkeys(
        claims[origin][0] if origin in claims else None
        for origin, node in sites.ops.items()
        if str(node.source) in lines and not any(_is_from_run(node, *call) for call in calls)
    )
    if named := [repr(name) for name in others if name is not None and name != region.name]:
        return f"the same lines run for region {named[0]} too ({shown})"
    if None in others:
        return f"the same lines also run where they are in no region ({shown})"
    return f"it is part of an expression ({shown})"


def _is_from_run(node: Node, stack: Sequence[SourceLine], modules: Chain) -> bool:
    """Return whether an op comes from the same run of its line as one with this stack and these modules."""
    shorter = min(len(modules), len(node.modules))
    return node.stack == stack and node.modules[:shorter] == modules[:shorter]
