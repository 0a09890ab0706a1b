"""Events that edit the plan: switch to another plan, apply a finding, mark and edit regions, set their configs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.region_config import catalogue, check_key, parse_value
from regional_explorer.errors import (
    InvalidConfigKeyError,
    InvalidConfigValueError,
    RegionalExplorerError,
    SelectorError,
)
from regional_explorer.page.answer import gain_of
from regional_explorer.record.action import ActionKind
from regional_explorer.record.answer import answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.configs import PRESETS
from regional_explorer.record.plan import DEFAULT, Direction, Plan, Selector, config_of
from regional_explorer.regions.describe import selectors_for
from regional_explorer.regions.edit import require_match, selectors_of_text
from regional_explorer.ui.answer import first_suggestions
from regional_explorer.ui.config_editor import BOTH_WAYS, DIRECTION_OPTIONS
from regional_explorer.ui.control import (
    Control,
    Event,
    EventKind,
    is_choice,
    is_flag,
    is_text,
    numbers_of,
    one_of,
    region_of,
)
from regional_explorer.ui.job_events import trace_again
from regional_explorer.ui.mark_form import ALL_ALIKE, PATTERN_HINTS, THIS_ONE, name_of_mark, proposed_name, selectors_of
from regional_explorer.ui.parts import EDITS, partly_selected, run_key
from regional_explorer.ui.state import SELECTOR, AppliedFinding, InvalidInput, NameForm, PanelState, Setting
from regional_explorer.ui.tables import time_share
from regional_explorer.ui.view_events import existing_time_row

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


def _go_to_plan(control: Control, step: Callable[[PanelState], PanelState]) -> None:
    """Undo or redo the last change of the plan."""
    control.edit(lambda ex: setattr(ex, "plan", step(control.state).plan), lambda state, _plan: step(state))


def _set_plan(control: Control, plan: Plan, shapes: str) -> None:
    """Make ``plan`` the current plan, and trace the call again if the plan has another tracing."""
    control.edit(lambda ex: setattr(ex, "plan", plan.traced(ex.plan.tracing)))
    trace_again(control, shapes, plan.tracing)


def _use_measured_plan(control: Control, event: Event) -> None:
    run = next(run for run in control.runs if run_key(run) == event.of)
    _set_plan(control, run.plan, run.shapes)


def _use_bar(control: Control, event: Event) -> None:
    plan = bars_of(control.session)[int(event.of)].plan
    assert plan is not None  # noqa: S101 - the event applies only to bars with a plan
    _set_plan(control, plan, control.session.shapes)


def _apply_finding(control: Control, event: Event) -> None:
    """Make the call of a finding's action: at once if it edits the plan, else as a job."""
    answer = answer_of(control.session)
    finding = answer.findings[int(event.of)]
    action, before = finding.action, control.state.plan
    if not action.is_edit or action.kind is ActionKind.RETRACE:
        control.jobs.start(finding.title, lambda ex, _, run: ex.apply(action, run=run))
        return
    gain = gain_of(finding, answer)
    control.edit(
        lambda ex: ex.apply(action),
        lambda state, plan: replace(state.edited(plan), applied=AppliedFinding(finding.title, gain, before, plan)),
    )


# ------------------------------------------------------------------------------------------------------- one region


def _change_selectors(control: Control, event: Event) -> None:
    """Set the selectors of a region from the typed text; if it is invalid, show it with its error in the row."""
    name, setting = event.of, (event.of, None, SELECTOR)
    innermost = any(selector.innermost for selector in control.state.plan[name].selectors)

    def change(ex: Exploration) -> None:
        chosen, draft = selectors_of_text(event.text, innermost=innermost), ex.draft()
        require_match(name, chosen, draft.graphs, breaks=draft.breaks)
        ex.plan = draft.plan.changed(name, selectors=chosen)

    try:
        control.edit(change, lambda state, plan: _without_error(state.edited(plan), setting))
    except SelectorError as error:
        _show_invalid(control, setting, InvalidInput(event.text, str(error)))


# ------------------------------------------------------------------------------------------------------------- editing


def _edit_selected(control: Control, change: Callable[[Exploration], object]) -> None:
    """Apply ``change`` to the plan; on an error, show it beside the buttons and keep the typed name."""
    try:
        control.edit(change, lambda state, plan: replace(state.edited(plan), rename=NameForm()))
    except RegionalExplorerError as error:
        control.set(rename=replace(control.state.rename, error=str(error)))


def _rename_region(control: Control, _event: Event) -> None:
    (name,), new_name = control.state.selected_rows, control.state.rename.name.strip()
    if new_name:
        _edit_selected(control, lambda ex: ex.rename(name, new_name))
    else:
        control.set(rename=NameForm(error="Type the new name first."))


def _merge_regions(control: Control, _event: Event) -> None:
    first, *others = names = control.state.selected_rows
    new_name = control.state.rename.name.strip() or None

    def merge_all(ex: Exploration) -> None:  # under the config of the first region, in each direction
        with ex.exclusive_use.editing():
            draft = ex.draft()
            for name, direction in itertools.product(others, Direction):
                config = config_of(draft.plan[first], direction)
                draft.plan = draft.plan.configured(name, config, direction)
            ex.plan = draft.merge(*names, name=new_name).plan

    _edit_selected(control, merge_all)


def _split_region(control: Control, _event: Event) -> None:
    (name,) = control.state.selected_rows
    nodes = partly_selected(control.session, control.state.selection).get(name, [])
    _edit_selected(control, lambda ex: ex.split(name, nodes[0] if nodes else None))


def _carve_nodes(control: Control, _event: Event) -> None:
    nodes_by_region = partly_selected(control.session, control.state.selection)

    def carve_all(ex: Exploration) -> None:  # in one step: if one is invalid, none is carved
        with ex.exclusive_use.editing():
            draft = ex.draft()
            for name, nodes in nodes_by_region.items():
                draft.carve(name, *selectors_for(nodes, draft.graphs, control.state.clicked))
            ex.plan = draft.plan

    _edit_selected(control, carve_all)


def _uncarve_region(control: Control, _event: Event) -> None:
    (name,) = control.state.selected_rows
    _edit_selected(control, lambda ex: ex.uncarve(name))


def _edit_event(do: str, handle: Callable[[Control, Event], None]) -> EventKind:
    """Return the kind of an edit bar event; it applies only if its button does, because the page may be outdated."""

    def applies(control: Control) -> bool:
        state = control.state
        regions = [state.plan[name] for name in state.selected_rows]
        return EDITS[do].applies(regions, partly_selected(control.session, state.selection))

    return EventKind(handle, when=applies)


# -------------------------------------------------------------------------------------------------------------- marking


def _mark(control: Control, region: str, selectors: Sequence[Selector | str], **form: Any) -> None:
    """Mark a region and select it; ``form`` are fields of the form afterwards."""
    control.edit(
        lambda ex: ex.mark(region, *selectors),
        lambda state, plan: replace(state.edited(plan).with_rows_selected([region]), mark=replace(state.mark, **form)),
    )


def _mark_suggested(control: Control, event: Event) -> None:
    suggestion = next(region for region in first_suggestions(control.session) if region.name == event.of)
    _mark(control, suggestion.name, suggestion.selectors)


def _mark_time_row(control: Control, event: Event) -> None:
    row = time_share(control.session, event.of)
    if row is not None and (selector := row[1].selector) is not None:
        _mark(control, proposed_name(selector.kind, selector.patterns[0], control.session), [selector])


def _fill_mark(control: Control, **fields: Any) -> None:
    """Change fields of the form that marks a region, and drop its error."""
    control.set(mark=replace(control.state.mark, **{"error": "", **fields}))


def _mark_region(control: Control, _event: Event) -> None:
    """Mark a region by the form, with the typed name, else the proposed name; show an error in the form."""
    state, choice = control.state, control.choice
    selectors = selectors_of(state, choice)
    if not selectors:
        _fill_mark(control, error=f"Enter a pattern: {PATTERN_HINTS[state.mark.kind]}.")
        return
    try:
        region = name_of_mark(state, control.session, choice)
        _mark(control, region, selectors, pattern="", name="", alike=False, error="")
    except SelectorError as error:
        _fill_mark(control, error=str(error))


def _mark_selected(control: Control, event: Event) -> None:
    """Mark the nodes selected by hand, alone or in all equal modules."""
    _fill_mark(control, alike=event.of == ALL_ALIKE)
    _mark_region(control, event)


# -------------------------------------------------------------------------------------------------------------- configs


def _opened_config(control: Control) -> tuple[str, Direction | None]:
    """Return the region and the direction whose config is shown."""
    region = control.state.plan[control.state.opened or ""]
    return region.name, control.state.direction_of(region)


def _without_error(state: PanelState, setting: Setting) -> PanelState:
    """Return ``state`` without the invalid text of ``setting``."""
    invalid = {key: text for key, text in state.invalid_inputs.items() if key != setting}
    return replace(state, invalid_inputs=invalid)


def _show_invalid(control: Control, setting: Setting, invalid: InvalidInput) -> None:
    """Show the invalid text of ``setting``, with its error."""
    control.set(invalid_inputs={**control.state.invalid_inputs, setting: invalid})


def _set_value(control: Control, event: Event) -> None:
    """Set a config value from the typed text; an invalid value is shown with its error at its field."""
    region, direction = _opened_config(control)
    config = config_of(control.state.plan[region], direction or Direction.FORWARD)
    setting, typed = (region, direction, event.of), event.value if isinstance(event.value, bool) else event.text
    try:
        value = parse_value(event.of, typed)
        if event.of not in config and value == catalogue()[event.of].default:  # an added field, left at its default
            control.update(lambda state: _without_error(state, setting))
            return
        control.edit(
            lambda ex: ex.configure(region, {event.of: value}, direction=direction),
            lambda state, plan: _without_error(state.edited(plan), setting),
        )
    except (InvalidConfigKeyError, InvalidConfigValueError) as error:
        _show_invalid(control, setting, InvalidInput(str(typed), str(error)))


def _unset_value(control: Control, event: Event) -> None:
    region, direction = _opened_config(control)
    control.edit(
        lambda ex: ex.configure(region, {event.of: DEFAULT}, direction=direction),
        lambda state, plan: _without_error(
            replace(state.edited(plan), added_keys=tuple(key for key in state.added_keys if key != event.of)),
            (region, direction, event.of),
        ),
    )


def _choose_direction(control: Control, event: Event) -> None:
    """Show the config of the chosen direction; choosing both copies the forward's config to the backward."""
    region = control.state.plan[control.state.opened or ""]
    direction = None if event.text == BOTH_WAYS else Direction(event.text)
    control.set(direction=direction)
    if direction is None and region.backward_config is not None:
        config = config_of(region, Direction.FORWARD)
        control.edit(lambda ex: ex.reset(region.name).configure(region.name, config))


def _configure_opened(control: Control, values: Mapping[str, Any]) -> None:
    """Merge ``values`` into the config shown, or reset it to Inductor's defaults if empty."""
    name, direction = _opened_config(control)
    control.edit(
        lambda ex: ex.configure(name, values, direction=direction) if values else ex.reset(name, direction=direction)
    )


def _add_key(control: Control, event: Event) -> None:
    """Flip a flag from its default; for other keys, show a field for the value."""
    entry = check_key(event.of)
    if isinstance(entry.default, bool):
        _configure_opened(control, {entry.key: not entry.default})
    else:
        control.update(lambda state: replace(state, added_keys=(*state.added_keys, entry.key)))


def _is_open(control: Control) -> bool:
    return control.state.opened is not None


_known_key = one_of(lambda _: catalogue())

PLAN_EVENTS: Mapping[str, EventKind] = {
    "undo": EventKind(lambda control, _: _go_to_plan(control, PanelState.undone)),
    "redo": EventKind(lambda control, _: _go_to_plan(control, PanelState.redone)),
    "take": EventKind(_use_measured_plan, one_of(lambda control: map(run_key, control.runs))),
    "apply": EventKind(_apply_finding, one_of(lambda control: numbers_of(answer_of(control.session).findings))),
    "use": EventKind(
        _use_bar, one_of(lambda control: [str(n) for n, bar in enumerate(bars_of(control.session)) if bar.plan])
    ),
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
    # marking
    "mark suggested": EventKind(
        _mark_suggested, one_of(lambda control: [region.name for region in first_suggestions(control.session)])
    ),
    "mark time": EventKind(_mark_time_row, existing_time_row),
    "mark picked": EventKind(
        _mark_selected, one_of(lambda _: (THIS_ONE, ALL_ALIKE)), when=lambda control: bool(control.choice.this)
    ),
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
    # the config of the open region
    "direction": EventKind(_choose_direction, value=is_choice([name for name, _ in DIRECTION_OPTIONS]), when=_is_open),
    "set": EventKind(_set_value, _known_key, lambda value: is_text(value) or is_flag(value), _is_open),
    "unset": EventKind(_unset_value, _known_key, when=_is_open),
    "preset": EventKind(
        lambda control, event: _configure_opened(control, PRESETS[event.text]), value=is_choice(PRESETS), when=_is_open
    ),
    "key query": EventKind(lambda control, event: control.set(key_query=event.text), value=is_text),
    "add": EventKind(_add_key, when=_is_open),  # any text: the error about an unknown key names similar keys
}
