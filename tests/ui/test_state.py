from __future__ import annotations

import pytest

from regional_explorer.record.region import Plan, Region, Selector, SelectorKind
from regional_explorer.ui.state import MOST_UNDONE, PanelState, Problem

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
    for number in range(MOST_UNDONE + 5):
        state = state.edited(PLAN.changed("b", config={"max_fusion_size": 100 + number}))
    assert len(state.past) == MOST_UNDONE


def test_choosing_opens_and_closes(state: PanelState) -> None:
    assert state.chosen("a").selected == "a"
    assert state.chosen("a").chosen("b").selected == "b"
    assert state.chosen("a").chosen("a").selected is None


def test_a_region_that_goes_is_no_longer_chosen(state: PanelState) -> None:
    assert state.chosen("a").edited(PLAN.removed("a")).selected is None
    assert state.chosen("b").edited(PLAN.removed("a")).selected == "b"


def test_a_wrong_text_stays_at_its_field_until_that_changes(state: PanelState) -> None:
    wrong = state.refused(("b", "max_fusion_size"), "abc", "takes an int")
    assert wrong.drafts[("b", "max_fusion_size")].text == "abc"
    elsewhere = wrong.edited(PLAN.changed("a", enabled=False))
    assert elsewhere.drafts == wrong.drafts
    assert wrong.edited(PLAN.changed("b", config={"max_fusion_size": 4})).drafts == {}
    assert wrong.edited(PLAN.removed("b")).drafts == {}
    assert wrong.cleared(("b", "max_fusion_size")).drafts == {}


def test_a_job_begins_is_told_and_ends(state: PanelState) -> None:
    assert not state.busy
    working = state.failed(Problem("before")).started("Compile").told("compiling a", 1.5)
    assert working.busy
    assert working.problem is None
    assert working.job is not None
    assert (working.job.doing, working.job.fraction, working.job.cancelling) == ("compiling a", 1.0, False)
    cancelling = working.cancelling()
    assert cancelling.job is not None
    assert cancelling.job.cancelling
    ended = cancelling.ended("Cancelled.", Problem("it broke"))
    assert not ended.busy
    assert (ended.note, ended.problem) == ("Cancelled.", Problem("it broke"))


def test_what_is_told_after_the_end_changes_nothing(state: PanelState) -> None:
    assert state.told("late", 0.5) is state
    assert state.cancelling() is state
