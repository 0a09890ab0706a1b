"""Tables of compiles: what the caches answered, and how long each phase took."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from regional_explorer.errors import listing
from regional_explorer.record.artifact import ArtifactCompile, CacheAnswer, CompilePhase
from regional_explorer.record.session import Session
from regional_explorer.style.element import LONG_TEXT, SHORT, clean
from regional_explorer.style.formats import NONE, duration
from regional_explorer.tables.frame import ShownFrame
from regional_explorer.tables.table import Cell, Table

if TYPE_CHECKING:
    import pandas as pd


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


CACHE_COLUMNS = (
    "partition",
    "region",
    "answer",
    "why",
    "changed",
    "nearest",
    "artifact",
    "compile_s",
    "pre_grad_passes",
    "pre_grad_s",
)


def caches_frame(session: Session) -> pd.DataFrame:
    """Return one row per artifact: whether Inductor's cache had it, and why.

    ``answer`` is hit, miss, bypass or off. ``changed`` lists the parts of the key that differ from ``nearest``, the
    artifact with the most similar key that this process compiled before; ``why`` gives their values too.
    ``pre_grad_passes`` says when those passes run, ``pre_grad_s`` how long they took in this compile.
    """
    rows = [
        {
            "partition": part.id,
            "region": part.region,
            "answer": str(compiled.answer),
            "why": compiled.why,
            "changed": ", ".join(change.part for change in compiled.changes),
            "nearest": compiled.nearest,
            "artifact": compiled.artifact,
            "compile_s": compiled.seconds,
            "pre_grad_passes": compiled.pre_grad_passes,
            "pre_grad_s": compiled.pre_grad_s,
        }
        for part, compiled in session.compiled_partitions
    ]
    return ShownFrame(rows, columns=list(CACHE_COLUMNS))


def compile_times_frame(session: Session) -> pd.DataFrame:
    """Return one row per region with its compile time by phase; the phases add up to ``compile_s``.

    ``tracing_s`` is AOTAutograd and the graph passes, ``code_s`` code generation, ``build_s`` the C++ compiler or
    Triton, ``cache_s`` computing keys and look-ups, ``other_s`` the time that belongs to no phase.
    """
    columns = ["region", "artifacts", "compile_s", *map(_phase_column, CompilePhase)]
    rows: dict[str, dict[str, Any]] = {}
    for part, compiled in session.compiled_partitions:
        row = rows.setdefault(part.region, dict.fromkeys(columns, 0.0) | {"region": part.region, "artifacts": 0})
        row["artifacts"] += 1
        row["compile_s"] += compiled.seconds
        for phase in CompilePhase:
            row[_phase_column(phase)] += compiled.phases.get(phase, 0.0)
    return ShownFrame(rows.values(), columns=columns)


def _phase_column(phase: CompilePhase) -> str:
    return f"{phase.name.lower()}_s"
