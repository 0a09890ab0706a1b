"""From samples to the record: every figure, verdict and warning is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from regional_explorer.measure.rounds import BenchmarkOptions, RoundsResult, Stop, run_rounds
from regional_explorer.measure.summary import summarize
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import LEAST_SAMPLES, NumericsVerdict, Phase, Timing, Verdict
from tests.measure.fakes import FakeClock, Make

LONG = 2.0**-6


def seen(samples: Mapping[str, Sequence[float]], control: Sequence[float] = ()) -> RoundsResult:
    """Return a run that saw these samples of one phase."""
    return RoundsResult(
        baseline="eager",
        options=BenchmarkOptions(4.0),
        samples={variant: {Phase.FORWARD: tuple(row)} for variant, row in samples.items()},
        control={Phase.FORWARD: tuple(control)} if control else {},
        dropped={},
        rounds=max(len(row) for row in samples.values()),
        calls_per_sample=3,
        spent_s=4.0,
        stopped=Stop.BUDGET,
    )


def timing_of(result: RoundsResult, environment: Environment, variant: str) -> Timing:
    return next(timing for timing in summarize(result, environment).timings if timing.variant == variant)


def test_a_run_becomes_a_record(clock: FakeClock, taking: Make, environment: Environment) -> None:
    timed_calls = [taking("eager", LONG, LONG), taking("regional", LONG / 4, LONG), taking("full", LONG, LONG)]
    result = run_rounds(timed_calls, BenchmarkOptions(4.0), clock=clock)
    measured = summarize(result, environment, numerics={"regional": NumericsVerdict.OK})
    timings, conditions = measured.timings, measured.conditions
    assert [(timing.variant, timing.phase) for timing in timings] == [
        (variant, phase) for variant in ("eager", "regional", "full") for phase in Phase
    ]
    eager, regional, full = timings[0], timings[3], timings[6]
    assert (eager.speedup, eager.speedup_low, eager.speedup_high, eager.verdict) == (1.0, 1.0, 1.0, Verdict.BASELINE)
    assert regional == Timing(
        variant="regional",
        phase=Phase.FORWARD,
        samples_s=(LONG / 4,) * result.rounds,
        median_s=LONG / 4,
        iqr_s=0.0,
        speedup=4.0,
        speedup_low=4.0,
        speedup_high=4.0,
        verdict=Verdict.FASTER,
        calls_per_sample=1,
        numerics=NumericsVerdict.OK,
    )
    assert (full.speedup, full.verdict, full.numerics) == (1.0, Verdict.SAME, NumericsVerdict.NOT_CHECKED)
    assert (conditions.device, conditions.torch, conditions.threads) == ("cpu", "2.13.0", 2)
    assert (conditions.confidence, conditions.rounds, conditions.budget_s) == (0.99, result.rounds, 4.0)
    assert conditions.stopped == "every speedup is precise enough"
    assert conditions.smallest_difference == 0.005
    assert measured.diagnostics == ()


def test_too_few_samples_give_no_ratio_and_no_spread(environment: Environment) -> None:
    few = timing_of(seen({"eager": [2.0] * 7, "full": [1.0] * 7}), environment, "full")
    assert (few.median_s, few.iqr_s, few.speedup, few.speedup_low, few.verdict) == (
        1.0,
        None,
        None,
        None,
        Verdict.UNKNOWN,
    )
    enough = timing_of(seen({"eager": [2.0] * 8, "full": [1.0] * 8}), environment, "full")
    assert (enough.iqr_s, enough.speedup) == (0.0, 2.0)


@pytest.mark.parametrize("rounds", [LEAST_SAMPLES, 13, 40])
def test_intervals_cover_the_median_as_often_as_they_say(environment: Environment, rounds: int) -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(1000):
        disturbed = random.random((2, rounds)) < 0.2
        samples = np.exp(0.02 * random.standard_normal((2, rounds))) + disturbed * random.exponential(1.0, (2, rounds))
        full = timing_of(seen({"eager": samples[0].tolist(), "full": samples[1].tolist()}), environment, "full")
        assert full.speedup_low is not None
        assert full.speedup_high is not None
        covered.append(full.speedup_low <= 1.0 <= full.speedup_high)
    assert np.mean(covered) >= 0.985, "99 %, and twice the standard error of a thousand runs"


def test_a_wrong_result_has_no_speedup(environment: Environment) -> None:
    summary = summarize(
        seen({"eager": [2.0] * 20, "full": [1.0] * 20}),
        environment,
        numerics={"full": NumericsVerdict.FAILED},
    )
    full = summary.timings[1]
    assert (full.speedup, full.speedup_low, full.speedup_high, full.verdict) == (None, None, None, Verdict.UNKNOWN)
    assert (full.median_s, full.numerics) == (1.0, "failed")


def test_without_eager_there_is_no_speedup(environment: Environment) -> None:
    full = timing_of(seen({"full": [1.0] * 20}), environment, "full")
    assert (full.speedup, full.verdict) == (None, Verdict.UNKNOWN)
    assert summarize(seen({"full": [1.0] * 20}), environment).conditions.smallest_difference is None


def test_few_samples_give_no_verdict_and_say_so(environment: Environment) -> None:
    result = seen({"eager": [2.0] * 9, "full": [1.0] * 9})
    full = timing_of(result, environment, "full")
    assert (full.speedup, full.verdict) == (2.0, Verdict.UNKNOWN)
    assert full.warnings == ("too few samples for a verdict (9): a larger budget_s helps",)
    assert summarize(result, environment).conditions.smallest_difference is None


def test_a_control_that_differs_raises_the_bar_and_is_told(environment: Environment) -> None:
    samples = {"eager": [1.02] * 20, "full": [1.0] * 20}
    assert timing_of(seen(samples), environment, "full").verdict is Verdict.FASTER
    unsteady = seen(samples, control=[0.98] * 20)
    assert timing_of(unsteady, environment, "full").verdict is Verdict.SAME
    assert timing_of(unsteady, environment, "eager").warnings == (
        "the baseline differs from itself (1.041 to 1.041): small differences mean nothing here",
    )
    assert summarize(unsteady, environment).conditions.smallest_difference == pytest.approx(0.0408, abs=1e-4)


def test_what_a_machine_does_is_told_on_the_baseline_alone(environment: Environment) -> None:
    slowing = np.linspace(1.0, 1.2, 60)
    result = seen({"eager": slowing.tolist(), "full": slowing.tolist()})
    assert timing_of(result, environment, "eager").warnings == (
        "the machine got slower while measuring, by 13%: throttling, or other work",
    )
    assert timing_of(result, environment, "full").warnings == ()
    quicker = timing_of(seen({"eager": slowing[::-1].tolist()}), environment, "eager")
    assert quicker.warnings == ("the machine got quicker while measuring, by 12%: it was cold, or other work ended",)
    busy = timing_of(seen({"eager": [1.0, 1.3] * 20}), environment, "eager")
    assert busy.warnings == ("busy machine: half of the baseline's samples spread over 26% of the median",)


def test_what_a_variant_does_is_told_on_the_variant(environment: Environment) -> None:
    eager, warming = [1.0] * 60, np.linspace(1.2, 1.0, 60).tolist()
    assert timing_of(seen({"eager": eager, "full": warming}), environment, "full").warnings == (
        "the speedup drifted while measuring, by +13%: the variant may not have been warm",
    )
    jumping = [0.5] * 54 + [0.9] * 6
    np.random.default_rng(0).shuffle(jumping)
    assert timing_of(seen({"eager": eager, "full": jumping}), environment, "full").warnings == (
        "outliers: 10% of the samples lie far above the rest",
    )
    tiny = timing_of(seen({"eager": eager, "full": [1e-7] * 60}), environment, "full")
    assert tiny.warnings == ("under a microsecond per call: the clock's own overhead matters in this figure",)


def test_a_variant_that_raised_is_told_and_keeps_its_rounds(environment: Environment) -> None:
    text = "'full' raised RuntimeError in round 21: out of luck"
    result = replace(seen({"eager": [2.0] * 40, "full": [1.0] * 20}), dropped={"full": text})
    summary = summarize(result, environment)
    full = summary.timings[1]
    assert (full.speedup, full.verdict, len(full.samples_s)) == (2.0, Verdict.FASTER, 20)
    assert full.warnings == (f"stopped early: {text}",)
    (diagnostic,) = summary.diagnostics
    assert (diagnostic.code, diagnostic.severity) == ("variant-failed", Severity.ERROR)
    assert text in diagnostic.message
