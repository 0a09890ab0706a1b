"""The table of regions as an element tree: state, ops, times, and the config keys that differ from their defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regional_explorer.compiler.config.catalogue import catalogue
from regional_explorer.errors.texts import count
from regional_explorer.record.region_summary import RegionSummary
from regional_explorer.render.report.table_node import chip
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.formats import NONE, STATE_GLYPHS, bounds, duration, ratio
from regional_explorer.render.style.tones import TONES, TRENDS, toned
from regional_explorer.render.style.untrusted import SHORT, clean
from regional_explorer.ui.panel.controls import button
from regional_explorer.ui.state import Sort

MOST_CHIPS = 4
NOTHING = ([NONE], ["0"])
"""The contents of cells without information, which narrow rows leave out."""
ARROWS = {None: "", False: " ↑", True: " ↓"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head and tooltip, its sort key, and the function that makes its cells."""

    key: str
    head: str
    title: str
    order: Callable[[RegionSummary], Any]
    cell: Callable[[RegionSummary], Node]
    figure: bool = True


def ordered(summaries: Sequence[RegionSummary], sort: Sort | None) -> list[RegionSummary]:
    """Return ``summaries`` in the order of ``sort``; regions without a value in that column come last."""
    if sort is None:
        return list(summaries)
    key = next(column.order for column in COLUMNS if column.key == sort.column)
    known = [one for one in summaries if key(one) is not None]
    return [
        *sorted(known, key=key, reverse=sort.descending),
        *(one for one in summaries if key(one) is None),
    ]


def region_table(
    summaries: Sequence[RegionSummary], sort: Sort | None, *, picked: Sequence[str], opened: str | None, busy: bool
) -> list[Node]:
    """Return the table of ``summaries``, or nothing where there is no region.

    Args:
        summaries: the regions in the order of the plan.
        sort: the order of the rows.
        picked: names of the selected rows.
        opened: name of the region whose config is shown.
        busy: whether a job is running.
    """
    if not summaries:
        return []
    head = node("thead", node("tr", *(_head(column, sort) for column in COLUMNS), node("th", "")))
    rows = [
        _row(one, picked=one.region.name in picked, opened=one.region.name == opened, busy=busy)
        for one in ordered(summaries, sort)
    ]
    body = node("tbody", *rows)
    label = "Regions. Arrow keys move between rows, Enter selects one, Space adds one, Shift extends the selection."
    return [node("table", head, body, role="grid", aria_multiselectable="true", aria_label=label)]


def _head(column: Column, sort: Sort | None) -> Node:
    descending = sort.descending if sort is not None and sort.column == column.key else None
    order = {None: "none", False: "ascending", True: "descending"}[descending]
    sort_button = button(column.head + ARROWS[descending], "sort", column.key, title=column.title)
    return node("th", sort_button, aria_sort=order, class_=_class(column))


def _class(column: Column) -> str:
    return f"rxt-{column.key}{' rxt-figure' if column.figure else ''}"


def _row(one: RegionSummary, *, picked: bool, opened: bool, busy: bool) -> Node:
    name, shown = one.region.name, clean(one.region.name)
    last = node(
        "td",
        button(
            "Close" if opened else "Config",
            "open",
            name,
            aria_expanded=str(opened).lower(),
            title=f"Show and change the config of {shown}",
        ),
        button(
            "×",
            "remove",
            name,
            disabled=busy,
            aria_label=f"Remove {shown} from the plan",
            title=f"Remove the region {shown} from the plan",
            class_="rxt-small",
        ),
        class_="rxt-last",
    )
    cells = [column.cell(one) for column in COLUMNS[1:]]
    for column, cell in zip(COLUMNS[1:], cells, strict=True):
        none = " rxt-none" if cell[2:] in NOTHING else ""
        cell[1] |= {"class": _class(column) + none, "data-head": column.head}
    return node(
        "tr",
        _name_cell(one, busy=busy),
        *cells,
        last,
        data_do="pick",
        data_of=name,
        tabindex="-1",
        aria_selected=str(picked).lower(),
        aria_label=shown,
    )


def _name_cell(one: RegionSummary, *, busy: bool) -> Node:
    shown = clean(one.region.name)
    switch = node(
        "input",
        type="checkbox",
        checked=one.region.enabled,
        disabled=busy,
        data_do="switch",
        data_of=one.region.name,
        aria_label=f"Compile {shown}",
        title=f"Compile {shown}; when off it runs eagerly",
    )
    return node("td", switch, chip(one.number), node("b", shown, title=shown), class_="rxt-name")


def _ops(one: RegionSummary) -> Node:
    forward, backward = one.ops_forward, one.ops_backward
    words = f"{forward} + {backward}" if backward else str(forward)
    return node("td", words, title=f"{count(forward, 'op')} in the forward, {backward} in the backward graph")


def _state(one: RegionSummary) -> Node:
    known = [count(len(one.partitions), "partition"), count(one.artifacts, "artifact"), one.note]
    state = toned(f"{STATE_GLYPHS[one.state]} {one.state}", TONES.get(one.state, ""), {})
    return node("td", state, title=", ".join(filter(None, known)))


def _config(one: RegionSummary) -> Node:
    known = catalogue()
    config = [
        f"{f'{direction} ' if direction else ''}{key}={value!r}"
        for direction, config in one.region.configs
        for key, value in config.items()
        # Where the directions differ, a key at its default may be what makes the difference.
        if direction is not None or value != known[key].default
    ]
    if not config:
        return node("td", node("span", "default", class_="rx-quiet"))
    chips = [node("span", clean(text, SHORT), class_="rx-key") for text in config[:MOST_CHIPS]]
    more = f"and {len(config) - MOST_CHIPS} more" if len(config) > MOST_CHIPS else ""
    return node("td", *chips, node("span", more, class_="rx-quiet"))


def _keys_set(one: RegionSummary) -> int:
    return sum(len(config) for _, config in one.region.configs)


def _eager(one: RegionSummary) -> float | None:
    return None if one.timing is None else one.timing.eager_s


def _compiled(one: RegionSummary) -> float | None:
    return None if one.timing is None else one.timing.compiled_s


def _speedup(one: RegionSummary) -> Node:
    timing = one.timing
    if timing is None or timing.speedup is None:
        return node("td", NONE)
    tone = TONES.get(timing.verdict, "quiet")
    figure = toned(ratio(timing.speedup, timing.numerics), tone, TRENDS)
    interval = node("small", bounds(timing.speedup_low, timing.speedup_high))
    return node("td", figure, interval, title=f"eager ÷ compiled, with its CI: {timing.verdict}")


def _numerics(one: RegionSummary) -> Node:
    verdict = one.numerics
    return node("td", toned(verdict, TONES.get(verdict, "quiet")) if verdict else NONE)


def _diagnostics(one: RegionSummary) -> Node:
    if one.worst is None:
        return node("td", "0", title="no diagnostic")
    return node("td", toned(len(one.diagnostics), TONES[one.worst]))


COLUMNS = (
    Column("name", "region", "Sort by name", lambda one: one.region.name, lambda _: node("td"), figure=False),
    Column("ops", "ops", "Ops in forward + backward", lambda one: one.ops_forward + one.ops_backward, _ops),
    Column("state", "state", "Sort by state", lambda one: one.state, _state, figure=False),
    Column("config", "config", "Sort by the number of keys set", _keys_set, _config, figure=False),
    Column("eager", "eager", "Run time eagerly", _eager, lambda one: node("td", duration(_eager(one)))),
    Column("compiled", "compiled", "Run time compiled", _compiled, lambda one: node("td", duration(_compiled(one)))),
    Column(
        "speedup", "speedup", "Eager ÷ compiled, with its CI", lambda one: one.timing and one.timing.speedup, _speedup
    ),
    Column(
        "compile", "compile", "Compile time", lambda one: one.compile_s, lambda one: node("td", duration(one.compile_s))
    ),
    Column("numerics", "numerics", "Compared with eager", lambda one: one.numerics or None, _numerics, figure=False),
    Column("diagnostics", "notes", "Diagnostics of the region", lambda one: len(one.diagnostics), _diagnostics),
)
