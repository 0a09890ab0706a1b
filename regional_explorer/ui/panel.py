"""The panel: one widget, the table of its parts, messages in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import traitlets

from regional_explorer.page.report import results_nodes, session_facts
from regional_explorer.page.static import script, style
from regional_explorer.page.view import SHARE, overlays
from regional_explorer.record.json_file import plan_line
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.record.regions import RegionSummary
from regional_explorer.record.session import Session
from regional_explorer.style.css import page_css
from regional_explorer.style.element import Node, node, style_sheet
from regional_explorer.tables.plan import measured_plans
from regional_explorer.ui.config_editor import config_editor
from regional_explorer.ui.control import Control, ShownCode
from regional_explorer.ui.events import Event, handle, run_key
from regional_explorer.ui.marking import mark_form, preview_nodes, previewed_nodes, suggestions
from regional_explorer.ui.parts import (
    button,
    code_head,
    diagnostics_list,
    edit_bar,
    export_buttons,
    partly_selected,
    problem,
    progress,
    shapes_field,
    tabs,
    tool_bar,
)
from regional_explorer.ui.state import CODE, CONFIG, DIAGNOSTICS, SOURCE, TIME, PanelState
from regional_explorer.ui.tables import region_table, time_table
from regional_explorer.ui.view import CodeView, ElementTree, GraphView, SourceView


def frame(pane: str) -> list[Node]:
    """Return the containers of the parts and the views, with the tab ``pane`` shown beside the graph."""

    def tab(name: str, *children: Node, classes: str = "", **data: str) -> Node:
        attributes = {"role": "tabpanel", "aria_label": name, "hidden": name != pane, "class_": classes or None}
        return node("div", *children, **attributes, **data)

    panes = node(
        "div",
        node("div", class_="rx-tabs", role="tablist", aria_label="Beside the graph", data_part="tabs"),
        node(
            "div",
            tab(SOURCE, data_view=SOURCE),
            tab(CODE, node("div", data_part=CODE), node("div", data_view=CODE), classes="rx-code"),
            tab(CONFIG, classes="rxt rx-config", data_part=CONFIG),
            tab(TIME, classes="rxt rx-time", data_part=TIME),
            tab(DIAGNOSTICS, classes="rxt rx-diagnostics", data_part=DIAGNOSTICS),
            class_="rx-pane",
        ),
        class_="rx-beside",
    )
    return [
        node("div", class_="rx-style", data_part="style"),
        node("div", class_="rx-header", data_part="header"),
        node("div", class_="rx-actions", data_part="tools", role="toolbar", aria_label="Actions"),
        node("div", class_="rx-progress", data_part="progress"),
        node("div", class_="rx-alert", data_part="problem"),
        node("div", node("div", data_view="graph"), panes, class_="rx-views"),
        node("div", class_="rxt rx-regions", data_part="regions"),
        node("div", class_="rx-editing", data_part="editing"),
        node("div", class_="rx-mark", data_part="marking"),
        node("div", class_="rx-preview", data_part="preview"),
        node("div", class_="rxt rx-compare", data_part="plans"),
        node("div", class_="rx-results", data_part="results"),
    ]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a panel shows: the state, the session, and what is derived from the session once.

    ``key`` identifies the exploration on a page; ``owner`` is its Python expression, empty if there is none. ``code``
    is the code of the open region as far as it was read, None while the code tab is hidden; ``unread`` the number of
    its partitions whose code was not read yet.
    """

    key: str
    owner: str
    state: PanelState
    session: Session
    runs: tuple[Session, ...]
    summaries: tuple[RegionSummary, ...]
    suggestions: Mapping[str, Sequence[str]]
    code: ShownCode | None = None
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the panel: its inputs, and the pure function that makes its elements from them."""

    needs: Callable[[Shown], dict[str, Any]]
    make: Callable[..., list[Node]]


def panel(shown: Shown) -> dict[str, list[Node]]:
    """Return the elements of every part; ``frame`` has the containers of the parts."""
    return {name: part.make(**part.needs(shown)) for name, part in PARTS.items()}


def _panel_style(regions: int) -> list[Node]:
    return [style_sheet(page_css(regions))]


def _header(session: Session, plan: Plan, owner: str, *, shapes: str, busy: bool) -> list[Node]:
    facts = dict(session_facts(session))
    facts.pop("shapes", None)  # there is a field for them
    facts["torch"] = f"torch {facts['torch']}"
    facts["graph breaks"] = f"graph breaks: {facts['graph breaks']}"
    facts_text = " · ".join(facts.values())
    if owner:
        owner_note = node("span", "in Python: ", node("code", owner), title="The exploration that this panel shows")
    else:
        owner_note = node("span", "in no variable", title="To use this exploration in Python, assign it to a variable")
    return [
        node("h3", session.title),
        export_buttons(plan, owner, busy=busy),
        node("div", facts_text, " · ", shapes_field(shapes, busy=busy), " · ", owner_note, class_="rx-quiet"),
    ]


def _header_inputs(shown: Shown) -> dict[str, Any]:
    job = shown.state.job
    shapes = job.shapes if job is not None and job.shapes else shown.session.shapes
    return {
        "session": shown.session,
        "plan": shown.state.plan,
        "owner": shown.owner,
        "shapes": shapes,
        "busy": shown.state.busy,
    }


def _config_inputs(shown: Shown) -> dict[str, Any]:
    state = shown.state
    if state.pane != CONFIG or state.opened is None or state.opened not in state.plan:
        return {"region": None}
    region = state.plan[state.opened]
    return {
        "region": region,
        "direction": state.direction_of(region),
        "invalid": state.invalid_inputs,
        "query": state.key_query,
        "device": shown.session.environment.device_type,
        "grad": shown.session.grad,
        "busy": state.busy,
    }


def _code_inputs(shown: Shown) -> dict[str, Any]:
    code = shown.code
    partitions = [part for part in shown.session.partitions if code is not None and part.region == code.region]
    return {
        "name": code and code.region,
        "compiled": any(part.artifact is not None for part in partitions),
        "unread": shown.unread,
        "note": code.note if code else "",
        "target": shown.state.target,
        "busy": shown.state.busy,
    }


def _time_inputs(shown: Shown) -> dict[str, Any]:
    return {"session": shown.session if shown.state.pane == TIME else None, "busy": shown.state.busy}


def _editing_inputs(shown: Shown) -> dict[str, Any]:
    state = shown.state
    carvable = partly_selected(shown.session, state.selection)
    return {
        "plan": state.plan,
        "picked": state.picked,
        "carvable": carvable,
        "form": state.rename,
        "busy": state.busy,
    }


def _marking_inputs(shown: Shown) -> dict[str, Any]:
    state = shown.state
    return {
        "form": state.mark,
        "selected": len(state.selection),
        "suggested": shown.suggestions[state.mark.kind],
        "key": shown.key,
        "first": not state.plan.regions,
        "busy": state.busy,
    }


def _region_table_inputs(shown: Shown) -> dict[str, Any]:
    state = shown.state
    return {
        "summaries": shown.summaries,
        "sort": state.sort,
        "picked": state.picked,
        "opened": state.opened if state.pane == CONFIG else None,
        "busy": state.busy,
    }


def _runs_table(runs: Sequence[Session], current: Session, *, busy: bool) -> list[Node]:
    def use_button(number: int) -> Node:
        title = f"Switch to plan {number + 1}; Undo switches back"
        name = f"Use plan {number + 1}"
        return button("Use this plan", "take", run_key(runs[number]), disabled=busy, title=title, aria_label=name)

    return measured_plans(runs, current, use_button)


PARTS: Mapping[str, Part] = {
    "style": Part(lambda shown: {"regions": len(shown.session.plan.regions)}, _panel_style),
    "header": Part(_header_inputs, _header),
    "regions": Part(_region_table_inputs, region_table),
    "config": Part(_config_inputs, config_editor),
    "code": Part(_code_inputs, code_head),
    "tabs": Part(lambda shown: {"pane": shown.state.pane, "session": shown.session}, tabs),
    "editing": Part(_editing_inputs, edit_bar),
    "marking": Part(_marking_inputs, mark_form),
    "preview": Part(lambda shown: {"form": shown.state.mark, "session": shown.session}, preview_nodes),
    "tools": Part(lambda shown: {"state": shown.state.without_progress}, tool_bar),
    "progress": Part(lambda shown: {"job": shown.state.job, "note": shown.state.note}, progress),
    "problem": Part(lambda shown: {"found": shown.state.problem}, problem),
    "plans": Part(lambda shown: {"runs": shown.runs, "current": shown.session, "busy": shown.state.busy}, _runs_table),
    "time": Part(_time_inputs, time_table),
    "diagnostics": Part(lambda shown: {"session": shown.session}, diagnostics_list),
    "results": Part(lambda shown: {"session": shown.session}, results_nodes),
}
"""Every part by name: its inputs, and the function that makes its elements."""


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
        self._suggestions = suggestions(control.session)
        self._session: Session | None = None
        self._plan: Plan | None = None
        self._profile = control.session.profile
        self._partition_codes: tuple[PartitionCode, ...] = ()
        self._part_needs: dict[str, dict[str, Any]] = {}
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
        with self.hold_sync():
            session_before, self._session = self._session, control.session
            if session_before is not None and control.session.graphs != session_before.graphs:
                self._suggestions = suggestions(control.session)
            self.tree = frame(control.state.pane)
            if control.state.plan != self._plan:
                self._plan = control.state.plan
                self.plan = plan_line(self._plan)
            key, owner = f"{id(control):x}", control.owner()
            code, unread = (control.code, control.unread) if control.state.pane == CODE else (None, 0)
            shown = Shown(
                key,
                owner,
                control.state,
                control.session,
                control.runs,
                control.summaries,
                self._suggestions,
                code,
                unread,
            )
            for name, part in PARTS.items():
                needs = part.needs(shown)
                # The inputs of a part are compared, not its elements: making them takes time from a running benchmark.
                if self._part_needs.get(name) != needs:
                    self._part_needs[name] = needs
                    setattr(self, _part_trait(name), part.make(**needs))
            # Last: where a view cannot show the session, everything else does.
            self._show_in_views(control, code, is_new=control.session is not session_before)

    def _show_in_views(self, control: Control, code: ShownCode | None, *, is_new: bool) -> None:
        """Show the state in the views, and the session if it ``is_new``."""
        if tuple(self.graph.selection) != control.state.selection:
            self.graph.select(control.state.selection)
        if is_new:
            self.graph.set_session(control.session)
            self.graph.overlays = overlays(control.session)
            if control.session.profile is not None and control.session.profile is not self._profile:
                self.graph.show_overlay(SHARE)
            self._profile = control.session.profile
            self.source.set_session(control.session)
        self.graph.marked = previewed_nodes(control.state.mark)
        if code is not None and code.partitions != self._partition_codes:
            self._partition_codes = code.partitions
            self.code.set_code(code.partitions)

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
        for view in (self.source, self.code):
            view.unlink()
        for widget in (self.graph, self.source, self.code, self):
            widget.layout.close()
        for view in (self.graph, self.source, self.code):
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
            shown = handle(self.control, Event(message["do"], message["of"], message.get("value"), **held))
            if shown:
                self._show_nodes(shown)

    def _on_selection(self, _change: Any) -> None:
        nodes = tuple(self.graph.selection)
        if nodes != self.control.state.selection:
            self.control.update(lambda state: state.with_nodes_picked(nodes))

    def _show_nodes(self, nodes: Sequence[str]) -> None:
        """Select nodes, and scroll to them."""
        graphs = {node.partition(":")[0] for node in nodes}
        if graphs and self.graph.tab not in graphs:
            self.graph.tab = min(graphs)
        self.graph.select(nodes)
        self.graph.show_nodes(nodes)


def _part_trait(part: str) -> str:
    return f"part_{part}"
