"""What every press and every typed text does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from regional_explorer.compiler.region_config import catalogue, check_key, parse_value
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import RegionalExplorerError, SelectorError, sendable
from regional_explorer.export.plan_as_python import plan_program
from regional_explorer.measure.machine import wait_until_quiet
from regional_explorer.page.answer import gain_of
from regional_explorer.page.columns import COLUMNS
from regional_explorer.picture.folds import FoldKind
from regional_explorer.record.action import ActionKind
from regional_explorer.record.answer import BUDGETS_S, answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.configs import PRESETS
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.plan import DEFAULT, Direction, Plan, SelectorKind, config_of
from regional_explorer.record.region_code import nodes_of_diagnostic
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import SHAPES
from regional_explorer.record.tracing import Tracing
from regional_explorer.regions.describe import selectors_for
from regional_explorer.regions.edit import require_match, selectors_of_text
from regional_explorer.ui.answer import FIND_BEST, QUIET, QUIET_SEARCH, TUNE_S, suggested
from regional_explorer.ui.config_editor import BOTH_WAYS, DIRECTION_OPTIONS
from regional_explorer.ui.control import Control
from regional_explorer.ui.jobs import Work
from regional_explorer.ui.mark_form import (
    ALL_ALIKE,
    PATTERN_HINTS,
    THIS_ONE,
    name_of_mark,
    proposed_name,
    selectors_of,
)
from regional_explorer.ui.parts import EDITS, MAX_BUDGET_S, partly_selected, run_key
from regional_explorer.ui.state import (
    CANCEL,
    CODE,
    CONFIG,
    PANES,
    SELECTOR,
    TIME,
    WHY,
    Applied,
    InvalidInput,
    NameForm,
    PanelState,
    Problem,
    Setting,
    Sort,
)
from regional_explorer.ui.tables import PANEL_COLUMNS, ordered, time_share

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


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

    @property
    def names(self) -> list[str]:
        """The names of a list; none without one."""
        return self.value if isinstance(self.value, list) else []


def among(names: Container[str]) -> Callable[[Control, str], str | None]:
    """Return a function that returns what an event is about, None unless it is one of ``names``."""
    return lambda _control, of: of if of in names else None


def is_text(value: object) -> bool:
    """Return whether a value is that of a text field."""
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    """Return whether a value is that of a checkbox."""
    return isinstance(value, bool)


def are_names(value: object) -> bool:
    """Return whether a value is a list of names."""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def is_choice(names: Container[str]) -> Callable[[object], bool]:
    """Return a function that returns whether a value is one of a menu with ``names``."""
    return lambda value: isinstance(value, str) and value in names


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event.

    A page may show an earlier state, or send what no page of ours does. So an event is ignored, before anything
    changes, if ``about`` returns None for its ``of``, because there is no such region, column or row, or no more; if
    ``value`` does not accept what was typed or chosen; or if it does not apply ``when`` it comes. ``handle`` gets the
    event with what ``about`` returned as its ``of``.
    """

    handle: Callable[[Control, Event], None]
    about: Callable[[Control, str], str | None] = lambda _control, of: of
    value: Callable[[object], bool] = lambda _value: True
    when: Callable[[Control], bool] = lambda _control: True


LOOKING = frozenset(
    (
        "select",
        "pane",
        "column",
        "pick",
        "clear",
        "sort",
        "open",
        "why",
        "findings",
        "key query",
        "kind",
        "pattern",
        "name",
        "cancel",
    )
)
"""The events that leave a job in the background alone: all others end it."""


def handle(control: Control, event: Event) -> None:
    """Handle ``event``, unless its kind does not accept it; if a job in the background runs, once that is cancelled."""
    with control.lock:
        job = control.state.job
        if job is not None and job.background and event.do in EVENTS.keys() - LOOKING:
            control.jobs.instead(lambda: handle_safely(control, event))
            return
        kind = EVENTS.get(event.do)
        about = kind.about(control, event.of) if kind is not None else None
        if kind is not None and about is not None and kind.value(event.value) and kind.when(control):
            kind.handle(control, replace(event, of=about))


def handle_safely(control: Control, event: Event) -> None:
    """Handle ``event``; an error, which ipywidgets or a thread would hide, is shown in the panel."""
    try:
        handle(control, event)
    except Exception as error:  # noqa: BLE001 - as said
        control.set(problem=Problem.of(error))


# ---------------------------------------------------------------------------------------------------------------- jobs


def _compile_and_read(ex: Exploration, state: PanelState, run: Run) -> None:
    """Compile what is stale, then read the generated code of the open region."""
    ex.compile(run=run)
    if state.opened is not None and not run.cancelled():
        ex.code(state.opened, run=run)


def _when_quiet(work: Work) -> Work:
    """Return work that begins once no other process disturbs."""

    def wait_first(ex: Exploration, state: PanelState, run: Run) -> None:
        wait_until_quiet(run)
        if not run.cancelled():
            work(ex, state, run)

    return wait_first


def _measure(ex: Exploration, state: PanelState, run: Run) -> None:
    ex.benchmark(state.variants, state.budget_s, run=run)


def _tune(ex: Exploration, _state: PanelState, run: Run) -> None:
    ex.tune(TUNE_S, run=run)


JOBS: Mapping[str, tuple[str, Work]] = {
    "measure": ("Compile & measure", _measure),
    "compile": ("Compile", lambda ex, _, run: ex.compile(run=run)),
    "profile": ("Profile", lambda ex, state, run: ex.profile(state.budget_s, run=run)),
    "compile code": ("Compile", _compile_and_read),
    "tune": (FIND_BEST, _tune),
    QUIET: ("Measure when it is quiet", _when_quiet(_measure)),
    QUIET_SEARCH: ("Search when it is quiet", _when_quiet(_tune)),
    "kernels": ("Time its kernels", lambda ex, state, run: ex.kernel_times(state.opened, state.budget_s, run=run)),
}
"""The jobs by the event that starts them: what they are called, and what they do."""


def start_job(control: Control, do: str, *, background: bool = False) -> None:
    """Start the job of the event ``do``; that which finds out where the time goes opens the pane about it."""
    if do == "profile":
        control.update(lambda state: state.with_pane(TIME))
    stop = "Stop, keep the best" if do in {"tune", QUIET_SEARCH} else CANCEL
    control.jobs.start(*JOBS[do], background=background, stop=stop)


def _set_budget(control: Control, event: Event) -> None:
    try:
        seconds = float(event.text)
    except ValueError:  # the page shows the old one again
        return
    if seconds > 0:
        control.set(budget_s=min(seconds, MAX_BUDGET_S))


def _toggle_variant(control: Control, event: Event) -> None:
    chosen = {str(name) for name in control.state.variants} - {event.of} | ({event.of} if event.value else set())
    control.set(variants=tuple(name for name in VariantName if name in chosen or name is VariantName.EAGER))


def _trace_again(control: Control, shapes: str, tracing: Tracing | None = None) -> None:
    """Start a job that traces the call again, unless it was traced so; without ``tracing`` only the shapes change."""
    tracing = tracing or control.session.plan.tracing
    if shapes == control.session.shapes and tracing == control.session.plan.tracing:
        return

    def trace(exploration: Exploration, _state: PanelState, run: Run) -> None:
        exploration.retrace(dynamic=SHAPES[shapes], **asdict(tracing), run=run)

    control.jobs.start("Trace again", trace, shapes=shapes)


def _choose_target(control: Control, event: Event) -> None:
    control.set(target=event.text)
    control.read_code()


# ---------------------------------------------------------------------------------------------------------------- plan


def _go_to_plan(control: Control, step: Callable[[PanelState], PanelState]) -> None:
    """Undo or redo the last change of the plan."""
    control.edit(lambda ex: setattr(ex, "plan", step(control.state).plan), lambda state, _plan: step(state))


def _use(control: Control, plan: Plan, shapes: str) -> None:
    """Make ``plan`` the plan at hand, and trace the call again if it was traced otherwise."""
    control.edit(lambda ex: setattr(ex, "plan", plan.traced(ex.plan.tracing)))
    _trace_again(control, shapes, plan.tracing)


def _use_measured_plan(control: Control, event: Event) -> None:
    run = next(run for run in control.runs if run_key(run) == event.of)
    _use(control, run.plan, run.shapes)


def _use_bar(control: Control, event: Event) -> None:
    plan = bars_of(control.session)[int(event.of)].plan
    assert plan is not None  # noqa: S101 - of those that ``_bar`` lets through
    _use(control, plan, control.session.shapes)


def _measure_for(control: Control, event: Event) -> None:
    """Measure for so many seconds, which the next measurement then takes too."""
    if event.of:
        control.set(budget_s=float(event.of))
    start_job(control, "measure")


def _apply_finding(control: Control, event: Event) -> None:
    """Do what a finding advises: a change of the plan at once, all else as a job."""
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


def _mark_suggested(control: Control, event: Event) -> None:
    one = next(one for one in suggested(control.session) if one.name == event.of)
    control.edit(
        lambda ex: ex.mark(one.name, *one.selectors),
        lambda state, plan: state.edited(plan).with_rows_selected([one.name]),
    )


WRITERS: Mapping[str, tuple[str, Callable[[Exploration, Path, Run], object]]] = {
    "patch": ("patch", lambda ex, path, run: path.write_text(ex.to_source(run=run), encoding="utf-8")),
    "plan": ("plan.json", lambda ex, path, _: ex.save_plan(path)),
    "python": ("py", lambda ex, path, _: path.write_text(plan_program(ex.plan, ex.title), encoding="utf-8")),
    "html": ("html", lambda ex, path, _: ex.save(path)),
    "json": ("json", lambda ex, path, _: ex.save(path)),
}
"""What is written, by its kind: the ending of the file, and what writes it."""


def _save(control: Control, event: Event) -> None:
    """Write a file that is not there yet; a patch takes a trace, so a job writes it."""
    ending, write = WRITERS[event.of]
    stem = re.sub(r"\W+", "_", control.session.title).strip("_") or "exploration"
    suffixes = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    paths = (Path(f"{stem}{suffix}.{ending}") for suffix in suffixes)
    path = next(path for path in paths if not path.exists())

    def save(exploration: Exploration, _state: PanelState, run: Run) -> None:
        write(exploration, path, run)
        control.set(saved=str(path), note="")

    if event.of == "patch":
        control.jobs.start("Write the patch", save)
    else:
        save(control.exploration, control.state, PLAIN_RUN)


# ---------------------------------------------------------------------------------------------------------------- tabs


def _choose_pane(control: Control, event: Event) -> None:
    control.update(lambda state: state.with_pane(event.of))
    if event.of == CODE:
        control.read_code()


CLICKED: Mapping[str, SelectorKind | None] = {
    "": None,  # several things, or a row of code
    **dict.fromkeys(map(str, FoldKind)),
    FoldKind.MODULE: SelectorKind.MODULES,
    FoldKind.FUNCTION: SelectorKind.LINES,
    FoldKind.LINE: SelectorKind.LINES,
    FoldKind.OP: SelectorKind.OPS,
}
"""What selects what was clicked, by the word that the page sends for it."""


def _select_nodes(control: Control, event: Event) -> None:
    """Take up what was selected in the graph or beside it."""
    nodes, clicked = tuple(event.names), CLICKED[event.of]
    if (nodes, clicked) != (control.state.selection, control.state.clicked):
        control.update(lambda state: state.with_nodes_picked(nodes, clicked))


def _reveal(control: Control, nodes: Iterable[str]) -> None:
    """Select ``nodes``, and have the graph show them."""
    if revealed := tuple(nodes):
        control.update(lambda state: replace(state.with_nodes_picked(revealed), revealed=revealed))


def _show_diagnostic(control: Control, event: Event) -> None:
    session = control.session
    _reveal(control, nodes_of_diagnostic(session.diagnostics[int(event.of)], session))


def _show_time_row(control: Control, event: Event) -> None:
    if (found := time_share(control.session, event.of)) is not None:
        shares, share = found
        _reveal(control, shares.nodes_of(share))


def _mark_time_row(control: Control, event: Event) -> None:
    found = time_share(control.session, event.of)
    if found is not None and (selector := found[1].selector) is not None:
        name = proposed_name({selector.kind: selector.patterns[0]}, control.session)
        control.edit(
            lambda ex: ex.mark(name, selector),
            lambda state, plan: state.edited(plan).with_rows_selected([name]),
        )


# -------------------------------------------------------------------------------------------------------------- config


def _opened_config(control: Control) -> tuple[str, Direction | None]:
    """Return the region whose config is shown, and the direction."""
    region = control.state.plan[control.state.opened or ""]
    return region.name, control.state.direction_of(region)


def _without_error(state: PanelState, setting: Setting) -> PanelState:
    """Return ``state`` without the invalid text of ``setting``."""
    invalid = {other: text for other, text in state.invalid_inputs.items() if other != setting}
    return replace(state, invalid_inputs=invalid)


def _show_invalid(control: Control, setting: Setting, invalid: InvalidInput) -> None:
    control.set(invalid_inputs={**control.state.invalid_inputs, setting: invalid})


def _set_value(control: Control, event: Event) -> None:
    """Set a config value from what was typed; an invalid value is shown with its error at its field."""
    region, direction = _opened_config(control)
    config = config_of(control.state.plan[region], direction or Direction.FORWARD)
    setting, typed = (region, direction, event.of), event.value if isinstance(event.value, bool) else event.text
    try:
        value = parse_value(event.of, typed)
    except RegionalExplorerError as error:
        _show_invalid(control, setting, InvalidInput(str(typed), str(error)))
        return
    if event.of not in config and value == catalogue()[event.of].default:  # a field that was added, and left at it
        control.update(lambda state: _without_error(state, setting))
        return
    control.edit(
        lambda ex: ex.configure(region, {event.of: value}, direction=direction),
        lambda state, plan: _without_error(state.edited(plan), setting),
    )


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
    """Turn a flag from its default; for other keys, show the field whose value will be the edit."""
    entry = check_key(event.of)
    if isinstance(entry.default, bool):
        _configure_opened(control, {entry.key: not entry.default})
    else:
        control.update(lambda state: replace(state, added_keys=(*state.added_keys, entry.key)))


# ------------------------------------------------------------------------------------------------- rows of the regions


def _pick_row(control: Control, event: Event) -> None:
    """Select a row; with Ctrl add or remove it, with Shift select all rows between the first selected one and it."""
    state, name = control.state, event.of
    names = [name]
    if event.shift:
        order = [summary.region.name for summary in ordered(region_summaries(control.session), state.sort)]
        first = state.picked[0] if state.picked and state.picked[0] in order else name
        low, high = sorted((order.index(first), order.index(name)))
        names = [first, *order[low : high + 1]]
    elif event.ctrl:
        names = [other for other in state.picked if other != name] + ([] if name in state.picked else [name])
    rows = state.with_rows_selected(names)
    # Also where the same rows were selected already: nodes may have been selected in the graph since.
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


def _change_selectors(control: Control, event: Event) -> None:
    """Have a region pick what was typed; if that is wrong, it is shown with its error in the row."""
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


def _sort_rows(control: Control, event: Event) -> None:
    """Sort by a column: ascending first, then descending, then in the order of the plan again."""
    sort = control.state.sort
    if sort is None or sort.column != event.of:
        control.set(sort=Sort(event.of))
    else:
        control.set(sort=None if sort.descending else Sort(event.of, descending=True))


# ------------------------------------------------------------------------------------------------------------- editing


def _edit_picked(control: Control, change: Callable[[Exploration], object]) -> None:
    """Apply ``change``; an error is shown beside the buttons, and the name stays."""
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


def _edit(do: str, handle: Callable[[Control, Event], None]) -> EventKind:
    """Return an event of the edit bar, which applies when its button does: the page may show an earlier selection."""

    def applies(control: Control) -> bool:
        state = control.state
        regions = [state.plan[name] for name in state.picked]
        return EDITS[do].applies(regions, partly_selected(control.session, state.selection))

    return EventKind(handle, when=applies)


# ------------------------------------------------------------------------------------------------------------- marking


def _fill_mark(control: Control, **fields: Any) -> None:
    """Change fields of the form that marks a region; it then has no error."""
    control.set(mark=replace(control.state.mark, **{"error": "", **fields}))


def _mark_region(control: Control, _event: Event) -> None:
    """Mark a region as the form says, with the typed or else the proposed name; an error is shown in the form."""
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
    """Mark what was selected by hand, or all that is alike."""
    _fill_mark(control, alike=event.of == ALL_ALIKE)
    _mark_region(control, event)


# ----------------------------------------------------------------------------------------------------------- all events


def _region(control: Control, of: str) -> str | None:
    """Return the name of the region whose row sent ``of``."""
    return next((region.name for region in control.state.plan.regions if sendable(region.name) == of), None)


def _time_row(control: Control, of: str) -> str | None:
    return None if time_share(control.session, of) is None else of


def _measured_plan(control: Control, of: str) -> str | None:
    return of if of in map(run_key, control.runs) else None


def _diagnostic(control: Control, of: str) -> str | None:
    return of if of in map(str, range(len(control.session.diagnostics))) else None


def _bar(control: Control, of: str) -> str | None:
    return of if of in {str(n) for n, bar in enumerate(bars_of(control.session)) if bar.plan is not None} else None


def _finding(control: Control, of: str) -> str | None:
    return of if of in map(str, range(len(answer_of(control.session).findings))) else None


def _suggested(control: Control, of: str) -> str | None:
    return of if of in {one.name for one in suggested(control.session)} else None


def _known_key(_control: Control, of: str) -> str | None:
    return of if of in catalogue() else None


def _is_open(control: Control) -> bool:
    return control.state.opened is not None


EVENTS: Mapping[str, EventKind] = {
    **dict.fromkeys(JOBS, EventKind(lambda control, event: start_job(control, event.do))),
    "cancel": EventKind(lambda control, _: control.jobs.cancel()),
    "budget": EventKind(_set_budget, value=is_text),
    "variant": EventKind(_toggle_variant, among([str(name) for name in VariantName]), is_flag),
    "shapes": EventKind(lambda control, event: _trace_again(control, event.text), value=is_choice(SHAPES)),
    "dismiss": EventKind(lambda control, _: control.set(problem=None)),
    "save": EventKind(_save, among(WRITERS)),
    # the plan
    "undo": EventKind(lambda control, _: _go_to_plan(control, PanelState.undone)),
    "redo": EventKind(lambda control, _: _go_to_plan(control, PanelState.redone)),
    "take": EventKind(_use_measured_plan, _measured_plan),
    # the answer
    "apply": EventKind(_apply_finding, _finding),
    "findings": EventKind(lambda control, _: control.update(lambda state: state.with_pane(WHY))),
    "use": EventKind(_use_bar, _bar),
    "measure for": EventKind(_measure_for, among(["", *map(str, BUDGETS_S)])),
    "mark suggested": EventKind(_mark_suggested, _suggested),
    # the graph, and beside it
    "select": EventKind(_select_nodes, among(CLICKED), are_names),
    "pane": EventKind(_choose_pane, among(PANES)),
    "column": EventKind(
        lambda control, event: control.update(
            lambda state: state.with_column(event.of, shown=event.of not in state.columns)
        ),
        among(COLUMNS),
    ),
    "code": EventKind(lambda control, _: control.read_code()),
    "target": EventKind(_choose_target, value=is_choice(["", *GPU_TARGETS])),
    "show": EventKind(_show_diagnostic, _diagnostic),
    "show time": EventKind(_show_time_row, _time_row),
    "mark time": EventKind(_mark_time_row, _time_row),
    # the config of the open region
    "direction": EventKind(_choose_direction, value=is_choice([name for name, _ in DIRECTION_OPTIONS]), when=_is_open),
    "set": EventKind(_set_value, _known_key, lambda value: is_text(value) or is_flag(value), _is_open),
    "unset": EventKind(_unset_value, _known_key, when=_is_open),
    "preset": EventKind(
        lambda control, event: _configure_opened(control, PRESETS[event.text]), value=is_choice(PRESETS), when=_is_open
    ),
    "key query": EventKind(lambda control, event: control.set(key_query=event.text), value=is_text),
    "add": EventKind(_add_key, when=_is_open),  # an unknown key is told with those that resemble it
    # rows of the region table
    "sort": EventKind(_sort_rows, among([column.key for column in PANEL_COLUMNS])),
    "pick": EventKind(_pick_row, _region),
    "clear": EventKind(
        lambda control, _: control.update(lambda state: replace(state.with_rows_selected(()), selection=()))
    ),
    "open": EventKind(_toggle_config, _region),
    "why": EventKind(lambda control, event: control.update(lambda state: state.with_pane(WHY, event.of)), _region),
    "repick": EventKind(_change_selectors, _region, is_text),
    "enable": EventKind(
        lambda control, event: control.edit(lambda ex: ex.enable(event.of) if event.value else ex.disable(event.of)),
        _region,
        is_flag,
    ),
    "remove": EventKind(lambda control, event: control.edit(lambda ex: ex.unmark(event.of)), _region),
    # editing the selected regions
    "new name": EventKind(lambda control, event: control.set(rename=NameForm(event.text)), value=is_text),
    "rename": _edit("rename", _rename_region),
    "merge": _edit("merge", _merge_regions),
    "split": _edit("split", _split_region),
    "carve": _edit("carve", _carve_nodes),
    "uncarve": _edit("uncarve", _uncarve_region),
    # the form that marks a region
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
    "mark picked": EventKind(_mark_picked, among((THIS_ONE, ALL_ALIKE)), when=_is_picked),
}
"""Every kind of event by name."""
