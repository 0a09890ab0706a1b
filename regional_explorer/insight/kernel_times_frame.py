"""Kernel times as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from regional_explorer.record.grouping import grouped
from regional_explorer.record.kernel_times import ArtifactKernelTimes
from regional_explorer.record.region_code import PartitionCode, region_code
from regional_explorer.record.session import Session
from regional_explorer.record.timing import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

KERNEL_TIME_COLUMNS = (
    "partition",
    "runs",
    "number",
    "kernel",
    "kind",
    "time_us",
    "iqr_us",
    "share",
    "bound_us",
    "bound_by",
    "times_bound",
    "wasted_us",
    "lines",
    "problem",
)
BETWEEN_KERNELS = "between kernels"
"""The row with the time of the generated code outside its kernels; it has no bound."""
AROUND_CODE = "around the generated code"
"""The row with the time of the wrapper that calls the generated code: checks of inputs, and of what autograd needs."""
UNACCOUNTED = "not accounted for"
"""The row with the difference between a call without clocks and the sum of the other rows."""


def kernel_times_frame(session: Session, region: str) -> pd.DataFrame:
    """Return one row per kernel of each distinct partition of a region, most wasted time first.

    ``runs`` counts the partitions that run this code. ``share`` is the share of the partition's time, measured without
    clocks. If the kernels, the time between and that around them differ from it by more than a tenth, a row says how
    much is ``not accounted for``. Without a known bound, no time counts as wasted.
    """
    from regional_explorer.render.report.shown_frame import ShownFrame  # which imports pandas

    parts = grouped((part.code.artifact, part) for part in region_code(session, session.plan[region].name))
    times = {kernel_times.artifact: kernel_times for kernel_times in session.kernel_times}
    rows = [row for key, equal in parts.items() if key in times for row in _partition_rows(equal, times[key])]
    rows.sort(key=lambda row: -(row["wasted_us"] or 0.0))
    frame = ShownFrame(rows, columns=list(KERNEL_TIME_COLUMNS))
    return ShownFrame(frame.astype({"number": "Int64"}))


def _partition_rows(equal_parts: list[PartitionCode], times: ArtifactKernelTimes) -> Iterator[dict[str, Any]]:
    part = equal_parts[0]
    common = {"partition": part.partition.id, "runs": len(equal_parts), "problem": times.problem}
    if times.problem is not None:
        yield dict.fromkeys(KERNEL_TIME_COLUMNS) | common
        return
    for linked, time in zip(part.kernels, times.kernels, strict=True):
        row = dict.fromkeys(KERNEL_TIME_COLUMNS) | common
        row |= {"number": linked.number, "kernel": linked.kernel.name, "kind": str(linked.kernel.kind)}
        row["lines"] = ", ".join(map(str, linked.lines))
        if time is not None:
            bound, wasted = time.bound_s, time.wasted_s
            row |= {
                "time_us": time.median_s * US_PER_S,
                "iqr_us": time.iqr_s * US_PER_S,
                "share": time.median_s / times.whole_s,
                "bound_us": None if bound is None else bound * US_PER_S,
                "bound_by": None if time.bound_by is None else str(time.bound_by),
                "times_bound": time.median_s / bound if bound else None,
                "wasted_us": None if wasted is None else wasted * US_PER_S,
            }
        yield row
    outside_s = {BETWEEN_KERNELS: times.between_s, AROUND_CODE: times.around_s}
    if not times.adds_up:
        outside_s[UNACCOUNTED] = times.unaccounted_s
    for name, seconds in outside_s.items():
        figures = {"kernel": name, "time_us": seconds * US_PER_S, "share": seconds / times.whole_s}
        yield dict.fromkeys(KERNEL_TIME_COLUMNS) | common | figures
