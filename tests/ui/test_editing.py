"""Regions are marked, renamed, merged, split, carved and configured through the panel."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from regional_explorer.compiler import partition_records
from regional_explorer.compiler.region_config import catalogue
from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.exploration import live
from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.export.to_source import configure_calls
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.figure import Figure
from regional_explorer.record.grouping import Kept
from regional_explorer.record.plan import Plan
from regional_explorer.record.tuning import Suggestion
from regional_explorer.style.element import words
from regional_explorer.tuning.live_bench import LiveBench
from regional_explorer.ui.config_editor import MAX_KEYS, config_editor, key_list
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.jobs import CANCELLED_NOTE
from regional_explorer.ui.mark_form import suggestions
from regional_explorer.ui.panel import Panel
from tests.shared import programs
from tests.shared.panel import BlockedMethod, elements, is_enabled, pick, region_nodes, rows, text, type_in
from tests.shared.processes import wait_until


def names(exploration: Exploration) -> list[str]:
    return [region.name for region in exploration.plan.regions]


# ------------------------------------------------------------------------------------------------------------- editing


def enabled_buttons(panel: Panel) -> set[str]:
    return {words(one) for one in elements(panel.part("editing"), type="button") if "disabled" not in one[1]}


def test_edit_buttons_follow_the_selection(panel: Panel, control: Control) -> None:
    assert enabled_buttons(panel) == set()
    assert "no region selected" in text(panel, "editing")
    pick(panel, "mm")
    assert enabled_buttons(panel) == {"Rename", "Split"}
    assert "mm selected" in text(panel, "editing")
    pick(panel, "mm", "act")
    assert enabled_buttons(panel) == {"Merge"}
    with control.jobs.running_in_cell("Compile"):
        assert enabled_buttons(panel) == set()
    panel.press("clear")
    assert enabled_buttons(panel) == set()
    assert control.state.selection == ()


EDITS: list[Callable[[Panel], None]] = [
    lambda panel: panel.press("open", "act"),
    lambda panel: panel.press("set", "max_fusion_size", value="8"),
    lambda panel: panel.press("set", "max_fusion_size", value="many"),
    lambda panel: panel.press("enable", "act", value=False),
    lambda panel: panel.press("pane", "time"),
    lambda panel: type_in(panel, "repick", "ops relu", "mm"),
    lambda panel: panel.press("undo"),
    lambda panel: pick(panel, "mm", "act"),
    lambda panel: panel.press("merge"),
    lambda panel: panel.press("undo"),
    lambda panel: panel.press("remove", "act"),
]


def everything_sent(panel: Panel) -> dict[str, Any]:
    own = {"id", "layout", "shown", "answered", "tooltip", "tabbable", "comm"}
    return {name: value for name, value in panel.get_state().items() if name not in own and not name.startswith("_")}


def test_an_edited_panel_shows_what_a_new_one_would(panel: Panel, control: Control, exploration: Exploration) -> None:
    """What an edit does not make again is what would be made again."""
    plans = []
    for number, edit in enumerate(EDITS):
        edit(panel)
        plans.append(exploration.plan)
        kept = exploration.session
        exploration.live.program.checked, exploration.live._marked = Kept(), Kept()
        exploration.live._snapshot = None
        assert exploration.session == kept, number
        new = Panel(control)
        assert everything_sent(panel) == everything_sent(new), number
        new.close()
    assert sum(one != other for one, other in pairwise(plans)) == len(EDITS) - 4  # the others edit no plan


def test_a_config_edit_runs_no_check_of_graphs(
    panel: Panel, exploration: Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Evidence] = []

    def noted(evidence: Evidence) -> list[Diagnostic]:
        checks.append(evidence)
        return []

    monkeypatch.setattr(partition_records, "check", noted)
    panel.press("open", "act")
    panel.press("set", "max_fusion_size", value="8")
    assert exploration.plan["act"].config == {"max_fusion_size": 8}
    assert checks == []
    panel.press("remove", "act")
    assert len(checks) == 1


def test_a_region_is_renamed_and_stays_selected(panel: Panel, control: Control, exploration: Exploration) -> None:
    pick(panel, "mm")
    for name, message in (("", "Type the new name first"), ("act", "exists already")):
        type_in(panel, "new name", name)
        panel.press("rename")
        assert message in text(panel, "editing")
    type_in(panel, "new name", "product")
    panel.press("rename")
    assert names(exploration) == ["product", "act"]
    assert control.state.selected_rows == ("product",)
    assert control.state.rename.name == ""


def test_a_merged_region_has_the_configs_of_the_first(panel: Panel, exploration: Exploration) -> None:
    def merge_both() -> Any:
        pick(panel, "mm", "act")
        panel.press("merge")
        (one,) = exploration.plan.regions
        return one.name, one.config, one.backward_config

    type_in(panel, "new name", "both")
    assert merge_both() == ("both", {"max_fusion_size": 8}, None)
    panel.press("undo")
    assert names(exploration) == ["mm", "act"]
    panel.press("redo")
    assert names(exploration) == ["both"]
    panel.press("undo")
    exploration.configure("mm", {"max_fusion_size": 4}, direction="backward")
    panel.control.refresh()
    assert merge_both() == ("mm", {"max_fusion_size": 8}, {"max_fusion_size": 4})


def test_a_cell_edits_the_plan_while_a_job_runs(panel: Panel, control: Control, exploration: Exploration) -> None:
    before = exploration.plan
    with control.jobs.running_in_cell("Compile"):
        exploration.rename("act", "activation")
        control.refresh()  # as after each cell: nothing is read while a job runs
    assert control.state.plan == exploration.plan == control.session.plan != before
    panel.press("undo")
    assert exploration.plan == before
    panel.press("redo")
    assert "activation" in exploration.plan


def test_undo_during_a_cell_undoes_the_edit_of_the_cell(panel: Panel, exploration: Exploration) -> None:
    first = exploration.plan
    panel.press("remove", "mm")
    removed = exploration.plan
    exploration.rename("act", "activation")  # in a cell that still runs: the panel has not read it yet
    edited = exploration.plan
    panel.press("undo")
    assert exploration.plan == removed
    panel.press("redo")
    assert exploration.plan == edited
    exploration.disable("activation")
    disabled = exploration.plan
    panel.press("remove", "activation")
    for plan in (disabled, edited, removed, first):
        panel.press("undo")
        assert exploration.plan == plan


@pytest.mark.parametrize("do", ["split", "rename", "uncarve", "merge"])
def test_the_second_click_of_a_double_click_is_ignored(
    do: str, panel: Panel, control: Control, exploration: Exploration
) -> None:
    exploration.unmark("act").mark("lin", ops="aten.sum*").mark("lin", ops="aten.mm*")
    if do == "uncarve":
        exploration.carve("lin", ops="aten.sum*")
    control.refresh()
    pick(panel, *(["mm"] if do == "merge" else []), "lin")
    if do in {"split", "rename"}:
        type_in(panel, "new name", "line")
    panel.press(do)
    after = exploration.plan
    assert control.state.problem is None
    assert control.state.rename.error == ""
    if do == "rename":
        panel.press("clear")
    panel.press(do)
    assert exploration.plan == after
    assert control.state.problem is None


def test_selectors_of_a_region_are_changed_in_its_row(panel: Panel, control: Control, exploration: Exploration) -> None:
    def field() -> Any:
        (found,) = elements(panel.part("regions"), data_do="repick", data_of="act")
        return found

    before = exploration.plan
    assert field()[1]["value"] == "ops aten.relu*"
    for typed, picked in (
        ("ops:aten.sum*", "ops:aten.sum*"),
        ("ops relu, sum", "ops:relu,sum"),
        ("ops aten.relu*", ""),
    ):
        type_in(panel, "repick", typed, "act")
        assert exploration.plan["act"].selection == (picked or before["act"].selection)
    assert exploration.plan == before
    for typed, message in (("ops nope", "matches no operation"), ("relu", "Write modules, lines, ops")):
        type_in(panel, "repick", typed, "act")
        assert message in rows(panel)["act"]
        assert field()[1]["value"] == typed
        assert exploration.plan == before
    type_in(panel, "repick", "ops aten.sum*", "act")
    assert control.state.invalid_inputs == {}
    pick(panel, "mm", "act")
    panel.press("merge")
    assert elements(panel.part("regions"), data_do="repick") == [], "a merged region has more than one selector"


def merge_and_find_relu(panel: Panel, control: Control) -> str:
    """Merge the two regions and select the result; return its ReLU."""
    pick(panel, "mm", "act")
    panel.press("merge")
    pick(panel, "mm")
    return next(node for node in region_nodes(control, "mm", graph="0/forward") if "relu" in node)


def test_regions_are_split_and_ops_carved_and_taken_back(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    relu = merge_and_find_relu(panel, control)
    backward_of_mm = next(node for node in region_nodes(control, "mm", graph="0/backward") if "mm" in node)
    panel.press("select", value=[backward_of_mm, relu])
    assert enabled_buttons(panel) == {"Rename", "Split", "Carve out"}
    panel.press("split")
    assert names(exploration) == ["mm.1", "mm.2"], "at what runs first"
    panel.press("undo")
    panel.press("select", value=[relu])
    panel.press("carve")
    assert exploration.plan["mm"].carved
    pick(panel, "mm")
    assert "Take back" in enabled_buttons(panel)
    panel.press("uncarve")
    assert not exploration.plan["mm"].carved


def test_carving_is_all_or_nothing_over_several_regions(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    relu = merge_and_find_relu(panel, control)
    exploration.mark("sum", ops="aten.sum*")
    control.refresh()
    before = exploration.plan
    panel.press("select", value=[relu, *region_nodes(control, "sum", graph="0/forward")])
    panel.press("carve")
    assert "That would carve out every op of region 'sum'" in text(panel, "editing")
    assert exploration.plan == before


# ------------------------------------------------------------------------------------------------------------- marking


def type_ops(panel: Panel, pattern: str, name: str = "") -> None:
    for do, value in (("kind", "ops"), ("pattern", pattern), ("name", name)):
        type_in(panel, do, value)


def preview(panel: Panel) -> str:
    panel.control.previews.wait(30)
    return text(panel, "preview")


def test_the_form_marks_under_a_typed_or_proposed_name(panel: Panel) -> None:
    type_in(panel, "kind", "ops")
    assert elements(panel.part("marking"), value="aten.relu.default")
    for name in ("total", "", ""):
        type_ops(panel, "aten.sum*", name)
        panel.press("mark")
    assert list(rows(panel)) == ["mm", "act", "total", "sum", "sum_2"]
    assert panel.control.state.mark.name == ""


def test_nodes_selected_in_the_graph_become_a_region(panel: Panel, control: Control) -> None:
    name = "0/forward:sum_1"
    type_in(panel, "name", "picked")
    panel.press("mark")
    assert "Enter a pattern" in text(panel, "marking")
    panel.press("select", value=[name])
    assert elements(panel.part("marking"), value="ops:sum")
    panel.press("mark")
    assert "✗" not in text(panel, "marking")
    assert control.state.plan["picked"].selection == "ops:sum"
    assert name in region_nodes(control, "picked")


def test_after_a_mark_the_new_region_is_selected_and_no_other_is_previewed(panel: Panel, control: Control) -> None:
    panel.press("select", "op", value=["0/forward:sum_1"])
    assert "Mark sum" in text(panel, "picked")
    panel.press("mark picked", "this")
    assert control.state.selected_rows == ("sum",)
    assert set(panel.selection) == region_nodes(control, "sum")
    assert text(panel, "picked") == "These ops are region sum ."
    assert preview(panel) == ""
    panel.press("select", "op", value=["0/forward:relu"])  # ops of another region
    assert not control.state.selected_rows
    assert list(panel.selection) == ["0/forward:relu"]


def test_a_click_selects_a_line_or_ops_of_equal_layers() -> None:
    with explore(programs.Stack(), (torch.randn(4, 16),)) as ex:
        control = control_of(ex)
        panel = Panel(control)
        panel.press("select", "line", value=["0/forward:pow_1", "0/forward:mean"])
        assert elements(panel.part("marking"), value="lines:Stack.forward:4")
        assert "alike" not in text(panel, "marking")
        panel.press("select", "no such thing", value=["0/forward:gelu"])
        assert elements(panel.part("marking"), value="lines:Stack.forward:4")
        panel.press("select", "op", value=["0/forward:gelu"])
        assert elements(panel.part("marking"), value="ops:gelu &modules:layers.0")
        assert "all 3 alike" in text(panel, "marking")
        assert "would have 2 pieces, 1 + 1 ops" in preview(panel)
        type_in(panel, "alike", "alike")
        assert elements(panel.part("marking"), value="ops:gelu")
        assert "would have 6 pieces" in preview(panel)
        panel.press("mark")
        assert ex.plan["gelu"].selection == "ops:gelu"
        panel.press("select", "op", value=["0/forward:gelu_1"])
        assert not control.state.mark.alike
        panel.press("carve")
        assert ex.plan["gelu"].selection == "ops:gelu, but ops:gelu &modules:layers.1"
        panel.close()


def test_excluded_ops_can_be_typed_alone_or_after_a_pattern(panel: Panel, control: Control) -> None:
    type_ops(panel, "-ops:aten.relu*")
    assert "Region region would have 4 pieces" in preview(panel)
    assert not any("relu" in node for node in panel.marked)
    panel.press("mark")
    assert control.state.plan["region"].selection == "-ops:aten.relu*"
    type_ops(panel, "aten.* -ops:sum,aten.mm")
    panel.press("mark")
    assert control.state.plan["aten"].selection == "ops:aten.* -ops:sum,aten.mm"
    type_ops(panel, "aten.* -ops:aten.nothing")
    panel.press("mark")
    assert "ops:aten.nothing matches no operation" in text(panel, "marking")


def test_the_panel_suggests_regions_if_there_are_none(panel: Panel, exploration: Exploration) -> None:
    for name in ("mm", "act"):
        panel.press("remove", name)
    assert "No region yet" in text(panel, "regions")
    suggested = {one.name: one.selectors for one in exploration.suggest()}
    names = [one[1]["data-of"] for one in elements(panel.part("regions"), data_do="mark suggested")]
    assert names == list(suggested)[: len(names)]
    panel.press("mark suggested", names[0])
    assert list(rows(panel)) == [names[0]]
    assert exploration.plan[names[0]].selectors == suggested[names[0]]


def test_measured_suggestions_are_sorted_by_gain_and_kept(
    own_exploration: Exploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gains_of_first = threading.Event(), [None, Figure(1e-4, -1e-4, 2e-4)]

    def measure(bench: LiveBench, found: Sequence[Suggestion], budget_s: float, keep: Callable[..., None]) -> None:
        """Wait for *Cancel*; the last suggestion gains, the first does not, which only the second call measures."""
        begun.set()
        assert wait_until(bench.context.run.cancelled)
        first = replace(guessed[0], gain_s=gains_of_first.pop(0), compile_s=budget_s)
        last = replace(guessed[-1], gain_s=Figure(2e-3, 1.5e-3, 2.5e-3), compile_s=budget_s)
        keep([last, first, *found[2:]])

    def measure_and_cancel(panel: Panel) -> str:
        begun.clear()
        panel.press("measure suggested")
        assert begun.wait(60)
        assert not is_enabled(panel, "regions", "measure suggested")
        panel.press("cancel")
        assert own_control.jobs.wait(60)
        assert CANCELLED_NOTE in text(panel, "progress")
        return text(panel, "regions")

    monkeypatch.setattr(live, "measure_suggestions", measure)
    own_exploration.plan = Plan()
    guessed, own_control = own_exploration.suggest(), control_of(own_exploration)
    panel = Panel(own_control)
    assert "Parts that may gain from a compile" in text(panel, "regions")
    assert "Measure these, 30 s" in text(panel, "regions")
    assert "Measure the others, 30 s" in measure_and_cancel(panel)
    shown = measure_and_cancel(panel)
    assert "saves 2.00 ms (1.50 ms–2.50 ms) a step, measured" in shown
    assert "no gain" in shown
    suggested = [one[1]["data-of"] for one in elements(panel.part("regions"), data_do="mark suggested")]
    assert suggested[:2] == [guessed[-1].name, guessed[0].name]
    assert text(Panel(control_of(own_exploration)), "regions") == shown
    own_exploration.retrace(dynamic=True)
    assert own_exploration.session.suggestions == ()


def test_the_form_previews_the_partitions_of_a_mark(panel: Panel, exploration: Exploration) -> None:
    type_ops(panel, "aten.sum*")
    assert "Region sum would have 2 pieces, 1 + 1 ops" in preview(panel)
    assert "0/forward:sum_1" in panel.marked
    type_ops(panel, "aten.relu*")
    shown = preview(panel)
    assert "act: 2 → 0 pieces" in shown
    assert "region-empty" in shown
    type_ops(panel, "aten.nothing")
    assert "matches no operation" in preview(panel)
    assert panel.marked == []
    panel.press("mark")
    assert "✗ " in text(panel, "marking")
    assert "matches no operation" in text(panel, "marking")
    assert panel.part("preview") == []  # the error is shown once
    type_in(panel, "pattern", "")
    assert preview(panel) == ""
    assert "✗ " not in text(panel, "marking")
    panel.press("mark")
    assert "Enter a pattern: a glob over operators" in text(panel, "marking")
    assert names(exploration) == ["mm", "act"]


def test_a_preview_is_dropped_when_its_pattern_changes(panel: Panel, exploration: Exploration) -> None:
    type_ops(panel, "aten.sum*")
    assert "Region sum would have" in preview(panel)
    assert panel.marked
    blocked = exploration.preview = BlockedMethod(exploration.preview)  # type: ignore[method-assign]
    type_in(panel, "name", "total")
    assert "Region sum would have" in text(panel, "preview")  # still right: only the name has changed
    type_in(panel, "pattern", "aten.relu*")
    assert text(panel, "preview") == ""
    assert not panel.marked
    blocked.go_on.set()
    assert "Region total would have" in preview(panel)
    assert panel.marked


def test_an_unexpected_error_of_a_preview_is_shown(panel: Panel, exploration: Exploration) -> None:
    exploration.preview = BlockedMethod(error=ZeroDivisionError("no luck"))  # type: ignore[method-assign]
    type_ops(panel, "aten.sum*")
    assert preview(panel) == "ZeroDivisionError: no luck"


def test_the_preview_follows_the_selection(panel: Panel, control: Control) -> None:
    type_ops(panel, "aten.s")
    pick(panel, "act")  # a region's row: nothing new to mark
    assert control.state.mark.kind == "ops"
    panel.press("select", value=["0/forward:relu"])
    assert (control.state.mark.kind, control.state.mark.pattern) == ("selection", "")
    panel.press("select", value=[])
    assert control.state.mark.kind == "selection"
    assert preview(panel) == ""
    panel.press("select", value=sorted(region_nodes(control, "mm", graph="0/forward")))
    assert preview(panel) == ""  # the ops are a region already
    assert text(panel, "picked") == "These ops are region mm ."
    panel.press("select", value=["0/forward:sum_1"])
    assert "Region sum would have 2 pieces, 1 + 1 ops" in preview(panel)
    pick(panel, "act")  # again: nodes have been selected since
    assert preview(panel) == ""  # a region is selected, as a whole
    assert set(panel.selection) == region_nodes(control, "act")


def test_functions_ops_and_globs_over_equal_layers_are_suggested(control: Control) -> None:
    found = suggestions(control.session)
    assert "small:1-99" in found["lines"]
    assert "aten.mm.default" in found["ops"]
    layers = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
    with explore(nn.Sequential(*layers, nn.Linear(4, 2)), (torch.ones(2, 4),), grad=False) as ex:
        found = suggestions(ex.session)
    assert found["modules"] == ["*.0", "*.1", "0", "0.0", "0.1", "1", "1.0", "1.1", "2"]


# ------------------------------------------------------------------------------------------------------------- configs


def fields(panel: Panel) -> dict[str, Any]:
    """Return the fields of the open config, by key."""
    return {one[1]["data-of"]: one for one in elements(panel.part("config"), data_do="set")}


def fill(panel: Panel, key: str, value: str | bool) -> None:
    type_in(panel, "set", value, key)


def field_errors(panel: Panel) -> str:
    boxes = elements(panel.part("config"), class_="rx-field")
    return " ".join(words(error) for box in boxes for error in elements([box], role="alert"))


def direction(panel: Panel) -> str:
    (menu,) = elements(panel.part("config"), data_do="direction")
    return str(next(option[1]["value"] for option in menu[2:] if option[1].get("selected")))


@pytest.mark.parametrize(
    ("key", "tag", "kind", "typed", "value"),
    [
        ("max_fusion_size", "input", "number", "4", 4),
        ("epilogue_fusion", "input", "checkbox", True, True),
        ("cpp.simdlen", "input", "text", "512", 512),
        ("cpp.simdlen", "input", "text", "None", None),
        ("cpp.vec_isa_ok", "input", "text", "True", True),
        ("max_autotune_gemm_backends", "input", "text", "ATEN,CPP", "ATEN,CPP"),
        ("cuda.arch", "input", "text", "90", "90"),
        ("max_autotune_gemm_search_space", "select", None, "EXHAUSTIVE", "EXHAUSTIVE"),
    ],
)
def test_a_field_fits_the_type_of_its_key(
    panel: Panel, exploration: Exploration, key: str, tag: str, kind: str | None, typed: Any, value: object
) -> None:
    panel.press("open", "act")
    panel.press("add", key)
    assert (key in exploration.plan["act"].config) is (kind == "checkbox"), "a key at its default is no edit"
    shown = fields(panel)[key]
    assert (shown[0], shown[1].get("type")) == (tag, kind)
    fill(panel, key, typed)
    default = catalogue()[key].default
    assert exploration.plan["act"].config == ({} if value == default and kind != "checkbox" else {key: value})
    assert field_errors(panel) == ""


def test_an_invalid_value_is_shown_until_its_field_changes(panel: Panel, exploration: Exploration) -> None:
    def fill_invalid() -> None:
        panel.press("undo")
        if panel.control.state.opened is None:
            panel.press("open", "mm")
        config = exploration.plan["mm"].config
        fill(panel, "max_fusion_size", "abc")
        assert "takes an int" in field_errors(panel)
        shown = fields(panel)["max_fusion_size"][1]
        assert (shown["value"], shown["class"]) == ("abc", "rx-wrong")
        assert exploration.plan["mm"].config == config

    panel.press("remove", "act")
    fill_invalid()
    panel.press("enable", "act", value=False)
    assert fields(panel)["max_fusion_size"][1]["value"] == "abc"
    exploration.configure("mm", {"max_fusion_size": 4})
    panel.control.refresh()
    assert fields(panel)["max_fusion_size"][1]["value"] == "4"
    assert field_errors(panel) == ""
    for do, of in (("remove", "mm"), ("unset", "max_fusion_size")):
        fill_invalid()
        panel.press(do, of)
        assert panel.control.state.invalid_inputs == {}
    fill_invalid()
    fill(panel, "max_fusion_size", "2")
    assert exploration.plan["mm"].config == {"max_fusion_size": 2}
    assert field_errors(panel) == ""
    assert "class" not in fields(panel)["max_fusion_size"][1]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("cpp.simdlem", "Did you mean 'cpp.simdlen'"),
        ("fx_graph_cache", "Cannot be set for one region"),
        ("no such text", "no key"),
    ],
)
def test_keys_that_cannot_be_added_are_shown_in_the_list(
    panel: Panel, exploration: Exploration, typed: str, message: str
) -> None:
    panel.press("open", "act")
    type_in(panel, "key query", typed)
    assert message in text(panel, "config")
    panel.press("add", typed)  # no page offers it
    assert exploration.plan["act"].config == {}
    assert panel.control.state.problem is not None


def test_fields_of_keys_without_effect_say_so(panel: Panel, control: Control, exploration: Exploration) -> None:
    exploration.configure("act", {"max_fusion_size": 9, "epilogue_fusion": False, "cpp.simdlen": 256})
    control.refresh()
    panel.press("open", "act")
    keys = ("max_fusion_size", "epilogue_fusion")
    shown = control.shown()
    assert "No effect here" not in " ".join(map(words, config_editor(shown)[:1]))
    partitions = tuple(replace(part, same_without=(keys[:1], keys)) for part in shown.session.partitions)
    shown = dataclasses.replace(shown, session=replace(shown.session, partitions=partitions))
    fields = elements(config_editor(shown), class_="rx-field")
    marked = "No effect here: the generated code is the same without max_fusion_size and epilogue_fusion."
    assert [marked in words(one) for one in fields] == [True, True, False]


def test_keys_worth_trying_are_first_and_all_can_be_searched(panel: Panel) -> None:
    def find_keys(query: str) -> list[str]:
        type_in(panel, "key query", query)
        (listed,) = elements(panel.part("config"), class_="rx-keys")
        return [item[2][2][2] for item in listed[2:]]

    panel.press("open", "act")
    assert find_keys("")[:2] == ["max_fusion_size", "cpp.simdlen"]
    shown = text(panel, "config")
    assert "an int, default 64 · can matter on cpu" in shown
    assert "how many nodes to allow into a single fusion" in shown
    assert find_keys("max_autotune")[0] == "max_autotune"
    assert find_keys("coordinate_descent_tuning")[0] == "coordinate_descent_tuning"
    assert "No effect here: it tunes Triton kernels." in text(panel, "config")
    assert "fallback_random" in find_keys("SLOW debugging")  # words of the text
    assert len(find_keys("True or False")) == MAX_KEYS
    assert "only the first 40 are listed" in text(panel, "config")
    assert all(key_list(key, "cpu", ())[1:] for key in catalogue())


def test_keys_are_added_once_and_removed_and_presets_applied(panel: Panel, exploration: Exploration) -> None:
    panel.press("open", "mm")
    add = {one[1]["data-of"]: one for one in elements(panel.part("config"), data_do="add")}
    assert (words(add["max_fusion_size"]), add["max_fusion_size"][1].get("disabled")) == ("in use", True)
    assert (words(add["cpp.simdlen"]), add["cpp.simdlen"][1].get("disabled")) == ("Add", None)
    panel.press("unset", "max_fusion_size")
    assert exploration.plan["mm"].config == {}
    type_in(panel, "preset", "eager numerics")
    assert exploration.plan["mm"].config == {"emulate_precision_casts": True, "fallback_random": True}
    assert list(fields(panel)) == ["emulate_precision_casts", "fallback_random"]
    type_in(panel, "preset", "default")
    assert exploration.plan["mm"].config == {}


def test_only_one_config_is_open_and_its_row_closes_it(panel: Panel) -> None:
    def open_rows() -> list[str]:
        opened = elements(panel.part("regions"), data_do="open", aria_expanded="true")
        return [one[1]["data-of"] for one in opened]

    for name, shown in (("mm", ["max_fusion_size"]), ("act", [])):
        panel.press("open", name)
        assert text(panel, "config").startswith(f"Config of {name}")
        assert (list(fields(panel)), open_rows()) == (shown, [name])
    panel.press("pane", "why")
    assert open_rows() == []
    panel.press("open", "mm")
    panel.press("open", "mm")
    assert (fields(panel), open_rows(), panel.control.state.shows("config")) == ({}, [], False)


def test_each_direction_has_its_own_config_fields(panel: Panel, exploration: Exploration) -> None:
    panel.press("open", "mm")
    type_in(panel, "direction", "backward")
    fill(panel, "max_fusion_size", "2")
    fill(panel, "cpp.simdlen", "256")
    assert exploration.plan["mm"].config == {"max_fusion_size": 8}
    assert exploration.plan["mm"].backward_config == {"max_fusion_size": 2, "cpp.simdlen": 256}
    assert "backward max_fusion_size=2" in text(panel, "regions")
    fill(panel, "max_fusion_size", "abc")
    assert "takes an int" in field_errors(panel)
    type_in(panel, "direction", "forward")
    assert field_errors(panel) == "", "an error in one direction is shown there"
    assert list(fields(panel)) == ["max_fusion_size"]
    assert fields(panel)["max_fusion_size"][1]["value"] == "8"
    fill(panel, "max_fusion_size", "3")
    assert exploration.plan["mm"].config == {"max_fusion_size": 3}
    (shown,) = elements(panel.part("config"), class_="rx-python")
    calls = shown[2][2].splitlines()
    assert calls == list(configure_calls(exploration.plan["mm"]))
    assert ["direction='backward'" in call for call in calls] == [False, True]
    type_in(panel, "direction", "backward")
    panel.press("unset", "cpp.simdlen")
    assert exploration.plan["mm"].configs[1][1] == {"max_fusion_size": 2}


def test_choosing_both_directions_copies_the_forward_config(panel: Panel, exploration: Exploration) -> None:
    exploration.configure("mm", {"max_fusion_size": 2}, direction="backward")
    panel.control.refresh()
    panel.press("open", "mm")
    assert direction(panel) == "forward"
    type_in(panel, "direction", "both")
    assert exploration.plan["mm"].configs == ((None, {"max_fusion_size": 8}),)
    assert direction(panel) == "both"
    panel.press("undo")
    assert exploration.plan["mm"].backward_config == {"max_fusion_size": 2}
    assert direction(panel) == "forward"
