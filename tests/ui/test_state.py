from __future__ import annotations

import pytest

from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.ui.state import CODE, MAX_UNDO, SOURCE, PanelState, Sort

A = Region("a", (Selector(SelectorKind.OPS, ("aten.mm*",)),))
B = Region("b", (Selector(SelectorKind.OPS, ("aten.relu*",)),), {"max_fusion_size": 8})
PLAN = Plan((A, B))


@pytest.fixture
def state() -> PanelState:
    return PanelState(PLAN)


def test_an_edit_can_be_undone_and_redone(state: PanelState) -> None:
    edited = state.edited(PLAN.changed("a", enabled=False))
    assert not edited.plan["a"].enabled
    assert edited.undone().plan == PLAN
    assert edited.undone().redone().plan == edited.plan


def test_an_edit_that_changes_nothing_is_none(state: PanelState) -> None:
    assert state.edited(Plan((A, B))) is state


def test_an_edit_after_undoing_forgets_what_was_undone(state: PanelState) -> None:
    once = state.edited(PLAN.removed("a")).undone().edited(PLAN.removed("b"))
    assert once.future == ()
    assert once.redone() is once
    assert once.undone().plan == PLAN


def test_there_is_nothing_to_undo_at_first(state: PanelState) -> None:
    assert state.undone() is state
    assert state.redone() is state


def test_undoing_has_a_limit(state: PanelState) -> None:
    for number in range(MAX_UNDO + 5):
        state = state.edited(PLAN.changed("b", config={"max_fusion_size": 100 + number}))
    assert len(state.past) == MAX_UNDO


def test_one_config_is_open_at_a_time(state: PanelState) -> None:
    assert state.with_config_toggled("a").opened == "a"
    assert state.with_config_toggled("a").with_config_toggled("b").opened == "b"
    assert state.with_config_toggled("a").with_config_toggled("a").opened is None


def test_rows_are_selected_one_several_or_all_between(state: PanelState) -> None:
    assert state.with_rows_selected(["a", "a"]).picked == ("a",)
    assert state.with_rows_selected(["a"]).with_row_toggled("b").picked == ("a", "b")
    assert state.with_rows_selected(["a"]).with_row_toggled("b").with_row_toggled("a").picked == ("b",)
    order = ("d", "c", "a", "b")
    assert state.with_rows_selected(["c"]).with_range_selected("b", order).picked == ("c", "a", "b")
    assert set(state.with_rows_selected(["b"]).with_range_selected("c", order).picked) == {"c", "a", "b"}
    assert state.with_range_selected("a", order).picked == ("a",)


def test_a_column_orders_upwards_then_downwards_then_not_at_all(state: PanelState) -> None:
    once = state.sorted_by("ops")
    assert once.sort == Sort("ops")
    assert once.sorted_by("ops").sort == Sort("ops", descending=True)
    assert once.sorted_by("ops").sorted_by("ops").sort is None
    assert once.sorted_by("name").sort == Sort("name")


def test_a_region_that_goes_is_neither_open_nor_selected(state: PanelState) -> None:
    both = state.with_config_toggled("a").with_rows_selected(["a", "b"])
    gone = both.edited(PLAN.removed("a"))
    assert (gone.opened, gone.picked) == (None, ("b",))
    assert both.edited(PLAN.removed("b")).opened == "a"


def test_a_region_that_is_renamed_stays_open_and_selected(state: PanelState) -> None:
    renamed = state.with_config_toggled("a").with_rows_selected(["a", "b"]).edited(PLAN.changed("a", name="c"))
    assert (renamed.opened, renamed.picked) == ("c", ("c", "b"))


def test_a_wrong_text_stays_at_its_field_until_that_changes(state: PanelState) -> None:
    wrong = state.with_invalid_input(("b", None, "max_fusion_size"), "abc", "takes an int")
    assert wrong.invalid_inputs[("b", None, "max_fusion_size")].text == "abc"
    elsewhere = wrong.edited(PLAN.changed("a", enabled=False))
    assert elsewhere.invalid_inputs == wrong.invalid_inputs
    assert wrong.edited(PLAN.changed("b", config={"max_fusion_size": 4})).invalid_inputs == {}
    assert wrong.edited(PLAN.removed("b")).invalid_inputs == {}
    assert wrong.without_invalid_input(("b", None, "max_fusion_size")).invalid_inputs == {}


def test_a_tab_is_about_the_row_selected_last_or_else_about_the_region_that_was_open(state: PanelState) -> None:
    state = state.with_pane(CODE)
    assert state.opened == "a"
    assert state.with_pane(SOURCE).with_pane(CODE).opened == "a"
    assert state.with_pane(SOURCE).with_rows_selected(["b"]).with_pane(CODE).opened == "b"
    assert state.with_pane(SOURCE).with_rows_selected(["a", "b"]).with_pane(CODE).opened == "a"
