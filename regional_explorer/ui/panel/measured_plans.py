"""The table of measured plans, with a button to restore each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from regional_explorer.compiler.variants import VariantName
from regional_explorer.export.compare import REGIONAL, compile_seconds, differences, whole_call_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing
from regional_explorer.render.report.table import TONES
from regional_explorer.render.style.figures import NONE, duration, interval, speedup
from regional_explorer.ui.control import Control
from regional_explorer.ui.views.element_tree import ElementTree, Tree, node

MIN_PLANS = 2
"""The table is shown from this number of measured plans on."""
MAX_DIFFERENCES = 6
"""How many differences of one plan are listed; ``ex.history`` has all."""


class MeasuredPlans:
    """The table of measured plans; hidden while there are fewer than two."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.tree_widget = ElementTree(self._on_message)
        self.box = widgets.VBox([widgets.HTML("<h4>Measured plans</h4>"), self.tree_widget])
        self.box.add_class("rx-compare")

    def show(self, control: Control) -> None:
        """Show the plans measured so far."""
        runs = control.exploration.runs
        self.tree_widget.tree = measured_plans_tree(runs, control) if len(runs) >= MIN_PLANS else []
        self.box.layout.display = "" if len(runs) >= MIN_PLANS else "none"

    def _on_message(self, message: Mapping[str, Any]) -> None:
        with self._control.showing_errors():
            plan = self._control.exploration.runs[int(message["of"])].plan
            self._control.edit(lambda ex: setattr(ex, "plan", plan))


def measured_plans_tree(runs: Sequence[Session], control: Control) -> list[Tree]:
    """Return a table with one row per run, the current plan marked."""
    found = [whole_call_timings(run) for run in runs]
    names = [str(name) for name in VariantName if any(name in times for times in found)]
    heads = ["plan", "differences", *names, "regional: speedup", "CI", "compile", "numerics", ""]
    figures = {*names, "regional: speedup", "CI", "compile"}
    head = node("tr", *(node("th", text, class_="rxt-figure" if text in figures else "") for text in heads))
    plan_differences = differences([run.plan for run in runs])
    rows = []
    for number, (run, times, differs) in enumerate(zip(runs, found, plan_differences, strict=True)):
        regional = times.get(REGIONAL)
        cells = [
            *(_figure(duration(times[name].median_s) if name in times else NONE, name) for name in names),
            _speedup(regional),
            _figure(interval(regional) if regional else NONE, "CI"),
            _figure(duration(compile_seconds(run)), "compile"),
            node("td", regional.numerics if regional else NONE, data_head="numerics"),
        ]
        chips = [node("span", text, class_="rx-key") for text in differs[:MAX_DIFFERENCES]]
        more = (
            node("span", f"and {len(differs) - MAX_DIFFERENCES} more", class_="rx-quiet")
            if len(differs) > MAX_DIFFERENCES
            else ""
        )
        rows.append(
            node(
                "tr",
                node("td", node("b", str(number + 1)), class_="rxt-name"),
                node("td", *(chips or [node("span", "–")]), more),
                *cells,
                _use_cell(run, number, control),
            )
        )
    return [node("table", node("thead", head), node("tbody", *rows), aria_label="Measured plans")]


def _figure(text: str, head: str) -> Tree:
    return node("td", text, class_="rxt-figure", data_head=head)


def _speedup(regional: Timing | None) -> Tree:
    if regional is None:
        return _figure(NONE, "speedup")
    tone = TONES.get(regional.verdict, "quiet")
    sign = {"good": "▲ ", "bad": "▼ "}.get(tone, "")
    inside = node("span", sign + speedup(regional), class_=f"rx-{tone}", title=str(regional.verdict))
    return node("td", inside, class_="rxt-figure", data_head="speedup")


def _use_cell(run: Session, number: int, control: Control) -> Tree:
    if run.plan == control.state.plan:
        return node("td", node("span", "current plan", class_="rx-quiet"), class_="rxt-last")
    title = f"Switch to plan {number + 1}; Undo switches back"
    button = node(
        "button",
        "Use this plan",
        type="button",
        data_do="take",
        data_of=str(number),
        disabled=control.state.busy,
        title=title,
        aria_label=f"Use plan {number + 1}",
    )
    return node("td", button, class_="rxt-last")
