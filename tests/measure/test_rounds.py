"""Rounds on a clock that only moves when told to: what is run, when it ends, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise, repeat

import numpy as np
import pytest

from regional_explorer.compiler.run import SAME_THREAD, Run, SameThread, T
from regional_explorer.errors import MeasureError
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.rounds import (
    COLD_MATTERS_S,
    FIRST_CALLS,
    BenchmarkOptions,
    RoundsResult,
    Stop,
    run_rounds,
)
from regional_explorer.record.timing import Phase
from tests.measure.fakes import FakeClock, Make

FORWARD = Phase.FORWARD
LONG = 2.0**-6
"""Seconds of a call that is a sample of its own; a power of two, so that sums of it are exact."""

LONGER = 2 * LONG
"""Seconds of a call that is too long for calls between samples."""

WARMUP = FIRST_CALLS + 2
"""Calls of a steady, long variant before its first round: the first ones, and two that are equally quick."""


def test_ratios_are_exact_on_a_steady_clock(clock: FakeClock, taking: Make) -> None:
    result = run_rounds([taking("eager", LONG), taking("full", LONG / 4)], BenchmarkOptions(4.0), clock=clock)
    assert set(result.samples["eager"][FORWARD]) == {LONG}
    assert set(result.samples["full"][FORWARD]) == {LONG / 4}
    ratios, control = result.ratios("full", FORWARD), result.control_ratios(FORWARD)
    assert ratios is not None
    assert control is not None
    assert (set(ratios), set(control)) == ({4.0}, {1.0})
    assert len(ratios) == len(control) == result.rounds


def test_it_stops_at_the_first_look_where_every_ci_is_narrow(clock: FakeClock, taking: Make) -> None:
    result = run_rounds([taking("eager", LONG), taking("full", LONG)], BenchmarkOptions(16.0), clock=clock)
    assert result.stopped is Stop.PRECISE
    assert result.spent_s == pytest.approx(1.0, abs=0.1)  # a sixteenth of the budget


def test_it_stops_at_the_budget_and_not_past_it(clock: FakeClock, taking: Make) -> None:
    noise = np.random.default_rng(0).uniform(0.5, 1.5, 10_000)
    wild = taking("full", (float(seconds) for seconds in LONG * noise))
    result = run_rounds([taking("eager", LONG), wild], BenchmarkOptions(4.0), clock=clock)
    assert result.stopped is Stop.BUDGET
    assert 3.9 < result.spent_s <= 4.05


class Queue(SameThread):
    """A place where every turn has to be waited for."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def run_timed(self, work: Callable[[], T]) -> T:
        self._clock.spend(16.0)
        return work()


def test_waiting_for_a_turn_costs_nothing_of_the_budget(clock: FakeClock, taking: Make) -> None:
    results = []
    for executor in (SAME_THREAD, Queue(clock)):
        noise = np.random.default_rng(0).uniform(0.5, 1.5, 10_000)
        wild = taking("full", (float(seconds) for seconds in LONG * noise))
        results.append(
            run_rounds(
                [taking("eager", LONG), wild], BenchmarkOptions(4.0), clock=clock, context=Run(executor=executor)
            )
        )
    assert results[0].rounds == results[1].rounds > 50
    assert results[0].spent_s == pytest.approx(results[1].spent_s)


def test_one_round_is_always_made(clock: FakeClock, taking: Make) -> None:
    result = run_rounds([taking("eager", 8.0), taking("full", 4.0)], BenchmarkOptions(1.0), clock=clock)
    assert (result.rounds, result.stopped) == (1, Stop.BUDGET)
    assert result.samples["full"][FORWARD] == (4.0,)


def test_first_calls_may_compile_and_are_not_charged(clock: FakeClock, taking: Make) -> None:
    compiling = taking("full", chain([1024.0], repeat(LONG)))
    result = run_rounds([taking("eager", LONG), compiling], BenchmarkOptions(4.0), clock=clock)
    assert result.spent_s < 4.0
    assert set(result.samples["full"][FORWARD]) == {LONG}


def test_a_variant_that_gets_quicker_is_called_until_it_is_steady(clock: FakeClock, taking: Make) -> None:
    cooling = taking("full", chain((LONG * 2**step for step in (6, 5, 4, 3, 2, 1)), repeat(LONG)))
    result = run_rounds([taking("eager", LONG), cooling], BenchmarkOptions(64.0), clock=clock)
    assert set(result.samples["full"][FORWARD]) == {LONG}


def test_short_calls_share_a_sample_and_all_variants_make_as_many(clock: FakeClock, taking: Make) -> None:
    short = 2.0**-13
    result = run_rounds([taking("eager", 8 * short), taking("full", short)], BenchmarkOptions(1.0), clock=clock)
    assert result.calls_per_sample == 9  # nine of 122 us are the first to last a millisecond
    assert set(result.samples["full"][FORWARD]) == {short}


def test_long_calls_leave_room_for_rounds(clock: FakeClock, taking: Make) -> None:
    result = run_rounds([taking("eager", 2.0**-4), taking("full", 2.0**-12)], BenchmarkOptions(8.0), clock=clock)
    assert result.calls_per_sample == 1
    assert result.rounds > 10


def test_every_round_has_every_variant_in_an_order_of_its_own(clock: FakeClock, taking: Make) -> None:
    names = ["eager", "aot_eager", "regional", "full"]
    options = BenchmarkOptions(8.0, seed=3)
    result = run_rounds([taking(name, LONGER) for name in names], options, clock=clock)
    measured = clock.log[len(names) * WARMUP :]
    rounds = [tuple(measured[start : start + 5]) for start in range(0, len(measured), 5)]
    assert len(rounds) == result.rounds
    assert all(sorted(order) == sorted([*names, "eager"]) for order in rounds), "eager is its own control"
    assert len(set(rounds)) > 4

    clock.log.clear()
    run_rounds([taking(name, LONGER) for name in names], options, clock=clock)
    assert clock.log[len(names) * WARMUP :] == measured


@pytest.mark.parametrize("names", [("eager", "full"), ("eager", "aot_eager", "full")])
def test_no_variant_is_favoured_by_following_itself(names: tuple[str, ...], clock: FakeClock) -> None:
    def call(name: str) -> None:
        clock.spend(LONG if clock.log[-1:] != [name] else LONG / 2)
        clock.log.append(name)

    timed_calls = [TimedCall(name, partial(call, name)) for name in names]
    result = run_rounds(timed_calls, BenchmarkOptions(4.0), clock=clock)
    samples = [*result.samples.values(), result.control]
    assert {seconds for phases in samples for seconds in phases[FORWARD]} == {LONG}


def test_long_calls_are_not_called_between_samples(clock: FakeClock, taking: Make) -> None:
    assert LONG < COLD_MATTERS_S < LONGER
    timed_calls = [taking("eager", LONGER), taking("full", LONGER)]
    result = run_rounds(timed_calls, BenchmarkOptions(4.0), clock=clock)
    assert len(clock.log) == 2 * WARMUP + 3 * result.rounds


def test_the_control_is_there_when_the_budget_has_room(clock: FakeClock, taking: Make) -> None:
    def run(budget_s: float) -> RoundsResult:
        return run_rounds([taking("eager", LONG), taking("full", LONG)], BenchmarkOptions(budget_s), clock=clock)

    assert run(4.0).control
    assert run(24 * LONG).control, "wherever there are rounds enough for a verdict"
    assert not run(16 * LONG).control
    assert not run_rounds([taking("eager", LONG)], BenchmarkOptions(4.0), clock=clock).control


def test_a_variant_that_raises_is_dropped_and_its_rounds_stay(clock: FakeClock, taking: Make) -> None:
    def failing() -> None:
        if len(broken) == WARMUP + 5:
            raise RuntimeError("out of luck")
        broken.append(1)
        clock.spend(LONGER)

    broken: list[int] = []
    result = run_rounds([taking("eager", LONGER), TimedCall("full", failing)], BenchmarkOptions(4.0), clock=clock)
    assert result.dropped == {"full": "'full' raised RuntimeError in round 6: out of luck"}
    assert len(result.samples["full"][FORWARD]) == 5
    assert len(result.samples["eager"][FORWARD]) == result.rounds > 5
    ratios = result.ratios("full", FORWARD)
    assert ratios is not None
    assert len(ratios) == 5


def test_a_variant_that_never_runs_is_dropped_too(clock: FakeClock, taking: Make) -> None:
    def failing() -> None:
        raise ValueError("bad shape")

    result = run_rounds([TimedCall("full", failing), taking("eager", LONG)], BenchmarkOptions(4.0), clock=clock)
    assert list(result.samples) == ["eager"]
    assert result.dropped["full"] == "'full' raised ValueError before the first round was complete: bad shape"
    assert result.ratios("full", FORWARD) is None


def test_without_its_baseline_a_run_still_gives_times(clock: FakeClock, taking: Make) -> None:
    def failing() -> None:
        raise ValueError("no kernel")

    result = run_rounds([TimedCall("eager", failing), taking("full", LONG)], BenchmarkOptions(4.0), clock=clock)
    assert set(result.samples["full"][FORWARD]) == {LONG}
    assert result.ratios("full", FORWARD) is None
    assert result.control_ratios(FORWARD) is None


def test_nothing_to_measure_is_an_error(clock: FakeClock, taking: Make) -> None:
    def failing() -> None:
        raise ValueError("bad shape")

    with pytest.raises(MeasureError, match=r"No variant could be measured.*'full' raised ValueError.*bad shape"):
        run_rounds([TimedCall("full", failing)], clock=clock)
    with pytest.raises(MeasureError, match="nothing to measure"):
        run_rounds([], clock=clock)
    with pytest.raises(MeasureError, match="Two variants are called 'full'"):
        run_rounds([taking("full", LONG), taking("full", LONG)], clock=clock)


def test_an_interrupt_keeps_the_complete_rounds(clock: FakeClock, taking: Make) -> None:
    calls: list[int] = []

    def interrupted() -> None:
        calls.append(1)
        if len(calls) > WARMUP + 7:
            raise KeyboardInterrupt
        clock.spend(LONGER)

    result = run_rounds([taking("eager", LONGER), TimedCall("full", interrupted)], BenchmarkOptions(4.0), clock=clock)
    assert (result.stopped, result.rounds) == (Stop.INTERRUPTED, 7)
    assert [len(phases[FORWARD]) for phases in (*result.samples.values(), result.control)] == [7, 7, 7]


def test_an_interrupt_while_warming_up_keeps_nothing_and_is_told(clock: FakeClock) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    result = run_rounds([TimedCall("eager", interrupted)], clock=clock)
    assert (result.stopped, result.rounds, dict(result.samples)) == (Stop.INTERRUPTED, 0, {})


def test_cancelling_is_seen_between_samples(clock: FakeClock, taking: Make) -> None:
    timed_calls = [taking("eager", LONGER), taking("full", LONGER)]
    wanted = len(timed_calls) * WARMUP + 3 * 7 + 1  # seven rounds of three entries, and one sample of the eighth
    context = Run(cancelled=lambda: len(clock.log) == wanted)
    result = run_rounds(timed_calls, BenchmarkOptions(4.0), clock=clock, context=context)
    assert (result.stopped, result.rounds) == (Stop.CANCELLED, 7)
    assert len(clock.log) == wanted


def test_progress_is_reported(clock: FakeClock, taking: Make) -> None:
    reports: list[tuple[str, float]] = []
    context = Run(progress=lambda doing, fraction: reports.append((doing, fraction)))
    options = BenchmarkOptions(16 * LONG)  # too little for a control
    result = run_rounds([taking("eager", LONG), taking("full", LONG)], options, clock=clock, context=context)
    assert [doing for doing, _ in reports[:4]] == [
        "first calls of eager",
        "first calls of full",
        "warming up eager",
        "warming up full",
    ]
    assert reports[0] == ("first calls of eager", 0.0)
    assert reports[4] == ("round 2", (2 + 4) / 16)
    assert reports[5][0] == "round 4"  # two rounds of two calls take more than 50 ms
    assert int(reports[-1][0].removeprefix("round ")) <= result.rounds
    assert all(earlier <= later <= 1.0 for (_, earlier), (_, later) in pairwise(reports))


def test_phases_are_kept_apart(clock: FakeClock, taking: Make) -> None:
    result = run_rounds(
        [taking("eager", LONG, LONG), taking("full", LONG / 2, LONG)], BenchmarkOptions(4.0), clock=clock
    )
    speedups = {phase: set(ratios) for phase in Phase if (ratios := result.ratios("full", phase)) is not None}
    assert speedups == {Phase.FORWARD: {2.0}, Phase.BACKWARD: {1.0}, Phase.STEP: {4 / 3}}
