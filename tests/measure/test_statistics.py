"""Statistics: exact where one can count by hand, and right as often as they claim; the record made of samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from regional_explorer.measure.clock import TimedCall, do_nothing
from regional_explorer.measure.machine import Sentinel, Watch
from regional_explorer.measure.rounds import Parts, Raised, RoundsResult, StopReason, run_rounds
from regional_explorer.measure.timings import conditions_of, timings_of
from regional_explorer.record import statistics
from regional_explorer.record.benchmark import CONCLUSIONS, LEAST_SAMPLES, NumericsVerdict, Phase, Timing, Verdict
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.figure import QUIET, Figure, Noise, exactly
from regional_explorer.record.statistics import (
    MIN_FLOOR,
    QUIET_LIMIT,
    Floats,
    confidence_interval,
    disagreement,
    fewest_values,
    floor_of,
    iqr,
    median_figure,
    paired_ratios,
    quiet_rounds,
    smallest_difference,
    trend,
    verdict_and_reason,
    verdict_confidence,
    verdict_of,
)
from regional_explorer.record.statistics import VERDICT_CONFIDENCE as CONFIDENCE
from tests.shared.fakes import FakeClock, MakeFakeCall
from tests.shared.sessions import ENVIRONMENT


def integers_to(n: int) -> Floats:
    return np.arange(1.0, n + 1.0)


def ratios_of_equals(seed: int, runs: int, rounds: int) -> Floats:
    """Return ratios of two equal calls: skewed samples, one in ten disturbed, on a machine that drifts for both."""
    generator = np.random.default_rng(seed)
    drift = np.linspace(1.0, 1.3, rounds)
    samples = drift * np.exp(generator.gamma(1.0, 0.03, (2, runs, rounds)))
    samples *= np.where(generator.random(samples.shape) < 0.1, generator.uniform(1.0, 3.0, samples.shape), 1.0)
    return np.asarray(samples[0] / samples[1], dtype=np.float64)


def test_ratios_use_the_rounds_that_both_have() -> None:
    assert (iqr([4.0, 1.0, 2.0, 3.0, 5.0]), iqr([7.0])) == (2.0, 0.0)
    assert paired_ratios([2.0, 4.0, 8.0], [1.0, 8.0]).tolist() == [2.0, 0.5]
    assert np.isfinite(paired_ratios([0.0, 0.0], [0.0, 1.0])).all()


def test_the_interval_is_binomial() -> None:
    # P(at most 1 of 10 heads) = 11/1024 and P(at most 2) = 56/1024: at 95 %, 2.5 % a side, the second from each end.
    assert confidence_interval(integers_to(10), 0.95) == (2.0, 9.0)
    # P(no head in 10) = 1/1024: at 99.8 % the ends themselves, and nine are too few.
    assert confidence_interval(integers_to(10)[::-1], CONFIDENCE) == (1.0, 10.0)
    assert confidence_interval(integers_to(9), CONFIDENCE) is None
    assert confidence_interval(integers_to(0), CONFIDENCE) is None
    # A hundred: 40 and 61 at 95 %, as tables of the sign test have it; and far more values than 2.0**n can count.
    assert confidence_interval(integers_to(100), 0.95) == (40.0, 61.0)
    low, high = confidence_interval(integers_to(5001), 0.95) or (0.0, 0.0)
    assert low + high == 5002.0
    assert high - low == pytest.approx(1.96 * np.sqrt(5001), abs=2)


@pytest.mark.parametrize("rounds", [LEAST_SAMPLES, 20, 100])
def test_intervals_cover_the_true_median(rounds: int) -> None:
    found = [median_figure(ratios) for ratios in ratios_of_equals(rounds, 1000, rounds)]
    covered = [low <= 1.0 <= high for low, high in (figure.bounds or (9.0, 0.0) for figure in found)]
    assert np.mean(covered) >= 0.985


@pytest.mark.parametrize("rounds", [LEAST_SAMPLES, 20, 100])
def test_interval_of_quotient_keeps_its_coverage(rounds: int) -> None:
    pairs = zip(ratios_of_equals(rounds, 1000, rounds), ratios_of_equals(rounds + 1, 1000, rounds), strict=True)
    found = [median_figure(above).over(median_figure(below)).bounds or (9.0, 0.0) for above, below in pairs]
    assert np.mean([low <= 1.0 <= high for low, high in found]) >= 0.985


def test_figure_has_bounds_or_a_reason() -> None:
    assert median_figure([1.0, 2.0, 3.0]) == Figure(2.0, why="too few rounds (3)")
    assert median_figure(integers_to(8)) == Figure(4.5, 1.0, 8.0)
    even = Figure(1.0, 0.5, 2.0)
    quotient = even.over(even)
    assert (quotient.value, quotient.low, quotient.high) == pytest.approx((1.0, 2.0 ** -(2**0.5), 2.0 ** (2**0.5)))
    assert Figure(1.0, why="measured once").over(Figure(2.0, 1.0, 4.0)) == Figure(0.5, why="measured once")


def test_early_stopping_rarely_finds_equals_different() -> None:
    runs, rounds = ratios_of_equals(7, 2000, 320), 320
    wrong = 0
    for ratios in runs:
        for look in (20, 40, 80, 160, rounds):
            low, high = confidence_interval(ratios[:look], CONFIDENCE) or (0.0, 9.0)
            if high - low < 0.03 or look == rounds:
                wrong += verdict_of(ratios[:look], floor=0.0) in (Verdict.FASTER, Verdict.SLOWER)
                break
    assert wrong / len(runs) <= 0.01


@pytest.mark.parametrize("budget_of_all", [320, 1600])
def test_measuring_until_a_verdict_rarely_finds_equals_different(budget_of_all: int) -> None:
    """The verdict over up to five benchmarks is read as often as early stopping reads that of each."""
    runs, rounds = ratios_of_equals(17, 2000, budget_of_all), budget_of_all // 5
    wrong = 0
    for ratios in runs:
        looks = (
            (benchmarks, (benchmarks - 1) * rounds + rounds // part)
            for benchmarks in range(1, 6)
            for part in (16, 8, 4, 2, 1)
        )
        verdicts = (verdict_of(ratios[:look], 0.0, benchmarks=benchmarks) for benchmarks, look in looks)
        wrong += any(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts)
    assert wrong / len(runs) <= 0.01


def test_a_three_per_cent_difference_is_found_with_its_sign() -> None:
    ratios, control = ratios_of_equals(11, 200, 320), ratios_of_equals(12, 200, 320)
    floors = [floor_of(equal) for equal in control]
    for factor, wanted in ((1.03, Verdict.FASTER), (1 / 1.03, Verdict.SLOWER)):
        pairs = zip(ratios * factor, floors, strict=True)
        found = [verdict_of(run, floor) is wanted for run, floor in pairs]
        assert np.mean(found) > 0.9


def test_verdict_needs_samples_significance_and_size() -> None:
    steady = np.full(20, 1.02)
    assert verdict_of(steady, 0.005) is Verdict.FASTER
    assert verdict_of(1 / steady, 0.005) is Verdict.SLOWER
    assert verdict_of(steady, 0.03) is Verdict.SAME
    assert verdict_of(1 / steady, 0.03) is Verdict.SAME
    assert verdict_of(steady[:9], 0.005) is Verdict.UNKNOWN


def test_a_wide_interval_is_inconclusive() -> None:
    generator = np.random.default_rng(0)
    assert verdict_of(np.linspace(0.5, 2.0, 20), 0.005) is Verdict.INCONCLUSIVE
    assert verdict_of(generator.uniform(0.8, 18.0, 12), 20.0) is Verdict.INCONCLUSIVE
    assert verdict_of(generator.normal(1.0, 0.02, 60), 0.005) is Verdict.SAME
    assert [Verdict.without_winner(*ends) for ends in ((0.96, 1.04), (0.95, 1.02), (0.98, 1.2))] == [
        Verdict.SAME,
        Verdict.INCONCLUSIVE,
        Verdict.INCONCLUSIVE,
    ]


def test_an_undecided_verdict_beside_other_work_is_busy() -> None:
    busy, too_busy = Noise(rounds=100, disturbed=20, left_out=20), Noise(rounds=100, disturbed=80)
    beside = Noise(rounds=100, others=0.5, cores=2)
    wide, near, faster = np.linspace(0.5, 2.0, 20), np.full(20, 1.001), np.full(20, 1.2)
    assert [verdict_of(wide, 0.005, noise) for noise in (QUIET, busy, beside, too_busy)] == [
        Verdict.INCONCLUSIVE,
        *[Verdict.BUSY] * 3,
    ]
    for ratios, verdict in ((near, Verdict.SAME), (faster, Verdict.FASTER)):
        assert [verdict_of(ratios, 0.005, noise) for noise in (busy, too_busy)] == [verdict, Verdict.BUSY]
    assert [verdict_of(faster[:9], 0.005, noise) for noise in (QUIET, busy)] == [Verdict.UNKNOWN, Verdict.BUSY]


TOO_BUSY = Noise(rounds=100, disturbed=80)


@pytest.mark.parametrize(
    ("ratios", "floor", "noise", "benchmarks", "why"),
    [
        (np.full(100, 1.2), 0.005, TOO_BUSY, 1, "fewer than a third of the rounds were undisturbed"),
        (np.full(9, 1.2), 0.005, QUIET, 1, "9 rounds are too few, a verdict takes 10"),
        (np.full(1, 1.2), 0.005, QUIET, 1, "1 round is too few, a verdict takes 10"),
        (np.full(11, 1.2), 0.005, QUIET, 2, "11 rounds are too few, a verdict takes 12"),
        (
            np.array([0.9, *[1.2] * 11]),
            *(0.005, QUIET, 1),
            "either may be faster",
        ),
        (
            np.full(50, 1.09),
            *(0.12, QUIET, 1),
            "the machine is too noisy (eager, timed twice in each round, differed from itself by up to 12 %)",
        ),
        (
            np.full(50, 1 / 1.07),
            *(0.08, QUIET, 1),
            "7.0 % is too small to count: eager differs from itself by up to 8.0 %",
        ),
        (
            np.array([*[1.001] * 7, *[1.2] * 5]),
            *(MIN_FLOOR, QUIET, 1),
            "0.1 % is too small to count: memory layout alone can shift times by 0.5 %",
        ),
    ],
)
def test_each_rule_that_withholds_a_verdict_gives_its_figure(
    ratios: Floats, floor: float, noise: Noise, benchmarks: int, why: str
) -> None:
    assert verdict_and_reason(ratios, floor, noise, benchmarks) == (verdict_of(ratios, floor, noise, benchmarks), why)
    assert verdict_of(ratios, floor, noise, benchmarks).is_unsure


def test_only_verdicts_without_a_conclusion_have_a_reason() -> None:
    counts = Counter[Verdict]()
    for run, factor, rounds in zip(
        ratios_of_equals(31, 300, 60), np.repeat((0.9, 1.0, 1.02, 1.1), 75), cycle((8, 20, 60)), strict=False
    ):
        verdict, why = verdict_and_reason(run[:rounds] * factor, 0.01)
        assert bool(why) is verdict.is_unsure
        counts[verdict] += 1
    assert counts.keys() == {*CONCLUSIONS, Verdict.INCONCLUSIVE, Verdict.UNKNOWN}


def test_fewest_rounds_of_a_verdict_give_an_interval() -> None:
    for benchmarks in range(1, 9):
        confidence = verdict_confidence(benchmarks)
        fewest = fewest_values(confidence)
        assert confidence_interval(integers_to(fewest - 1), confidence) is None
        assert confidence_interval(integers_to(fewest), confidence) is not None


def test_the_floor_is_how_far_eager_differs_from_itself() -> None:
    assert floor_of(None) == MIN_FLOOR
    assert floor_of(np.full(5, 1.5)) == MIN_FLOOR
    assert floor_of(np.full(50, 1.001)) == MIN_FLOOR
    assert floor_of(np.full(50, 1.25)) == 0.25
    assert floor_of(np.full(50, 0.8)) == 0.25


def test_the_smallest_difference_is_found_nine_times_in_ten() -> None:
    assert smallest_difference(np.full(9, 1.0), MIN_FLOOR) is None
    assert smallest_difference(np.full(50, 1.0), MIN_FLOOR) == MIN_FLOOR
    runs = ratios_of_equals(13, 400, 200)
    claimed = float(np.median([smallest_difference(run, MIN_FLOOR) or 0.0 for run in runs]))
    found = [verdict_of(run * (1.0 + claimed), MIN_FLOOR) is Verdict.FASTER for run in runs]
    assert 0.8 < np.mean(found) < 0.97


def test_significant_trend_is_reported() -> None:
    generator = np.random.default_rng(0)
    assert trend(np.linspace(1.0, 2.0, 90)) == pytest.approx(0.58, abs=0.005)
    assert trend(np.linspace(2.0, 1.0, 90)) < -0.3
    assert trend(np.ones(90)) == 0.0
    assert trend(np.array([1.0, 1.3] * 20)) == 0.0
    assert trend(np.linspace(1.0, 2.0, 8)) == 0.0
    reported = [trend(generator.normal(1.0, 0.1, 60)) != 0.0 for _ in range(500)]
    assert np.mean(reported) < 0.01


def test_quiet_rounds_have_undisturbed_fixed_work() -> None:
    assert quiet_rounds([1.0, 1.4, 1.6, 1.0, 9.0]).tolist() == [True, True, False, True, False]
    assert quiet_rounds([0.0, 0.0]).all(), "of a clock too coarse for it"
    assert len(quiet_rounds([])) == 0


QUIET_WORK: dict[str, Callable[[np.random.Generator], Floats]] = {
    "steady": lambda chance: np.ones(131),
    "a tenth": lambda chance: np.exp(chance.normal(0.0, 0.1, 131)),
    "a fifth": lambda chance: np.exp(chance.normal(0.0, 0.2, 131)),
    "even": lambda chance: chance.uniform(1.0, 2.0, 131),
    "late": lambda chance: 1.0 + chance.gamma(2.0, 0.2, 131),
}
"""What fixed work takes on a quiet machine, by its spread."""


@pytest.mark.parametrize("name", QUIET_WORK)
def test_a_quiet_machine_loses_less_than_a_tenth_of_its_rounds(name: str) -> None:
    """The longer of the times before and after a round counts; a long time is taken twice."""
    lost = []
    for seed in range(100):
        chance = np.random.default_rng(seed)
        first, again = QUIET_WORK[name](chance), QUIET_WORK[name](chance)
        work = np.where(first > QUIET_LIMIT * first.min(), np.minimum(first, again), first)
        lost.append(1.0 - quiet_rounds(np.maximum(work[:-1], work[1:])).mean())
    assert np.mean(np.array(lost) < 0.1) >= 0.95


def test_verdicts_under_random_noise_are_right_as_often_as_promised() -> None:
    """Of a hundred machines, some quiet and some busy, none makes one of two equal calls faster more than promised."""
    verdicts = []
    for seed in range(100):
        chance = np.random.default_rng(seed)
        samples, work = disturbed_samples(seed, int(chance.integers(30, 300)), chance.uniform(0.0, 0.5))
        work *= QUIET_WORK["a tenth" if seed % 2 else "late"](chance)[0] * np.exp(chance.normal(0.0, 0.1, len(work)))
        verdicts.append(verdict_of((samples[0] / samples[1])[quiet_rounds(work)], MIN_FLOOR))
    assert sum(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts) <= 1


def disturbed_samples(seed: int, rounds: int, share: float) -> tuple[Floats, Floats]:
    """Return samples of two equal calls, and of the fixed work; in some rounds hidden other work slows all three.

    It slows each call by another factor, and the fixed work misses every tenth such round.
    """
    chance = np.random.default_rng(seed)
    busy = chance.random(rounds) < share
    slowed = np.where(busy, chance.uniform(1.2, 4.0, (2, rounds)), 1.0)
    samples = slowed * np.exp(chance.gamma(1.0, 0.02, (2, rounds)))
    noticed = busy & (chance.random(rounds) < 0.9)
    return samples, np.where(noticed, chance.uniform(1.7, 4.0, rounds), chance.uniform(1.0, 1.1, rounds))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.45])
def test_a_hidden_disturbance_makes_equal_calls_no_different(share: float) -> None:
    wrong = 0
    for seed in range(1000):
        samples, work = disturbed_samples(seed, 160, share)
        quiet = quiet_rounds(work)
        wrong += verdict_of((samples[0] / samples[1])[quiet], MIN_FLOOR) in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong / 1000 <= 0.01


@pytest.mark.parametrize("rounds", [LEAST_SAMPLES, 20, 100])
def test_the_interval_of_a_time_covers_the_quiet_machine(rounds: int) -> None:
    truth, covered = float(np.exp(0.02 * np.log(2.0))), []
    for seed in range(1000):
        samples, work = disturbed_samples(seed, 2 * rounds, 0.3)
        found = median_figure(samples[0][quiet_rounds(work)][:rounds]).bounds
        covered += [found[0] <= truth <= found[1]] if found else []
    assert np.mean(covered) >= 0.985


def disturbed_parts(seed: int, rounds: int) -> Floats:
    """Return parts of a call in rounds with quiet fixed work; one in 25 is disturbed, and any part may pause."""
    chance = np.random.default_rng(seed)
    _, work = disturbed_samples(seed, 3 * rounds, 0.3)
    shape = (6, 3 * rounds)
    slowed = np.where(work > QUIET_LIMIT, chance.uniform(1.2, 4.0, shape), 1.0)
    slowed *= np.where(chance.random(3 * rounds) < 0.04, chance.uniform(1.2, 4.0, 3 * rounds), 1.0)
    paused = 5.0 * (chance.random(shape) < 0.1)
    samples = TYPICAL[:, None] * slowed * np.exp(chance.gamma(1.0, 0.02, shape)) + paused
    return np.asarray(samples[:, quiet_rounds(work)][:, :rounds])


TYPICAL = np.array([1.0, 2.0, 3.0, 0.5, 0.2, 5.0])


@pytest.mark.parametrize("rounds", [LEAST_SAMPLES, 20, 100])
def test_parts_add_up_and_intervals_cover(rounds: int) -> None:
    """A bootstrap interval of the mean covered it in only 87 to 90 % of runs of 20 rounds."""
    truth, covered = np.median(disturbed_parts(999, 40_000), axis=1), []
    assert truth == pytest.approx(TYPICAL * np.exp(0.02 * np.log(2.0)), rel=0.01), "as on a quiet machine"
    for seed in range(300):
        parts = Parts(dict(enumerate(disturbed_parts(seed, rounds))))
        figures = [parts.figure([number]) for number in range(6)]
        assert sum(figure.value for figure in figures) == pytest.approx(parts.figure(range(6)).value)
        for figure, true in zip(figures, truth, strict=True):
            low, high = figure.bounds or (np.inf, 0.0)
            assert low <= figure.value <= high
            covered.append(low <= true <= high)
    assert np.mean(covered) >= 0.985


def test_means_over_middle_rounds_add_up() -> None:
    # In every round one of ten ops is disturbed, each op in one round of ten.
    seconds = np.ones((20, 10)) + 5.0 * (np.arange(20)[:, None] % 10 == np.arange(10))
    parts = Parts(dict(enumerate(seconds.T)))
    assert sum(parts.mean([number]) for number in range(10)) == pytest.approx(15.0) == parts.mean(range(10))
    assert np.median(seconds, axis=0).sum() == 10.0
    assert parts.figure([3]) == Figure(parts.mean([3]), 1.0, parts.mean([3])), "stretched to the mean"
    seconds[3] += 1000.0
    assert Parts(dict(enumerate(seconds.T))).mean(range(10)) == pytest.approx(15.0), "a disturbed round does not count"
    assert Parts({"a": np.array([3.0])}).figure("a") == Figure(3.0, why="too few rounds (1)")
    assert Parts({"a": integers_to(20)}).mean([]) == 0.0


@pytest.mark.parametrize("slower", [1.0, 1.05])
def test_a_disturbance_hides_no_difference_of_five_percent(slower: float) -> None:
    found = []
    for seed in range(200):
        samples, work = disturbed_samples(5000 + seed, 300, 0.3)
        found.append(verdict_of((slower * samples[0] / samples[1])[quiet_rounds(work)], MIN_FLOOR))
    assert Verdict.SLOWER not in found
    assert found.count(Verdict.FASTER) >= 190 if slower > 1 else Verdict.FASTER not in found


QUIET_TIME = math.exp(0.02 * math.log(2.0))
"""The time of a call of ``simulated_rounds_on_a_busy_machine`` on a quiet machine: the median of its samples."""


def simulated_rounds_on_a_busy_machine(
    seed: int, rounds: int, share: float, cores: float, slower: float = 1.0
) -> RoundsResult:
    """Return simulated rounds of eager and full while other work uses ``cores`` cores.

    It disturbs ``share`` of the rounds, four in a row on average; full takes ``slower`` times as long as eager.
    The least time of the fixed work is known from a quiet machine; it misses every twentieth disturbed round.
    """
    chance = np.random.default_rng(seed)
    busy, now = np.zeros(rounds + 1, dtype=np.bool_), chance.random() < share
    for number in range(rounds):
        now = chance.random() >= 0.25 if now else chance.random() < 0.25 * share / (1.0 - share)
        busy[number] = now
    slowed = np.where(busy[:-1], chance.uniform(1.2, 4.0, (2, rounds)), 1.0)
    eager, full = slowed * np.exp(chance.gamma(1.0, 0.02, (2, rounds)))
    noticed = (busy | np.roll(busy, 1)) & (chance.random(rounds + 1) < 0.95)
    work = np.where(noticed, chance.uniform(1.3, 4.0, rounds + 1), np.exp(chance.gamma(1.0, 0.05, rounds + 1)))
    by_round = np.maximum(work[:-1], work[1:]).tolist()
    watch = Watch(FakeClock(), Sentinel(TimedCall("fixed work", do_nothing), fastest_s=1.0), by_round)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "_other_cores", lambda _: cores)
        quiet, noise = watch.used_rounds(rounds)
    return replace(result_of({"eager": eager[quiet].tolist(), "full": (slower * full[quiet]).tolist()}), noise=noise)


def error_shares(share: float, cores: float) -> tuple[float, float, float, float]:
    """Return the shares of runs that find equals different, give no verdict, cover the time, and find 5 %."""
    equal = [simulated_rounds_on_a_busy_machine(seed, 160, share, cores) for seed in range(200)]
    verdicts = [run.verdict("full", Phase.FORWARD) for run in equal]
    times = [bounds for run in equal if (bounds := run.time("full", Phase.FORWARD).bounds)]
    slower = [
        simulated_rounds_on_a_busy_machine(5000 + seed, 300, share, cores, 1.05).verdict("full", Phase.FORWARD)
        for seed in range(50)
    ]
    assert set(slower) <= {Verdict.SLOWER, Verdict.BUSY}, "never no difference, nor the wrong sign"
    return (
        sum(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts) / len(equal),
        verdicts.count(Verdict.BUSY) / len(equal),
        sum(low <= QUIET_TIME <= high for low, high in times) / len(times) if times else 1.0,
        slower.count(Verdict.SLOWER) / len(slower),
    )


@pytest.mark.parametrize("cores", [0.2, 1.5], ids=["the quickest fifth", "the least so far"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_other_work_hides_no_difference_of_five_percent(share: float, cores: float) -> None:
    wrong, unknown, covered, found = error_shares(share, cores)
    assert wrong <= 0.01
    assert unknown == 0.0
    assert covered >= 0.98, "98.5 %, and the standard error of two hundred runs"
    assert found == 1.0


def test_constantly_busy_machine_gives_no_verdict() -> None:
    """The quickest fifth of the rounds is disturbed, too: with it as reference, times are wrong in nearly every run."""
    assert error_shares(0.7, 1.5) == (0.0, 1.0, 1.0, 0.0)
    assert error_shares(0.7, 0.2)[2] < 0.1


@pytest.mark.parametrize(("limit", "verdicts", "covers"), [(1.1, False, True), (1.5, True, True), (3.0, True, False)])
def test_disturbance_limit_is_selective(
    limit: float, verdicts: bool, covers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "QUIET_LIMIT", limit)
    monkeypatch.setattr(statistics, "QUIET_SPREAD", 0.0)
    wrong, unknown, covered, _ = error_shares(0.3, 1.5)
    assert wrong <= 0.01
    assert (unknown < 0.01) is verdicts
    assert (covered >= 0.98) is covers


# ------------------------------------------------------------------------------------------- from samples to the record

LONG = 2.0**-6


def result_of(samples: Mapping[str, Sequence[float]], control: Sequence[float] = ()) -> RoundsResult:
    return RoundsResult(
        baseline="eager",
        budget_s=4.0,
        samples={variant: {Phase.FORWARD: tuple(row)} for variant, row in samples.items()},
        control={Phase.FORWARD: tuple(control)} if control else {},
        dropped={},
        rounds=max(len(row) for row in samples.values()),
        calls_per_sample=3,
        spent_s=4.0,
        stopped=StopReason.BUDGET,
    )


def timing_of(
    run: RoundsResult | Mapping[str, Sequence[float]],
    variant: str = "full",
    numerics: NumericsVerdict = NumericsVerdict.NOT_CHECKED,
) -> Timing:
    """Return the timing of a variant in a run, or in samples of one phase."""
    result = run if isinstance(run, RoundsResult) else result_of(run)
    return next(timing for timing in timings_of(result, {variant: numerics}) if timing.variant == variant)


def test_measured_rounds_give_timings_and_conditions(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    timed_calls = [fake_call("eager", LONG, LONG), fake_call("regional", LONG / 4, LONG), fake_call("full", LONG, LONG)]
    result = run_rounds(timed_calls, 4.0, clock=clock)
    timings, conditions = timings_of(result, {"regional": NumericsVerdict.OK}), conditions_of(result, ENVIRONMENT)
    assert [(timing.variant, timing.phase) for timing in timings] == [
        (variant, phase) for variant in ("eager", "regional", "full") for phase in Phase
    ]
    eager, regional, full = timings[0], timings[3], timings[6]
    assert (eager.speedup, eager.verdict) == (exactly(1.0), Verdict.BASELINE)
    assert regional == Timing(
        variant="regional",
        phase=Phase.FORWARD,
        samples_s=(LONG / 4,) * result.rounds,
        median_s=exactly(LONG / 4),
        iqr_s=0.0,
        speedup=exactly(4.0),
        verdict=Verdict.FASTER,
        calls_per_sample=1,
        numerics=NumericsVerdict.OK,
    )
    assert (full.speedup, full.verdict, full.numerics) == (exactly(1.0), Verdict.SAME, NumericsVerdict.NOT_CHECKED)
    assert (conditions.device, conditions.torch, conditions.threads) == ("cpu", "2.13.0", 2)
    assert (conditions.confidence, conditions.rounds, conditions.budget_s) == (0.99, result.rounds, 4.0)
    assert conditions.stopped == "every speedup is precise enough"
    assert conditions.smallest_difference == 0.005
    assert result.failures == []


def test_too_few_samples_give_no_ratio_and_no_spread() -> None:
    few = timing_of({"eager": [2.0] * 7, "full": [1.0] * 7})
    assert (few.median_s, few.iqr_s, few.speedup) == (Figure(1.0, why="too few rounds (7)"), None, None)
    assert few.verdict is Verdict.UNKNOWN
    enough = timing_of({"eager": [2.0] * 8, "full": [1.0] * 8})
    assert (enough.median_s, enough.iqr_s, enough.speedup) == (exactly(1.0), 0.0, exactly(2.0))


@pytest.mark.parametrize("rounds", [LEAST_SAMPLES, 13, 40])
def test_intervals_cover_the_median_as_often_as_they_claim(rounds: int) -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(1000):
        disturbed = random.random((2, rounds)) < 0.2
        samples = np.exp(0.02 * random.standard_normal((2, rounds))) + disturbed * random.exponential(1.0, (2, rounds))
        full = timing_of({"eager": samples[0].tolist(), "full": samples[1].tolist()})
        assert full.speedup is not None
        assert full.speedup.bounds is not None
        low, high = full.speedup.bounds
        covered.append(low <= 1.0 <= high)
    assert np.mean(covered) >= 0.985, "99 %, and twice the standard error of a thousand runs"


def test_a_wrong_result_has_no_speedup() -> None:
    full = timing_of({"eager": [2.0] * 20, "full": [1.0] * 20}, numerics=NumericsVerdict.FAILED)
    assert (full.speedup, full.verdict) == (None, Verdict.WITHHELD)
    assert (full.median_s, full.numerics) == (exactly(1.0), NumericsVerdict.FAILED)


def test_a_speedup_needs_eager_and_a_verdict_needs_samples() -> None:
    alone, few = result_of({"full": [1.0] * 20}), result_of({"eager": [2.0] * 9, "full": [1.0] * 9})
    assert [(one.speedup, one.verdict) for one in timings_of(alone)] == [(None, Verdict.UNKNOWN)]
    assert (timing_of(few).speedup, timing_of(few).verdict) == (exactly(2.0), Verdict.UNKNOWN)
    assert timing_of(few).warnings == ("too few samples for a verdict (9): a larger budget_s helps",)
    assert [conditions_of(run, ENVIRONMENT).smallest_difference for run in (alone, few)] == [None, None]


def test_differing_control_raises_the_floor() -> None:
    samples = {"eager": [1.02] * 20, "full": [1.0] * 20}
    assert timing_of(samples).verdict is Verdict.FASTER
    unsteady = result_of(samples, control=[0.98] * 20)
    assert timing_of(unsteady).verdict is Verdict.SAME
    assert timing_of(unsteady, "eager").warnings == (
        "the baseline differs from itself (1.041 to 1.041): small differences mean nothing here",
    )
    conditions = conditions_of(unsteady, ENVIRONMENT)
    assert conditions.smallest_difference == pytest.approx(0.0408, abs=1e-4)
    assert conditions.floors == {Phase.FORWARD: pytest.approx(0.0408, abs=1e-4)}


def test_a_warning_is_at_its_variant() -> None:
    eager, warming = [1.0] * 60, np.linspace(1.2, 1.0, 60).tolist()
    assert timing_of({"eager": eager, "full": warming}).warnings == (
        "the speedup drifted while measuring, by +13%: the variant may not have been warm",
    )
    tiny = timing_of({"eager": eager, "full": [1e-7] * 60})
    assert tiny.warnings == ("under a microsecond per call: the clock's own overhead matters in this figure",)


def test_contradicting_medians_are_reported() -> None:
    slow_rounds = {"eager": [1.0] * 29 + [2.0] * 31, "full": [1.0] * 31 + [2.0] * 29}
    full = timing_of(slow_rounds)
    assert full.speedup is not None
    assert full.speedup.value == 1.0
    assert full.warnings[0].startswith("the medians say 2.00×, the rounds 1.00×: the machine was not the same")
    assert timing_of({"eager": [2.0] * 60, "full": [1.0] * 60}).warnings == ()
    assert disagreement(0.534, Figure(0.528)) == "", "equal as they are shown"


def test_run_on_a_busy_machine_has_no_intervals() -> None:
    quiet = result_of({"eager": [2.0] * 40, "full": [1.0] * 40}, control=[2.0] * 40)
    assert (timing_of(quiet).speedup, timing_of(quiet).verdict) == (exactly(2.0), Verdict.FASTER)
    busy_noise, why = Noise(rounds=100, disturbed=80), "the machine was too busy"
    busy = timing_of(replace(quiet, noise=busy_noise))
    assert (busy.median_s, busy.speedup) == (Figure(1.0, why=why), Figure(2.0, why=why))
    assert (busy.verdict, busy.warnings) == (Verdict.BUSY, ())
    ragged = {"eager": [1.0] * 29 + [2.0] * 31, "full": [1.0] * 31 + [2.0] * 29}
    grey = timing_of(replace(result_of(ragged), noise=busy_noise))
    assert grey.warnings[0].startswith("the medians say 2.00×, the rounds 1.00×"), (
        "a grey figure that disagrees has a warning"
    )


def test_raising_variant_keeps_its_rounds() -> None:
    raised = Raised("'full' raised RuntimeError in round 21", "out of luck")
    result = replace(result_of({"eager": [2.0] * 40, "full": [1.0] * 20}), dropped={"full": raised})
    full = timing_of(result)
    assert (full.speedup, full.verdict, len(full.samples_s)) == (exactly(2.0), Verdict.FASTER, 20)
    assert full.warnings == (f"stopped early: {raised}",)
    (diagnostic,) = result.failures
    assert (diagnostic.code, diagnostic.severity) == ("full-failed", Severity.ERROR)
    assert str(raised) in diagnostic.message
