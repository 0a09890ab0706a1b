"""The result of ``ex.stages("mlp")``: the stages of a region, a node followed through them, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from regional_explorer.errors import InvalidArgumentError, NotCompiledError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.insight.code import RegionCode
from regional_explorer.insight.no_code import why_no_code
from regional_explorer.record.session import Session
from regional_explorer.record.stages import PartitionStages, check_followed, region_stages
from regional_explorer.render.report.stage_report import stages_html, stages_text

if TYPE_CHECKING:
    import pandas as pd

STAGE_COLUMNS = ("partition", "stage", "ops", "views")
NODE_COLUMNS = ("partition", "stage", "node", "op", "comes_from", "lines")
COUNTS = ("decomposed", "fused", "into", "replaced", "removed", "inserted", "elided")


@dataclass(frozen=True)
class RegionStages:
    """The stages of a region, one entry per distinct partition; displayed as text or HTML.

    ``nodes`` are the names of nodes that are followed through all stages.
    """

    region: str
    session: Session
    partitions: tuple[PartitionStages, ...]
    nodes: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, session: Session, code: RegionCode, *, needed: bool = True) -> RegionStages:
        """Return the stages of the partitions whose code is known.

        Raises:
            NotCompiledError: there is none although it is ``needed``, which it is not after a cancel.
        """
        if needed and not code.partitions:
            raise NotCompiledError(why_no_code(session, code.region))
        return cls(code.region, session, region_stages(session, code.partitions), note=code.note)

    def follow(self, *nodes: str) -> RegionStages:
        """Return the same stages with these nodes followed, from what they come from to what becomes of them.

        Args:
            nodes: names of nodes of any stage, such as ``"gelu"``; all of them together are followed.

        Raises:
            InvalidArgumentError: no stage has a node of such a name.
        """
        if not nodes or not all(isinstance(name, str) for name in nodes):
            raise InvalidArgumentError(f"Give the names of nodes: stages.follow('gelu'); got {shown_value(nodes)}.")
        check_followed(self.partitions, nodes)
        return replace(self, nodes=nodes)

    def __iter__(self) -> Iterator[PartitionStages]:
        """Iterate over the distinct partitions."""
        return iter(self.partitions)

    @property
    def changes(self) -> pd.DataFrame:
        """One row per partition and stage: how many ops and views it has, and what became of the previous ones."""
        from regional_explorer.render.report.shown_frame import ShownFrame  # which imports pandas

        rows = [
            {
                "partition": part.partition.id,
                "stage": str(stage.kind),
                "ops": stage.computing,
                "views": len(stage.ops) - stage.computing,
                **{name: None if stage.change is None else getattr(stage.change, name) for name in COUNTS},
                "in_words": "" if stage.change is None else str(stage.change),
            }
            for part in self.partitions
            for stage in part.stages
        ]
        frame = ShownFrame(rows, columns=[*STAGE_COLUMNS, *COUNTS, "in_words"])
        return ShownFrame(frame.astype(dict.fromkeys(COUNTS, "Int64")))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per node of each stage: its op, the nodes of the stage before that it comes from, and their lines."""
        from regional_explorer.render.report.shown_frame import ShownFrame  # which imports pandas

        rows = []
        for part in self.partitions:
            followed = part.followed(self.nodes) if self.nodes else {}
            lines = part.lines()
            rows += [
                {
                    "partition": part.partition.id,
                    "stage": str(stage.kind),
                    "node": node.name,
                    "op": node.op,
                    "comes_from": ", ".join(stage.sources.get(node.name, ())),
                    "lines": ", ".join(map(str, lines[stage.kind].get(node.name, ()))),
                    **({"followed": node.name in followed[stage.kind]} if self.nodes else {}),
                }
                for stage in part.stages
                for node in stage.ops
            ]
        return ShownFrame(rows, columns=[*NODE_COLUMNS, *(["followed"] if self.nodes else [])])

    def __str__(self) -> str:
        """Return what each stage changed, as text."""
        return stages_text(self.region, self.partitions, self.nodes, self.note)

    __repr__ = __str__

    def _repr_mimebundle_(self, **_wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        html = stages_html(self.session, self.region, self.partitions, self.nodes, self.note)
        return {"text/plain": str(self), "text/html": html}
