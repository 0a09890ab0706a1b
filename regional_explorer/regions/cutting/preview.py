"""Previews the partitions and diagnostics of a plan without applying it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan
from regional_explorer.record.preview import Preview
from regional_explorer.record.region import Direction, config_of
from regional_explorer.regions.checks import Evidence, check
from regional_explorer.regions.cutting.cut import propose_cut
from regional_explorer.regions.cutting.partition_ids import PartitionNumbering
from regional_explorer.regions.select import assign

if TYPE_CHECKING:
    from torch import fx


def preview(live_graphs: Iterable[tuple[str, fx.GraphModule]], recorded: Evidence, plan: Plan) -> Preview:
    """Return the partitions and diagnostics that ``plan`` would give.

    Args:
        live_graphs: the graphs that would be cut, by id; they stay as they are.
        recorded: the recorded graphs, and what was noted while tracing.
        plan: the plan.
    """
    assignment = assign(recorded.graphs, plan)
    order = [region.name for region in plan.regions]
    proposed = [propose_cut(gm, graph_id, recorded.nodes, assignment, order, plan.cut) for graph_id, gm in live_graphs]
    numbering = PartitionNumbering()
    groups = [(body.graph_id, group) for graph in proposed for body, group in graph.groups()]
    numbered = [(numbering.number(group.claim, graph_id), graph_id, group) for graph_id, group in groups]
    partitions = tuple(
        Partition(
            id=partition_id.name,
            region=group.claim.region,
            instance=partition_id.instance,
            graph=graph_id,
            nodes=tuple(node.name for node in group.nodes),
            state=State.STALE if plan[group.claim.region].enabled else State.EAGER,
            config_requested=config_of(plan[group.claim.region], Direction.of_graph(graph_id)),
        )
        for partition_id, graph_id, group in numbered
    )
    cyclic = [cycle for graph in proposed for cycle in graph.cyclic()]
    evidence = replace(recorded, plan=plan, assignment=assignment, partitions=partitions, cyclic=cyclic)
    return Preview(partitions, tuple(check(evidence)))
