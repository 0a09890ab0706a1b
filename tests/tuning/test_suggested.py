"""Measured suggestions: the gain of each, what is kept if the run ends early, and that nothing is marked."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import regional_explorer as rx
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import MeasureError
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import Phase
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import Plan
from regional_explorer.record.tuning import Outcome, Suggestion, SuggestionKind
from regional_explorer.tables.tuning import SuggestionList, suggestions_table
from regional_explorer.tuning.bench import CheckResult
from regional_explorer.tuning.live_bench import LiveBench
from tests.shared import programs


def suggestion(gain_s: Figure) -> Suggestion:
    return Suggestion("mlp", SuggestionKind.MODULES, (), "why", 4, 2, 2, 1, gain_s=gain_s, compile_s=3.0)


def test_a_gain_whose_interval_includes_zero_counts_as_none() -> None:
    gains, nothing = suggestion(Figure(1e-3, 0.5e-3, 2e-3)), suggestion(Figure(1e-3, -0.1e-3, 2e-3))
    text = repr(SuggestionList([gains, nothing]))
    assert "saves 1.00 ms a call (500 µs–2.00 ms), pays off after 3,000 calls" in text
    assert "brings nothing" in text
    assert "The order is measured" in text
    assert list(suggestions_table([gains, nothing]).dataframe()["pays_off_after_calls"]) == [3000.0, float("inf")]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The names of the calls of each comparison; each has a few rounds, in which a plan saves 2 ms."""
    found = list[set[str]]()

    def record_calls(calls: Any, _budget_s: float, *args: Any, **options: Any) -> Any:
        result = measure_rounds(calls, 0.01, *args, **options)
        found.append({call.name for call in calls})
        samples = {name: {Phase.STEP: (3e-3 if name == "aot_eager" else 1e-3,) * 30} for name in result.samples}
        return dataclasses.replace(result, samples=samples)

    monkeypatch.setattr("regional_explorer.tuning.live_bench.measure_rounds", record_calls)
    return found


@pytest.mark.compiles
def test_measured_suggestions_are_compared_with_the_trace_and_stay_unmarked(
    compared: list[set[str]], tmp_path: Path
) -> None:
    with rx.explore(programs.Stack(), (torch.randn(64, 16, requires_grad=True),)) as ex:
        guessed = ex.suggest()
        measured = ex.suggest(budget_s=20)
        assert {one.name for one in measured} == {one.name for one in guessed}
        assert all(one.gain_s is not None or one.why_not for one in measured)
        assert any(one.compile_s for one in measured)
        assert compared
        assert all(names == {"eager", "aot_eager", "regional"} for names in compared)
        gains_s = [one.gain_s for one in measured if one.gain_s is not None]
        assert gains_s
        for gain_s in gains_s:
            assert (gain_s.value, gain_s.low, gain_s.high) == pytest.approx((2e-3, 2e-3, 2e-3))
        assert not ex.plan.regions
        assert not ex.session.artifacts
        assert ex.suggest() == measured
        saved = rx.load(ex.save(tmp_path / "session.json"))
        assert saved.suggest() == measured
        with inductor_config.patch(max_fusion_size=3):  # figures hold for the settings they were measured under
            assert ex.suggest() == guessed
        assert ex.retrace(dynamic=False).suggest() == guessed


@pytest.mark.compiles
def test_a_suggestion_with_wrong_results_has_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = CheckResult(Outcome.WRONG, "output: off by up to 3", bitwise=False)
    monkeypatch.setattr(LiveBench, "check", lambda *_: wrong)
    with rx.explore(programs.Stack(), (torch.randn(64, 16),)) as ex:
        measured = [one for one in ex.suggest(budget_s=10) if one.why_not == "wrong results: output: off by up to 3"]
    assert measured
    assert all(one.gain_s is None for one in measured)


def test_a_cancelled_measurement_returns_the_guesses() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex:
        measured = ex.suggest(budget_s=5, run=Run(cancelled=lambda: True))
        assert {one.name for one in measured} == {one.name for one in ex.suggest()}
        assert {one.why_not for one in measured} == {"it was cancelled before"}


@pytest.mark.compiles
def test_interrupted_and_shorter_runs_keep_earlier_measurements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = list[Any]()

    def interrupt_second(*args: Any) -> Any:
        if measured:
            raise KeyboardInterrupt
        measured.append(args)
        return Figure(1e-3, 0.5e-3, 2e-3)

    monkeypatch.setattr(LiveBench, "gain_s", interrupt_second)
    with rx.explore(programs.Stack(), (torch.randn(64, 16),)) as ex:
        with pytest.raises(KeyboardInterrupt):
            ex.suggest(budget_s=20)
        first, *others = ex.suggest()
        assert first.gain_s is not None
        assert first.compile_s
        assert {one.why_not for one in others} == {"it was interrupted before"}
        first_again, *others = ex.suggest(budget_s=5, run=Run(cancelled=lambda: True))
        assert first_again == first
        assert {one.why_not for one in others} == {"it was cancelled before"}
        prepared = list[Plan]()

        def prepare(_bench: LiveBench, plan: Plan) -> Any:
            prepared.append(plan)
            raise KeyboardInterrupt

        monkeypatch.setattr(LiveBench, "prepare", prepare)
        with pytest.raises(KeyboardInterrupt):
            ex.suggest(budget_s=20)
        assert [plan.regions[0].name for plan in prepared] == [others[0].name], "those without figures come first"
        assert ex.suggest()[0] == first


def test_a_wrong_budget_is_refused() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex, pytest.raises(MeasureError, match="budget_s"):
        ex.suggest(budget_s=0, run=PLAIN_RUN)
