"""Regions are renamed, merged, split and carved through the panel, and what a mark would give is told before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regional_explorer.exploration.exploration import Exploration, explore
from regional_explorer.style.element import words
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.mark_form import suggestions
from regional_explorer.ui.panel import Panel
from tests.shared.panel import Blocked, elements, nodes, pick, text, type_in


def possible(panel: Panel) -> set[str]:
    return {words(one) for one in elements(panel.part("editing"), type="button") if "disabled" not in one[1]}


def preview(panel: Panel) -> str:
    panel.control.previews.wait(30)
    return text(panel, "preview")


def test_what_can_be_done_follows_what_is_selected(panel: Panel, control: Control) -> None:
    assert possible(panel) == set()
    pick(panel, "mm")
    assert possible(panel) == {"Rename", "Split"}
    pick(panel, "mm", "act")
    assert possible(panel) == {"Merge"}
    with control.jobs.running_in_cell("Compile"):
        assert possible(panel) == set()


def test_a_region_is_renamed_and_stays_selected(panel: Panel, control: Control, exploration: Exploration) -> None:
    pick(panel, "mm")
    for name, message in (("", "Type the new name first"), ("act", "exists already")):
        type_in(panel, "new name", name)
        panel.press("rename")
        assert message in text(panel, "editing")
    type_in(panel, "new name", "product")
    panel.press("rename")
    assert [region.name for region in exploration.plan.regions] == ["product", "act"]
    assert control.state.picked == ("product",)
    assert control.state.rename.name == ""


def test_regions_are_merged_under_the_config_of_the_first(panel: Panel, exploration: Exploration) -> None:
    pick(panel, "mm", "act")
    type_in(panel, "new name", "both")
    panel.press("merge")
    assert [region.name for region in exploration.plan.regions] == ["both"]
    assert exploration.plan["both"].config == {"max_fusion_size": 8}
    panel.press("undo")
    assert [region.name for region in exploration.plan.regions] == ["mm", "act"]
    panel.press("redo")
    assert "both" in exploration.plan


def test_a_merge_keeps_the_config_of_the_first_in_each_direction(panel: Panel, exploration: Exploration) -> None:
    exploration.configure("mm", {"max_fusion_size": 4}, direction="backward")
    panel.control.refresh()
    pick(panel, "mm", "act")
    panel.press("merge")
    (both,) = exploration.plan.regions
    assert (both.config, both.backward_config) == ({"max_fusion_size": 8}, {"max_fusion_size": 4})


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


@pytest.mark.parametrize("do", ["split", "rename", "uncarve", "merge"])
def test_a_second_click_that_finds_another_selection_is_ignored(
    do: str, panel: Panel, control: Control, exploration: Exploration
) -> None:
    exploration.unmark("act").mark("lin", ops="aten.sum*").mark("lin", ops="aten.mm*")
    control.refresh()
    if do == "merge":
        pick(panel, "mm", "lin")
    elif do == "uncarve":
        exploration.carve("lin", ops="aten.sum*")
        control.refresh()
        pick(panel, "lin")
    else:
        pick(panel, "lin")
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


def relu_of_merged(panel: Panel, control: Control) -> str:
    """Merge the two regions, and select the result; return its ReLU."""
    pick(panel, "mm", "act")
    panel.press("merge")
    pick(panel, "mm")
    return next(node for node in nodes(control, "mm", graph="0/forward") if "relu" in node)


def test_a_region_is_split_at_a_node_and_ops_are_carved_and_taken_back(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    relu = relu_of_merged(panel, control)
    backward_of_mm = next(node for node in nodes(control, "mm", graph="0/backward") if "mm" in node)
    panel.press("select", value=[backward_of_mm, relu])
    assert possible(panel) == {"Rename", "Split", "Carve out"}
    panel.press("split")
    assert [region.name for region in exploration.plan.regions] == ["mm.1", "mm.2"], "at what runs first"
    panel.press("undo")
    panel.press("select", value=[relu])
    panel.press("carve")
    assert exploration.plan["mm"].carved
    pick(panel, "mm")
    assert "Take back" in possible(panel)
    panel.press("uncarve")
    assert not exploration.plan["mm"].carved


def test_a_carve_that_is_refused_for_one_region_leaves_the_others(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    relu = relu_of_merged(panel, control)
    exploration.mark("sum", ops="aten.sum*")
    control.refresh()
    before = exploration.plan
    panel.press("select", value=[relu, *nodes(control, "sum", graph="0/forward")])
    panel.press("carve")
    assert "That is all of region 'sum'" in text(panel, "editing")
    assert exploration.plan == before


def type_ops(panel: Panel, pattern: str) -> None:
    type_in(panel, "kind", "ops")
    type_in(panel, "pattern", pattern)


def test_what_a_mark_would_give_is_told_before_it_is_made(panel: Panel, exploration: Exploration) -> None:
    type_ops(panel, "aten.sum*")
    assert "Region sum would give 2 partitions of 1 op (1 in 0/forward, 1 in 0/backward)" in preview(panel)
    assert "0/forward:sum_1" in panel.marked
    type_ops(panel, "aten.relu*")
    shown = preview(panel)
    assert "act: 2 → 0" in shown
    assert "region-empty" in shown
    type_ops(panel, "aten.nothing")
    assert "matches no operation" in preview(panel)
    assert panel.marked == []
    panel.press("mark")
    assert "matches no operation" in text(panel, "marking")
    assert panel.part("preview") == []  # it is told once
    type_ops(panel, "")
    assert preview(panel) == ""
    assert "matches no operation" not in text(panel, "marking")
    assert [region.name for region in exploration.plan.regions] == ["mm", "act"]


def test_a_preview_goes_once_its_pattern_has_changed(panel: Panel, exploration: Exploration) -> None:
    type_ops(panel, "aten.sum*")
    assert "Region sum would give" in preview(panel)
    assert panel.marked
    blocked = exploration.preview = Blocked(exploration.preview)  # type: ignore[method-assign]
    type_in(panel, "name", "total")
    assert "Region sum would give" in text(panel, "preview")  # right as it stands, only the name is another
    type_ops(panel, "aten.relu*")
    assert text(panel, "preview") == ""
    assert not panel.marked
    blocked.go_on.set()
    assert "Region total would give" in preview(panel)
    assert panel.marked


def test_a_preview_that_fails_unexpectedly_says_so(panel: Panel, exploration: Exploration) -> None:
    exploration.preview = Blocked(error=ZeroDivisionError("no luck"))  # type: ignore[method-assign]
    type_ops(panel, "aten.sum*")
    assert preview(panel) == "ZeroDivisionError: no luck"


def test_foresight_follows_the_selection(panel: Panel, control: Control) -> None:
    type_ops(panel, "aten.s")
    pick(panel, "act")  # a region's row: nothing new to mark
    assert control.state.mark.kind == "ops"
    panel.press("select", value=["0/forward:relu"])
    assert (control.state.mark.kind, control.state.mark.pattern) == ("selection", "")
    panel.press("select", value=[])
    assert control.state.mark.kind == "selection"
    assert preview(panel) == ""
    panel.press("select", value=sorted(nodes(control, "mm", graph="0/forward")))
    assert "would give 2 partitions of 1–2 ops" in preview(panel)
    pick(panel, "act")  # once more: nodes have been selected since
    assert preview(panel) == ""  # a region is selected, as a whole
    assert set(panel.selection) == nodes(control, "act")


def test_functions_ops_and_globs_over_equal_layers_are_suggested(control: Control) -> None:
    found = suggestions(control.session)
    assert "small:1-99" in found["lines"]
    assert "aten.mm.default" in found["ops"]
    layers = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
    with explore(nn.Sequential(*layers, nn.Linear(4, 2)), (torch.ones(2, 4),), grad=False) as ex:
        found = suggestions(control_of(ex).session)
    assert found["modules"] == ["*", "*.*", "0", "0.0", "0.1", "1", "1.0", "1.1", "2"]
