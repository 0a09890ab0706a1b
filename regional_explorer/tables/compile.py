"""Tables of compiles: the answers of the caches, the time of each phase, and the patterns that matched."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.errors import listing
from regional_explorer.record.artifact import ArtifactCompile, CacheAnswer, CompilePhase
from regional_explorer.record.figure import measured_once
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.region_code import PatternMatches, full_compile, pattern_match_counts, region_patterns
from regional_explorer.record.session import Session
from regional_explorer.style.element import LONG_TEXT, clean
from regional_explorer.style.formats import NONE, duration, pattern_text
from regional_explorer.tables.table import Column, Number, Table

MOST_CHANGES = 6

_ANSWER_TONES = {CacheAnswer.HIT: "good", CacheAnswer.BYPASS: "warn"}


def caches_table(session: Session) -> Table[tuple[Partition, ArtifactCompile]]:
    """One row per artifact: whether Inductor's cache had it, and why.

    ``answer`` is hit, miss, bypass or off. ``changed`` lists the inputs, ops, configs and settings that differ from
    ``nearest``, the most similar artifact that this process compiled before; ``why`` gives their values too.
    ``pre_grad_passes`` says when the passes before autograd run, ``pre_grad_s`` how long they took in this compile.
    """
    return Table(
        "Caches",
        (
            Column("partition", lambda row: row[0].id),
            Column("region", lambda row: row[0].region),
            Column("answer", lambda row: row[1].answer, tone=lambda row: _ANSWER_TONES.get(row[1].answer, "quiet")),
            Column("why", lambda row: row[1].why, text=lambda row: _answer_reason(row[1])),
            Column("changed", lambda row: ", ".join(change.part for change in row[1].changes)),
            Column("nearest", lambda row: row[1].nearest),
            Column("artifact", lambda row: row[0].artifact),
            Number("compile_s", lambda row: measured_once(row[1].seconds)),
            Column("pre_grad_passes", lambda row: row[1].pre_grad_passes, "passes before autograd", tone="quiet"),
            Number("pre_grad_s", lambda row: row[1].pre_grad_s),
        ),
        tuple(session.compiled_partitions),
        heads=("partition", "answer", "why", "passes before autograd"),
        fold="unless bad",
    )


def _answer_reason(compiled: ArtifactCompile) -> str:
    if compiled.answer is not CacheAnswer.MISS or not compiled.changes or compiled.cold:
        return clean(compiled.why, LONG_TEXT)
    return clean(listing([str(change) for change in compiled.changes], MOST_CHANGES), LONG_TEXT)


RegionCompiles = tuple[str, Sequence[ArtifactCompile]]
"""The name of a region, and the compiles of its own artifacts."""


def compile_times_table(session: Session) -> Table[RegionCompiles]:
    """One row per region with its compile time by phase; the phases add up to ``compile_s``.

    ``tracing_s`` is AOTAutograd and the graph passes, ``code_s`` code generation, ``build_s`` the C++ compiler or
    Triton, ``cache_s`` computing keys and look-ups, ``other_s`` the time that belongs to no phase.
    """
    region_numbers = session.plan.numbers
    compiles = [compiled for _, compiled in session.compiled_partitions]
    waited = duration(sum(compiled.waited_s for compiled in compiles))
    side_by_side = any(compiled.overlapped_s for compiled in compiles)
    return Table(
        "Where compile time goes",
        (
            Column("region", lambda row: row[0], region=lambda row: region_numbers.get(row[0])),
            Number("artifacts", lambda row: len(row[1])),
            Number("compile_s", lambda row: measured_once(sum(compiled.seconds for compiled in row[1])), "all"),
            *map(_phase_column, CompilePhase),
        ),
        tuple(grouped((part.region, compiled) for part, compiled in session.compiled_partitions).items()),
        notes=lambda: [
            "Tracing includes the graph passes; code is its generation, build the C++ compiler or Triton.",
            "The toolchain's first start is not included.",
            f"Partitions were compiled side by side: {waited} were waited for." if side_by_side else "",
        ],
        heads=("region", "all", *(phase.name.lower() for phase in CompilePhase)),
        fold="unless bad",
    )


def _phase_column(phase: CompilePhase) -> Column[RegionCompiles]:
    return Number(
        f"{phase.name.lower()}_s",
        lambda row: sum(compiled.phases.get(phase, 0.0) for compiled in row[1]),
        write=lambda seconds: duration(seconds or None),
        tone="quiet",
    )


def patterns_table(session: Session) -> Table[PatternMatches]:
    """One row per pattern of Inductor's passes: how often it matched in the trace, in each region, in torch.compile.

    Only a trace with ``joint_passes`` runs such passes. A number is None if it is not known.
    """
    regions, full = _unknown_regions(session), _unknown_full(session)
    return Table(
        "Patterns that matched",
        (
            Column("pattern", lambda row: row.name, write=pattern_text),
            Number("trace", lambda row: row.trace),
            Column("regions", lambda row: row.regions, text=_matches_by_region),
            Number("torch_compile", lambda row: row.full, "torch.compile", dtype="Int64"),
        ),
        pattern_match_counts(session),
        full if full_compile(session) else "",
        lambda: [regions, full],
        fold="closed",
    )


def _matches_by_region(row: PatternMatches) -> str:
    texts = {name: NONE if matches is None else str(matches) for name, matches in row.regions.items() if matches != 0}
    return listing([f"{name} {matches}" for name, matches in texts.items()]) or "0"


def _unknown_regions(session: Session) -> str:
    compiled = {part.region for part in session.partitions if part.artifact is not None}
    unknown = [
        repr(name) for name, patterns in region_patterns(session).items() if patterns is None and name in compiled
    ]
    return f"Not known for {listing(unknown)}: the code came from a cache. ex.code(…) finds out." if unknown else ""


def _unknown_full(session: Session) -> str:
    cost = full_compile(session)
    if cost is None:
        return "Not known for torch.compile: it has not compiled the call. ex.benchmark() does that."
    came = "its code came" if cost.cache == "warm" else "some of its code may have come"
    return f"Not known for torch.compile: {came} from Inductor's cache." if cost.patterns is None else ""
