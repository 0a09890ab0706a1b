"""Edits of the plan: undo, switching to another plan, applying a finding, and edits of the table's regions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from regional_explorer.errors import RegionalExplorerError, SelectorError
from regional_explorer.page.answer import gain_of
from regional_explorer.record.action import ActionKind
from regional_explorer.record.answer import answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.plan import Direction, Plan, config_of
from regional_explorer.regions.describe import selectors_for
from regional_explorer.regions.edit import require_match, selectors_of_text
from regional_explorer.ui.config_events import show_invalid, without_error
from regional_explorer.ui.control import Control
from regional_explorer.ui.event import Event, EventKind, is_flag, is_text, region_of
from regional_explorer.ui.job_events import trace_again
from regional_explorer.ui.parts import EDITS, partly_selected, run_key
from regional_explorer.ui.state import SELECTOR, Applied, InvalidInput, NameForm, PanelState

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


def _go_to_plan(control: Control, step: Callable[[PanelState], PanelState]) -> None:
    """Undo or redo the last change of the plan."""
    control.edit(lambda ex: setattr(ex, "plan", step(control.state).plan), lambda state, _plan: step(state))


def _use(control: Control, plan: Plan, shapes: str) -> None:
    """Make ``plan`` the plan at hand, and trace the call again if the plan has another tracing."""
    control.edit(lambda ex: setattr(ex, "plan", plan.traced(ex.plan.tracing)))
    trace_again(control, shapes, plan.tracing)


def _use_measured_plan(control: Control, event: Event) -> None:
    run = next(run for run in control.runs if run_key(run) == event.of)
    _use(control, run.plan, run.shapes)


def _use_bar(control: Control, event: Event) -> None:
    plan = bars_of(control.session)[int(event.of)].plan
    assert plan is not None  # noqa: S101 - of those that ``_bar`` lets through
    _use(control, plan, control.session.shapes)


def _apply_finding(control: Control, event: Event) -> None:
    """Carry out a finding's action: a change of the plan at once, any other action as a job."""
    answer = answer_of(control.session)
    finding = answer.findings[int(event.of)]
    action, before = finding.action, control.state.plan
    if not action.is_edit or action.kind is ActionKind.RETRACE:
        control.jobs.start(finding.title, lambda ex, _, run: ex.apply(action, run=run))
        return
    gain = gain_of(finding, answer)
    control.edit(
        lambda ex: ex.apply(action),
        lambda state, plan: replace(state.edited(plan), applied=Applied(finding.title, gain, before, plan)),
    )


def _measured_plan(control: Control, of: str) -> str | None:
    return of if of in map(run_key, control.runs) else None


def _bar(control: Control, of: str) -> str | None:
    return of if of in {str(n) for n, bar in enumerate(bars_of(control.session)) if bar.plan is not None} else None


def _finding(control: Control, of: str) -> str | None:
    return of if of in map(str, range(len(answer_of(control.session).findings))) else None


# ------------------------------------------------------------------------------------------------------- one region


def _change_selectors(control: Control, event: Event) -> None:
    """Set the selectors of a region from the typed text; show an invalid text with its error in the row."""
    name, setting = event.of, (event.of, None, SELECTOR)
    innermost = any(selector.innermost for selector in control.state.plan[name].selectors)

    def change(ex: Exploration) -> None:
        chosen, draft = selectors_of_text(event.text, innermost=innermost), ex.draft()
        require_match(name, chosen, draft.graphs, breaks=draft.breaks)
        ex.plan = draft.plan.changed(name, selectors=chosen)

    try:
        control.edit(change, lambda state, plan: without_error(state.edited(plan), setting))
    except SelectorError as error:
        show_invalid(control, setting, InvalidInput(event.text, str(error)))


# ------------------------------------------------------------------------------------------------------------- editing


def _edit_picked(control: Control, change: Callable[[Exploration], object]) -> None:
    """Apply ``change`` to the plan; on an error, show it beside the buttons and keep the typed name."""
    try:
        control.edit(change, lambda state, plan: replace(state.edited(plan), rename=NameForm()))
    except RegionalExplorerError as error:
        control.set(rename=replace(control.state.rename, error=str(error)))


def _rename_region(control: Control, _event: Event) -> None:
    (name,), new_name = control.state.picked, control.state.rename.name.strip()
    if new_name:
        _edit_picked(control, lambda ex: ex.rename(name, new_name))
    else:
        control.set(rename=NameForm(error="Type the new name first."))


def _merge_regions(control: Control, _event: Event) -> None:
    first, *others = names = control.state.picked
    new_name = control.state.rename.name.strip() or None

    def merge_all(ex: Exploration) -> None:  # under the first's config, in each direction
        with ex.exclusive_use.editing():
            draft = ex.draft()
            for name, direction in itertools.product(others, Direction):
                config = config_of(draft.plan[first], direction)
                draft.plan = draft.plan.configured(name, config, direction)
            ex.plan = draft.merge(*names, name=new_name).plan

    _edit_picked(control, merge_all)


def _split_region(control: Control, _event: Event) -> None:
    (name,) = control.state.picked
    nodes = partly_selected(control.session, control.state.selection).get(name, [])
    _edit_picked(control, lambda ex: ex.split(name, nodes[0] if nodes else None))


def _carve_nodes(control: Control, _event: Event) -> None:
    nodes_by_region = partly_selected(control.session, control.state.selection)

    def carve_all(ex: Exploration) -> None:  # in one step: if one is invalid, none is carved
        with ex.exclusive_use.editing():
            draft = ex.draft()
            for name, nodes in nodes_by_region.items():
                draft.carve(name, *selectors_for(nodes, draft.graphs, control.state.clicked))
            ex.plan = draft.plan

    _edit_picked(control, carve_all)


def _uncarve_region(control: Control, _event: Event) -> None:
    (name,) = control.state.picked
    _edit_picked(control, lambda ex: ex.uncarve(name))


def _edit_event(do: str, handle: Callable[[Control, Event], None]) -> EventKind:
    """Return the kind of an edit bar event; it applies only if its button does, as the page may be outdated."""

    def applies(control: Control) -> bool:
        state = control.state
        regions = [state.plan[name] for name in state.picked]
        return EDITS[do].applies(regions, partly_selected(control.session, state.selection))

    return EventKind(handle, when=applies)


PLAN_EVENTS: Mapping[str, EventKind] = {
    "undo": EventKind(lambda control, _: _go_to_plan(control, PanelState.undone)),
    "redo": EventKind(lambda control, _: _go_to_plan(control, PanelState.redone)),
    "take": EventKind(_use_measured_plan, _measured_plan),
    "apply": EventKind(_apply_finding, _finding),
    "use": EventKind(_use_bar, _bar),
    # rows of the region table
    "repick": EventKind(_change_selectors, region_of, is_text),
    "enable": EventKind(
        lambda control, event: control.edit(lambda ex: ex.enable(event.of) if event.value else ex.disable(event.of)),
        region_of,
        is_flag,
    ),
    "remove": EventKind(lambda control, event: control.edit(lambda ex: ex.unmark(event.of)), region_of),
    # the selected regions
    "new name": EventKind(lambda control, event: control.set(rename=NameForm(event.text)), value=is_text),
    "rename": _edit_event("rename", _rename_region),
    "merge": _edit_event("merge", _merge_regions),
    "split": _edit_event("split", _split_region),
    "carve": _edit_event("carve", _carve_nodes),
    "uncarve": _edit_event("uncarve", _uncarve_region),
}
