"""The panel as a pure function of the state and the session: one tree of elements, sent part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regional_explorer.record.plan import Plan
from regional_explorer.record.region_summary import RegionSummary
from regional_explorer.record.session import Session
from regional_explorer.render.report.html import results_nodes
from regional_explorer.render.report.measured_plans import measured_plans
from regional_explorer.render.report.session_facts import session_facts
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.element import Node, node, style_sheet
from regional_explorer.ui.open_code import ShownCode
from regional_explorer.ui.panel.config_editor import config_editor
from regional_explorer.ui.panel.controls import button
from regional_explorer.ui.panel.diagnostics import diagnostics_list
from regional_explorer.ui.panel.editing import edit_bar, partly_selected
from regional_explorer.ui.panel.event import run_key
from regional_explorer.ui.panel.mark_preview import preview_nodes
from regional_explorer.ui.panel.marking import mark_form
from regional_explorer.ui.panel.region_table import region_table
from regional_explorer.ui.panel.tabs import code_head, tabs
from regional_explorer.ui.panel.time_table import time_table
from regional_explorer.ui.panel.tools import export_buttons, problem, progress, shapes_field, tool_bar
from regional_explorer.ui.state import CODE, CONFIG, DIAGNOSTICS, SOURCE, TIME, PanelState


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
    shapes, busy = shown.state.retracing or shown.session.shapes, shown.state.busy
    return {"session": shown.session, "plan": shown.state.plan, "owner": shown.owner, "shapes": shapes, "busy": busy}


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
