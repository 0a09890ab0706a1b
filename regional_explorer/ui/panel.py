"""The panel: one widget, the table of its parts, messages in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import traitlets

from regional_explorer.page.report import results_nodes
from regional_explorer.page.static import script, style
from regional_explorer.page.view import SHARE
from regional_explorer.record.json_file import plan_line
from regional_explorer.style.css import page_css
from regional_explorer.style.element import Node, node, style_sheet
from regional_explorer.ui.config_editor import config_editor
from regional_explorer.ui.control import Control
from regional_explorer.ui.events import Event, handle
from regional_explorer.ui.marking import mark_form, preview_nodes, previewed_nodes
from regional_explorer.ui.parts import (
    code_tab,
    diagnostics_list,
    edit_bar,
    header,
    plans,
    problem,
    progress,
    tabs,
    tool_bar,
)
from regional_explorer.ui.state import CODE, CONFIG, DIAGNOSTICS, PANES, SOURCE, TIME, Shown
from regional_explorer.ui.tables import region_table, time_table
from regional_explorer.ui.view import CodeView, ElementTree, GraphView, SourceView


def but_progress(shown: Shown) -> object:
    """Return everything but the progress of the job."""
    return replace(shown, state=shown.state.without_progress)


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


def _style(shown: Shown) -> list[Node]:
    return [style_sheet(page_css(len(shown.session.plan.regions)))]


def _region_table(shown: Shown) -> list[Node]:
    state = shown.state
    opened = state.opened if state.pane == CONFIG else None
    return region_table(shown.summaries, state.sort, picked=state.picked, opened=opened, busy=state.busy)


def _time_table(shown: Shown) -> list[Node]:
    return time_table(shown.session if shown.state.pane == TIME else None, busy=shown.state.busy)


ABOVE: Mapping[str, Part] = {
    "style": Part(_style, {"class_": "rx-style"}, of_session),
    "header": Part(header, {"class_": "rx-header"}),
    "tools": Part(tool_bar, {"class_": "rx-actions", "role": "toolbar", "aria_label": "Actions"}),
    "progress": Part(progress, {"class_": "rx-progress"}, lambda shown: (shown.state.job, shown.state.note)),
    "problem": Part(problem, {"class_": "rx-alert"}),
}
TABS = {"tabs": Part(tabs, {"class_": "rx-tabs", "role": "tablist", "aria_label": "Beside the graph"})}
BESIDE: Mapping[str, Part] = {
    CODE: Part(code_tab, {"class_": "rx-code"}),
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
"""Every part by name: above the graph, beside it (one tab at a time; that of the source is a view), below it."""


def frame(pane: str) -> list[Node]:
    """Return the containers of the parts and the views, with the tab ``pane`` shown beside the graph."""

    def containers(parts: Mapping[str, Part]) -> list[Node]:
        return [node("div", **part.place, data_part=name) for name, part in parts.items()]

    panes = [node("div", data_view=SOURCE), *containers(BESIDE)]
    for name, container in zip(PANES, panes, strict=True):
        container[1] |= {"role": "tabpanel", "aria-label": name, **({} if name == pane else {"hidden": True})}
    beside = node("div", *containers(TABS), node("div", *panes, class_="rx-pane"), class_="rx-beside")
    views = node("div", node("div", data_view="graph"), beside, class_="rx-views")
    return [*containers(ABOVE), views, *containers(BELOW)]


MAX_WAITING = 1000
"""How many messages of a page may wait for a missing one; with more, that one is considered lost."""


class InOrder:
    """Passes messages on in the order of their numbers, page by page.

    ipykernel 7 handles messages of a widget on several threads: on the subshell that JupyterLab sends them to, or on
    the main thread after a cell changed the widget. So they may arrive out of order.
    """

    def __init__(self, handle: Callable[[str, int, Mapping[str, Any]], None]) -> None:
        self._handle = handle
        self._next_numbers: dict[str, int] = {}
        self._waiting: dict[str, dict[int, Mapping[str, Any]]] = {}

    def receive(self, page: str, number: int, message: Mapping[str, Any]) -> None:
        """Handle ``message`` and those that waited for it, or let it wait; the first of a page has the number 1."""
        waiting = self._waiting.setdefault(page, {})
        waiting[number] = message
        next_number = self._next_numbers.get(page, 1)
        if len(waiting) > MAX_WAITING:
            next_number = min(waiting)
        while next_number in waiting:
            self._next_numbers[page] = next_number + 1
            self._handle(page, next_number, waiting.pop(next_number))
            next_number = self._next_numbers[page]


class Panel(ElementTree):
    """The panel. Panels of the same exploration show the same state.

    ``parts`` are the elements of each part, as separate traits, so that only parts that change are sent; ``answered``
    is the number of the last message of each page that was handled; ``views`` are the widgets inside; ``plan`` is what
    a page can still copy when the kernel is gone.
    """

    _esm = script("panel")
    _css = style("panel", common=False)

    views = traitlets.Dict().tag(sync=True)
    answered = traitlets.Dict().tag(sync=True)
    plan = traitlets.Unicode().tag(sync=True)

    def __init__(self, control: Control) -> None:
        self.graph = GraphView(height=380)
        self.source = SourceView()
        self.code = CodeView()
        for view in (self.source, self.code):
            view.link(self.graph)
        child_views = {"graph": self.graph, SOURCE: self.source, CODE: self.code}
        refs = {name: f"anywidget:{view.model_id}" for name, view in child_views.items()}
        self.add_traits(**{_part_trait(name): traitlets.List().tag(sync=True) for name in PARTS})
        super().__init__(
            self._on_event, kind="rx rx-panel", label="Regional explorer", tree=frame(control.state.pane), views=refs
        )
        self.control = control
        self._shown: Shown | None = None
        self._keys: dict[str, object] = {}
        self._in_order = InOrder(self._on_message_in_order)
        self.graph.observe(self._on_selection, names="selection")
        control.listeners.append(self.show)
        control.heartbeat.pings.append(self.ping)
        self.show(control)

    def part(self, name: str) -> list[Any]:
        """Return the elements of a part."""
        elements: list[Any] = getattr(self, _part_trait(name))
        return elements

    def show(self, control: Control) -> None:
        """Show the state and the session of ``control``."""
        before, self._shown = self._shown, control.shown()
        with self.hold_sync():
            self.tree = frame(self._shown.state.pane)
            if before is None or before.state.plan != self._shown.state.plan:
                self.plan = plan_line(self._shown.state.plan)
            for name, part in PARTS.items():
                key = part.key(self._shown)
                if self._keys.get(name) != key:
                    self._keys[name] = key
                    setattr(self, _part_trait(name), part.make(self._shown))
            # Last: where a view cannot show the session, everything else does.
            self._show_in_views(self._shown, before)

    def _show_in_views(self, shown: Shown, before: Shown | None) -> None:
        state, session = shown.state, shown.session
        if tuple(self.graph.selection) != state.selection:
            self.graph.select(state.selection)
        if before is None or session is not before.session:
            self.graph.set_session(session)
            if before is not None and session.profile not in (None, before.session.profile):
                self.graph.show_overlay(SHARE)
            self.source.set_session(session)
        self.graph.marked = previewed_nodes(state.mark)
        if shown.code is not None:
            self.code.set_code(shown.code.partitions)
        if before is not None and state.revealed is not before.state.revealed:
            self.graph.reveal(state.revealed)

    def ping(self) -> None:
        """Ping the pages; each that shows the panel answers."""
        self.send({"do": "answer"})

    def close(self) -> None:
        """Disconnect the panel from its control, and close its views."""
        if self.show in self.control.listeners:
            self.control.listeners.remove(self.show)
            self.control.heartbeat.pings.remove(self.ping)
        if not self.control.listeners:
            self.control.previews.cancel()
        for view in (self.source, self.code, self.graph):
            view.close()
        super().close()

    # --------------------------------------------------------------------------------------------------- from the page

    def receive(self, widget: Any, message: Any, buffers: Any) -> None:
        """Handle a message from the page; those of one page are handled in the order of their numbers."""
        match message:
            case {"page": str(page), "number": int(number)}:
                with self.control.lock:
                    self._in_order.receive(page, number, message)
            case _:
                super().receive(widget, message, buffers)

    def _on_message_in_order(self, page: str, number: int, message: Mapping[str, Any]) -> None:
        with self.hold_sync():
            super().receive(self, message, None)
            self.answered = {**self.answered, page: number}

    def _on_event(self, message: Mapping[str, Any]) -> None:
        self.control.heartbeat.on_reply()
        with self.control.showing_errors():
            match message.get("selection"):
                case [*nodes] if all(isinstance(node, str) for node in nodes):
                    self.graph.set_state({"selection": nodes})
            held = {key: bool(message.get(key)) for key in ("shift", "ctrl")}
            handle(self.control, Event(message["do"], message["of"], message.get("value"), **held))

    def _on_selection(self, _change: Any) -> None:
        nodes = tuple(self.graph.selection)
        if nodes != self.control.state.selection:
            self.control.update(lambda state: state.with_nodes_picked(nodes))


def _part_trait(part: str) -> str:
    return f"part_{part}"
