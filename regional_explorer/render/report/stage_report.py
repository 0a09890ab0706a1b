"""The compile stages of a region as text and HTML: what each changed, and a picture of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.errors.texts import listing
from regional_explorer.record.session import Session
from regional_explorer.record.stages import PartitionStages
from regional_explorer.render.picture.stage_picture import stage_svg
from regional_explorer.render.picture.svg import picture_html
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.report.table_node import table_nodes
from regional_explorer.render.report.text import table_text
from regional_explorer.render.style.css import PAGE, page_css
from regional_explorer.render.style.element import to_html
from regional_explorer.render.style.formats import NONE
from regional_explorer.render.style.untrusted import LONG_TEXT, markup

PICTURE_LIMIT_S = 2.0
"""Seconds that the layout of one picture may take before a simpler layout is used."""


def stages_text(region: str, partitions: Sequence[PartitionStages], followed: Sequence[str], note: str = "") -> str:
    """Return the stages of a region as text: one table per distinct partition."""
    tables = [table_text(stages_table(partition, followed)) for partition in partitions]
    return "\n\n".join(filter(None, [note, *tables])) or f"Region {region!r} has no partition."


def stages_table(partition: PartitionStages, followed: Sequence[str] = ()) -> Table:
    """Return the stages of a partition, one per row."""
    followed_ops = partition.followed(followed)
    columns = ("stage", "ops", "views", "what it changed")
    rows = []
    for stage in partition.stages:
        cells = (
            Cell(stage.title),
            Cell(str(stage.computing)),
            Cell(str(len(stage.ops) - stage.computing)),
            Cell(NONE if stage.change is None else str(stage.change)),
        )
        rows.append((*cells, *([Cell(listing(sorted(followed_ops[stage.kind]), 8) or "none")] if followed else [])))
    notes = [stage.note for stage in partition.stages if stage.note]
    equal_note = f"The same holds for {', '.join(partition.equal)}." if partition.equal else ""
    return Table(
        title=f"Stages of {partition.partition.id}",
        columns=(*columns, *([", ".join(followed)] if followed else [])),
        rows=tuple(rows),
        empty=partition.problem or "Nothing is known.",
        note="\n".join(filter(None, [equal_note, *notes, partition.problem or ""])),
        figures=frozenset({"ops", "views"}),
    )


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
        yield to_html(*table_nodes(stages_table(partition, followed)))
        followed_ops = partition.followed(followed)
        for stage in partition.stages:
            svg = stage_svg(session, stage, followed_ops[stage.kind], ", ".join(followed), time_limit_s=PICTURE_LIMIT_S)
            change = f"<span class='rx-quiet'> · {markup(str(stage.change), LONG_TEXT)}</span>" if stage.change else ""
            yield f"<details open><summary>{markup(stage.title)}{change}</summary>{picture_html(svg)}</details>"
