"""What every press and every typed text does."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regional_explorer.compiler.config import catalogue, check_key
from regional_explorer.compiler.run import Run
from regional_explorer.errors import RegionalExplorerError, sendable
from regional_explorer.exploration.edits import Draft, edit_of_plan
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.json_file import plan_line
from regional_explorer.record.plan import PRESETS, Direction, config_of
from regional_explorer.record.region_code import nodes_of_diagnostic
from regional_explorer.record.session import SHAPES, Session
from regional_explorer.record.timing import VariantName
from regional_explorer.ui.config_editor import BOTH_WAYS, DIRECTION_OPTIONS, first_value
from regional_explorer.ui.control import Control
from regional_explorer.ui.jobs import Work
from regional_explorer.ui.marking import PATTERN_HINTS, proposed_name
from regional_explorer.ui.parts import EDITS, MAX_BUDGET_S, partly_selected
from regional_explorer.ui.state import CODE, PANES, TIME, NameForm, PanelState, Setting
from regional_explorer.ui.tables import REGION_COLUMNS, ordered, time_share


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the page: its name, what it is about, the value of an input, and the modifier keys held."""

    do: str
    of: str = ""
    value: object = None
    shift: bool = False
    ctrl: bool = False

    @property
    def text(self) -> str:
        """The text of an input; empty for a checkbox or a button."""
        return self.value if isinstance(self.value, str) else ""


Handler = Callable[[Control, Event], Sequence[str] | None]
"""Changes the state or the plan of the control, or starts a job; may return nodes, which the panel then shows."""


def as_sent(_control: Control, of: str) -> str:
    """Return ``of`` itself: nothing depends on it."""
    return of


def among(names: Container[str]) -> Callable[[Control, str], str | None]:
    """Return a function that returns what an event is about, None unless it is one of ``names``."""
    return lambda _control, of: of if of in names else None


def anything(_value: object) -> bool:
    """Return True: a button sends no value."""
    return True


def is_text(value: object) -> bool:
    """Return whether a value is that of a text field."""
    return isinstance(value, str)


def is_switch(value: object) -> bool:
    """Return whether a value is that of a checkbox."""
    return isinstance(value, bool)


def is_choice(names: Container[str]) -> Callable[[object], bool]:
    """Return a function that returns whether a value is one of a menu with ``names``."""
    return lambda value: isinstance(value, str) and value in names


def always(_control: Control) -> bool:
    """Return True."""
    return True


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event.

    A page may show an earlier state, or send what no page of ours does. So an event is ignored, before anything
    changes, if ``about`` returns None for its ``of``, because there is no such region, column or row, or no more; if
    ``value`` does not accept what was typed or chosen; or if it does not apply ``when`` it comes. ``handle`` gets the
    event with what ``about`` returned as its ``of``.
    """

    handle: Handler
    about: Callable[[Control, str], str | None] = as_sent
    value: Callable[[object], bool] = anything
    when: Callable[[Control], bool] = always


def run_key(run: Session) -> str:
    """Return what a page sends to name a measured plan, whose number changes when the oldest is dropped."""
    return hashlib.sha256(f"{run.shapes} {plan_line(run.plan)}".encode()).hexdigest()[:16]


def _opened_config(state: PanelState) -> tuple[str, Direction | None]:
    """Return the region whose config is shown, and the direction.

    Raises:
        RegionalExplorerError: none is shown any more.
    """
    if state.opened is None:
        raise RegionalExplorerError("No config is open.")
    return state.opened, state.direction_of(state.plan[state.opened])


def _event_setting(control: Control, event: Event) -> Setting:
    return (*_opened_config(control.state), event.of)


def _set_value(control: Control, event: Event) -> None:
    control.set_config(_event_setting(control, event), event.value if isinstance(event.value, bool) else event.text)


def _choose_direction(control: Control, event: Event) -> None:
    """Show the config of the chosen direction; choosing both copies the forward's config to the backward."""
    name, _ = _opened_config(control.state)
    direction = None if event.text == BOTH_WAYS else Direction(event.text)
    region = control.state.plan[name]
    control.update(lambda state: replace(state, direction=direction))
    if direction is None and region.backward_config is not None:
        config = config_of(region, Direction.FORWARD)
        control.edit(lambda ex: ex.reset(name).configure(name, config))


def _apply_preset(control: Control, event: Event) -> None:
    _configure_opened(control, PRESETS[event.text])


def _add_key(control: Control, event: Event) -> None:
    entry = check_key(event.of)
    _configure_opened(control, {entry.key: first_value(entry)})


def _configure_opened(control: Control, values: Mapping[str, Any]) -> None:
    """Merge ``values`` into the config shown, or reset it to Inductor's defaults if empty."""
    name, direction = _opened_config(control.state)
    control.edit(
        lambda ex: ex.configure(name, values, direction=direction) if values else ex.reset(name, direction=direction)
    )


def _known_key(_control: Control, of: str) -> str | None:
    return of if of in catalogue() else None


CONFIG_EVENTS: Mapping[str, EventKind] = {
    "direction": EventKind(_choose_direction, value=is_choice([name for name, _ in DIRECTION_OPTIONS])),
    "set": EventKind(_set_value, _known_key, lambda value: is_text(value) or is_switch(value)),
    "unset": EventKind(lambda control, event: control.remove_config(_event_setting(control, event)), _known_key),
    "preset": EventKind(_apply_preset, value=is_choice(PRESETS)),
    "key query": EventKind(
        lambda control, event: control.update(lambda state: replace(state, key_query=event.text)), value=is_text
    ),
    "add": EventKind(_add_key),  # an unknown key is told with those that resemble it
}
"""Events of the config editor."""


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


def _compile_and_read(ex: Exploration, state: PanelState, run: Run) -> None:
    """Compile what is stale, then read the generated code of the open region."""
    ex.compile(run=run)
    if state.opened is not None and not run.cancelled():
        ex.code(state.opened, run=run)


JOBS: Mapping[str, tuple[str, Work]] = {
    "measure": (
        "Compile & measure",
        lambda ex, state, run: ex.benchmark(state.variants, state.budget_s, run=run),
    ),
    "compile": ("Compile", lambda ex, _, run: ex.compile(run=run)),
    "profile": (
        "Profile",
        lambda ex, state, run: ex.profile(state.budget_s, run=run),
    ),
    "compile code": ("Compile", _compile_and_read),
}
"""The jobs by the event that starts them: what they are called, and what they do."""


def _start_job(control: Control, event: Event) -> None:
    if event.do == "profile":
        control.update(lambda state: state.with_pane(TIME))
    control.jobs.start(*JOBS[event.do])


def _set_budget(control: Control, event: Event) -> None:
    try:
        seconds = float(event.text)
    except ValueError:  # the page shows the old one again
        return
    if seconds > 0:
        control.update(lambda state: replace(state, budget_s=min(seconds, MAX_BUDGET_S)))


def _toggle_variant(control: Control, event: Event) -> None:
    chosen = {str(name) for name in control.state.variants} - {event.of} | ({event.of} if event.value else set())
    variants = tuple(name for name in VariantName if name in chosen or name is VariantName.EAGER)
    control.update(lambda state: replace(state, variants=variants))


def retrace(control: Control, shapes: str) -> None:
    """Start a job that traces the call again with these ``shapes``, unless it was traced with them."""
    if shapes == control.session.shapes:
        return
    control.jobs.start(
        "Trace again",
        lambda ex, _, run: ex.retrace(dynamic=SHAPES[shapes], run=run),
        shapes=shapes,
    )


def _choose_target(control: Control, event: Event) -> None:
    control.update(lambda state: replace(state, target=event.text))
    control.read_code()


JOB_EVENTS: Mapping[str, EventKind] = {
    **dict.fromkeys(JOBS, EventKind(_start_job)),
    "code": EventKind(lambda control, _: control.read_code()),
    "cancel": EventKind(lambda control, _: control.jobs.cancel()),
    "budget": EventKind(_set_budget, value=is_text),
    "variant": EventKind(_toggle_variant, among([str(name) for name in VariantName]), is_switch),
    "shapes": EventKind(lambda control, event: retrace(control, event.text), value=is_choice(SHAPES)),
    "target": EventKind(_choose_target, value=is_choice(["", *GPU_TARGETS])),
}
"""Events that start or cancel jobs, or set their options."""


def handle(control: Control, event: Event) -> Sequence[str]:
    """Handle ``event``, unless its kind does not accept it; return the nodes that the panel is to show."""
    kind = EVENTS.get(event.do)
    about = kind.about(control, event.of) if kind is not None else None
    if kind is None or about is None or not kind.value(event.value) or not kind.when(control):
        return ()
    return kind.handle(control, replace(event, of=about)) or ()


def _save_exploration(control: Control, event: Event) -> None:
    stem = re.sub(r"\W+", "_", control.session.title).strip("_") or "exploration"
    paths = (
        Path(f"{stem}{suffix}.{event.of}")
        for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    )
    saved = control.exploration.save(next(path for path in paths if not path.exists()))
    control.update(lambda state: replace(state, note=f"Saved to {saved}."))


def _choose_pane(control: Control, event: Event) -> None:
    control.update(lambda state: state.with_pane(event.of))
    if event.of == CODE:
        control.read_code()


def _run(control: Control, of: str) -> str | None:
    return next((of for run in control.runs if run_key(run) == of), None)


def _use_measured_plan(control: Control, event: Event) -> None:
    run = next(run for run in control.runs if run_key(run) == event.of)
    control.edit(lambda ex: setattr(ex, "plan", run.plan))
    retrace(control, run.shapes)


def _diagnostic(control: Control, of: str) -> str | None:
    return next((of for number in range(len(control.session.diagnostics)) if str(number) == of), None)


def _nodes_of_diagnostic(control: Control, event: Event) -> Sequence[str]:
    return nodes_of_diagnostic(control.session.diagnostics[int(event.of)], control.session)


def _nodes_of_time_row(control: Control, event: Event) -> Sequence[str]:
    found = time_share(control.session, event.of)
    return () if found is None else found[0].nodes_of(found[1])


EVENTS: Mapping[str, EventKind] = {
    **JOB_EVENTS,
    **ROW_EVENTS,
    **REGION_EVENTS,
    **CONFIG_EVENTS,
    "undo": EventKind(lambda control, _: control.undo()),
    "redo": EventKind(lambda control, _: control.redo()),
    "dismiss": EventKind(lambda control, _: control.update(PanelState.dismissed)),
    "clear": EventKind(
        lambda control, _: control.update(lambda state: state.with_rows_selected(()).with_selection(()))
    ),
    "take": EventKind(_use_measured_plan, _run),
    "pane": EventKind(_choose_pane, among(PANES)),
    "save": EventKind(_save_exploration, among({"html", "json"})),
    "show": EventKind(_nodes_of_diagnostic, _diagnostic),
    "show time": EventKind(_nodes_of_time_row, time_row),
}
"""Every kind of event by name."""
