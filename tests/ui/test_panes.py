"""The parts around the graph: diagnostics, measured plans, generated code, where the time goes, the shapes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace as replaced
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from regional_explorer import page
from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.exploration.results import RegionCode, compare
from regional_explorer.page.code import code_pane
from regional_explorer.page.graph import SHARE
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, Kernel, KernelKind, KernelTime
from regional_explorer.record.benchmark import NumericsVerdict, Phase
from regional_explorer.record.changes import plan_differences
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.partition import State
from regional_explorer.record.plan import CutRule, Plan, Region, Selector, SelectorKind
from regional_explorer.record.profile import ProfileKind, TimeShares
from regional_explorer.record.region_code import nodes_of_diagnostic, nodes_of_region
from regional_explorer.record.session import Session
from regional_explorer.style.element import words
from regional_explorer.tables.plan import measured_plans
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.jobs import CANCELLED_NOTE
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.state import Shown
from regional_explorer.ui.tables import rows_of, time_share
from regional_explorer.ui.why import why_pane
from tests.shared import sessions
from tests.shared.checks import BEFORE_2_15
from tests.shared.fakes import fake_op_times
from tests.shared.panel import BlockedMethod, elements, is_enabled, region_nodes, small_exploration, text, type_in
from tests.ui_graph.reading import read_picture

# --------------------------------------------------------------------------------------------------------- diagnostics


def set_diagnostics(control: Control, *found: Diagnostic) -> Shown:
    """Replace the diagnostics of ``control``; return what its panels show."""
    control.session = replace(control.session, diagnostics=found)
    return control.shown()


def test_a_diagnostic_points_at_nodes_lines_or_a_region(control: Control) -> None:
    def node_ids(**where: Any) -> list[str]:
        return nodes_of_diagnostic(Diagnostic(DiagnosticCode.REGION_WORTH, "b", **where), control.session)

    relu = next(node for node in control.session.graph("0/forward").ops if "relu" in node.name)
    here = f"0/forward:{relu.name}"
    assert node_ids(graph="0/forward", nodes=(relu.name,)) == [here]
    assert here in node_ids(where=(relu.source,))
    assert here in node_ids(region="act")
    assert node_ids() == []


def test_show_selects_the_nodes_of_a_diagnostic_in_their_graph(panel: Panel, control: Control) -> None:
    name = control.session.graph("0/backward").ops[0].name
    set_diagnostics(control, Diagnostic(DiagnosticCode.REGION_WORTH, "b", graph="0/backward", nodes=(name,)))
    panel.show(control)
    sent: list[object] = []
    panel.send = sent.append
    for _ in range(2):  # a second press scrolls to them again
        panel.press("show", "0")
    assert panel.selection == [f"0/backward:{name}"]
    assert sent == [{"show": [f"0/backward:{name}"]}] * 2
    panel.press("clear")
    assert len(sent) == 2


def test_a_diagnostic_without_a_place_has_no_show_button(control: Control) -> None:
    message = "<b>bad</b> " + "x" * 500  # a text, which the page makes a text node
    found = Diagnostic(
        DiagnosticCode.REGION_SPLIT, message, severity=Severity.ERROR, upstream="nothing", advice=("do this",)
    )
    _, heading, listed = why_pane(set_diagnostics(control, found))
    assert heading == ["h4", {}, "1 diagnostic"]
    for said in ("✗ error", message, "What to do: do this"):
        assert said in words(listed)
    assert elements([listed], data_do="show") == []


def test_the_why_pane_lists_recomputed_ops_and_tried_configs(control: Control) -> None:
    now = sessions.measured_alone()
    alone = tuple(
        replace(part, compiled=part.compiled and replace(part.compiled, speedup=Figure(0.9, 0.8, 0.95)))
        for part in now.partition_timings
    )
    before = replace(now, plan=now.plan.changed("mlp", config={"max_fusion_size": 8}), partition_timings=alone)
    opened = replaced(control.state, plan=now.plan, opened="mlp")
    shown = replaced(control.shown(), session=now, runs=(before,), state=opened)
    text_of_pane = " ".join(" ".join(map(words, why_pane(shown))).split())
    assert "Computed again: tanh × 2 in the backward" in text_of_pane
    assert re.search(r"Tried: .*max_fusion_size=8 .*0.90×.*max_autotune=True .*2.00×", text_of_pane)
    assert "Tried" not in " ".join(map(words, why_pane(replaced(shown, runs=()))))


@pytest.mark.parametrize("bars", [1, 0])
def test_the_why_pane_draws_only_times_that_are_known(control: Control, bars: int) -> None:
    base = sessions.with_code(sessions.measured_alone(), ArtifactCode("x", (Kernel("loop", KernelKind.POINTWISE),)))
    seconds = Figure(1e-5, 9e-6, 2e-5) if bars else Figure(1e-5, why="too few rounds (2)")
    times = ArtifactKernelTimes((KernelTime(seconds),), exactly(0.0), exactly(0.0))
    key = "artifact-0/forward"
    session = replace(base, artifacts={**base.artifacts, key: replace(base.artifacts[key], kernel_times=times)})
    shown = replaced(control.shown(), session=session, state=replaced(control.state, plan=session.plan, opened="mlp"))
    pane = why_pane(shown)
    assert " ".join(map(words, pane)).count("10.0 µs") == bars
    assert ("too few rounds (2)" in " ".join(map(words, pane))) is not bool(bars)


# ------------------------------------------------------------------------------------------------------ measured plans


MM = Region("mm", (Selector(SelectorKind.OPS, ("aten.mm*",)),))


def run(plan: Plan, median_s: float = 1e-3, speedup: float = 2.0) -> Session:
    timings = (
        sessions.timing("eager", 2e-3, 1.0, phase=Phase.STEP),
        sessions.timing("regional", median_s, speedup, phase=Phase.STEP, numerics=NumericsVerdict.OK),
    )
    return replace(sessions.training_session(2), plan=plan, timings=timings)


def test_selectors_that_pick_other_nodes_of_the_same_pattern_differ() -> None:
    plans = [
        Plan((Region("line", (selector,)),))
        for selector in (
            Selector(SelectorKind.LINES, ("f:3",)),
            Selector(SelectorKind.LINES, ("f:3",), innermost=True),
            Selector(SelectorKind.LINES, ("f:3",), only=("0/forward:a",)),
            Selector(SelectorKind.LINES, ("f:3",), only=("0/forward:b",)),
        )
    ]
    assert plan_differences(plans) == [
        ["line = lines:f:3"],
        ["line = lines:f:3 (innermost)"],
        ["line = lines:f:3 (a part)", "line: only 0/forward:a"],
        ["line = lines:f:3 (a part)", "line: only 0/forward:b"],
    ]


def test_plans_are_compared_in_a_table_of_their_differences() -> None:
    plain, off = Plan((MM,)), Plan((MM,)).changed("mm", enabled=False)
    sized = Plan((MM,)).changed("mm", config={"max_fusion_size": 8})
    other = Plan((replace(MM, selectors=(Selector(SelectorKind.MODULES, ("mlp",)),)),))
    assert plan_differences([plain, off]) == [[], ["mm off"]]
    assert plan_differences([sized, plain]) == [["mm: max_fusion_size=8"], []]
    assert plan_differences([plain, other]) == [["mm = ops:aten.mm*"], ["mm = modules:mlp"]]
    assert plan_differences([Plan(), plain]) == [["no region"], ["mm = ops:aten.mm*"]]
    assert plan_differences([sized, sized]) == [[], []]
    assert plan_differences([]) == []
    assert plan_differences([plain, Plan((MM,), cut=CutRule.MARKED)]) == [["cut instances"], ["cut marked"]]
    relu = Region("relu", (Selector(SelectorKind.OPS, ("aten.relu*",)),))
    assert plan_differences([Plan((MM, relu)), Plan((relu, MM))]) == [["order mm, relu"], ["order relu, mm"]]
    assert plan_differences([Plan((MM, relu)), plain]) == [["relu = ops:aten.relu*"], []]
    found = compare(run(plain), run(sized, 0.5e-3, 4.0))
    assert found[["differs", "regional_us", "eager_us", "speedup", "speedup_low"]].to_numpy().tolist() == [
        ["", 1000.0, 2000.0, 2.0, 1.97],
        ["mm: max_fusion_size=8", 500.0, 2000.0, 4.0, 3.97],
    ]


def test_a_measured_plan_is_taken_and_can_be_undone(panel: Panel, control: Control, exploration: Exploration) -> None:
    assert panel.part("plans") == []
    first = exploration.plan
    second = first.changed("act", config={"max_fusion_size": 4})
    measured = run(second, 0.5e-3, 4.0)
    runs, here = (run(first), measured, replace(measured, dynamic=True)), exploration.session.environment
    exploration.live.measurements.runs = tuple(replace(each, environment=here) for each in runs)
    control.refresh()
    shown = text(panel, "plans")
    assert "current plan" in shown
    assert "act: max_fusion_size=4" in shown
    assert "▲ 4.00×" in shown
    take = elements(panel.part("plans"), data_do="take")
    assert [one[1]["title"] for one in take] == [
        "Switch to plan 2; Undo switches back",
        "Switch to plan 3; the call is traced again with dynamic shapes",
    ]
    assert take[0][1]["aria-label"] == "Use plan 2"
    panel.press("take", take[0][1]["data-of"])
    assert control.state.plan == exploration.plan == second
    panel.press("undo")
    assert exploration.plan == first


def test_the_table_names_plans_of_the_same_code(panel: Panel, control: Control, exploration: Exploration) -> None:
    def plans(*configs: int) -> str:
        exploration.live.measurements.runs = tuple(
            run(first.changed("act", config={"max_fusion_size": size} if size else {})) for size in configs
        )
        control.refresh()
        return text(panel, "plans")

    first, parts = exploration.plan, exploration.session.partitions
    compiled = tuple(replace(part, state=State.COMPILED, code_hash="equal") for part in parts)

    def run(plan: Plan) -> Session:
        return replace(exploration.session, plan=plan, partitions=compiled, timings=sessions.measured().timings)

    shown = plans(4, 8)
    assert "same code as plan 1" in shown
    assert "same code as the current plan" not in shown, "it is not compiled"
    control.session = replace(control.session, partitions=compiled)
    nodes_shown = measured_plans((run(first.changed("act", config={"max_fusion_size": 4})),), control.session)
    assert "same code as the current plan" in " ".join(map(words, nodes_shown))
    assert measured_plans((run(first),), control.session) == []


def test_a_button_of_an_earlier_table_uses_its_plan(panel: Panel, control: Control, exploration: Exploration) -> None:
    """The oldest measured plan is dropped, and all others move up, before the page has the new table."""
    before = exploration.plan
    plans = [before.changed("act", config={"max_fusion_size": size}) for size in (2, 3, 4)]
    runs = tuple(map(run, plans))
    exploration.live.measurements.runs = runs[:2]
    control.refresh()
    first, second = (one[1]["data-of"] for one in elements(panel.part("plans"), data_do="take"))
    exploration.live.measurements.runs = runs[1:]
    control.read_exploration()
    control.set(problem=None)
    panel.press("take", first)
    assert exploration.plan == before
    panel.press("take", second)
    assert exploration.plan == plans[1]


# ---------------------------------------------------------------------------------------------------------------- code


def test_a_region_that_was_never_compiled_is_labelled(panel: Panel, control: Control) -> None:
    panel.press("pane", "code")
    assert "Not compiled yet." in text(panel, "code")
    assert elements(panel.part("code"), data_do="compile code")
    assert not control.state.busy
    panel.press("remove", "mm")
    panel.press("remove", "act")
    assert "Select a region" in text(panel, "code")


@pytest.mark.compiles
def test_lines_nodes_and_kernels_highlight_each_other(
    own_exploration: Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = Panel(control := control_of(own_exploration))
    panel.press("pick", "act")
    panel.press("pane", "code")
    panel.press("compile code")
    assert control.jobs.wait(120)
    assert control.state.problem is None
    assert "cpp_fused_relu" in text(panel, "listing")
    assert "return torch.relu(x @ w).sum()" in text(panel, "listing")
    assert not elements(panel.part("code"), data_do="code")
    (line,) = elements(panel.part_source, data_do="nodes")
    names = [f"{graph['id']}:{name}" for graph in panel.graphs for name in graph["names"]]
    relu = names.index("0/forward:relu")
    # The rows that it highlights, by pane: rows of what contains it, and its own.
    highlighted = [links["chains"][links["of"][relu]] for links in panel.links.values()]
    assert highlighted == [([], [line[1]["data-of"]]), (["s0", "k0.1"], ["c0.1"])]
    keys = {element[1]["data-of"] for element in elements(panel.part("listing"), data_do="nodes")}
    assert {"s0", "k0.1", "c0.1"} <= keys
    before = control.session
    panel.press("column", "beside")
    panel.press("pane", "code")
    assert not control.state.busy  # it is known already
    assert control.session is before
    code = control.shown().code
    parts = code.partitions if code else ()
    assert code_pane(parts)[1]["c0.1"] == (("0/forward:relu",), ())
    monkeypatch.setattr(page.code, "CODE_LIMIT", 60)
    assert "The code goes on for" in " ".join(map(words, code_pane(parts)[0]))
    panel.close()


def test_gpu_code_is_requested_once_per_plan(panel: Panel, control: Control, exploration: Exploration) -> None:
    requests: list[tuple[str, str | None]] = []

    def code(name: str, *, target: str | None, **_: Any) -> RegionCode:
        requests.append((name, target))
        return RegionCode(name, (), "Generated for a GPU.")

    exploration.code = code  # type: ignore[method-assign,assignment]
    panel.press("pick", "act")
    panel.press("pane", "code")
    assert requests == []  # nothing was compiled, so there is nothing to read
    panel.press("target", value="h100")
    assert control.jobs.wait(10)
    assert requests == [("act", "h100")]
    assert "Generated for a GPU." in text(panel, "code")
    panel.press("target", value="no such thing")
    assert control.state.target == "h100"
    panel.press("remove", "act")
    assert "act" not in exploration.plan
    assert "Generated for a GPU." not in text(panel, "code"), "the region of the code is gone"


# ---------------------------------------------------------------------------------------------- where the time goes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts = (OrderedDict(up=nn.Linear(8, 8), act=nn.SiLU()) for _ in range(20))
        self.layers = nn.ModuleList(map(nn.Sequential, parts))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.head(x)
        return y.square().mean()


@pytest.fixture(scope="module")
def profiled_panel() -> Iterator[Panel]:
    """A panel of a profiled call whose ops take equal times, so that their order is always the same."""
    with explore(Net(), (torch.randn(2, 8),)) as ex:
        with pytest.MonkeyPatch.context() as patch:
            fake_op_times(patch, lambda _name: 1e-4)
            ex.profile(0.05)
        panel = Panel(control_of(ex))
        panel.press("pane", "time")
        yield panel
        panel.close()


def shares_of(session: Session) -> TimeShares:
    shares = session.time_shares
    assert shares is not None
    return shares


def test_shares_of_modules_equal_those_of_the_data_frame(profiled_panel: Panel) -> None:
    exploration, shares = profiled_panel.control.exploration, shares_of(profiled_panel.control.session)
    frame = exploration.op_times.query("by == 'module'").set_index("name")["share"]
    rows = {share.row.name: share for share in shares.by(ProfileKind.MODULE)}
    assert rows["layers.*"].times == 20
    assert rows["layers.*"].row.share == pytest.approx(frame[[f"layers.{n}" for n in range(20)]].sum())
    assert rows["head"].row.share == pytest.approx(frame["head"])
    graph = exploration.session.graph("0/forward")
    for path in ("head", "layers.3", "layers.3.up"):
        mine = [node.name for node in graph.ops if any(call.path == path for call in node.modules)]
        seconds = sum(shares.seconds(f"0/forward:{name}") for name in mine)
        assert seconds / shares.profile.whole_s == pytest.approx(frame[path])


def test_the_time_overlay_has_the_shares_of_the_time_table(profiled_panel: Panel) -> None:
    assert profiled_panel.overlays[-1]["title"] == SHARE
    found = read_picture(profiled_panel.control.session, "0/forward")
    shares_by_title = dict(zip(found.titles, (time and time[1] for time in found.times), strict=True))
    for module in ("layers.0–19 × 20", "head"):
        assert shares_by_title[module] in text(profiled_panel, "time")


def test_the_time_table_is_a_tree_of_modules(profiled_panel: Panel) -> None:
    shares = profiled_panel.control.session.time_shares
    assert shares is not None
    names = [share.row.name for share in rows_of(shares, ProfileKind.MODULE)]
    buttons = elements(profiled_panel.part("time"), data_do="show time")[: len(names)]
    shown = [words(one).rpartition(" × ")[0] or words(one) for one in buttons]
    assert "layers.*" in names
    for number, (name, label) in enumerate(zip(names, shown, strict=True)):
        parent = name.removesuffix(label).rstrip(".")
        assert name.endswith(label)
        if parent:  # it stands below the module that it is in, or another one inside that
            assert names[number - 1] == parent or names[number - 1].startswith(f"{parent}.")


def test_the_panel_ends_with_few_folds_and_none_about_the_time(profiled_panel: Panel) -> None:
    titles = [words(fold) for fold in elements(profiled_panel.part("results")) if fold[0] == "summary"]
    assert len(titles) <= 6
    assert not any("time goes" in title for title in titles)
    assert "Nothing measured yet" not in text(profiled_panel, "results")


def test_rows_of_the_time_table_can_be_marked_and_shown(profiled_panel: Panel) -> None:
    control, plan = profiled_panel.control, profiled_panel.control.exploration.plan
    for row in elements(profiled_panel.part("time"), data_do="show time"):
        assert time_share(control.session, row[1]["data-of"]) is not None
    for key, picked_origins in (
        ("module 0", "modules:layers.*"),
        ("op 0", "ops:aten."),
        ("line 0", "lines:test_panes.py:"),
    ):
        profiled_panel.press("mark time", key)
        assert control.state.problem is None
        marked = control.state.plan.regions[-1]
        assert str(marked.selectors[0]).startswith(picked_origins)
        assert control.state.selected_rows == (marked.name,)
        (again,) = elements(profiled_panel.part("time"), data_do="mark time", data_of=key)
        assert (again[2], again[1]["disabled"]) == ("Marked", True)
    assert control.state.plan.regions[0].name == "layers"
    profiled_panel.press("show time", "module 0")
    assert len(profiled_panel.selection) > 40
    profiled_panel.press("mark time", "module 999")
    profiled_panel.press("show time", "op 999")
    assert len(profiled_panel.selection) > 40
    for _ in range(3):
        profiled_panel.press("undo")
    assert control.exploration.plan == plan


def shift(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1.0


def double_and_shift(x: torch.Tensor) -> torch.Tensor:
    return 2.0 * shift(x)


def test_marking_a_line_marks_no_ops_of_called_functions() -> None:
    with explore(double_and_shift, (torch.ones(3),)) as ex:
        ex.profile(0.05)
        panel, shares = Panel(control_of(ex)), shares_of(ex.session)
        rows = [shares.nodes_of(share) for share in rows_of(shares, ProfileKind.LINE)]
        assert len(rows) == 2
        for number, shown in enumerate(rows):
            panel.press("mark time", f"line {number}")
            marked = nodes_of_region(ex.session, panel.control.state.plan.regions[-1].name)
            assert set(shown) == set(marked)
            panel.press("undo")
        panel.close()


def test_the_profile_button_profiles_and_shows_the_times(own_exploration: Exploration) -> None:
    panel = Panel(control_of(own_exploration))
    panel.press("pane", "time")
    assert "Where does the time go?" in text(panel, "time")
    assert not any(one["title"] == SHARE for one in panel.overlays)
    panel.press("pane", "why")
    panel.press("budget", value="0.05")
    panel.press("profile")
    assert panel.control.jobs.wait(60)
    assert panel.control.state.pane == "time"
    assert "the trace took" in text(panel, "time")
    assert panel.shown["overlay"] == SHARE == panel.overlays[-1]["title"]
    number = [tab["id"] for tab in panel.tabs].index(panel.first)
    assert getattr(panel, f"folds{number}")["times"]["nodes"]
    panel.close()


def test_a_glob_has_a_star_only_for_the_block_number() -> None:
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.SiLU()) for _ in range(3)))
    with explore(blocks, (torch.randn(4, 8),), grad=False) as ex:
        ex.profile(0.05)
        shares = shares_of(ex.session)
        rows = {share.row.name: share for share in shares.by(ProfileKind.MODULE)}
        assert {"*.0", "*.1"} <= set(rows), "the linears have one row, and so have the activations"
        assert str(rows["*.1"].selector) == "modules:*.1"
        activations = [node.name for node in ex.session.graph("0/inference").ops if "silu" in node.target]
        highlighted = [
            name.partition(":")[2] for name in shares.nodes_of(rows["*.1"]) if name.startswith("0/inference:")
        ]
        assert highlighted == activations != []


# -------------------------------------------------------------------------------------------------------------- shapes


@pytest.fixture
def static_panel() -> Iterator[Panel]:
    """A panel of a call traced with static shapes."""
    with small_exploration(dynamic=False) as ex:
        panel = Panel(control_of(ex))
        yield panel
        panel.close()


def shapes_field(panel: Panel) -> Any:
    (found,) = elements(panel.part("header"), data_do="shapes")
    return found


def chosen_shapes(panel: Panel) -> str:
    (chosen,) = (option[1]["value"] for option in shapes_field(panel)[2:] if option[1].get("selected"))
    return str(chosen)


def node_names(control: Control) -> set[str]:
    return {f"{graph.id}:{node.name}" for graph in control.session.graphs for node in graph.nodes}


def choose_shapes(panel: Panel, shapes: str) -> None:
    type_in(panel, "shapes", shapes)
    assert panel.control.jobs.wait(60)


def test_the_shapes_field_shows_how_the_call_was_traced(panel: Panel, static_panel: Panel) -> None:
    assert [chosen_shapes(panel), chosen_shapes(static_panel)] == ["automatic", "static"]
    assert [option[1]["value"] for option in shapes_field(panel)[2:]] == ["automatic", "static", "dynamic"]
    assert text(panel, "header").count("shapes") == 1


def test_choosing_other_shapes_traces_again_and_shows_the_new_graphs(static_panel: Panel) -> None:
    control = static_panel.control
    static_panel.press("remove", "act")
    before, plan = control.session, control.state.plan
    choose_shapes(static_panel, "dynamic")
    assert chosen_shapes(static_panel) == "dynamic"
    assert control.session is not before
    assert control.session.shapes == "dynamic"
    assert control.state.plan == plan
    assert not control.state.busy
    assert "0/forward" in {tab["id"] for tab in static_panel.tabs}
    static_panel.press("pick", "mm")
    assert set(static_panel.selection) <= node_names(control)
    assert static_panel.selection
    static_panel.press("undo")
    assert list(control.session.members) == ["mm", "act"]
    assert control.session.shapes == "dynamic"
    static_panel.press("redo")
    assert list(control.session.members) == ["mm"]
    dynamic = node_names(control)
    static_panel.press("clear")
    static_panel.press("select", value=sorted(dynamic))
    choose_shapes(static_panel, "static")
    kept = dynamic & node_names(control)
    assert set(control.state.selection) == set(static_panel.selection) == kept != dynamic, (
        "nodes that are gone are dropped"
    )


def test_tracing_again_is_a_job_that_shows_the_chosen_shapes(static_panel: Panel) -> None:
    exploration = static_panel.control.exploration
    slow = exploration.retrace = BlockedMethod(exploration.retrace)  # type: ignore[method-assign]
    type_in(static_panel, "shapes", "dynamic")
    assert "Trace again" in text(static_panel, "progress")
    assert chosen_shapes(static_panel) == "dynamic"
    assert "disabled" in shapes_field(static_panel)[1]
    assert not is_enabled(static_panel, "tools", "measure")
    static_panel.press("cancel")
    assert static_panel.control.jobs.wait(60)
    assert CANCELLED_NOTE in text(static_panel, "progress")
    assert chosen_shapes(static_panel) == "static", "the trace is as it was"
    type_in(static_panel, "shapes", "dynamic")
    type_in(static_panel, "shapes", "static")  # another front end may send it before it learns that work began
    assert static_panel.control.session.shapes == "static"
    slow.go_on.set()
    assert static_panel.control.jobs.wait(60)
    assert chosen_shapes(static_panel) == "dynamic"
    assert "disabled" not in shapes_field(static_panel)[1]


@pytest.mark.parametrize("value", ["automatic", "nonsense", ""])
def test_the_same_or_unknown_shapes_start_no_job(panel: Panel, exploration: Exploration, value: str) -> None:
    retrace = exploration.retrace = BlockedMethod()  # type: ignore[method-assign]
    retrace.go_on.set()
    choose_shapes(panel, value)
    assert retrace.calls == []
    assert text(panel, "problem") == ""


def test_a_selected_row_selects_its_nodes_in_the_new_graphs() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 3).cos() * 2

    with explore(scaled, (torch.ones(4, 4),), dynamic=False).mark("scale", ops="aten.mul*") as ex:
        panel = Panel(control_of(ex))
        panel.press("pick", "scale")
        before = set(panel.selection)
        choose_shapes(panel, "dynamic")
        after = region_nodes(panel.control, "scale")
        assert set(panel.selection) == set(panel.control.state.selection) == after
        assert (after != before) is BEFORE_2_15, "torch 2.15 gives the new nodes the same names"
        assert panel.control.state.selected_rows == ("scale",)
        panel.close()


@pytest.mark.compiles
def test_a_measured_plan_is_used_with_its_shapes(static_panel: Panel) -> None:
    exploration = static_panel.control.exploration
    exploration.benchmark(("eager",), 0.05, regions=False)
    exploration.retrace(dynamic=True).benchmark(("eager",), 0.05, regions=False)
    static_panel.control.refresh()
    assert "shapes: static" in text(static_panel, "plans")
    assert "shapes: dynamic" in text(static_panel, "plans")
    assert text(static_panel, "plans").count("current plan") == 1
    (other,) = elements(static_panel.part("plans"), data_do="take")
    static_panel.press("take", other[1]["data-of"])
    assert static_panel.control.jobs.wait(60)
    assert chosen_shapes(static_panel) == "static"
    assert text(static_panel, "plans").count("current plan") == 1
