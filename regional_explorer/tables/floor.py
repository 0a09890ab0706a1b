"""The tables and the sentence of a call's floor, and of the gain of ``torch.compile`` that a plan reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.errors import count
from regional_explorer.record.figure import Figure
from regional_explorer.record.floor import BY_ONEDNN, Floor, Product
from regional_explorer.record.reach import FloorReach, PhaseReach
from regional_explorer.style.formats import duration, percent, size, with_interval
from regional_explorer.tables.table import Column, Number, Table, bound_columns


def floor_sentence(floor: Floor, reach: FloorReach | None) -> str:
    """Return what is left above the floor: the time of the fastest plan, the floor, the largest saving, and where.

    A floor above a measured time is not shown.
    """
    if reach is None:
        return f"The floor of a call is {duration(floor.seconds)} on this machine; no plan was measured beside it."
    takes = f"A call takes {duration(reach.seconds.value)} ({reach.title})"
    if reach.left is None:
        return f"{takes}; its floor is unknown: products are faster in it than they were alone."
    slow = reach.slow_products
    share = min(sum(product.over_aten_s for product in slow) / reach.seconds.value, reach.left)
    libraries = " or ".join(dict.fromkeys(product.library for product in slow))
    kinds = f"{count(len(slow), 'kind')} of products faster by {libraries} than by ATen"
    where = f", {percent(share)} of the call in {kinds}" if slow else ""
    where += f" (rx.{BY_ONEDNN} is a pass for them)" if any(product.has_pass for product in slow) else ""
    return f"{takes}; floor {duration(floor.seconds)}: at most {percent(reach.left)} left{where}."


def floor_table(floor: Floor, reach: FloorReach | None) -> Table[Product]:
    """One row per kind of product: its least time by any library on this machine, and ATen's; then the moved bytes."""
    rows = [] if reach is not None and reach.left is None else [*floor.products, _moving(floor)]
    return Table(
        "The floor of the call",
        (
            Column("product", lambda row: row.text),
            Number("times", lambda row: row.times),
            Number("each_us", lambda row: row.each_s, "each"),
            Column("library", lambda row: row.library, "fastest by"),
            Number("floor_us", lambda row: row.seconds, "in a call"),
            Number("over_aten_us", lambda row: row.over_aten_s, "faster than ATen by"),
        ),
        rows,
        " ".join([floor_sentence(floor, reach), *_notes(floor)]),
        lambda: [floor_sentence(floor, reach), *_notes(floor)] if rows else [],
        heads=("product", "times", "each", "fastest by", "in a call", "faster than ATen by"),
    )


def _moving(floor: Floor) -> Product:
    """Return the row of the bytes between products."""
    text = f"all else: {size(floor.moved_bytes)} to read and write"
    return Product(text, 1, floor.moving_s, "one kernel between two products", floor.moving_s)


def _notes(floor: Floor) -> list[str]:
    notes = ["Arithmetic between products and launches are not in the floor."]
    if floor.left_out:
        notes.append(f"{count(floor.left_out, 'product')} left out: not measured, or of unknown sizes.")
    if floor.busy:
        notes.append("The machine was busy: the floor may be lower. ex.floor() measures again.")
    return notes


def gain_table(reaches: Sequence[PhaseReach]) -> Table[PhaseReach]:
    """How much of the gain of ``torch.compile`` the plan reaches, by phase."""
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
        reaches,
        "ex.benchmark() has not measured your plan beside torch.compile.",
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


def _gain_reached(row: PhaseReach) -> str:
    """Return the share of the gain, or why there is none."""
    if row.share is None:
        return row.why_not
    low, high = row.share.bounds or (row.share.value, row.share.value)
    if low > 1.0:
        return "all: faster than torch.compile"
    if high < 0.0 or row.share.value < 0.0:
        return "none"
    if row.share.value > 1.0:
        return "all, as far as the rounds tell"
    ends = f" ({_per_cent(max(low, 0.0))} to {_per_cent(min(high, 1.0))})" if row.share.bounds else ""
    return f"{_per_cent(row.share.value)}{ends}"


def _per_cent(share: float) -> str:
    return f"{100 * share:.0f} %"
