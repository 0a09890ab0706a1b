"""Draws one stage of a partition, with the followed nodes in colour."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region
from regional_explorer.record.selector import Selector, SelectorKind
from regional_explorer.record.session import Session
from regional_explorer.record.stages import Stage
from regional_explorer.render.picture.compose import SectionBuilder, scene_of
from regional_explorer.render.picture.graphviz_process import LAYOUT_LIMIT_S
from regional_explorer.render.picture.opening import Detail, Opening, shown
from regional_explorer.render.picture.outline import outline
from regional_explorer.render.picture.placement import place
from regional_explorer.render.picture.scene import Entry
from regional_explorer.render.picture.svg import draw
from regional_explorer.render.style.untrusted import SHORT, clean

FOLLOWED_REGION = "followed"
MOST_OPEN_OPS = 400
"""A stage with more ops is drawn with modules and functions closed."""


def stage_svg(
    session: Session,
    stage: Stage,
    followed: Collection[str] = (),
    title: str = "",
    *,
    time_limit_s: float = LAYOUT_LIMIT_S,
) -> str:
    """Return a picture of ``stage``; the nodes ``followed`` are coloured, and the legend calls them ``title``."""
    graph = Graph("stage", GraphKind.INFERENCE, 0, stage.nodes)
    region = Region(FOLLOWED_REGION, (Selector(SelectorKind.NODES, (FOLLOWED_REGION,)),))
    stage_session = replace(
        session,
        graphs=(graph,),
        breaks=(),
        plan=Plan((region,) if followed else ()),
        members={FOLLOWED_REGION: {graph.id: tuple(node.name for node in stage.ops if node.name in followed)}},
        partitions=(),
        diagnostics=(),
    )
    builder = SectionBuilder(stage_session, graph, "s0")
    detail = Detail.OPS if len(stage.ops) <= MOST_OPEN_OPS else Detail.MODULES
    section = builder.build(leaf.fold for leaf in shown(outline(graph, builder.pieces), Opening(detail)))
    section = replace(section, title=f"{clean(stage.title, SHORT)} · {count(len(stage.ops), 'node')}")
    scene = replace(
        scene_of(stage_session, [section]),
        title=clean(stage.title, SHORT),
        entries=(Entry(0, clean(title or FOLLOWED_REGION, SHORT), "", None),) if followed else (),
    )
    return draw(scene, place(scene, time_limit_s=time_limit_s))
