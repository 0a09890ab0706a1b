"""Tables of how regions were compiled: the answers of caches, and where the compile time went."""

from __future__ import annotations

from collections import defaultdict

from regional_explorer.errors.texts import listing
from regional_explorer.record.compiles import ArtifactCompile, CacheAnswer, CompilePhase
from regional_explorer.record.session import Session
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.formats import NONE, duration
from regional_explorer.render.style.untrusted import LONG_TEXT, SHORT, clean

MOST_CHANGES = 6

_ANSWER_TONES = {CacheAnswer.HIT: "good", CacheAnswer.BYPASS: "warn"}


def compile_tables(session: Session) -> list[Table]:
    """Return the tables of compile phases and of caches; none if nothing was compiled."""
    return [phases_table(session), caches_table(session)] if session.compiles else []


def caches_table(session: Session) -> Table:
    """Return what Inductor's cache answered for each artifact, and why."""
    rows = tuple(
        (
            Cell(clean(partition.id, SHORT)),
            Cell(compiled.answer, _ANSWER_TONES.get(compiled.answer, "quiet")),
            Cell(_answer_reason(compiled)),
            Cell(clean(compiled.pre_grad_passes), "quiet"),
        )
        for partition, compiled in session.compiled_partitions
    )
    return Table("Caches", ("partition", "answer", "why", "passes before autograd"), rows, "Nothing compiled yet.")


def _answer_reason(compiled: ArtifactCompile) -> str:
    if compiled.answer is not CacheAnswer.MISS or not compiled.changes or compiled.cold:
        return clean(compiled.why, LONG_TEXT)
    return clean(listing([str(change) for change in compiled.changes], MOST_CHANGES), LONG_TEXT)


def phases_table(session: Session) -> Table:
    """Return where the compile time of each region went, as figures and as a bar."""
    phases_by_region: dict[str, dict[CompilePhase, float]] = defaultdict(lambda: dict.fromkeys(CompilePhase, 0.0))
    for partition, compiled in session.compiled_partitions:
        for phase in CompilePhase:
            phases_by_region[partition.region][phase] += compiled.phases.get(phase, 0.0)
    longest = max((sum(phases.values()) for phases in phases_by_region.values()), default=0.0)
    region_numbers = session.plan.numbers
    rows = tuple(
        (
            Cell(clean(region, SHORT), region=region_numbers.get(region)),
            Cell(duration(sum(phases.values()))),
            *(Cell(duration(seconds) if seconds else NONE, "quiet") for seconds in phases.values()),
            Cell("", bar=tuple((phase, seconds / longest) for phase, seconds in phases.items()) if longest else ()),
        )
        for region, phases in phases_by_region.items()
    )
    return Table(
        "Where compile time goes",
        ("region", "all", *CompilePhase, "in proportion"),
        rows,
        "Nothing compiled yet.",
        "The toolchain's first start is not included.",
        figures=frozenset({"all", *CompilePhase}),
    )
