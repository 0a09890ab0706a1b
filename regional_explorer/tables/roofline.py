"""Tables of a plan's roofline: how much of the gain of full Inductor it reaches, and what it loses at borders."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.errors import count
from regional_explorer.record.profile import Bandwidth
from regional_explorer.record.roofline import (
    BitwiseTrial,
    Border,
    Launches,
    OpDifference,
    Reach,
    RegionReach,
    Roundings,
)
from regional_explorer.style.formats import NONE, config_text, duration, significant, size
from regional_explorer.tables.table import Cell, Table

MOST_BORDERS = 20


def reach_table(reach: Sequence[Reach], launches: Launches | None, problems: Sequence[str]) -> Table:
    """Return how much of full's gain the plan reaches, by phase."""
    return Table(
        title="How much of full Inductor's gain the plan reaches",
        columns=("phase", "eager", "this plan", "full", "full's gain reached"),
        rows=tuple(
            (
                Cell(str(row.phase)),
                Cell(duration(row.eager_s)),
                Cell(duration(row.regional_s)),
                Cell(duration(row.full_s)),
                Cell(_gain_reached(row)),
            )
            for row in reach
        ),
        empty="Nothing was measured.",
        note="\n".join([*([] if launches is None else [_launched(launches)]), *problems]),
        figures=frozenset({"eager", "this plan", "full", "full's gain reached"}),
    )


def _launched(launches: Launches) -> str:
    kernels = "" if launches.region_kernels is None else f" and {count(launches.region_kernels, 'kernel')} of regions"
    return (
        f"One call launches {count(launches.eager_ops, 'eager op')}{kernels}; "
        f"in full Inductor, {count(launches.full_kernels, 'kernel')}."
    )


def regions_table(regions: Sequence[RegionReach]) -> Table:
    """Return the gain of each region as a share of full's gain."""
    return Table(
        title="What each region brings, measured alone",
        columns=("region", "gain over eager", "of full's gain"),
        rows=tuple(
            (
                Cell(row.region),
                Cell(NONE if row.gain_s is None else duration(row.gain_s)),
                Cell(NONE if row.share is None else _share_text(row.share)),
            )
            for row in regions
        ),
        empty="No region was measured alone: ex.benchmark(regions=True).",
        note="How long a region's ops take inside full cannot be measured: there they share kernels with others.",
        figures=frozenset({"gain over eager", "of full's gain"}),
    )


def borders_table(borders: Sequence[Border], bandwidth: Bandwidth | None) -> Table:
    """Return the tensors that cross each border, and which of them full would fuse away."""
    return Table(
        title="What crosses borders",
        columns=("from", "to", "tensors", "bytes moved", "fused in full", "worth at most"),
        rows=tuple(
            (
                Cell(row.source),
                Cell(row.reader),
                Cell(str(row.tensors)),
                Cell(size(row.moved_bytes)),
                Cell(f"{size(row.fused_bytes)} ({row.fused} of {row.tensors})"),
                Cell(NONE if bandwidth is None else f"≤ {duration(row.fused_bytes / bandwidth.bytes_per_s)}"),
            )
            for row in borders[:MOST_BORDERS]
        ),
        empty="Nothing crosses a border.",
        note=(
            "Read from the code that Inductor generates for each captured graph as a whole; plain torch.compile splits "
            "forward from backward differently. "
            + (
                f"What a border is worth at most is its bytes at {bandwidth.bytes_per_s / 1e9:.1f} GB/s ("
                f"{bandwidth.how}); what launching and calling cost comes on top."
                if bandwidth is not None
                else ""
            )
        ),
        figures=frozenset({"tensors", "bytes moved", "fused in full", "worth at most"}),
    )


def ops_table(ops: Sequence[OpDifference], roundings: Roundings) -> Table:
    """Return how the results of Inductor's decompositions differ from eager's, op by op."""
    rounded = (
        f"Of {roundings.results} results of two bytes, full Inductor rounds {roundings.results - roundings.elided}: "
        f"the other {roundings.elided} stay in float32 inside a kernel. emulate_precision_casts=True rounds them too."
        if roundings.results
        else ""
    )
    return Table(
        title="Ops that full Inductor computes differently",
        columns=(
            "op",
            "times",
            "bitwise the same",
            "largest difference",
            "eager vs float64",
            "decomposed vs float64",
        ),
        rows=tuple(
            (
                Cell(row.op),
                Cell(str(row.nodes)),
                Cell(str(row.bitwise)),
                Cell(significant(row.max_difference) if row.max_difference else "0"),
                Cell(NONE if row.eager_error is None else significant(row.eager_error)),
                Cell(NONE if row.decomposed_error is None else significant(row.decomposed_error)),
            )
            for row in ops
        ),
        empty="None: Inductor decomposes no op of these graphs.",
        note="\n".join(filter(None, ["Both were run on the values of the call, the decomposition op by op.", rounded])),
        figures=frozenset({"times", "bitwise the same", "largest difference"}),
    )


def trials_table(trials: Sequence[BitwiseTrial]) -> Table:
    """Return under which configs full Inductor is bitwise equal to eager."""
    return Table(
        title="Full Inductor against eager, bit by bit",
        columns=("config", "results", "bitwise equal to eager", "largest difference"),
        rows=tuple(
            (
                Cell(config_text(row.config) or "unchanged"),
                Cell(str(row.tensors)),
                Cell(row.problem or str(row.bitwise), tone="good" if row.equal else "warn"),
                Cell(NONE if row.problem else significant(row.max_difference) if row.max_difference else "0"),
            )
            for row in trials
        ),
        empty="Not tried: ex.roofline(bitwise=True).",
        figures=frozenset({"results", "bitwise equal to eager", "largest difference"}),
    )


def _gain_reached(row: Reach) -> str:
    """Return the share of full's gain, or that there is none, or that none is certain."""
    if row.share is not None:
        return _share_text(row.share)
    return "full may not be faster" if row.full_s < row.eager_s else "full is not faster"


def _share_text(share: float) -> str:
    return f"{100 * share:.0f} %"
