"""How artifacts were compiled, as pandas DataFrames: cache hits and misses, and compile time by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regional_explorer.record.compiles import CompilePhase
from regional_explorer.record.session import Session
from regional_explorer.render.report.shown_frame import ShownFrame

if TYPE_CHECKING:
    import pandas as pd

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
