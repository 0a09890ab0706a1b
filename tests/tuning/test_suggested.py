"""Suggestions that were measured: what each gains, what is left of a budget, and that nothing is marked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.errors import MeasureError
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.rounds import RoundsResult, Stop
from regional_explorer.record.benchmark import NumericsVerdict, PartitionTiming, Phase, Timing, VariantName, Verdict
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.suggestion import Suggestion, SuggestionKind
from regional_explorer.tables.suggestion import SuggestionList, suggestions_table
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


def test_a_gain_whose_interval_includes_zero_is_none() -> None:
    gains, nothing = suggestion(Figure(1e-3, 0.5e-3, 2e-3)), suggestion(Figure(1e-3, -0.1e-3, 2e-3))
    text = repr(SuggestionList([gains, nothing]))
    assert "saves 1.00 ms a call (500 µs–2.00 ms), pays off after 3,000 calls" in text
    assert "brings nothing" in text
    assert "The order is measured" in text
    assert list(suggestions_table([gains, nothing]).dataframe()["pays_off_after_calls"]) == [3000.0, float("inf")]


@pytest.mark.compiles
def test_measured_suggestions_are_compiled_and_left_unmarked(tmp_path: Path) -> None:
    with rx.explore(programs.Stack(), (torch.randn(64, 16),)) as ex:
        guessed = ex.suggest()
        measured = ex.suggest(budget_s=20)
        assert {one.name for one in measured} == {one.name for one in guessed}
        assert all(one.gain_s is not None or one.why_not for one in measured)
        assert any(one.compile_s for one in measured)
        assert not ex.plan.regions
        assert not ex.session.artifacts


def test_a_cancelled_measurement_returns_the_guesses() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex:
        measured = ex.suggest(budget_s=5, run=Run(cancelled=lambda: True))
        assert {one.name for one in measured} == {one.name for one in ex.suggest()}
        assert {one.why_not for one in measured} == {"it was cancelled before"}


def test_a_wrong_budget_is_refused() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex, pytest.raises(MeasureError, match="budget_s"):
        ex.suggest(budget_s=0, run=PLAIN_RUN)
