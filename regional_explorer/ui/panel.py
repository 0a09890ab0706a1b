"""The panel: the view of an exploration's session, with the table of the parts around the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import traitlets

from regional_explorer.page.graph import SHARE
from regional_explorer.page.report import results_nodes
from regional_explorer.page.static import script, style
from regional_explorer.record.json_file import plan_line
from regional_explorer.record.regions import region_summaries
from regional_explorer.style.element import Node, node
from regional_explorer.ui.config_editor import config_editor
from regional_explorer.ui.control import Control
from regional_explorer.ui.events import Event, handle
from regional_explorer.ui.mark_form import mark_form, preview_nodes, previewed_nodes
from regional_explorer.ui.parts import (
    code_head,
    diagnostics_list,
    edit_bar,
    header,
    plans,
    problem,
    progress,
    tabs,
    tool_bar,
)
from regional_explorer.ui.state import CODE, CONFIG, DIAGNOSTICS, PANES, SOURCE, TIME, Problem, Shown
from regional_explorer.ui.tables import region_table, time_table
from regional_explorer.ui.widget import SessionView


def but_progress(shown: Shown) -> object:
    """Return everything but the progress of the job."""
    job = shown.state.job
    return replace(shown, state=replace(shown.state, job=job and replace(job, doing="", fraction=0.0, left="")))


def of_session(shown: Shown) -> object:
    """Return the results, and whether a job is running."""
    return shown.session, shown.runs, shown.state.busy


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the panel: the function that makes its elements, and the class and role of their container.

    They are made again when the ``key`` is another one: making them takes time from a running benchmark.
    """

    make: Callable[[Shown], list[Node]]
    place: Mapping[str, str]
    key: Callable[[Shown], object] = but_progress


def _region_table(shown: Shown) -> list[Node]:
    state = shown.state
    opened = state.opened if state.pane == CONFIG else None
    return region_table(
        region_summaries(shown.session), state.sort, picked=state.picked, opened=opened, busy=state.busy
    )


def _time_table(shown: Shown) -> list[Node]:
    return time_table(shown.session if shown.state.pane == TIME else None, busy=shown.state.busy)


ABOVE: Mapping[str, Part] = {
    "header": Part(header, {"class_": "rx-header"}),
    "tools": Part(tool_bar, {"class_": "rx-actions", "role": "toolbar", "aria_label": "Actions"}),
    "progress": Part(progress, {"class_": "rx-progress"}, lambda shown: (shown.state.job, shown.state.note)),
    "problem": Part(problem, {"class_": "rx-alert"}),
}
TABS = {"tabs": Part(tabs, {"class_": "rx-tabs", "role": "tablist", "aria_label": "Beside the graph"})}
BESIDE: Mapping[str, Part] = {
    CODE: Part(code_head, {}),
    CONFIG: Part(config_editor, {"class_": "rxt rx-config"}),
    TIME: Part(_time_table, {"class_": "rxt rx-time"}, lambda shown: (of_session(shown), shown.state.pane == TIME)),
    DIAGNOSTICS: Part(diagnostics_list, {"class_": "rxt rx-diagnostics"}, of_session),
}
BELOW: Mapping[str, Part] = {
    "regions": Part(_region_table, {"class_": "rxt rx-regions"}),
    "editing": Part(edit_bar, {"class_": "rx-editing"}),
    "marking": Part(mark_form, {"class_": "rx-mark"}),
    "preview": Part(preview_nodes, {"class_": "rx-preview"}),
    "plans": Part(plans, {"class_": "rxt rx-compare"}, of_session),
    "results": Part(lambda shown: results_nodes(shown.session), {"class_": "rx-results"}, of_session),
}
PARTS: Mapping[str, Part] = {**ABOVE, **TABS, **BESIDE, **BELOW}
"""Every part by name: above the graph, beside it (one tab at a time), below it."""


def frame(pane: str) -> list[Node]:
    """Return the containers of the graph and of the parts, with the tab ``pane`` shown beside the graph."""

    def containers(parts: Mapping[str, Part]) -> list[Node]:
        return [node("div", **part.place, data_part=name) for name, part in parts.items()]

    code, *others = containers(BESIDE)
    listing = node("div", class_="rxs", data_part="listing")
    panes = [node("div", class_="rxs", data_part=SOURCE), node("div", code, listing, class_="rx-code"), *others]
    for name, container in zip(PANES, panes, strict=True):
        container[1] |= {"role": "tabpanel", "aria-label": name, **({} if name == pane else {"hidden": True})}
    beside = node("div", *containers(TABS), node("div", *panes, class_="rx-pane"), class_="rx-beside")
    views = node("div", node("div", data_view="graph"), beside, class_="rx-views")
    return [node("div", class_="rx-style", data_part="style"), *containers(ABOVE), views, *containers(BELOW)]


class Panel(SessionView):
    """The panel. Panels of the same exploration show the same state.

    Each part is a trait of its own, so that only parts that change are sent. ``plan`` is what a page can still copy
    when the kernel is gone, which it finds out by the ``id``.
    """

    _esm = script("panel")
    _css = style("view", "panel")

    plan = traitlets.Unicode().tag(sync=True)
    id = traitlets.Unicode().tag(sync=True)

    def __init__(self, control: Control) -> None:
        self.add_traits(**{f"part_{name}": traitlets.List().tag(sync=True) for name in PARTS})
        super().__init__(height=380, kind="rx rx-panel", label="Regional explorer", tree=frame(control.state.pane))
        self.id = self.model_id
        self.control = control
        self._state: Shown | None = None
        self._keys: dict[str, object] = {}
        self._lock = control.lock
        with control.lock:
            control.listeners.append(self.show)
            control.heartbeat.pings.append(self.ping)
            self.show(control)

    def show(self, control: Control) -> None:
        """Show the state and the session of ``control``."""
        before, self._state = self._state, control.shown()
        state, session = self._state.state, self._state.session
        with self.hold_sync():
            self.tree = frame(state.pane)
            if before is None or before.state.plan != state.plan:
                self.plan = plan_line(state.plan)
            for name, part in PARTS.items():
                key = part.key(self._state)
                if self._keys.get(name) != key:
                    self._keys[name] = key
                    setattr(self, f"part_{name}", part.make(self._state))
            if tuple(self.selection) != state.selection:
                self.select(state.selection)
            self.marked = previewed_nodes(state.mark)
            if before is None or session is not before.session:
                self.set_session(session)
                if before is not None and session.profile not in (None, before.session.profile):
                    self.show_overlay(SHARE)
            if state.pane == CODE:
                self.set_code(() if self._state.code is None else self._state.code.partitions)
            if before is not None and state.revealed is not before.state.revealed:
                self.reveal(state.revealed)

    def ping(self) -> None:
        """Ping the pages; each that shows the panel answers."""
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
        """Handle a message of a page: what it shows, and what was pressed."""
        super().handle(message)
        self.control.heartbeat.on_reply()
        try:
            held = {key: bool(message.get(key)) for key in ("shift", "ctrl")}
            handle(self.control, Event(message["do"], message["of"], message.get("value"), **held))
        except Exception as error:  # noqa: BLE001 - ipywidgets would hide it; the panel shows it
            self.control.set(problem=Problem.of(error))
