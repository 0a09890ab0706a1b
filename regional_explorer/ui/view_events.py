"""Events that change what is shown: columns and panes, the selection in the graph or beside it, rows of regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from regional_explorer.page.panes import COLUMNS
from regional_explorer.picture.folds import FoldKind
from regional_explorer.record.plan import SelectorKind
from regional_explorer.record.region_code import nodes_of_diagnostic
from regional_explorer.ui.control import Control, Event, EventKind, are_names, numbers_of, one_of, region_of
from regional_explorer.ui.job_events import start_job
from regional_explorer.ui.state import CODE, CONFIG, PANES, WHY, Sort
from regional_explorer.ui.tables import REGION_HEADS, sorted_regions, time_share
from regional_explorer.ui.why import is_unexplained


def _choose_pane(control: Control, event: Event) -> None:
    control.update(lambda state: state.with_pane(event.of))
    if event.of == CODE:
        control.read_code()


CLICKED: Mapping[str, SelectorKind | None] = {
    "": None,  # several items, or a row of code
    **dict.fromkeys(map(str, FoldKind)),
    FoldKind.MODULE: SelectorKind.MODULES,
    FoldKind.FUNCTION: SelectorKind.LINES,
    FoldKind.LINE: SelectorKind.LINES,
    FoldKind.OP: SelectorKind.OPS,
}
"""The kind of selector for a clicked item, by the word that the page sends for the item."""


def _select_nodes(control: Control, event: Event) -> None:
    """Take over the selection in the graph or beside it."""
    nodes, clicked = tuple(event.names), CLICKED[event.of]
    if (nodes, clicked) == (control.state.selection, control.state.clicked):
        return
    in_rows = set(nodes) <= set(
        control.nodes_of_rows(control.state)
    )  # a part of the selected regions, as to split them
    rows = control.state.selected_rows if in_rows else ()
    control.update(lambda state: state.with_rows_selected(rows).with_nodes_selected(nodes, clicked))


def _reveal(control: Control, nodes: Iterable[str]) -> None:
    """Select ``nodes``, and let the graph scroll to them."""
    if revealed := tuple(nodes):
        control.update(lambda state: replace(state.with_nodes_selected(revealed), revealed=revealed))


def _show_diagnostic(control: Control, event: Event) -> None:
    session = control.session
    _reveal(control, nodes_of_diagnostic(session.diagnostics[int(event.of)], session))


def _show_time_row(control: Control, event: Event) -> None:
    if (row := time_share(control.session, event.of)) is not None:
        shares, share = row
        _reveal(control, shares.nodes_of(share))


def existing_time_row(control: Control, key: str) -> str | None:
    """Return ``key`` if it is the key of a row of times; None if the row is gone."""
    return None if time_share(control.session, key) is None else key


def _select_row(control: Control, event: Event) -> None:
    """Select a row; with Ctrl add or remove it, with Shift select all rows from the first selected row to it."""
    state, name = control.state, event.of
    names = [name]
    if event.shift:
        order = [summary.region.name for summary in sorted_regions(control.session, state.sort).shown_rows]
        first = state.selected_rows[0] if state.selected_rows and state.selected_rows[0] in order else name
        low, high = sorted((order.index(first), order.index(name)))
        names = [first, *order[low : high + 1]]
    elif event.ctrl:
        names = [row for row in state.selected_rows if row != name]
        names += [] if name in state.selected_rows else [name]
    rows = state.with_rows_selected(names)
    # Update even if the same rows were selected already: other nodes may have been selected in the graph since.
    nodes = control.nodes_of_rows(rows)
    control.update(lambda _: replace(rows, selection=nodes, clicked=None, revealed=nodes))
    if state.shows(CODE):
        control.read_code()


def _toggle_config(control: Control, event: Event) -> None:
    """Show the config of a region beside the graph, or close it if it is shown."""
    if event.of == control.state.opened and control.state.shows(CONFIG):
        control.update(lambda state: state.with_pane(WHY))
    else:
        control.update(lambda state: state.with_pane(CONFIG, event.of))


def _explain(control: Control, event: Event) -> None:
    """Show why a region is as fast as it is; diagnose it in the background if that is unknown."""
    control.update(lambda state: state.with_pane(WHY, event.of))
    if control.state.job is None and is_unexplained(control.session, event.of):
        start_job(control, "diagnose", background=True)


def _sort_rows(control: Control, event: Event) -> None:
    """Sort by a column: ascending first, then descending, then in the order of the plan."""
    sort = control.state.sort
    if sort is None or sort.column != event.of:
        control.set(sort=Sort(event.of))
    else:
        control.set(sort=None if sort.descending else Sort(event.of, descending=True))


VIEW_EVENTS: Mapping[str, EventKind] = {
    "dismiss": EventKind(lambda control, _: control.set(problem=None)),
    # the graph, and beside it
    "select": EventKind(_select_nodes, one_of(lambda _: CLICKED), are_names),
    "pane": EventKind(_choose_pane, one_of(lambda _: PANES)),
    "findings": EventKind(lambda control, _: control.update(lambda state: state.with_pane(WHY))),
    "column": EventKind(
        lambda control, event: control.set(columns=control.state.columns ^ {event.of}), one_of(lambda _: COLUMNS)
    ),
    "show": EventKind(_show_diagnostic, one_of(lambda control: numbers_of(control.session.diagnostics))),
    "show time": EventKind(_show_time_row, existing_time_row),
    # rows of the region table
    "sort": EventKind(_sort_rows, one_of(lambda _: REGION_HEADS)),
    "pick": EventKind(_select_row, region_of),
    "clear": EventKind(
        lambda control, _: control.update(lambda state: replace(state.with_rows_selected(()), selection=()))
    ),
    "open": EventKind(_toggle_config, region_of),
    "why": EventKind(_explain, region_of),
}
