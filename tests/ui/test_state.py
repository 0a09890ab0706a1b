from __future__ import annotations

import pytest

from regional_explorer.record.plan import Plan, Region, Selector, SelectorKind
from regional_explorer.ui.state import CODE, MAX_UNDO, SOURCE, PanelState

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


def test_a_tab_is_about_the_row_selected_last_or_else_about_the_region_that_was_open(state: PanelState) -> None:
    state = state.with_pane(CODE)
    assert state.opened == "a"
    assert state.with_pane(SOURCE).with_pane(CODE).opened == "a"
    assert state.with_pane(SOURCE).with_rows_selected(["b"]).with_pane(CODE).opened == "b"
    assert state.with_pane(SOURCE).with_rows_selected(["a", "b"]).with_pane(CODE).opened == "a"
