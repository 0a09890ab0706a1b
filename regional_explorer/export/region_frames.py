"""DataFrames of what was measured alone: timings of regions and partitions, and their reconciliation with the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regional_explorer.record.region_timing import RegionTiming, region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S
from regional_explorer.render.report.shown_frame import ShownFrame

if TYPE_CHECKING:
    import pandas as pd

REGION_TIMING_COLUMNS = (
    "region",
    "phase",
    "eager_us",
    "compiled_us",
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
    "numerics",
    "worst_tensor",
    "compile_s",
    "compile_cold_s",
    "compile_warm_s",
    "cache",
    "pays_off_after_calls",
    "partitions",
    "measured",
)
PARTITION_TIMING_COLUMNS = (
    "partition",
    "region",
    "phase",
    "eager_us",
    "eager_iqr_us",
    "compiled_us",
    "compiled_iqr_us",
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
    "runs",
    "samples",
    "measured_as",
    "numerics",
    "bitwise",
    "worst_tensor",
    "warnings",
)


def region_timings_frame(session: Session) -> pd.DataFrame:
    """Return one row per region and phase: the sum of its partitions, each measured alone, eager against compiled.

    ``compile_s`` is the compile time of its own artifacts (``compile_cold_s`` plus ``compile_warm_s``), and
    ``pays_off_after_calls`` the number of calls that save as much: inf if no number does, NaN if unknown.
    ``measured`` of its ``partitions`` were measured themselves, the others share an artifact with one that was. Filled
    by ``ex.benchmark()``.
    """
    rows = [
        {
            "region": timing.region,
            "phase": str(timing.phase),
            **times(timing),
            "verdict": str(timing.verdict),
            "worst_tensor": timing.worst_tensor,
            "compile_s": timing.compile_s,
            "compile_cold_s": timing.compile_cold_s,
            "compile_warm_s": timing.compile_warm_s,
            "cache": timing.cache,
            "partitions": timing.partitions,
            "measured": timing.measured,
        }
        for timing in region_timings(session)
    ]
    return ShownFrame(rows, columns=list(REGION_TIMING_COLUMNS))


def partition_timings_frame(session: Session) -> pd.DataFrame:
    """Return one row per partition that was measured alone; ``runs`` is how often one call runs it."""
    rows = [
        {
            "partition": timing.partition,
            "region": timing.region,
            "phase": str(timing.phase),
            "eager_us": timing.eager_s * US_PER_S,
            "eager_iqr_us": micro(timing.eager_iqr_s),
            "compiled_us": micro(timing.compiled_s),
            "compiled_iqr_us": micro(timing.compiled_iqr_s),
            "speedup": timing.speedup,
            "speedup_low": timing.speedup_low,
            "speedup_high": timing.speedup_high,
            "verdict": str(timing.verdict),
            "runs": timing.runs,
            "samples": timing.samples,
            "measured_as": timing.measured_as,
            "numerics": str(timing.numerics),
            "bitwise": timing.bitwise,
            "worst_tensor": timing.worst_tensor,
            "warnings": "; ".join(timing.warnings),
        }
        for timing in session.partition_timings
    ]
    return ShownFrame(rows, columns=list(PARTITION_TIMING_COLUMNS))


def reconciliation_frame(session: Session) -> pd.DataFrame:
    """Return how the regions and the rest add up to the whole call, from one variant (``total``) to the next."""
    rows = [
        {
            "phase": str(row.phase),
            "part": str(row.part),
            "total": row.total,
            "time_us": row.seconds * US_PER_S,
            "low_us": micro(row.low_s),
            "high_us": micro(row.high_s),
            "note": row.note,
            "plan": measured_plan(session),
        }
        for row in session.reconciliation
    ]
    return ShownFrame(rows, columns=["phase", "part", "total", "time_us", "low_us", "high_us", "note", "plan"])


def measured_plan(session: Session) -> str:
    """Return whether the last benchmark was of the ``current`` plan or of ``another``."""
    return "another" if session.is_outdated else "current"


def times(timing: RegionTiming | None) -> dict[str, Any]:
    """Return the timing columns of a region's row, None for each if it was not measured."""
    if timing is None:
        return {}
    return {
        "eager_us": timing.eager_s * US_PER_S,
        "compiled_us": micro(timing.compiled_s),
        "speedup": timing.speedup,
        "speedup_low": timing.speedup_low,
        "speedup_high": timing.speedup_high,
        "numerics": str(timing.numerics or ""),
        "pays_off_after_calls": timing.pays_off_after_calls,
    }


def micro(seconds: float | None) -> float | None:
    """Return seconds in microseconds."""
    return None if seconds is None else seconds * US_PER_S
