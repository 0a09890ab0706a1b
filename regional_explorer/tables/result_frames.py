"""DataFrames of what was measured: the call, regions, partitions, how they add up, numerics, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regional_explorer.record.regions import RegionTiming, region_summaries, region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S, Numerics
from regional_explorer.tables.frame import ShownFrame

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


REGION_COLUMNS = (
    "region",
    "selector",
    "enabled",
    "state",
    "ops_forward",
    "ops_backward",
    "partitions",
    "compile_s",
    "config",
    "backward_config",
    "eager_us",
    "compiled_us",
    "speedup",
    "speedup_low",
    "speedup_high",
    "numerics",
    "pays_off_after_calls",
)
PARTITION_COLUMNS = (
    "partition",
    "region",
    "graph",
    "ops",
    "state",
    "config_requested",
    "config_applied",
    "artifact",
    "shared_with",
    "compile_s",
    "cache",
    "error",
)
TIMING_COLUMNS = (
    "variant",
    "phase",
    "median_us",
    "iqr_us",
    "speedup",
    "speedup_low",
    "speedup_high",
    "verdict",
    "numerics",
    "samples",
    "calls_per_sample",
    "warnings",
    "plan",
)
NUMERICS_COLUMNS = (
    "variant",
    "tensor",
    "dtype",
    "verdict",
    "bitwise",
    "rms_error",
    "max_error",
    "eager_rms_error_f64",
    "variant_rms_error_f64",
    "tolerance",
    "element_share",
    "note",
)


def regions_frame(session: Session) -> pd.DataFrame:
    """Return one row per region; its times are per call (forward + backward if gradients are taken).

    The times are NaN before ``ex.benchmark(regions=True)``, and again once the region has been changed.
    """
    rows = [
        {
            "region": summary.region.name,
            "selector": summary.region.selection,
            "enabled": summary.region.enabled,
            "state": str(summary.state),
            "ops_forward": summary.ops_forward,
            "ops_backward": summary.ops_backward,
            "partitions": len(summary.partitions),
            "compile_s": summary.compile_s,
            "config": dict(summary.region.config),
            "backward_config": None if summary.region.backward_config is None else dict(summary.region.backward_config),
            **times(summary.timing),
        }
        for summary in region_summaries(session)
    ]
    return ShownFrame(rows, columns=list(REGION_COLUMNS))


def partitions_frame(session: Session) -> pd.DataFrame:
    """Return one row per partition, with requested and applied config."""
    rows = [
        {
            "partition": part.id,
            "region": part.region,
            "graph": part.graph,
            "ops": len(part.nodes),
            "state": str(part.state),
            "config_requested": dict(part.config_requested),
            "config_applied": None if part.config_applied is None else dict(part.config_applied),
            "artifact": part.artifact,
            "shared_with": part.shared_with,
            "compile_s": part.compile_s,
            "cache": part.cache,
            "error": part.error,
        }
        for part in session.partitions
    ]
    return ShownFrame(rows, columns=list(PARTITION_COLUMNS))


def timings_frame(session: Session) -> pd.DataFrame:
    """Return one row per variant and phase; without speedup if the numerics check failed.

    ``plan`` is ``current``, or ``another`` if the last benchmark was of another plan.
    """
    rows: list[dict[str, Any]] = [
        {
            "variant": str(timing.variant),
            "phase": str(timing.phase),
            "median_us": timing.median_s * US_PER_S,
            "iqr_us": micro(timing.iqr_s),
            "speedup": timing.speedup,
            "speedup_low": timing.speedup_low,
            "speedup_high": timing.speedup_high,
            "verdict": str(timing.verdict),
            "numerics": str(timing.numerics),
            "samples": len(timing.samples_s),
            "calls_per_sample": timing.calls_per_sample,
            "warnings": "; ".join(timing.warnings),
            "plan": measured_plan(session),
        }
        for timing in session.timings
    ]
    return ShownFrame(rows, columns=list(TIMING_COLUMNS))


def memory_frame(session: Session) -> pd.DataFrame:
    """Return one row per variant: the peak memory of one call above what was allocated before, and how it was measured.

    A peak below ``least_bytes`` is noise.
    """
    rows = [
        {
            "variant": str(row.variant),
            "peak_bytes": row.peak_bytes,
            "least_bytes": row.least_bytes,
            "how": row.how,
            "plan": measured_plan(session),
        }
        for row in session.memory
    ]
    return ShownFrame(rows, columns=["variant", "peak_bytes", "least_bytes", "how", "plan"])


def numerics_frame(session: Session) -> pd.DataFrame:
    """Return one row per variant and tensor; errors are root mean squares in the tensor's own unit."""
    return _frame_of_numerics(session.numerics, NUMERICS_COLUMNS).assign(plan=measured_plan(session))


def region_numerics_frame(session: Session) -> pd.DataFrame:
    """Return one row per output of each partition that was checked alone, on recorded inputs."""
    regions = {part.id: part.region for part in session.partitions}
    frame = _frame_of_numerics(session.partition_numerics, (*NUMERICS_COLUMNS, "partition"))
    frame.insert(0, "region", frame["partition"].map(regions))
    return frame


def _frame_of_numerics(numerics: Sequence[Numerics], columns: Sequence[str]) -> pd.DataFrame:
    rows = [
        {
            "variant": str(row.variant),
            "tensor": row.tensor,
            "dtype": row.dtype,
            "verdict": str(row.verdict),
            "bitwise": row.bitwise,
            "rms_error": row.error,
            "max_error": row.max_error,
            "eager_rms_error_f64": row.eager_error,
            "variant_rms_error_f64": row.variant_error,
            "tolerance": row.tolerance,
            "element_share": row.element_share,
            "note": row.note,
            "partition": row.partition,
        }
        for row in numerics
    ]
    return ShownFrame(rows, columns=list(columns))


def compiles_frame(session: Session) -> pd.DataFrame:
    """Return one row per compile: what was compiled, seconds, and whether the cache was cold or warm."""
    rows = [{"what": str(cost.what), "compile_s": cost.seconds, "cache": cost.cache} for cost in session.compile_costs]
    return ShownFrame(rows, columns=["what", "compile_s", "cache"])
