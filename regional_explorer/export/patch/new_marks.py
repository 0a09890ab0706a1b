"""The marks that a patch writes into the source, and the regions that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field

from regional_explorer.export.patch.sites import Sites
from regional_explorer.export.patch.source_file import Function, Mark, Statement
from regional_explorer.export.patch.spans import Span, StatementRange, WholeFunction
from regional_explorer.record.region import Region


@dataclass(frozen=True)
class NewMark:
    """One mark to write: the span it surrounds and its region; with ``carve`` it leaves that span's ops to eager.

    ``instance`` distinguishes this mark's instances from others of the region: numbers, and loops, which stand for
    their index. With ``by_number`` the iterations of the loop are known by the numbers of the modules called in them.
    """

    span: Span
    region: Region
    instance: tuple[int | Statement, ...] = ()
    carve: bool = False
    by_number: bool = False


@dataclass
class Placement:
    """The marks to write, the regions whose marks in the source stay, and why other regions cannot be written.

    ``obsolete`` are the marks in the source that are removed; ``staying`` are marks of no region that cannot be, since
    they are computed, each with its file.
    """

    sites: Sites
    marks: list[NewMark] = field(default_factory=list)
    kept: dict[str, Region] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    obsolete: list[Mark] = field(default_factory=list)
    staying: dict[Function | Statement, str] = field(default_factory=dict)


def reused_mark(new_mark: NewMark) -> Mark | None:
    """Return the mark in the source that surrounds exactly the span of ``new_mark``, and so is changed in place."""
    span = new_mark.span
    if new_mark.carve:
        return None
    if isinstance(span, WholeFunction):
        return span.function.mark
    if isinstance(span, StatementRange) and len(span.statements) == 1:
        return span.statements[0].mark
    return None
