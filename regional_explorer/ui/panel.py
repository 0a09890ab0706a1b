"""The panel: a view of an exploration's session, with its parts around the graph and the handlers of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import traitlets

from regional_explorer.page.graph import SHARE
from regional_explorer.page.panes import columns
from regional_explorer.page.report import PROFILE, REGIONS, report_nodes
from regional_explorer.page.static import script, style
from regional_explorer.record.files import plan_line
from regional_explorer.record.grouping import Kept
from regional_explorer.style.element import Node, node
from regional_explorer.ui.answer import answer_part
from regional_explorer.ui.config_editor import config_editor
from regional_explorer.ui.control import Control, Event, EventKind
from regional_explorer.ui.job_events import JOB_EVENTS
from regional_explorer.ui.mark_form import mark_form, preview_nodes, previewed_nodes, selection_buttons
from regional_explorer.ui.parts import code_head, edit_bar, header, plans, problem, progress, tabs, tool_bar
from regional_explorer.ui.plan_events import PLAN_EVENTS
from regional_explorer.ui.state import CODE, CONFIG, PANES, TIME, WHY, PanelState, Problem, Shown
from regional_explorer.ui.tables import region_table, time_table
from regional_explorer.ui.view_events import VIEW_EVENTS
from regional_explorer.ui.why import why_pane
from regional_explorer.ui.widget import SessionView


def all_but_progress(shown: Shown) -> object:
    """Return everything shown except the job's progress."""
    job = shown.state.job
    return replace(shown, state=replace(shown.state, job=job and replace(job, doing="", fraction=0.0)))


def status_shown(shown: Shown) -> object:
    """Return the job with its progress; without a job, the note and the saved file."""
    return shown.state.job or (shown.state.note, shown.state.saved)


def session_shown(shown: Shown) -> object:
    """Return the results, and whether a job is running."""
    return shown.session, shown.runs, shown.state.busy


def times_shown(shown: Shown) -> object:
    """Return the profile and the selectors of the regions, and whether a job is running."""
    session, regions = shown.session, shown.session.plan.regions
    profiled = session.profile, session.profile_outdated_by, session.graphs
    return profiled, [region.selectors for region in regions], shown.state.busy


def selection_shown(shown: Shown) -> object:
    """Return what is selected, what the forms say about it, and the regions that there are."""
    state, session = shown.state, shown.session
    forms = state.mark, state.rename, shown.choice, shown.suggestions, state.busy, state.mark.preview and session
    regions = [region.as_marked for region in state.plan.regions]
    return state.selection, state.selected_rows, forms, regions, session.members


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the panel: the function that makes its elements, and the class and role of their container.

    The elements are made again only if the ``key`` has changed: making them takes time from a running benchmark.
    """

    make: Callable[[Shown], list[Node]]
    place: Mapping[str, str]
    key: Callable[[Shown], object] = all_but_progress


HEAD: Mapping[str, Part] = {  # the progress has a place of its own beside the title: a job moves nothing
    "header": Part(header, {}),
    "progress": Part(progress, {"class_": "rx-progress"}, status_shown),
}
ABOVE: Mapping[str, Part] = {
    "gone": Part(lambda _: [], {"class_": "rx-alert", "role": "alert"}),  # the page fills it when its kernel is gone
    "tools": Part(tool_bar, {"class_": "rx-actions", "role": "toolbar", "aria_label": "Actions"}),
    "problem": Part(problem, {"class_": "rx-alert"}, lambda shown: shown.state.problem),
    "answer": Part(answer_part, {"class_": "rx-answer"}),
    "regions": Part(region_table, {"class_": "rxt rx-regions"}),
    "editing": Part(edit_bar, {"class_": "rx-editing"}, selection_shown),
    "marking": Part(mark_form, {"class_": "rx-mark"}, selection_shown),
}
UNDER = {  # what a selection changes is below the graph, so that the graph stays where it is
    "picked": Part(
        selection_buttons, {"class_": "rx-line rx-picked", "role": "group", "aria_label": "Selection"}, selection_shown
    ),
    "preview": Part(preview_nodes, {"class_": "rx-preview"}, selection_shown),
}
TABS = {"tabs": Part(tabs, {"class_": "rx-tabs", "role": "tablist", "aria_label": "Beside the source"})}
BESIDE: Mapping[str, Part] = {
    WHY: Part(why_pane, {"class_": "rxt rx-why"}),
    CODE: Part(code_head, {}, lambda shown: shown.state.shows(CODE) and all_but_progress(shown)),
    CONFIG: Part(
        config_editor, {"class_": "rxt rx-config"}, lambda shown: shown.state.shows(CONFIG) and all_but_progress(shown)
    ),
    TIME: Part(time_table, {"class_": "rxt rx-time"}, times_shown),
}
BELOW: Mapping[str, Part] = {
    "plans": Part(plans, {"class_": "rxt rx-compare"}, session_shown),
    "results": Part(
        lambda shown: report_nodes(shown.session, without=(REGIONS, PROFILE)), {"class_": "rx-results"}, session_shown
    ),
}
PARTS: Mapping[str, Part] = {**HEAD, **ABOVE, **UNDER, **TABS, **BESIDE, **BELOW}
"""Every part by name, in order: at the head, above the columns, under the graph, beside them (one at a time), below."""


def panel_tree(state: PanelState) -> list[Node]:
    """Return the containers of the graph, the source and the parts."""

    def containers(parts: Mapping[str, Part]) -> list[Node]:
        return [node("div", **part.place, data_part=name) for name, part in parts.items()]

    panes = dict(zip(BESIDE, containers(BESIDE), strict=True))
    panes[CODE] = node("div", panes[CODE], node("div", class_="rxs", data_part="listing"), class_="rx-code")
    for name, container in panes.items():
        container[1] |= {"role": "tabpanel", "aria-label": name, **({} if name == state.pane else {"hidden": True})}
    (head,) = containers(TABS)
    views = columns(head, [panes[name] for name in PANES], state.columns, containers(UNDER))
    top = node("div", *containers(HEAD), class_="rx-header")
    return [node("div", class_="rx-style", data_part="style"), top, *containers(ABOVE), views, *containers(BELOW)]


EVENTS: Mapping[str, EventKind] = {**JOB_EVENTS, **PLAN_EVENTS, **VIEW_EVENTS}
"""Every kind of event by name."""

HARMLESS_EVENTS = VIEW_EVENTS.keys() | {"key query", "kind", "pattern", "name", "cancel"}
"""The events that leave a background job running; all other events cancel it."""


def handle(control: Control, event: Event) -> None:
    """Handle ``event`` if its kind accepts it; a background job is cancelled first."""
    with control.lock:
        job = control.state.job
        if job is not None and job.background and event.do in EVENTS.keys() - HARMLESS_EVENTS:
            control.jobs.run_instead(lambda: handle_safely(control, event))
            return
        kind = EVENTS.get(event.do)
        subject = kind.about(control, event.of) if kind is not None else None
        if kind is not None and subject is not None and kind.value(event.value) and kind.when(control):
            kind.handle(control, replace(event, of=subject))


def handle_safely(control: Control, event: Event) -> None:
    """Handle ``event``; show an error in the panel, because ipywidgets or a thread would hide it."""
    try:
        handle(control, event)
    except Exception as error:  # noqa: BLE001 - the panel shows any error
        control.set(problem=Problem.of(error))


class Panel(SessionView):
    """The panel. Panels of the same exploration show the same state.

    Each part is a trait of its own, so that only parts that change are sent. A page can copy the ``plan`` even when the
    kernel is gone; by the ``id`` it finds out that it is gone.
    """

    _esm = script("panel")
    _css = style("view", "panel")

    plan = traitlets.Unicode().tag(sync=True)
    id = traitlets.Unicode().tag(sync=True)

    def __init__(self, control: Control) -> None:
        self.add_traits(**{f"part_{name}": traitlets.List().tag(sync=True) for name in PARTS})
        super().__init__(height=380, kind="rx rx-panel", label="Regional explorer", tree=panel_tree(control.state))
        self.id = self.model_id
        self.control = control
        self._state: Shown | None = None
        self._made = {name: Kept[list[Node]]() for name in PARTS}
        self._tree = Kept[list[Node]]()
        self._lock = control.lock
        with control.lock:
            control.listeners.append(self.show)
            control.heartbeat.pings.append(self.ping)
            self.show(control)

    def show(self, control: Control) -> None:
        """Show the state and the session of ``control``."""
        before, shown = self._state, control.shown()
        self._state, state, session = shown, shown.state, shown.session
        with self.hold_sync():
            self.tree = self._tree.of((state.pane, state.columns), lambda: panel_tree(state))
            if before is None or before.state.plan != state.plan:
                self.plan = plan_line(state.plan)
            for name, part in PARTS.items():
                setattr(self, f"part_{name}", self._made[name].of(part.key(shown), partial(part.make, shown)))
            if tuple(self.selection) != state.selection:
                self.select(state.selection)
            if before is None or before.state.mark != state.mark:
                self.marked = previewed_nodes(state.mark)
            if before is None or session is not before.session:
                self.set_session(session)
                if before is not None and session.profile not in (None, before.session.profile):
                    self.show_overlay(SHARE)
            if state.shows(CODE):
                self.set_code(() if shown.code is None else shown.code.partitions)
            if before is not None and state.revealed is not before.state.revealed:
                self.scroll_to_nodes(state.revealed)

    def ping(self) -> None:
        """Ping the pages; each page that shows the panel replies."""
        self.send({"do": "answer"})

    def close(self) -> None:
        """Disconnect the panel from its control, and close it."""
        if self.show in self.control.listeners:
            self.control.listeners.remove(self.show)
            self.control.heartbeat.pings.remove(self.ping)
        if not self.control.listeners:
            self.control.previews.cancel()
        super().close()

    def handle(self, message: Mapping[str, Any]) -> None:
        """Handle a message of a page: its own state, or a press."""
        super().handle(message)
        self.control.heartbeat.on_reply()
        held_keys = {key: bool(message.get(key)) for key in ("shift", "ctrl")}
        handle_safely(self.control, Event(message["do"], message["of"], message.get("value"), **held_keys))
