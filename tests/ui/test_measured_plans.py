"""Measured plans side by side, from sessions made by hand."""

from __future__ import annotations

from msgspec.structs import replace

from regional_explorer.exploration.results import compare
from regional_explorer.record.changes import differences
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, Phase, Timing, Verdict
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel import Panel
from tests.shared import sessions
from tests.shared.panel import elements, text

MM = Region("mm", (Selector(SelectorKind.OPS, ("aten.mm*",)),))


def timing(variant: str, median_s: float, speedup: float) -> Timing:
    bounds = speedup - 0.1, speedup + 0.1
    figures = (median_s,), median_s, 0.0, speedup, *bounds
    return Timing(variant, Phase.STEP, *figures, Verdict.FASTER, numerics=NumericsVerdict.OK)


def run(plan: Plan, median_s: float, speedup: float) -> Session:
    timings = (timing("eager", 2e-3, 1.0), timing("regional", median_s, speedup))
    return replace(sessions.trained(2), plan=plan, timings=timings)


def test_only_what_differs_is_told() -> None:
    off = Plan((MM,)).changed("mm", enabled=False)
    sized = Plan((MM,)).changed("mm", config={"max_fusion_size": 8})
    other = Plan((replace(MM, selectors=(Selector(SelectorKind.MODULES, ("mlp",)),)),))
    assert differences([Plan((MM,)), off]) == [[], ["mm off"]]
    assert differences([sized, Plan((MM,))]) == [["mm: max_fusion_size=8"], []]
    assert differences([Plan((MM,)), other]) == [["mm = ops:aten.mm*"], ["mm = modules:mlp"]]
    assert differences([Plan(), Plan((MM,))]) == [["no region"], ["mm = ops:aten.mm*"]]
    assert differences([sized, sized]) == [[], []]
    assert differences([]) == []


def test_plans_are_compared_as_a_table() -> None:
    sized = Plan((MM,)).changed("mm", config={"max_fusion_size": 8})
    found = compare(run(Plan((MM,)), 1e-3, 2.0), run(sized, 0.5e-3, 4.0))
    columns = ["differs", "regional_us", "eager_us", "speedup", "speedup_low"]
    assert found[columns].to_numpy().tolist() == [
        ["", 1000.0, 2000.0, 2.0, 1.9],
        ["mm: max_fusion_size=8", 500.0, 2000.0, 4.0, 3.9],
    ]


def test_a_press_on_a_table_of_before_takes_the_plan_that_it_showed(panel: Panel, control: Control) -> None:
    """The oldest measured plan is dropped, so that all others move up, before the page has the new table."""
    exploration = control.exploration
    plans = [exploration.plan.changed("act", config={"max_fusion_size": size}) for size in (2, 3, 4)]
    runs = [run(plan, 1e-3, 2.0) for plan in plans]
    exploration.live.measurements.runs = tuple(runs[:2])
    control.refresh()
    first, second = (one[1]["data-of"] for one in elements(panel.part("plans"), data_do="take"))
    exploration.live.measurements.runs = tuple(runs[1:])
    control.read_exploration()
    control.set(problem=None)
    before = exploration.plan
    panel.press("take", first)
    assert exploration.plan == before
    panel.press("take", second)
    assert exploration.plan == plans[1]


def test_a_measured_plan_is_taken_and_can_be_undone(panel: Panel, control: Control) -> None:
    exploration = control.exploration
    assert panel.part("plans") == []
    first = exploration.plan
    second = first.changed("act", config={"max_fusion_size": 4})
    exploration.live.measurements.runs = (run(first, 1e-3, 2.0), run(second, 0.5e-3, 4.0))
    control.refresh()
    shown = text(panel, "plans")
    assert "current plan" in shown
    assert "act: max_fusion_size=4" in shown
    assert "▲ 4.00×" in shown
    (use,) = elements(panel.part("plans"), aria_label="Use plan 2")
    panel.press(use[1]["data-do"], use[1]["data-of"])
    assert exploration.plan == second
    assert control.state.plan == second
    panel.press("undo")
    assert exploration.plan == first
