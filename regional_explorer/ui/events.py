"""Every event of the page, and its handling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from regional_explorer.ui.config_events import CONFIG_EVENTS
from regional_explorer.ui.control import Control
from regional_explorer.ui.event import Event, EventKind
from regional_explorer.ui.job_events import JOB_EVENTS
from regional_explorer.ui.mark_events import MARK_EVENTS
from regional_explorer.ui.plan_events import PLAN_EVENTS
from regional_explorer.ui.state import Problem
from regional_explorer.ui.view_events import VIEW_EVENTS

EVENTS: Mapping[str, EventKind] = {**JOB_EVENTS, **PLAN_EVENTS, **MARK_EVENTS, **VIEW_EVENTS, **CONFIG_EVENTS}
"""Every kind of event by name."""

LOOKING = VIEW_EVENTS.keys() | {"key query", "kind", "pattern", "name", "cancel"}
"""The events that leave a background job running; all other events cancel it."""


def handle(control: Control, event: Event) -> None:
    """Handle ``event`` if its kind accepts it; a background job is cancelled first."""
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
