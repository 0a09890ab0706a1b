"""What stands beside and below the graph: diagnostics that lead to their places, measured plans, generated code."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from regional_explorer import page
from regional_explorer.exploration.code_results import RegionCode
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.exploration.results import compare
from regional_explorer.page.code import code_pane
from regional_explorer.record.benchmark import NumericsVerdict, Phase
from regional_explorer.record.changes import differences
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.record.region_code import nodes_of_diagnostic
from regional_explorer.record.session import Session
from regional_explorer.style.element import words
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.parts import diagnostics_list
from regional_explorer.ui.state import Shown
from tests.shared import sessions
from tests.shared.panel import elements, text

# ---------------------------------------------------------------------------------------------------------- diagnostics


def with_diagnostics(control: Control, *found: Diagnostic) -> Shown:
    """Return what a panel of ``control`` shows from now on: these diagnostics."""
    control.session = replace(control.session, diagnostics=found)
    return control.shown()


def test_a_place_is_its_nodes_or_its_lines_or_its_region(control: Control) -> None:
    def places(**where: Any) -> list[str]:
        return nodes_of_diagnostic(Diagnostic(DiagnosticCode.REGION_WORTH, "b", **where), control.session)

    relu = next(node for node in control.session.graph("0/forward").ops if "relu" in node.name)
    here = f"0/forward:{relu.name}"
    assert places(graph="0/forward", nodes=(relu.name,)) == [here]
    assert here in places(where=(relu.source,))
    assert here in places(region="act")
    assert places() == []


def test_pressing_show_selects_the_place_in_its_graph(panel: Panel, control: Control) -> None:
    name = control.session.graph("0/backward").ops[0].name
    with_diagnostics(control, Diagnostic(DiagnosticCode.REGION_WORTH, "b", graph="0/backward", nodes=(name,)))
    panel.show(control)
    sent: list[object] = []
    panel.send = sent.append
    for _ in range(2):  # a second press scrolls there again
        panel.press("show", "0")
    assert panel.selection == [f"0/backward:{name}"]
    assert sent == [{"show": [f"0/backward:{name}"]}] * 2
    panel.press("clear")
    assert len(sent) == 2


def test_texts_are_told_in_full_and_what_is_merely_to_be_known_is_folded(control: Control) -> None:
    one = Diagnostic(
        DiagnosticCode.REGION_SPLIT, "<b>bad</b> " + "x" * 500, Severity.ERROR, upstream="nothing", remedy="do this"
    )
    heading, listed = diagnostics_list(with_diagnostics(control, one))
    assert (heading[0], heading[2]) == ("h4", "1 diagnostic")
    text = str(listed)
    assert "<b>bad</b> " + "x" * 500 in text  # a text, which the page makes a text node
    assert "✗ error" in text
    assert "What to do: do this" in text
    info = Diagnostic(DiagnosticCode.REGION_WORTH, "good to know", Severity.INFO)
    heading, listed, folded = diagnostics_list(with_diagnostics(control, info, *[one] * 9, info))
    assert words(heading) == "9 diagnostics"
    assert "good to know" not in words(listed)
    assert folded[0] == "details"
    assert "open" not in folded[1]
    assert words(folded).startswith("2 infos")
    assert [part[1]["data-of"] for part in elements([folded], data_do="show")] == []


# ------------------------------------------------------------------------------------------------------- measured plans


MM = Region("mm", (Selector(SelectorKind.OPS, ("aten.mm*",)),))


def run(plan: Plan, median_s: float, speedup: float) -> Session:
    timings = (
        sessions.timing("eager", 2e-3, 1.0, phase=Phase.STEP),
        sessions.timing("regional", median_s, speedup, phase=Phase.STEP, numerics=NumericsVerdict.OK),
    )
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
        ["", 1000.0, 2000.0, 2.0, 1.97],
        ["mm: max_fusion_size=8", 500.0, 2000.0, 4.0, 3.97],
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
    measured = run(second, 0.5e-3, 4.0)
    exploration.live.measurements.runs = (run(first, 1e-3, 2.0), measured, replace(measured, dynamic=True))
    control.refresh()
    shown = text(panel, "plans")
    assert "current plan" in shown
    assert "act: max_fusion_size=4" in shown
    assert "▲ 4.00×" in shown
    titles = [one[1]["title"] for one in elements(panel.part("plans"), data_do="take")]
    assert titles == [
        "Switch to plan 2; Undo switches back",
        "Switch to plan 3; the call is traced again with dynamic shapes",
    ]
    (use,) = elements(panel.part("plans"), aria_label="Use plan 2")
    panel.press(use[1]["data-do"], use[1]["data-of"])
    assert exploration.plan == second
    assert control.state.plan == second
    panel.press("undo")
    assert exploration.plan == first


# ----------------------------------------------------------------------------------------------------------------- code


def lit(panel: Panel, name: str) -> list[tuple[list[str], list[str]]]:
    """Return the rows that a node lights, by pane: those for what it is in, and those for itself."""
    names = [f"{graph['id']}:{one}" for graph in panel.graphs for one in graph["names"]]
    return [links["chains"][links["of"][names.index(name)]] for links in panel.links.values()]


def test_a_region_that_was_never_compiled_says_so(panel: Panel, control: Control) -> None:
    panel.press("pane", "code")
    assert "Not compiled yet." in text(panel, "code")
    assert elements(panel.part("code"), data_do="compile code")
    assert not control.state.busy
    panel.press("remove", "mm")
    panel.press("remove", "act")
    assert "Select a region" in text(panel, "code")


@pytest.mark.compiles
def test_lines_nodes_and_kernels_light_each_other(
    panel: Panel, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel.press("pick", "act")
    panel.press("pane", "code")
    panel.press("compile code")
    assert control.jobs.wait(120)
    assert control.state.problem is None
    assert "cpp_fused_relu" in text(panel, "listing")
    assert "return torch.relu(x @ w).sum()" in text(panel, "listing")
    assert not elements(panel.part("code"), data_do="code")
    (line,) = elements(panel.part_source, data_do="nodes")
    assert lit(panel, "0/forward:relu") == [([], [line[1]["data-of"]]), (["s0", "k0.1"], ["c0.1"])]
    keys = {element[1]["data-of"] for element in elements(panel.part("listing"), data_do="nodes")}
    assert {"s0", "k0.1", "c0.1"} <= keys
    before = control.session
    panel.press("pane", "source")
    panel.press("pane", "code")
    assert not control.state.busy  # it is known already
    assert control.session is before
    code = control.shown().code
    parts = code.partitions if code else ()
    _, rows = code_pane(parts)
    assert rows["c0.1"] == (("0/forward:relu",), ())
    monkeypatch.setattr(page.code, "CODE_LIMIT", 60)
    assert "The code goes on for" in " ".join(map(words, code_pane(parts)[0]))


def test_the_code_for_a_gpu_is_asked_for_once_per_plan(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    asked: list[tuple[str, str | None]] = []

    def code(name: str, *, target: str | None, **_: Any) -> RegionCode:
        asked.append((name, target))
        return RegionCode(name, (), "Generated for a GPU.")

    exploration.code = code  # type: ignore[method-assign,assignment]
    panel.press("pick", "act")
    panel.press("pane", "code")
    assert asked == []  # nothing was compiled, so there is nothing to read
    panel.press("target", value="h100")
    assert control.jobs.wait(10)
    assert asked == [("act", "h100")]
    assert "Generated for a GPU." in text(panel, "code")
    panel.press("target", value="no such thing")
    assert control.state.target == "h100"
    panel.press("remove", "act")
    assert "act" not in exploration.plan
    assert "Generated for a GPU." not in text(panel, "code"), "no code of a region that is gone"
