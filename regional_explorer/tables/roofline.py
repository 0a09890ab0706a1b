"""Tables of a plan's roofline: how much of full Inductor's gain the plan reaches, and what it loses at borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.errors import count
from regional_explorer.record.figure import Figure
from regional_explorer.record.profile import Bandwidth
from regional_explorer.record.roofline import (
    BitwiseTrial,
    Border,
    Launches,
    OpDifference,
    PhaseReach,
    RegionReach,
    Roundings,
)
from regional_explorer.style.formats import NONE, config_text, duration, significant, size, with_interval
from regional_explorer.tables.table import Column, Number, Table, bound_columns

MOST_BORDERS = 20

READ_FROM = (
    "Read from the code that Inductor generates for each captured graph as a whole; plain torch.compile splits forward "
    "from backward differently."
)


def reach_table(reach: Sequence[PhaseReach], launches: Launches | None, problems: Sequence[str]) -> Table[PhaseReach]:
    """How much of full's gain the plan reaches, by phase."""
    return Table(
        "How much of torch.compile's gain the plan reaches",
        (
            Column("phase", lambda row: row.phase),
            *_time_columns("eager", lambda row: row.eager_s),
            *_time_columns("regional", lambda row: row.regional_s, "your plan"),
            *_time_columns("full", lambda row: row.full_s, "torch.compile"),
            Number("share", lambda row: row.share, "torch.compile's gain reached", text=_gain_reached),
            *bound_columns("share_low", "share_high", lambda row: row.share)[:2],
        ),
        reach,
        "Nothing was measured.",
        lambda: [*([] if launches is None else [_launches_text(launches)]), *problems],
        heads=("phase", "eager", "your plan", "torch.compile", "torch.compile's gain reached"),
    )


def _time_columns(
    name: str, time_s: Callable[[PhaseReach], Figure], head: str | None = None
) -> tuple[Column[PhaseReach], ...]:
    """Return a column with a time and its CI, and two columns of the DataFrame with the ends of the CI."""
    return (
        Number(f"{name}_us", time_s, head, text=lambda row: with_interval(time_s(row), duration)),
        *bound_columns(f"{name}_low_us", f"{name}_high_us", time_s)[:2],
    )


def _launches_text(launches: Launches) -> str:
    kernels = "" if launches.region_kernels is None else f" and {count(launches.region_kernels, 'kernel')} of regions"
    return (
        f"One call launches {count(launches.eager_ops, 'eager op')}{kernels}; "
        f"under full Inductor it launches {count(launches.full_kernels, 'kernel')}."
    )


def region_reach_table(regions: Sequence[RegionReach]) -> Table[RegionReach]:
    """One row per region: its gain, and its share of the gain of full."""
    return Table(
        "What each region gains, measured alone",
        (
            Column("region", lambda row: row.region),
            Number("gain_s", lambda row: row.gain_s, "gain over eager", text=lambda row: _ends(row.gain_s, duration)),
            *bound_columns("gain_low_s", "gain_high_s", lambda row: row.gain_s)[:2],
            Number("share", lambda row: row.share, "of full's gain", text=lambda row: _ends(row.share, _share_text)),
            *bound_columns("share_low", "share_high", lambda row: row.share)[:2],
        ),
        regions,
        "No region was measured alone: ex.benchmark(regions=True).",
        lambda: ["The time of a region's ops inside full cannot be measured: there they share kernels with other ops."],
        heads=("region", "gain over eager", "of full's gain"),
    )


def borders_table(borders: Sequence[Border], bandwidth: Bandwidth | None, reach: Sequence[PhaseReach]) -> Table[Border]:
    """One row per border: its tensors and bytes, the part that full fuses away, and the most time that this saves.

    The saved time is never more than the call takes under the plan.
    """
    whole_s = [phase.regional_s.value for phase in reach[-1:]]
    worth = (
        ""
        if bandwidth is None
        else f" A border is worth at most its bytes at {bandwidth.bytes_per_s.value / 1e9:.1f} GB/s "
        f"({bandwidth.how}), and the cost of launches and calls on top."
    )

    def at_most_s(row: Border) -> float | None:
        return None if bandwidth is None else min([row.fused_bytes / bandwidth.bytes_per_s.value, *whole_s])

    return Table(
        "Tensors that cross borders",
        (
            Column("source", lambda row: row.source, "from"),
            Column("reader", lambda row: row.reader, "to"),
            Number("tensors", lambda row: row.tensors),
            Number("moved_bytes", lambda row: row.moved_bytes, "bytes moved"),
            Number("fused", lambda row: row.fused),
            Number(
                "fused_bytes",
                lambda row: row.fused_bytes,
                "fused in full",
                text=lambda row: f"{size(row.fused_bytes)} ({row.fused} of {row.tensors})",
            ),
            Number("at_most_us", at_most_s, "worth at most", write=lambda seconds: f"≤ {duration(seconds)}"),
        ),
        borders,
        "Nothing crosses a border.",
        lambda: [f"{READ_FROM}{worth}"],
        heads=("from", "to", "tensors", "bytes moved", "fused in full", "worth at most"),
        shown=borders[:MOST_BORDERS],
    )


def ops_table(ops: Sequence[OpDifference], roundings: Roundings) -> Table[OpDifference]:
    """One row per op that Inductor decomposes: its count, how many are bitwise equal, and the differences."""
    rounded = (
        f"Of {roundings.results} results of two bytes, full Inductor rounds {roundings.results - roundings.elided}: "
        f"the other {roundings.elided} stay in float32 inside a kernel. emulate_precision_casts=True rounds them too."
        if roundings.results
        else ""
    )
    return Table(
        "Ops that full Inductor computes differently",
        (
            Column("op", lambda row: row.op),
            Number("nodes", lambda row: row.nodes, "times"),
            Number("bitwise", lambda row: row.bitwise, "bitwise the same"),
            Number("max_difference", lambda row: row.max_difference, "largest difference", write=_difference_text),
            Column("eager_error", lambda row: row.eager_error, "eager vs float64", write=significant),
            Column("decomposed_error", lambda row: row.decomposed_error, "decomposed vs float64", write=significant),
        ),
        ops,
        "None: Inductor decomposes no op of these graphs.",
        lambda: ["Op and decomposition were run on the values of the call, the decomposition op by op.", rounded],
    )


def trials_table(trials: Sequence[BitwiseTrial]) -> Table[BitwiseTrial]:
    """One row per tried config: whether full Inductor is bitwise equal to eager under it."""
    return Table(
        "Full Inductor against eager, bit by bit",
        (
            Column("config", lambda row: row.config, write=lambda config: config_text(config) or "unchanged"),
            Number("results", lambda row: row.tensors),
            Number(
                "bitwise",
                lambda row: row.bitwise,
                "bitwise equal to eager",
                text=lambda row: row.problem or str(row.bitwise),
                tone=lambda row: "good" if row.equal else "warn",
            ),
            Number(
                "max_difference",
                lambda row: row.max_difference,
                "largest difference",
                text=lambda row: NONE if row.problem else _difference_text(row.max_difference),
            ),
        ),
        trials,
        "Not tried: ex.roofline(bitwise=True).",
    )


def _difference_text(difference: float) -> str:
    return significant(difference) if difference else "0"


def _gain_reached(row: PhaseReach) -> str:
    """Return the share of full's gain, or a note if full gains nothing, or nothing certain."""
    if row.share is not None:
        low, high = row.share.bounds or (row.share.value, row.share.value)
        if low > 1:
            return "all: it is faster than full"
        if high < 0:
            return "none"
        if row.share.value > 1:
            return "all, as far as the rounds tell"
        ends = f" ({_share_text(max(low, 0.0))} to {_share_text(min(high, 1.0))})" if row.share.bounds else ""
        return f"{_share_text(row.share.value)}{ends}"
    if row.withheld:
        return row.withheld
    return "full is not faster" if row.full_loses else "full may not be faster"


def _ends(figure: Figure | None, text: Callable[[float], str]) -> str:
    return NONE if figure is None else with_interval(figure, text)


def _share_text(share: float) -> str:
    return "none" if share < 0 else "more than all" if share > 1 else f"{100 * share:.0f} %"
