"""The stages of a region as table, text and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from regional_explorer.errors import count
from regional_explorer.picture.folds import outline, pieces
from regional_explorer.picture.layout import place
from regional_explorer.picture.open_folds import SectionBuilder, scene_of, shown_folds
from regional_explorer.picture.scene import LegendEntry
from regional_explorer.picture.svg import draw, picture_html
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.record.session import Session
from regional_explorer.record.stages import PartitionStages, Stage
from regional_explorer.style.css import PAGE, page_css
from regional_explorer.style.element import LONG_TEXT, SHORT, clean, markup, to_html
from regional_explorer.tables.stages import stages_table

FOLLOWED_REGION = "followed"
MOST_OPEN_OPS = 400
"""A stage with more ops is drawn with its modules and functions closed."""
PICTURE_LIMIT_S = 2.0
"""Seconds that the layout of one picture may take before a simpler layout is used."""


def stage_svg(session: Session, stage: Stage, followed: Collection[str], title: str) -> str:
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
    builder = SectionBuilder(stage_session, graph, pieces(stage_session, graph))
    folds = shown_folds(outline(graph, builder.pieces), everything=len(stage.ops) <= MOST_OPEN_OPS)
    section = builder.section("s0", folds)
    section = dataclasses.replace(section, title=f"{clean(stage.title, SHORT)} · {count(len(stage.ops), 'node')}")
    scene = dataclasses.replace(
        scene_of(stage_session, [section]),
        title=clean(stage.title, SHORT),
        entries=(LegendEntry(0, clean(title, SHORT), "", None),) if followed else (),
    )
    return draw(scene, place(scene, time_limit_s=PICTURE_LIMIT_S))


def stages_text(region: str, partitions: Sequence[PartitionStages], followed: Sequence[str], note: str = "") -> str:
    """Return the stages of a region as text: one table per distinct partition."""
    tables = [stages_table([partition], followed).text() for partition in partitions]
    return "\n\n".join(filter(None, [note, *tables])) or f"Region {region!r} has no partition."


def stages_html(
    session: Session, region: str, partitions: Sequence[PartitionStages], followed: Sequence[str], note: str = ""
) -> str:
    """Return the stages of each partition as HTML: a table, and below it one picture per stage."""
    note_html = f'<p class="rx-note">{markup(note, LONG_TEXT)}</p>' if note else ""
    content = "".join(_stage_fragments(session, partitions, followed))
    empty = "" if content else f'<p class="rx-empty">Region {markup(repr(region))} has no partition.</p>'
    return f'<div class="{PAGE}"><style>{page_css()}</style>{note_html}{content}{empty}</div>'


def _stage_fragments(session: Session, partitions: Sequence[PartitionStages], followed: Sequence[str]) -> Iterator[str]:
    for partition in partitions:
        yield to_html(*stages_table([partition], followed).nodes())
        followed_ops = partition.followed(followed)
        for stage in partition.stages:
            svg = stage_svg(session, stage, followed_ops[stage.kind], ", ".join(followed))
            change = f"<span class='rx-quiet'> · {markup(str(stage.change), LONG_TEXT)}</span>" if stage.change else ""
            yield f"<details open><summary>{markup(stage.title)}{change}</summary>{picture_html(svg)}</details>"
