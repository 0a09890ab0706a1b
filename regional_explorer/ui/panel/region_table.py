"""The table of regions as an element tree: state, ops, times, and the config keys that differ from their defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regional_explorer.compiler.config.catalogue import catalogue
from regional_explorer.errors.texts import count
from regional_explorer.record.region import config_texts
from regional_explorer.record.region_summary import RegionSummary
from regional_explorer.render.report.table_node import chip
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.formats import NONE, bounds, duration, ratio
from regional_explorer.render.style.tones import TONES, TRENDS, toned
from regional_explorer.render.style.untrusted import SHORT, clean
from regional_explorer.ui.panel.controls import button
from regional_explorer.ui.state import Sort

MOST_CONFIG_CHIPS = 4
EMPTY_CELLS = ([NONE], ["0"])
"""The contents of cells without information, which narrow rows leave out."""
SORT_ARROWS = {None: "", False: " ↑", True: " ↓"}


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
    key = next(column.order for column in REGION_COLUMNS if column.key == sort.column)
    with_value = [summary for summary in summaries if key(summary) is not None]
    return [
        *sorted(with_value, key=key, reverse=sort.descending),
        *(summary for summary in summaries if key(summary) is None),
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
    head = node("thead", node("tr", *(_column_head(column, sort) for column in REGION_COLUMNS), node("th", "")))
    rows = [
        _region_row(summary, picked=summary.region.name in picked, opened=summary.region.name == opened, busy=busy)
        for summary in ordered(summaries, sort)
    ]
    body = node("tbody", *rows)
    label = "Regions. Arrow keys move between rows, Enter selects one, Space adds one, Shift extends the selection."
    return [node("table", head, body, role="grid", aria_multiselectable="true", aria_label=label)]


def _column_head(column: Column, sort: Sort | None) -> Node:
    descending = sort.descending if sort is not None and sort.column == column.key else None
    order = {None: "none", False: "ascending", True: "descending"}[descending]
    sort_button = button(column.head + SORT_ARROWS[descending], "sort", column.key, title=column.title)
    return node("th", sort_button, aria_sort=order, class_=_column_class(column))


def _column_class(column: Column) -> str:
    return f"rxt-{column.key}{' rxt-figure' if column.figure else ''}"


def _region_row(summary: RegionSummary, *, picked: bool, opened: bool, busy: bool) -> Node:
    name, clean_name = summary.region.name, clean(summary.region.name)
    buttons = node(
        "td",
        button(
            "Close" if opened else "Config",
            "open",
            name,
            aria_expanded=str(opened).lower(),
            title=f"Show and change the config of {clean_name}",
        ),
        button(
            "×",
            "remove",
            name,
            disabled=busy,
            aria_label=f"Remove {clean_name} from the plan",
            title=f"Remove the region {clean_name} from the plan",
            class_="rxt-small",
        ),
        class_="rxt-last",
    )
    cells = [column.cell(summary) for column in REGION_COLUMNS[1:]]
    for column, cell in zip(REGION_COLUMNS[1:], cells, strict=True):
        empty_class = " rxt-none" if cell[2:] in EMPTY_CELLS else ""
        cell[1] |= {"class": _column_class(column) + empty_class, "data-head": column.head}
    return node(
        "tr",
        _name_cell(summary, busy=busy),
        *cells,
        buttons,
        data_do="pick",
        data_of=name,
        tabindex="-1",
        aria_selected=str(picked).lower(),
        aria_label=clean_name,
    )


def _name_cell(summary: RegionSummary, *, busy: bool) -> Node:
    clean_name = clean(summary.region.name)
    switch = node(
        "input",
        type="checkbox",
        checked=summary.region.enabled,
        disabled=busy,
        data_do="switch",
        data_of=summary.region.name,
        aria_label=f"Compile {clean_name}",
        title=f"Compile {clean_name}; when off it runs eagerly",
    )
    return node("td", switch, chip(summary.number), node("b", clean_name, title=clean_name), class_="rxt-name")


def _ops_cell(summary: RegionSummary) -> Node:
    forward, backward = summary.ops_forward, summary.ops_backward
    words = f"{forward} + {backward}" if backward else str(forward)
    return node("td", words, title=f"{count(forward, 'op')} in the forward, {backward} in the backward graph")


def _state_cell(summary: RegionSummary) -> Node:
    details = [count(len(summary.partitions), "partition"), count(summary.artifacts, "artifact"), summary.note]
    state = toned(summary.state, TONES.get(summary.state, ""))
    return node("td", state, title=", ".join(filter(None, details)))


def _config_cell(summary: RegionSummary) -> Node:
    entries = catalogue()
    settings = [
        f"{direction} {text}" if direction else text
        for direction, config in summary.region.configs
        # Where the directions differ, a key at its default may be what makes the difference.
        for text in config_texts({k: value for k, value in config.items() if direction or value != entries[k].default})
    ]
    if not settings:
        return node("td", node("span", "default", class_="rx-quiet"))
    chips = [node("span", clean(text, SHORT), class_="rx-key") for text in settings[:MOST_CONFIG_CHIPS]]
    more = f"and {len(settings) - MOST_CONFIG_CHIPS} more" if len(settings) > MOST_CONFIG_CHIPS else ""
    return node("td", *chips, node("span", more, class_="rx-quiet"))


def _keys_set(summary: RegionSummary) -> int:
    return sum(len(config) for _, config in summary.region.configs)


def _eager(summary: RegionSummary) -> float | None:
    return None if summary.timing is None else summary.timing.eager_s


def _compiled(summary: RegionSummary) -> float | None:
    return None if summary.timing is None else summary.timing.compiled_s


def _speedup_cell(summary: RegionSummary) -> Node:
    timing = summary.timing
    if timing is None or timing.speedup is None:
        return node("td", NONE)
    tone = TONES.get(timing.verdict, "quiet")
    figure = toned(ratio(timing.speedup, timing.numerics), tone, TRENDS)
    interval = node("small", bounds(timing.speedup_low, timing.speedup_high))
    bounds_text = "its CI" if timing.partitions == 1 else "all its partitions at their bounds at once"
    return node("td", figure, interval, title=f"eager ÷ compiled, with {bounds_text}: {timing.verdict}")


def _numerics_cell(summary: RegionSummary) -> Node:
    verdict = summary.numerics
    return node("td", toned(verdict, TONES.get(verdict, "quiet")) if verdict else NONE)


def _diagnostics_cell(summary: RegionSummary) -> Node:
    if summary.worst is None:
        return node("td", "0", title="no diagnostic")
    return node("td", toned(len(summary.diagnostics), TONES[summary.worst]))


REGION_COLUMNS = (
    Column("name", "region", "Sort by name", lambda row: row.region.name, lambda _: node("td"), figure=False),
    Column("ops", "ops", "Ops in forward + backward", lambda row: row.ops_forward + row.ops_backward, _ops_cell),
    Column("state", "state", "Sort by state", lambda row: row.state, _state_cell, figure=False),
    Column("config", "config", "Sort by the number of keys set", _keys_set, _config_cell, figure=False),
    Column("eager", "eager", "Run time eagerly", _eager, lambda row: node("td", duration(_eager(row)))),
    Column("compiled", "compiled", "Run time compiled", _compiled, lambda row: node("td", duration(_compiled(row)))),
    Column(
        "speedup",
        "speedup",
        "Eager ÷ compiled, with its CI",
        lambda row: row.timing and row.timing.speedup,
        _speedup_cell,
    ),
    Column(
        "compile", "compile", "Compile time", lambda row: row.compile_s, lambda row: node("td", duration(row.compile_s))
    ),
    Column(
        "numerics", "numerics", "Compared with eager", lambda row: row.numerics or None, _numerics_cell, figure=False
    ),
    Column("diagnostics", "notes", "Diagnostics of the region", lambda row: len(row.diagnostics), _diagnostics_cell),
)
