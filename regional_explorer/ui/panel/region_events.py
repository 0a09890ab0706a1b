"""Handles the events that select, mark, edit, enable and remove regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from regional_explorer.errors import RegionalExplorerError
from regional_explorer.errors.texts import sendable
from regional_explorer.exploration.edits import Draft, edit_of_plan
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.editing import EDITS, partly_selected
from regional_explorer.ui.panel.event import Event, EventKind, Handler, among, is_choice, is_switch, is_text
from regional_explorer.ui.panel.marking import PATTERN_HINTS
from regional_explorer.ui.panel.region_table import REGION_COLUMNS, ordered
from regional_explorer.ui.panel.time_table import time_share
from regional_explorer.ui.proposed_name import proposed_name
from regional_explorer.ui.state import CODE, NameForm

# ---------------------------------------------------------------------------------------------------------------- rows


def _switch_region(control: Control, event: Event) -> None:
    control.edit(lambda ex: ex.enable(event.of) if event.value else ex.disable(event.of))


def _pick_row(control: Control, event: Event) -> None:
    state, name = control.state, event.of
    if event.shift:
        row_names = [summary.region.name for summary in ordered(control.summaries, state.sort)]
        control.update(lambda state: state.with_range_selected(name, row_names))
    elif event.ctrl:
        control.update(lambda state: state.with_row_toggled(name))
    else:
        control.update(lambda state: state.with_rows_selected([name]))
    if state.pane == CODE:
        control.read_code()


# -------------------------------------------------------------------------------------------------------------- editing


def _edit_picked(control: Control, change: Callable[[Exploration], object]) -> None:
    """Apply ``change``; an error is shown beside the buttons, and the name stays."""
    try:
        control.edit(change)
    except RegionalExplorerError as error:
        message = str(error)
        control.update(lambda state: replace(state, rename=replace(state.rename, error=message)))
        return
    control.update(lambda state: replace(state, rename=NameForm()))


def _rename_region(control: Control, _event: Event) -> None:
    (name,), new_name = control.state.picked, control.state.rename.name.strip()
    if not new_name:
        control.update(lambda state: replace(state, rename=NameForm(error="Type the new name first.")))
        return
    _edit_picked(control, lambda ex: ex.rename(name, new_name))


def _merge_regions(control: Control, _event: Event) -> None:
    plan, names, new_name = control.state.plan, control.state.picked, control.state.rename.name.strip()
    _edit_picked(control, lambda ex: ex.merge(*names, name=new_name or None, config=plan[names[0]].config))


def _split_region(control: Control, _event: Event) -> None:
    (name,) = control.state.picked
    nodes = partly_selected(control.session, control.state.selection).get(name, [])
    _edit_picked(control, lambda ex: ex.split(name, nodes[0] if nodes else None))


def _carve_nodes(control: Control, _event: Event) -> None:
    nodes_by_region = partly_selected(control.session, control.state.selection)

    def carve_all(draft: Draft) -> Draft:
        for name, nodes in nodes_by_region.items():
            draft.carve(name, nodes=nodes)
        return draft

    _edit_picked(control, edit_of_plan(carve_all))  # in one step: if one is invalid, none is carved


def _uncarve_region(control: Control, _event: Event) -> None:
    (name,) = control.state.picked
    _edit_picked(control, lambda ex: ex.uncarve(name))


# -------------------------------------------------------------------------------------------------------------- marking


def _mark_region(control: Control, _event: Event) -> None:
    if not control.state.selector:
        hint = PATTERN_HINTS[control.state.mark.kind]
        control.update(lambda state: replace(state, mark=replace(state.mark, error=f"Enter a pattern: {hint}.")))
        return
    control.mark()


def _mark_time_row(control: Control, event: Event) -> None:
    share = time_share(control.session, event.of)
    if share is not None and (selector := share[1].selector) is not None:
        patterns: dict[str, Any] = {selector.kind: list(selector.patterns)}
        name = proposed_name({selector.kind: selector.patterns[0]}, control.session)
        control.edit(lambda ex: ex.mark(name, **patterns))
        control.update(lambda state: state.with_rows_selected([name]))


def _region(control: Control, of: str) -> str | None:
    """Return the name of the region whose row sent ``of``."""
    return next((region.name for region in control.state.plan.regions if sendable(region.name) == of), None)


def time_row(control: Control, of: str) -> str | None:
    """Return the key of a row of the time table, None if there is no such row."""
    return None if time_share(control.session, of) is None else of


def _edit(do: str, handle: Handler) -> EventKind:
    """Return an event of the edit bar, which applies when its button does: the page may show an earlier selection."""

    def applies(control: Control) -> bool:
        state = control.state
        regions = [state.plan[name] for name in state.picked if name in state.plan]
        return EDITS[do].applies(regions, partly_selected(control.session, state.selection))

    return EventKind(handle, when=applies)


ROW_EVENTS: Mapping[str, EventKind] = {
    "switch": EventKind(_switch_region, _region, is_switch),
    "remove": EventKind(lambda control, event: control.edit(lambda ex: ex.unmark(event.of)), _region),
    "open": EventKind(
        lambda control, event: control.update(lambda state: state.with_config_toggled(event.of)), _region
    ),
    "pick": EventKind(_pick_row, _region),
}
"""Events of a row of the region table."""

REGION_EVENTS: Mapping[str, EventKind] = {
    "sort": EventKind(
        lambda control, event: control.update(lambda state: state.sorted_by(event.of)),
        among([column.key for column in REGION_COLUMNS]),
    ),
    "new name": EventKind(
        lambda control, event: control.update(lambda state: replace(state, rename=NameForm(event.text))), value=is_text
    ),
    "rename": _edit("rename", _rename_region),
    "merge": _edit("merge", _merge_regions),
    "split": _edit("split", _split_region),
    "carve": _edit("carve", _carve_nodes),
    "uncarve": _edit("uncarve", _uncarve_region),
    "kind": EventKind(
        lambda control, event: control.update(lambda state: state.with_mark(kind=event.text, pattern="")),
        value=is_choice(PATTERN_HINTS),
    ),
    "pattern": EventKind(
        lambda control, event: control.update(lambda state: state.with_mark(pattern=event.text)), value=is_text
    ),
    "name": EventKind(
        lambda control, event: control.update(lambda state: state.with_mark(name=event.text)), value=is_text
    ),
    "mark": EventKind(_mark_region),
    "mark time": EventKind(_mark_time_row, time_row),
}
"""Events of the buttons and forms that edit and mark regions."""
