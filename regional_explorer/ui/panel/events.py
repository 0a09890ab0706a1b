"""Passes each event of the page to its handler: the only way in which pressing or typing changes the state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from regional_explorer.record.node_names import nodes_of_diagnostic
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.config_events import CONFIG_EVENTS
from regional_explorer.ui.panel.event import Event, EventKind, among, run_key
from regional_explorer.ui.panel.job_events import JOB_EVENTS, retrace
from regional_explorer.ui.panel.region_events import REGION_EVENTS, ROW_EVENTS, time_row
from regional_explorer.ui.panel.time_table import time_share
from regional_explorer.ui.state import CODE, PANES, PanelState


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
