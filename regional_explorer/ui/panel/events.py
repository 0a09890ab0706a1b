"""Passes each event of the page to its handler: the only way in which pressing or typing changes the state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regional_explorer.render.style.untrusted import sendable
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.config_events import CONFIG_EVENTS
from regional_explorer.ui.panel.event import Event, Handler
from regional_explorer.ui.panel.job_events import JOB_EVENTS, retrace
from regional_explorer.ui.panel.region_events import REGION_EVENTS, ROW_EVENTS
from regional_explorer.ui.state import CODE, PANES, PanelState


def handle(control: Control, event: Event) -> None:
    """Handle ``event``; one that is unknown, or about a region that no longer exists, is ignored."""
    if event.do in ROW_EVENTS:
        # None where the page has not yet received that the region was removed.
        name = next((region.name for region in control.state.plan.regions if sendable(region.name) == event.of), None)
        if name is not None:
            ROW_EVENTS[event.do](control, replace(event, of=name))
    elif event.do in EVENTS:
        EVENTS[event.do](control, event)


def _save_exploration(control: Control, event: Event) -> None:
    if event.of not in {"html", "json"}:
        return
    stem = re.sub(r"\W+", "_", control.session.title).strip("_") or "exploration"
    paths = (
        Path(f"{stem}{suffix}.{event.of}")
        for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    )
    saved = control.exploration.save(next(path for path in paths if not path.exists()))
    control.update(lambda state: replace(state, note=f"Saved to {saved}."))


def _choose_pane(control: Control, event: Event) -> None:
    if event.of in PANES:
        control.update(lambda state: state.with_pane(event.of))
    if event.of == CODE:
        control.read_code()


def _use_measured_plan(control: Control, event: Event) -> None:
    run = control.runs[int(event.of)]
    control.edit(lambda ex: setattr(ex, "plan", run.plan))
    retrace(control, run.shapes)


EVENTS: Mapping[str, Handler] = {
    **JOB_EVENTS,
    **REGION_EVENTS,
    **CONFIG_EVENTS,
    "undo": lambda control, _: control.undo(),
    "redo": lambda control, _: control.redo(),
    "dismiss": lambda control, _: control.update(PanelState.dismissed),
    "clear": lambda control, _: control.update(lambda state: state.with_rows_selected(()).with_selection(())),
    "take": _use_measured_plan,
    "pane": _choose_pane,
    "save": _save_exploration,
}
"""All other events except ``show`` and ``show time``, which the panel handles: they need the graph view."""
