"""Events that make a region: from a suggestion, a row of times, the selection, or the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regional_explorer.errors import SelectorError
from regional_explorer.ui.answer import first_suggestions
from regional_explorer.ui.control import Control
from regional_explorer.ui.event import Event, EventKind, is_choice, is_text, one_of
from regional_explorer.ui.mark_form import (
    ALL_ALIKE,
    PATTERN_HINTS,
    THIS_ONE,
    name_of_mark,
    proposed_name,
    selectors_of,
)
from regional_explorer.ui.tables import time_share
from regional_explorer.ui.view_events import time_row_of


def _mark_suggested(control: Control, event: Event) -> None:
    one = next(one for one in first_suggestions(control.session) if one.name == event.of)
    control.edit(
        lambda ex: ex.mark(one.name, *one.selectors),
        lambda state, plan: state.edited(plan).with_rows_selected([one.name]),
    )


def _suggested(control: Control, of: str) -> str | None:
    return of if of in {one.name for one in first_suggestions(control.session)} else None


def _mark_time_row(control: Control, event: Event) -> None:
    found = time_share(control.session, event.of)
    if found is not None and (selector := found[1].selector) is not None:
        name = proposed_name({selector.kind: selector.patterns[0]}, control.session)
        control.edit(
            lambda ex: ex.mark(name, selector),
            lambda state, plan: state.edited(plan).with_rows_selected([name]),
        )


def _fill_mark(control: Control, **fields: Any) -> None:
    """Change fields of the form that marks a region; it then has no error."""
    control.set(mark=replace(control.state.mark, **{"error": "", **fields}))


def _mark_region(control: Control, _event: Event) -> None:
    """Mark a region by the form, with the typed name, else the proposed name; show an error in the form."""
    selectors, name = selectors_of(control.state, control.choice), name_of_mark(control.state, control.session)
    if not selectors:
        _fill_mark(control, error=f"Enter a pattern: {PATTERN_HINTS[control.state.mark.kind]}.")
        return
    try:
        control.edit(
            lambda ex: ex.mark(name, *selectors),
            lambda state, plan: replace(state.edited(plan), mark=replace(state.mark, pattern="", name="", error="")),
        )
    except SelectorError as error:
        _fill_mark(control, error=str(error))


def _is_picked(control: Control) -> bool:
    return bool(control.choice.this)


def _mark_picked(control: Control, event: Event) -> None:
    """Mark the nodes selected by hand, or all alike nodes."""
    _fill_mark(control, alike=event.of == ALL_ALIKE)
    _mark_region(control, event)


MARK_EVENTS: Mapping[str, EventKind] = {
    "mark suggested": EventKind(_mark_suggested, _suggested),
    "mark time": EventKind(_mark_time_row, time_row_of),
    "mark picked": EventKind(_mark_picked, one_of((THIS_ONE, ALL_ALIKE)), when=_is_picked),
    # the form
    "kind": EventKind(
        lambda control, event: _fill_mark(control, kind=event.text, pattern=""), value=is_choice(PATTERN_HINTS)
    ),
    "pattern": EventKind(lambda control, event: _fill_mark(control, pattern=event.text), value=is_text),
    "alike": EventKind(
        lambda control, event: _fill_mark(control, alike=event.text == ALL_ALIKE),
        value=is_choice([THIS_ONE, ALL_ALIKE]),
    ),
    "name": EventKind(lambda control, event: _fill_mark(control, name=event.text), value=is_text),
    "mark": EventKind(_mark_region),
}
