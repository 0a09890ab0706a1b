"""Suggestions that were measured: what each gains, what is left of a budget, and that nothing is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import regional_explorer as rx
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import MeasureError
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.rounds import RoundsResult, Stop
from regional_explorer.record.benchmark import NumericsVerdict, PartitionTiming, Phase, Timing, VariantName, Verdict
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.plan import Plan
from regional_explorer.record.suggestion import Suggestion, SuggestionKind
from regional_explorer.tables.suggestion import SuggestionList, suggestions_table
from regional_explorer.tuning import suggested
from regional_explorer.tuning.live_bench import LiveBench
from regional_explorer.tuning.suggested import gain_alone_less_cut_s
from tests.shared import programs


def timing(variant: str, seconds: float, speedup: Figure | None = None) -> Timing:
    return Timing(
        variant, Phase.FORWARD, (), exactly(seconds), 0.0, speedup, Verdict.FASTER, numerics=NumericsVerdict.OK
    )


def results(*pieces: PartitionTiming, cut_s: float = 1.1e-3) -> BenchmarkResults:
    samples = {"aot_eager": {Phase.FORWARD: (1e-3,) * 20}, "cut": {Phase.FORWARD: (cut_s,) * 20}}
    cut = RoundsResult("aot_eager", 1.0, samples, {}, {}, 20, 1, 1.0, Stop.BUDGET)
    return BenchmarkResults(partition_timings=list(pieces), cut=cut)


def test_a_gain_is_the_sum_over_instances_less_the_cost_of_the_cut() -> None:
    piece = PartitionTiming(
        "mlp", timing(VariantName.EAGER, 2e-3), timing("compiled", 1e-3, Figure(2.0, 1.6, 2.5)), runs=3
    )
    eager = PartitionTiming("tail", timing(VariantName.EAGER, 5e-3), None)
    gain_s = gain_alone_less_cut_s(results(piece, eager), Phase.FORWARD)
    assert gain_s is not None
    assert gain_s.bounds is not None
    assert (gain_s.value, *gain_s.bounds) == pytest.approx((2.9e-3, 2.15e-3, 3.5e-3))


def test_a_gain_is_unknown_if_one_pieces_gain_is() -> None:
    piece = PartitionTiming("mlp", timing(VariantName.EAGER, 2e-3), timing("compiled", 1e-3))
    assert gain_alone_less_cut_s(results(piece), Phase.FORWARD) is None
    assert gain_alone_less_cut_s(BenchmarkResults(), Phase.FORWARD) is None


def suggestion(gain_s: Figure) -> Suggestion:
    return Suggestion("mlp", SuggestionKind.MODULES, (), "why", 4, 2, 2, 1, gain_s=gain_s, compile_s=3.0)


def test_a_gain_whose_interval_includes_none_counts_as_none() -> None:
    gains, nothing = suggestion(Figure(1e-3, 0.5e-3, 2e-3)), suggestion(Figure(1e-3, -0.1e-3, 2e-3))
    text = repr(SuggestionList([gains, nothing]))
    assert "saves 1.00 ms a call (500 µs–2.00 ms), pays off after 3,000 calls" in text
    assert "brings nothing" in text
    assert "The order is measured" in text
    assert list(suggestions_table([gains, nothing]).dataframe()["pays_off_after_calls"]) == [3000.0, float("inf")]


@pytest.mark.compiles
def test_measured_suggestions_are_compiled_and_stay_unmarked(tmp_path: Path) -> None:
    with rx.explore(programs.Stack(), (torch.randn(64, 16),)) as ex:
        guessed = ex.suggest()
        measured = ex.suggest(budget_s=20)
        assert {one.name for one in measured} == {one.name for one in guessed}
        assert all(one.gain_s is not None or one.why_not for one in measured)
        assert any(one.compile_s for one in measured)
        assert not ex.plan.regions
        assert not ex.session.artifacts
        assert ex.suggest() == measured
        saved = rx.load(ex.save(tmp_path / "session.json"))
        assert saved.suggest() == measured
        with inductor_config.patch(max_fusion_size=3):  # figures of other settings are not those of these
            assert ex.suggest() == guessed
        assert ex.retrace(dynamic=False).suggest() == guessed


def test_a_cancelled_measurement_returns_the_guesses() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex:
        measured = ex.suggest(budget_s=5, run=Run(cancelled=lambda: True))
        assert {one.name for one in measured} == {one.name for one in ex.suggest()}
        assert {one.why_not for one in measured} == {"it was cancelled before"}


@pytest.mark.compiles
def test_an_interrupt_keeps_what_was_measured_and_a_shorter_run_what_it_does_not_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure_alone, measured = LiveBench.alone, list[Any]()

    def interrupted(*args: Any) -> Any:
        if measured:
            raise KeyboardInterrupt
        measured.append(args)
        return measure_alone(*args)

    monkeypatch.setattr(LiveBench, "alone", interrupted)
    monkeypatch.setattr(suggested, "gain_alone_less_cut_s", lambda *_: Figure(1e-3, 0.5e-3, 2e-3))
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
