"""What each event of the page does: the only place where what is pressed or typed changes the state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regional_explorer.compiler.config.catalogue import check_key
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.presets import PRESETS
from regional_explorer.record.profile import ProfileKind
from regional_explorer.record.region import Direction, config_of
from regional_explorer.record.time_shares import TimeShare, TimeShares
from regional_explorer.record.variant_name import VariantName
from regional_explorer.render.style.untrusted import sendable
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.config_editor import BOTH, first_value
from regional_explorer.ui.panel.editing import partly_selected
from regional_explorer.ui.panel.marking import HINTS
from regional_explorer.ui.panel.region_table import ordered
from regional_explorer.ui.panel.time_table import rows_of
from regional_explorer.ui.panel.tools import MAX_BUDGET_S
from regional_explorer.ui.proposed_name import proposed_name
from regional_explorer.ui.state import CODE, PANES, TIME, NameForm, PanelState, Setting
from regional_explorer.ui.threads.progress import Throttle


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the page: its name, what it is about, and the value of an input, with the keys held meanwhile."""

    do: str
    of: str = ""
    value: str | bool | None = None
    shift: bool = False
    ctrl: bool = False

    @property
    def text(self) -> str:
        """The text of an input."""
        return self.value if isinstance(self.value, str) else ""


Handler = Callable[[Control, Event], object]


def handle(control: Control, event: Event) -> None:
    """Do what ``event`` says; an event that means nothing here, or nothing any more, is ignored."""
    if event.do in REGION_EVENTS:
        # None where the page has not yet received that the region was removed.
        name = next((one.name for one in control.state.plan.regions if sendable(one.name) == event.of), None)
        if name is not None:
            REGION_EVENTS[event.do](control, replace(event, of=name))
    elif event.do in EVENTS:
        EVENTS[event.do](control, event)


# ----------------------------------------------------------------------------------------------------------------- work


def _measure(control: Control, _event: Event) -> None:
    names, budget_s = tuple(str(name) for name in control.state.variants), control.state.budget_s
    control.jobs.start(
        "Compile & measure",
        lambda ex, cancelled, progress: ex.benchmark(
            names, budget_s, cancelled=cancelled, progress=progress, executor=control.jobs.executor
        ),
    )


def _compile(control: Control, _event: Event) -> None:
    control.jobs.start("Compile", lambda ex, cancelled, progress: ex.compile(cancelled=cancelled, progress=progress))


def _budget(control: Control, event: Event) -> None:
    try:
        seconds = float(event.text)
    except ValueError:  # the page shows the old one again
        return
    if seconds > 0:
        control.change(replace(control.state, budget_s=min(seconds, MAX_BUDGET_S)))


def _variant(control: Control, event: Event) -> None:
    chosen = {str(name) for name in control.state.variants} - {event.of} | ({event.of} if event.value else set())
    kept = tuple(name for name in VariantName if name in chosen or name is VariantName.EAGER)
    control.change(replace(control.state, variants=kept))


def _profile(control: Control, _event: Event) -> None:
    budget_s = control.state.budget_s
    control.change(control.state.with_pane(TIME))
    control.jobs.start(
        "Profile",
        lambda ex, cancelled, progress: ex.profile(
            budget_s, cancelled=cancelled, progress=progress, executor=control.jobs.executor
        ),
    )


def time_share(control: Control, key: str) -> tuple[TimeShares, TimeShare] | None:
    """Return the row of the profile that a key of its table stands for, None where it is gone."""
    shares = TimeShares.of(control.session)
    kind, _, number = key.partition(" ")
    rows = rows_of(shares, ProfileKind(kind)) if shares is not None else ()
    return (shares, rows[int(number)]) if shares is not None and int(number) < len(rows) else None


def _mark_time(control: Control, event: Event) -> None:
    found = time_share(control, event.of)
    if found is not None and (selector := found[1].selector) is not None:
        chosen: dict[str, Any] = {selector.kind: list(selector.patterns)}
        name = proposed_name({selector.kind: selector.patterns[0]}, control.session)
        control.edit(lambda ex: ex.mark(name, **chosen))
        control.change(control.state.with_rows_selected([name]))


# -------------------------------------------------------------------------------------------------------------- regions


def _switch(control: Control, event: Event) -> None:
    control.edit(lambda ex: ex.enable(event.of) if event.value else ex.disable(event.of))


def _pick(control: Control, event: Event) -> None:
    state, name = control.state, event.of
    if event.shift:
        shown = [one.region.name for one in ordered(control.summaries, state.sort)]
        control.change(state.with_range_selected(name, shown))
    elif event.ctrl:
        control.change(state.with_row_toggled(name))
    else:
        control.change(state.with_rows_selected([name]))
    if state.pane == CODE:
        control.read_code()


# -------------------------------------------------------------------------------------------------------------- editing


def _edit_picked(control: Control, change: Callable[[Exploration], object]) -> None:
    """Apply ``change``; an error is shown beside the buttons, and the name stays."""
    try:
        control.edit(change)
    except RegionalExplorerError as error:
        control.change(replace(control.state, rename=replace(control.state.rename, error=str(error))))
        return
    control.change(replace(control.state, rename=NameForm()))


def _rename(control: Control, _event: Event) -> None:
    (name,), new = control.state.picked, control.state.rename.name.strip()
    if not new:
        control.change(replace(control.state, rename=NameForm(error="Type the new name first.")))
        return
    _edit_picked(control, lambda ex: ex.rename(name, new))


def _merge(control: Control, _event: Event) -> None:
    plan, names, new = control.state.plan, control.state.picked, control.state.rename.name.strip()
    _edit_picked(control, lambda ex: ex.merge(*names, name=new or None, config=plan[names[0]].config))


def _split(control: Control, _event: Event) -> None:
    (name,) = control.state.picked
    at = partly_selected(control.session, control.state.selection).get(name, [])
    _edit_picked(control, lambda ex: ex.split(name, at[0] if at else None))


def _carve(control: Control, _event: Event) -> None:
    found = partly_selected(control.session, control.state.selection)

    def carve(ex: Exploration) -> None:
        draft = ex.draft()
        for name, nodes in found.items():
            draft.carve(name, nodes=nodes)
        ex.plan = draft.plan  # in one step: if one is invalid, none is carved

    _edit_picked(control, carve)


def _uncarve(control: Control, _event: Event) -> None:
    (name,) = control.state.picked
    _edit_picked(control, lambda ex: ex.uncarve(name))


# -------------------------------------------------------------------------------------------------------------- marking


def _mark(control: Control, _event: Event) -> None:
    if not control.state.selector:
        hint = HINTS[control.state.mark.kind]
        control.change(replace(control.state, mark=replace(control.state.mark, error=f"Enter a pattern: {hint}.")))
        return
    control.mark()


# --------------------------------------------------------------------------------------------------------------- config


def _opened(state: PanelState) -> tuple[str, Direction | None]:
    """Return the region whose config is shown, and the direction.

    Raises:
        RegionalExplorerError: none is shown any more.
    """
    if state.opened is None:
        raise RegionalExplorerError("No config is open.")
    return state.opened, state.direction_of(state.plan[state.opened])


def _setting(control: Control, event: Event) -> Setting:
    return (*_opened(control.state), event.of)


def _set(control: Control, event: Event) -> None:
    control.set_config(_setting(control, event), event.value if isinstance(event.value, bool) else event.text)


def _direction(control: Control, event: Event) -> None:
    """Show the config of the chosen direction; choosing both copies the forward's config to the backward."""
    name, _ = _opened(control.state)
    direction = None if event.text == BOTH else Direction(event.text)
    region = control.state.plan[name]
    control.change(replace(control.state, direction=direction))
    if direction is None and region.backward_config is not None:
        config = config_of(region, Direction.FORWARD)
        control.edit(lambda ex: ex.reset(name).configure(name, config))


def _preset(control: Control, event: Event) -> None:
    if event.text in PRESETS:
        _configure(control, PRESETS[event.text])


def _add(control: Control, event: Event) -> None:
    entry = check_key(event.of)
    _configure(control, {entry.key: first_value(entry)})


def _configure(control: Control, values: Mapping[str, Any]) -> None:
    """Merge ``values`` into the config shown, or reset it to Inductor's defaults if empty."""
    name, direction = _opened(control.state)
    control.edit(
        lambda ex: ex.configure(name, values, direction=direction) if values else ex.reset(name, direction=direction)
    )


# ----------------------------------------------------------------------------------------------------------------------


def _save(control: Control, event: Event) -> None:
    if event.of not in {"html", "json"}:
        return
    stem = re.sub(r"\W+", "_", control.session.title).strip("_") or "exploration"
    paths = (
        Path(f"{stem}{suffix}.{event.of}")
        for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    )
    saved = control.exploration.save(next(path for path in paths if not path.exists()))
    control.change(replace(control.state, note=f"Saved to {saved}."))


def _pane(control: Control, event: Event) -> None:
    if event.of in PANES:
        control.change(control.state.with_pane(event.of))
    if event.of == CODE:
        control.read_code()


def _target(control: Control, event: Event) -> None:
    if not event.text or event.text in GPU_TARGETS:
        control.change(replace(control.state, target=event.text))
        control.read_code()


def _compile_code(control: Control, _event: Event) -> None:
    """Compile what is stale, then look at the code of the region that is open."""
    name = control.state.opened

    def work(ex: Exploration, cancelled: Callable[[], bool], progress: Throttle) -> None:
        ex.compile(cancelled=cancelled, progress=progress)
        if name is not None and not cancelled():
            ex.code(name, cancelled=cancelled, progress=progress)

    control.jobs.start("Compile", work)


def _take(control: Control, event: Event) -> None:
    plan = control.runs[int(event.of)].plan
    control.edit(lambda ex: setattr(ex, "plan", plan))


REGION_EVENTS: Mapping[str, Handler] = {
    "switch": _switch,
    "remove": lambda control, event: control.edit(lambda ex: ex.unmark(event.of)),
    "open": lambda control, event: control.change(control.state.with_config_toggled(event.of)),
    "pick": _pick,
}
"""Events about one region, whose name is what they are of."""

EVENTS: Mapping[str, Handler] = {
    "measure": _measure,
    "compile": _compile,
    "profile": _profile,
    "mark time": _mark_time,
    "cancel": lambda control, _: control.jobs.cancel(),
    "undo": lambda control, _: control.undo(),
    "redo": lambda control, _: control.redo(),
    "budget": _budget,
    "variant": _variant,
    "dismiss": lambda control, _: control.change(control.state.failed(None)),
    "sort": lambda control, event: control.change(control.state.sorted_by(event.of)),
    "new name": lambda control, event: control.change(replace(control.state, rename=NameForm(event.text))),
    "rename": _rename,
    "merge": _merge,
    "split": _split,
    "carve": _carve,
    "uncarve": _uncarve,
    "kind": lambda control, event: control.change(control.state.with_mark(kind=event.text, pattern="")),
    "pattern": lambda control, event: control.change(control.state.with_mark(pattern=event.text)),
    "name": lambda control, event: control.change(control.state.with_mark(name=event.text)),
    "mark": _mark,
    "direction": _direction,
    "set": _set,
    "unset": lambda control, event: control.remove_config(_setting(control, event)),
    "preset": _preset,
    "key query": lambda control, event: control.change(replace(control.state, key_query=event.text)),
    "add": _add,
    "clear": lambda control, _: control.change(control.state.with_rows_selected(()).with_selection(())),
    "take": _take,
    "pane": _pane,
    "code": lambda control, _: control.read_code(),
    "compile code": _compile_code,
    "target": _target,
    "save": _save,
}
"""All other events of the panel but ``show`` and ``show time``, which need the graph."""
