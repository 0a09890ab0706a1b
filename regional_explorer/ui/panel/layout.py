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
from regional_explorer.render.report.plan_tables import summary
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.element import Node, node, style_sheet
from regional_explorer.render.style.palette import paint
from regional_explorer.ui.open_code import ShownCode
from regional_explorer.ui.panel.config_editor import config_editor
from regional_explorer.ui.panel.controls import button
from regional_explorer.ui.panel.diagnostics import diagnostics_list
from regional_explorer.ui.panel.editing import edit_bar, partly_selected
from regional_explorer.ui.panel.mark_preview import preview_nodes
from regional_explorer.ui.panel.marking import mark_form
from regional_explorer.ui.panel.region_table import region_table
from regional_explorer.ui.panel.tabs import code_head, tabs
from regional_explorer.ui.panel.time_table import time_table
from regional_explorer.ui.panel.tools import export_buttons, problem, progress, shapes_field, tool_bar
from regional_explorer.ui.state import CODE, CONFIG, DIAGNOSTICS, SOURCE, TIME, PanelState


def frame(pane: str) -> list[Node]:
    """Return the containers of the parts and the views, with the tab ``pane`` shown beside the graph."""

    def tab(name: str, *inside: Node, classes: str = "", **place: str) -> Node:
        shown = {"role": "tabpanel", "aria_label": name, "hidden": name != pane, "class_": classes or None}
        return node("div", *inside, **shown, **place)

    beside = node(
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
        node("div", node("div", data_view="graph"), beside, class_="rx-views"),
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

    ``key`` identifies the exploration on a page; ``owner`` is its Python expression. ``code`` is the code of the open
    region as far as it was read, None while the code tab is hidden; ``unread`` the number of its partitions whose code
    was not read yet.
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


def _style(regions: int) -> list[Node]:
    return [style_sheet(page_css([paint(number) for number in range(regions)]))]


def _header(session: Session, plan: Plan, owner: str, *, shapes: str, busy: bool) -> list[Node]:
    facts = dict(summary(session))
    facts.pop("shapes", None)  # there is a field for them
    facts["torch"] = f"torch {facts['torch']}"
    facts["graph breaks"] = f"graph breaks: {facts['graph breaks']}"
    known = " · ".join(facts.values())
    python = node("span", "in Python: ", node("code", owner), title="The exploration that this panel shows")
    return [
        node("h3", session.title),
        export_buttons(plan, owner, busy=busy),
        node("div", known, " · ", shapes_field(shapes, busy=busy), " · ", python, class_="rx-quiet"),
    ]


def _header_inputs(it: Shown) -> dict[str, Any]:
    shapes, busy = it.state.retracing or it.session.shapes, it.state.busy
    return {"session": it.session, "plan": it.state.plan, "owner": it.owner, "shapes": shapes, "busy": busy}


def _config(it: Shown) -> dict[str, Any]:
    state = it.state
    if state.pane != CONFIG or state.opened is None or state.opened not in state.plan:
        return {"region": None}
    region = state.plan[state.opened]
    return {
        "region": region,
        "direction": state.direction_of(region),
        "invalid": state.invalid_inputs,
        "query": state.key_query,
        "device": it.session.environment.device_type,
        "grad": it.session.grad,
        "busy": state.busy,
    }


def _code(it: Shown) -> dict[str, Any]:
    code = it.code
    parts = [part for part in it.session.partitions if code is not None and part.region == code.region]
    return {
        "name": code and code.region,
        "compiled": any(part.artifact is not None for part in parts),
        "unread": it.unread,
        "note": code.note if code else "",
        "target": it.state.target,
        "busy": it.state.busy,
    }


def _time(it: Shown) -> dict[str, Any]:
    return {"session": it.session if it.state.pane == TIME else None, "busy": it.state.busy}


def _editing(it: Shown) -> dict[str, Any]:
    state = it.state
    carvable = partly_selected(it.session, state.selection)
    return {
        "plan": state.plan,
        "picked": state.picked,
        "carvable": carvable,
        "form": state.rename,
        "busy": state.busy,
    }


def _marking(it: Shown) -> dict[str, Any]:
    state = it.state
    return {
        "form": state.mark,
        "selected": len(state.selection),
        "suggested": it.suggestions[state.mark.kind],
        "key": it.key,
        "first": not state.plan.regions,
        "busy": state.busy,
    }


def _regions(it: Shown) -> dict[str, Any]:
    state = it.state
    return {
        "summaries": it.summaries,
        "sort": state.sort,
        "picked": state.picked,
        "opened": state.opened if state.pane == CONFIG else None,
        "busy": state.busy,
    }


def _plans(runs: Sequence[Session], current: Session, *, busy: bool) -> list[Node]:
    def use(number: int) -> Node:
        title = f"Switch to plan {number + 1}; Undo switches back"
        name = f"Use plan {number + 1}"
        return button("Use this plan", "take", str(number), disabled=busy, title=title, aria_label=name)

    return measured_plans(runs, current, use)


PARTS: Mapping[str, Part] = {
    "style": Part(lambda it: {"regions": len(it.session.plan.regions)}, _style),
    "header": Part(_header_inputs, _header),
    "regions": Part(_regions, region_table),
    "config": Part(_config, config_editor),
    "code": Part(_code, code_head),
    "tabs": Part(lambda it: {"pane": it.state.pane, "session": it.session}, tabs),
    "editing": Part(_editing, edit_bar),
    "marking": Part(_marking, mark_form),
    "preview": Part(lambda it: {"form": it.state.mark, "session": it.session}, preview_nodes),
    "tools": Part(lambda it: {"state": it.state.without_progress}, tool_bar),
    "progress": Part(lambda it: {"job": it.state.job, "note": it.state.note}, progress),
    "problem": Part(lambda it: {"found": it.state.problem}, problem),
    "plans": Part(lambda it: {"runs": it.runs, "current": it.session, "busy": it.state.busy}, _plans),
    "time": Part(_time, time_table),
    "diagnostics": Part(lambda it: {"session": it.session}, diagnostics_list),
    "results": Part(lambda it: {"session": it.session}, results_nodes),
}
"""Every part by name: its inputs, and the function that makes its elements."""
