"""Tables of the stages of a region: the changes of each stage, and where its nodes come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regional_explorer.errors import listing
from regional_explorer.record.graph import Node
from regional_explorer.record.stages import PartitionStages, Stage
from regional_explorer.style.formats import NONE
from regional_explorer.tables.table import Column, Number, Table

COUNTS = ("decomposed", "fused", "into", "replaced", "removed", "inserted", "elided")


class StageRow(NamedTuple):
    """A stage of a partition, and its nodes that belong to the followed nodes."""

    part: PartitionStages
    stage: Stage
    followed: frozenset[str]


def stages_table(parts: Sequence[PartitionStages], followed: Sequence[str] = ()) -> Table[StageRow]:
    """One row per partition and stage: its number of ops and views, and what became of the previous stage's ops."""
    head = ", ".join(followed)

    def notes() -> Iterator[str]:
        for part in parts:
            if part.equal:
                yield f"The same holds for {', '.join(part.equal)}."
            yield from (stage.note for stage in part.stages)
            yield part.problem or ""

    return Table(
        f"Stages of {', '.join(part.partition.id for part in parts)}",
        (
            Column("partition", lambda row: row.part.partition.id),
            Column("stage", lambda row: row.stage.kind, text=lambda row: row.stage.title),
            Number("ops", lambda row: row.stage.computing),
            Number("views", lambda row: len(row.stage.ops) - row.stage.computing),
            *map(_count_column, COUNTS),
            Column(
                "in_words",
                lambda row: str(row.stage.change or ""),
                "what it changed",
                text=lambda row: NONE if row.stage.change is None else str(row.stage.change),
            ),
            Column("", lambda row: listing(sorted(row.followed), 8) or "none", head),
        ),
        [
            StageRow(part, stage, followed_ops[stage.kind])
            for part in parts
            for followed_ops in (part.followed(followed),)
            for stage in part.stages
        ],
        next((part.problem for part in parts if part.problem), "Nothing is known."),
        notes,
        heads=("stage", "ops", "views", "what it changed", *([head] if followed else [])),
    )


def _count_column(name: str) -> Column[StageRow]:
    """Return a column that counts a kind of change from the previous stage's nodes."""
    return Number(name, lambda row: getattr(row.stage.change, name, None), dtype="Int64")


class NodeRow(NamedTuple):
    """A node of a stage, and the source lines that it comes from."""

    row: StageRow
    node: Node
    lines: Sequence[object]


def stage_nodes_table(parts: Sequence[PartitionStages], followed: Sequence[str] = ()) -> Table[NodeRow]:
    """One row per node of each stage: its op, the previous stage's nodes that it comes from, and their lines."""
    lines = {part.partition.id: part.lines() for part in parts}
    is_followed: Column[NodeRow] = Column("followed", lambda found: found.node.name in found.row.followed)
    return Table(
        "Nodes of stages",
        (
            Column("partition", lambda found: found.row.part.partition.id),
            Column("stage", lambda found: found.row.stage.kind),
            Column("node", lambda found: found.node.name),
            Column("op", lambda found: found.node.op),
            Column("comes_from", lambda found: ", ".join(found.row.stage.sources.get(found.node.name, ()))),
            Column("lines", lambda found: ", ".join(map(str, found.lines))),
            *([is_followed] if followed else []),
        ),
        [
            NodeRow(row, found, lines[row.part.partition.id][row.stage.kind].get(found.name, ()))
            for row in stages_table(parts, followed).rows
            for found in row.stage.ops
        ],
    )
