"""The answer in the panel: its buttons have their effect, and undo reverts it."""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from regional_explorer.compiler.run import Run
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.measure import machine
from regional_explorer.record.action import EffectBasis, configure_action, disable_action
from regional_explorer.record.benchmark import BY_DEFAULT, VariantName, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.tuning import EAGER, Outcome, SearchStage, Try, Tuning
from regional_explorer.style.element import words
from regional_explorer.ui.answer import answer_part
from regional_explorer.ui.control import Control
from regional_explorer.ui.job_events import compare_in_background
from regional_explorer.ui.panel import Panel
from tests.shared import sessions
from tests.shared.panel import BlockedMethod, button, elements, text

MEASURED = replace(disable_action("mm"), basis=EffectBasis.MEASURED, gain_s=Figure(1e-5, 9e-6, 1.1e-5))
GUESSED = configure_action("act", {"max_fusion_size": 4})


@pytest.fixture
def panel_with_advice(panel: Panel, control: Control) -> Panel:
    """A panel with a finding whose gain was measured, and a guessed one."""
    found = tuple(
        Diagnostic(DiagnosticCode.REGION_SLOWER, "It is slow", ": because.", Severity.WARNING, advice=(action,))
        for action in (MEASURED, GUESSED)
    )
    control.session = replace(control.session, diagnostics=found)
    control.update(lambda state: state)
    return panel


def test_a_finding_with_a_measured_gain_has_apply_others_try(
    panel_with_advice: Panel, exploration: Exploration
) -> None:
    presses = {one[1]["data-of"]: words(one) for one in elements(panel_with_advice.part("answer"), data_do="apply")}
    assert presses == {"0": "Apply", "1": "Try"}
    assert "measured" in text(panel_with_advice, "answer")
    assert "a guess, not measured" in text(panel_with_advice, "answer")
    panel_with_advice.press("apply", "0")
    assert not exploration.plan["mm"].enabled
    assert (
        "It is slow: predicted: saves 10.0 µs (9.00 µs to 11.0 µs) in each call, measured; not measured yet."
        in text(panel_with_advice, "answer")
    )
    panel_with_advice.press("undo")
    assert exploration.plan["mm"].enabled
    assert "predicted" not in text(panel_with_advice, "answer")


def test_the_best_found_is_used_and_undone(panel: Panel, control: Control, exploration: Exploration) -> None:
    before, better = exploration.plan, exploration.draft().unmark("act").plan
    time_s, speedup = Figure(1.0, 0.9, 1.1), Figure(2.0, 1.9, 2.1)
    quick = Try("quick", SearchStage.KEYS, Outcome.MEASURED, better, final=True, time_s=time_s, speedup=speedup)
    exploration.live.tuning = Tuning((replace(quick, title=EAGER, plan=None), quick), "quick", EAGER, Figure(2.0))
    try:
        control.refresh()
        *_, use = elements(panel.part("answer"), data_do="use")
        panel.press("use", use[1]["data-of"])
        assert exploration.plan == better
        panel.press("undo")
        assert exploration.plan == before
    finally:
        exploration.live.tuning = None


def test_a_search_that_ends_with_the_plan_at_hand_says_so(
    panel: Panel, control: Control, exploration: Exploration
) -> None:
    at_hand = Try("at hand", SearchStage.KEYS, Outcome.MEASURED, exploration.plan, final=True, speedup=exactly(1.0))

    def tune(*_: object, **__: object) -> None:
        exploration.live.tuning = Tuning((replace(at_hand, title=EAGER, plan=None), at_hand), "at hand")

    exploration.tune = tune  # type: ignore[method-assign, assignment]
    try:
        panel.press("tune")
        assert control.jobs.wait(10)
        assert "The search tried 1 plan. None is clearly faster than at hand." in text(panel, "progress")
    finally:
        exploration.live.tuning = None


def test_the_bar_of_an_earlier_plan_is_not_called_in_use(control: Control) -> None:
    measured = sessions.measured()
    shown = replaced(control.shown(), session=measured)
    assert "in use" in " ".join(map(words, answer_part(shown)))
    assert measured.conditions
    earlier = replace(measured, conditions=replace(measured.conditions, outdated=True))
    assert "in use" not in " ".join(map(words, answer_part(replaced(shown, session=earlier))))


def test_a_stopped_search_keeps_the_best(panel: Panel, control: Control, exploration: Exploration) -> None:
    work = BlockedMethod()
    exploration.tune = work  # type: ignore[method-assign]
    panel.press("tune")
    assert work.begun.wait(10)
    assert words(elements(panel.part("progress"), data_do="cancel")[0]) == "Stop, keep the best"
    panel.press("cancel")
    assert control.jobs.wait(10)
    assert "results so far are kept" in text(panel, "progress")


def test_the_panel_offers_to_measure_more_without_a_verdict(
    control: Control, panel: Panel, exploration: Exploration
) -> None:
    measured = sessions.measured()
    unsure = replace(measured.timings[2], speedup=Figure(1.02, 0.9, 1.1), verdict=Verdict.INCONCLUSIVE)
    shown = replaced(control.shown(), session=replace(measured, timings=(*measured.timings[:2], unsure)))
    (again,) = elements(answer_part(shown), data_do="measure more")
    assert words(again) == f"Measure {again[1]['data-of']} s more"
    assert elements(answer_part(shown), data_do="tune"), "the search is offered too"
    exploration.benchmark = work = BlockedMethod(then=(ended := Mock()))  # type: ignore[method-assign]
    panel.press("measure more", again[1]["data-of"])
    assert work.begun.wait(10)
    work.go_on.set()
    assert control.jobs.wait(10)
    assert work.calls[0][:2] == (None, float(again[1]["data-of"])), "the variants that were measured"
    assert ended.call_args.kwargs["more"]
    assert button(panel, "tools", "budget")[1]["value"] == again[1]["data-of"]


def test_the_button_to_measure_more_says_which_variants_are_left_out(control: Control) -> None:
    measured = sessions.measured()
    unsure = replace(measured.timings[2], speedup=Figure(1.02, 0.9, 1.1), verdict=Verdict.INCONCLUSIVE)
    shown = replaced(control.shown(), session=replace(measured, timings=(*measured.timings[:2], unsure)))
    unticked = replaced(shown, state=replaced(shown.state, variants=(VariantName.EAGER, VariantName.REGIONAL)))
    texts = [" ".join(" ".join(map(words, answer_part(one))).split()) for one in (unticked, shown)]
    assert ["torch.compile is left out: Compile & measure" in one for one in texts] == [False, True]
    assert all(" s more adds rounds for about " in one for one in texts)


def test_the_first_measurement_is_long_enough_for_a_verdict(control: Control) -> None:
    profiled = sessions.profiled(sessions.training_session(1))
    assert profiled.profile
    slow = replace(profiled, profile=replace(profiled.profile, step=Figure(1.5)))
    part = answer_part(replaced(control.shown(), session=slow))
    assert words(elements(part, data_do="measure for", data_of="120")[0]) == "Measure 120 s"
    assert "a call takes 1.5 s" in " ".join(map(words, part))


def test_torch_compile_is_measured_from_its_first_request_on(
    control: Control, panel: Panel, exploration: Exploration
) -> None:
    measured = sessions.measured()
    without = replace(measured, timings=tuple(one for one in measured.timings if one.variant != "full"))
    (press,) = elements(answer_part(replaced(control.shown(), session=without)), data_do="measure with")
    control.set(variants=tuple(name for name in BY_DEFAULT if name is not VariantName.FULL))
    exploration.benchmark = work = BlockedMethod()  # type: ignore[method-assign]
    panel.press("measure with", press[1]["data-of"])
    assert work.begun.wait(10)
    work.go_on.set()
    assert control.jobs.wait(10)
    assert control.state.variants == BY_DEFAULT


@pytest.mark.compiles
def test_torch_compile_follows_the_plan_by_itself(own_exploration: Exploration) -> None:
    control = Control(own_exploration)
    control.set(budget_s=0.2)
    panel, kept = Panel(control), [0]

    def watch(control: Control) -> None:
        job = control.state.job
        if job is not None and job.background and "regional" in control.session.whole_timings:
            kept[0] += "full" not in control.session.whole_timings

    control.listeners.append(watch)
    panel.press("measure")
    while control.state.job is not None:
        assert control.jobs.wait(300)
    assert kept[0], "the figures of the plan are shown while torch.compile compiles"
    assert "full" in control.session.whole_timings


def test_without_its_tick_torch_compile_does_not_follow(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exploration, "session", sessions.measured())
    control.session = sessions.measured()
    control.set(variants=(VariantName.EAGER, VariantName.REGIONAL))
    compare_in_background(control)
    assert control.state.job is None


def test_the_button_starts_its_job_once_the_machine_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [0.0], [0.0]
    monkeypatch.setattr(machine, "other_processes_s", lambda: used[0])
    reports: list[str] = []
    loads = iter([1.5, 1.5, 0.1])

    def sleep(seconds: float) -> None:
        now[0] += seconds
        used[0] += next(loads) * seconds

    def report(doing: str, _fraction: float) -> Any:
        reports.append(doing)

    machine.wait_until_quiet(Run(progress=report), sleep, lambda: now[0])
    assert len(reports) == 2
    assert reports[0].startswith("waiting for a quiet machine: other processes use 1.5 of")
    monkeypatch.setattr(machine, "other_processes_s", lambda: None)
    machine.wait_until_quiet(Run(), lambda _: pytest.fail("it waits although the load is unknown"))


def test_an_applied_finding_is_forgotten_at_the_next_edit(panel_with_advice: Panel, control: Control) -> None:
    panel_with_advice.press("apply", "1")
    assert control.state.applied is not None
    assert control.state.applied.plan == control.state.plan
    panel_with_advice.press("remove", "act")
    assert "predicted" not in text(panel_with_advice, "answer")
