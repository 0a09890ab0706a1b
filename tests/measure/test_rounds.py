"""Calls, their samples and their rounds on a fake clock; the machine around them."""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count, cycle, pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from regional_explorer.compiler.run import SAME_THREAD, Run, SameThread, T
from regional_explorer.errors import MeasureError
from regional_explorer.measure import benchmark, timings
from regional_explorer.measure.clock import Clock, CpuClock, CudaClock, TimedCall, clock_for
from regional_explorer.measure.machine import (
    DeviceState,
    Sentinel,
    Watch,
    device_state,
    fixed_work,
    launch_share,
    launch_warnings,
    other_processes_s,
    seconds_by_culprit,
)
from regional_explorer.measure.memory import LEAST_RESIDENT, AllocatorGauge, ResidentGauge, gauge_for, measure_peak
from regional_explorer.measure.rounds import (
    ADDED_WITHIN_S,
    COLD_MATTERS_S,
    FIRST_CALLS,
    NOT_ADDED,
    Raised,
    RoundsResult,
    StopReason,
    check_budget,
    run_rounds,
)
from regional_explorer.measure.timings import MeasureContext, conditions_of, measure_rounds, timings_of
from regional_explorer.record.benchmark import LEAST_SAMPLES, Phase, Verdict
from regional_explorer.record.figure import QUIET, Figure, Noise, exactly
from regional_explorer.record.session import Session
from regional_explorer.tables.benchmark import memory_table
from tests.shared.fakes import FakeClock, MakeFakeCall
from tests.shared.sessions import ENVIRONMENT
from tests.shared.work import torch_threads

FORWARD, BACKWARD, STEP = Phase
LONG = 2.0**-6
"""Seconds of a call that is a sample of its own; a power of two, so that sums of it are exact."""

LONGER = 2 * LONG
"""Seconds of a call that is too long for calls between samples."""

WARMUP = FIRST_CALLS + 2
"""Calls of a steady, long variant before its first round: the first calls, and two that take equally long."""

Rounds = Callable[..., RoundsResult]


@pytest.fixture
def rounds(clock: FakeClock) -> Rounds:
    """Return a function that measures variants for 4 s: ``rounds(fake_call("eager", 0.25), …)``."""

    def run(*calls: TimedCall, budget_s: float = 4.0, seed: int = 0, context: Run | None = None) -> RoundsResult:
        return run_rounds(calls, budget_s, seed=seed, clock=clock, context=context)

    return run


def noisy_call(fake_call: MakeFakeCall, name: str, seconds: float) -> TimedCall:
    """Return a fake variant whose intervals do not get narrow within a budget."""
    noise = np.random.default_rng(len(name)).uniform(0.5, 1.5, 10_000)
    return fake_call(name, (float(factor * seconds) for factor in noise))


def failing_call(error: BaseException, clock: FakeClock | None = None, after: int = 0) -> Callable[[], None]:
    """Return a function that raises ``error``, after ``after`` calls that take ``LONGER`` on the clock."""
    calls = iter(range(after))

    def call() -> None:
        if next(calls, None) is None:
            raise error
        assert clock is not None
        clock.spend(LONGER)

    return call


# ------------------------------------------------------------------------------------------------------------- samples


def test_a_sample_has_the_median_time_of_each_phase(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    assert fake_call("eager", 0.25).sample(clock, 4) == {FORWARD: 0.25}
    assert fake_call("eager", [0.25, 9.0, 0.25]).sample(clock, 3) == {FORWARD: 0.25}
    clock.log.clear()
    assert fake_call("eager", 0.25, 0.5).sample(clock, 3) == {FORWARD: 0.25, BACKWARD: 0.5, STEP: 0.75}
    assert clock.log == ["eager"] * 3


def test_restoring_selecting_and_flushing_are_not_timed(clock: FakeClock) -> None:
    log: list[str] = []

    def hook(text: str) -> None:
        log.append(text)
        clock.spend(64.0)

    timed_call = TimedCall("full", lambda: clock.spend(0.5), None, partial(hook, "before"), partial(hook, "select"))
    assert timed_call.sample(clock, 2) == {FORWARD: 0.5}
    assert log == ["select", "before", "before"]
    assert clock.flushes == 2


def test_outputs_and_gradients_are_freed_outside_timed_spans(clock: FakeClock) -> None:
    class Tensor:
        pass

    freed: list[float] = []

    def free() -> None:
        clock.spend(16.0)
        freed.append(clock.now())

    def make() -> Tensor:
        tensor = Tensor()
        weakref.finalize(tensor, free)
        clock.spend(0.5)
        return tensor

    assert TimedCall("eager", make, lambda _: make()).sample(clock, 2) == {FORWARD: 0.5, BACKWARD: 0.5, STEP: 1.0}
    assert len(freed) == 4


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_paused_in_a_sample_and_restored(clock: FakeClock, *, enabled: bool) -> None:
    seen: list[bool] = []

    def fail() -> None:
        seen.append(gc.isenabled())
        raise ValueError("stopped")

    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        TimedCall("eager", lambda: seen.append(gc.isenabled())).sample(clock, 1)
        assert gc.isenabled() is enabled
        with pytest.raises(ValueError, match="stopped"):
            TimedCall("eager", fail).sample(clock, 1)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False, False]


# -------------------------------------------------------------------------------------------------------------- clocks


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log of a fake CUDA device, whose events are 2 ms apart."""
    log: list[str] = []
    ticks_ms = count(2.0, 2.0)

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: str) -> None:
            assert stream == "stream of cuda:1"
            log.append("event")
            self.at_ms = next(ticks_ms)

        def elapsed_time(self, other: Event) -> float:
            return other.at_ms - self.at_ms

    def empty(size: int, *, dtype: str, device: str) -> SimpleNamespace:
        log.append(f"scratch of {size} {dtype} on {device}")
        return SimpleNamespace(zero_=lambda: log.append("flush"))

    cuda = SimpleNamespace(
        Event=Event,
        current_stream=lambda where: f"stream of {where}",
        synchronize=lambda where: log.append(f"wait for {where}"),
        get_device_properties=lambda _: SimpleNamespace(L2_cache_size=1000),
    )
    fake = SimpleNamespace(
        cuda=cuda, device=str, empty=empty, int8="bytes", inference_mode=lambda *, mode: nullcontext(mode)
    )
    monkeypatch.setattr("regional_explorer.measure.clock.torch", fake)
    return log


def test_the_device_chooses_the_clock(device: list[str]) -> None:
    assert isinstance(clock_for("cpu"), CpuClock)
    assert isinstance(clock_for("cuda:1 (NVIDIA of some kind)"), CudaClock)
    with pytest.raises(MeasureError, match="Work on mps cannot be timed"):
        clock_for("mps")  # a clock of the host would not wait for it
    assert device == ["scratch of 2000 bytes on cuda:1"]


def test_cuda_synchronizes_once_per_sample_and_flushes_outside_timed_spans(device: list[str]) -> None:
    clock = CudaClock("cuda:1")
    device.clear()
    timed_call = TimedCall("full", lambda: device.append("forward"), lambda _: device.append("backward"))
    figures = timed_call.sample(clock, 2)
    call = ["flush", "event", "forward", "event", "backward", "event"]
    assert device == [*call, *call, "wait for cuda:1"]
    assert figures == {FORWARD: 0.002, BACKWARD: 0.002, STEP: 0.004}
    assert clock.now() > 0.0


# -------------------------------------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize("budget", [0, 0.0, -1, float("nan"), float("inf"), "5", None, True, 1j])
def test_invalid_budget_is_refused(budget: object) -> None:
    with pytest.raises(MeasureError, match=r"budget_s=.*positive, finite number") as caught:
        check_budget(budget)  # type: ignore[arg-type]
    assert repr(budget) in str(caught.value)


def test_rounds_stop_when_precise_or_out_of_budget(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    result = rounds(fake_call("eager", LONG), fake_call("full", LONG), budget_s=16.0)
    assert result.stopped is StopReason.PRECISE
    assert result.spent_s == pytest.approx(1.0, abs=0.1)  # a sixteenth of the budget
    result = rounds(fake_call("eager", LONG), noisy_call(fake_call, "full", LONG))
    assert result.stopped is StopReason.BUDGET
    assert 3.9 < result.spent_s <= 4.05
    result = rounds(fake_call("eager", 8.0), fake_call("full", 4.0), budget_s=1.0)
    assert (result.rounds, result.stopped) == (1, StopReason.BUDGET), "one round is always made"
    assert result.samples["full"][FORWARD] == pytest.approx((4.0,))


def test_waiting_for_a_turn_costs_no_budget(clock: FakeClock, rounds: Rounds, fake_call: MakeFakeCall) -> None:
    class QueueThreads(SameThread):
        """Timed work has to wait 16 s for its turn."""

        def run_timed(self, work: Callable[[], T]) -> T:
            clock.spend(16.0)
            return work()

    at_once, queued = (
        rounds(fake_call("eager", LONG), noisy_call(fake_call, "full", LONG), context=Run(threads=threads))
        for threads in (SAME_THREAD, QueueThreads())
    )
    assert at_once.rounds == queued.rounds > 50
    assert at_once.spent_s == pytest.approx(queued.spent_s)


def test_uncharged_first_calls_repeat_until_the_variant_is_steady(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    result = rounds(fake_call("eager", LONG), fake_call("full", chain([1024.0], repeat(LONG))))  # it compiles
    assert result.spent_s < 4.0
    assert set(result.samples["full"][FORWARD]) == {LONG}
    cooling = fake_call("full", chain((LONG * 2**step for step in (6, 5, 4, 3, 2, 1)), repeat(LONG)))
    assert set(rounds(fake_call("eager", LONG), cooling, budget_s=64.0).samples["full"][FORWARD]) == {LONG}


def test_only_short_calls_share_a_sample(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    short = 2.0**-13
    result = rounds(fake_call("eager", 8 * short), fake_call("full", short), budget_s=1.0)
    assert result.calls_per_sample == 9  # nine of 122 us are the first to last a millisecond
    assert set(result.samples["full"][FORWARD]) == {short}
    result = rounds(fake_call("eager", 2.0**-4), fake_call("full", 2.0**-12), budget_s=8.0)
    assert result.calls_per_sample == 1
    assert result.rounds > 10


def test_every_round_has_every_variant_in_random_order(
    clock: FakeClock, rounds: Rounds, fake_call: MakeFakeCall
) -> None:
    names = ["eager", "aot_eager", "regional", "full"]
    result = rounds(*(fake_call(name, LONGER) for name in names), budget_s=8.0, seed=3)
    measured = clock.log[len(names) * WARMUP :]
    orders = [tuple(measured[start : start + 5]) for start in range(0, len(measured), 5)]
    assert len(orders) == result.rounds
    assert all(sorted(order) == sorted([*names, "eager"]) for order in orders), "eager is its own control"
    assert len(set(orders)) > 4

    clock.log.clear()
    rounds(*(fake_call(name, LONGER) for name in names), budget_s=8.0, seed=3)
    assert clock.log[len(names) * WARMUP :] == measured


@pytest.mark.parametrize("names", [("eager", "full"), ("eager", "aot_eager", "full")])
def test_no_variant_is_favoured_by_following_itself(names: tuple[str, ...], clock: FakeClock, rounds: Rounds) -> None:
    def call(name: str) -> None:
        clock.spend(LONG if clock.log[-1:] != [name] else LONG / 2)
        clock.log.append(name)

    result = rounds(*(TimedCall(name, partial(call, name)) for name in names))
    samples = [*result.samples.values(), result.control]
    assert {seconds for phases in samples for seconds in phases[FORWARD]} == {LONG}


def test_long_calls_are_not_called_between_samples(clock: FakeClock, rounds: Rounds, fake_call: MakeFakeCall) -> None:
    assert LONG < COLD_MATTERS_S < LONGER
    result = rounds(fake_call("eager", LONGER), fake_call("full", LONGER))
    assert len(clock.log) == 2 * WARMUP + 3 * result.rounds


def test_control_samples_need_room_in_the_budget(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    def control(budget_s: float) -> object:
        return rounds(fake_call("eager", LONG), fake_call("full", LONG), budget_s=budget_s).control

    assert control(4.0)
    assert control(24 * LONG), "wherever there are rounds enough for a verdict"
    assert not control(16 * LONG)
    assert not rounds(fake_call("eager", LONG)).control


def test_a_variant_that_raises_is_dropped_and_its_rounds_stay(
    clock: FakeClock, rounds: Rounds, fake_call: MakeFakeCall
) -> None:
    failing = failing_call(RuntimeError("out of luck"), clock, after=WARMUP + 5)
    result = rounds(fake_call("eager", LONGER), TimedCall("full", failing))
    assert result.dropped == {"full": Raised("'full' raised RuntimeError in round 6", "out of luck")}
    assert len(result.samples["eager"][FORWARD]) == result.rounds > 5
    ratios = result.ratios("full", FORWARD)
    assert ratios is not None
    assert len(ratios) == len(result.samples["full"][FORWARD]) == 5


def test_failing_calls_are_dropped(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    for raises, runs in (("full", "eager"), ("eager", "full")):
        result = rounds(TimedCall(raises, failing_call(ValueError("bad shape"))), fake_call(runs, LONG))
        assert {name: set(phases[FORWARD]) for name, phases in result.samples.items()} == {runs: {LONG}}
        fact = f"{raises!r} raised ValueError before the first round was complete"
        assert result.dropped == {raises: Raised(fact, "bad shape")}
        assert result.ratios("full", FORWARD) is None
    assert result.control_ratios(FORWARD) is None
    for calls, why in (
        ((TimedCall("full", failing_call(ValueError("bad shape"))),), "'full' raised.*bad shape"),
        ((), ""),
    ):
        with pytest.raises(MeasureError, match=f"No variant could be measured.*{why}"):
            rounds(*calls)


def test_an_interrupt_keeps_only_complete_rounds(clock: FakeClock, rounds: Rounds, fake_call: MakeFakeCall) -> None:
    interrupted = failing_call(KeyboardInterrupt(), clock, after=WARMUP + 7)
    result = rounds(fake_call("eager", LONGER), TimedCall("full", interrupted))
    assert (result.stopped, result.rounds) == (StopReason.INTERRUPTED, 7)
    assert [len(phases[FORWARD]) for phases in (*result.samples.values(), result.control)] == [7, 7, 7]
    result = rounds(TimedCall("eager", failing_call(KeyboardInterrupt())))
    assert (result.stopped, result.rounds, dict(result.samples)) == (StopReason.INTERRUPTED, 0, {})


def test_a_run_can_be_cancelled_between_samples(clock: FakeClock, rounds: Rounds, fake_call: MakeFakeCall) -> None:
    wanted = 2 * WARMUP + 3 * 7 + 1  # seven rounds of three entries, and one sample of the eighth
    context = Run(cancelled=lambda: len(clock.log) == wanted)
    result = rounds(fake_call("eager", LONGER), fake_call("full", LONGER), context=context)
    assert (result.stopped, result.rounds) == (StopReason.CANCELLED, 7)
    assert len(clock.log) == wanted


def test_progress_is_reported(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    reports: list[tuple[str, float]] = []
    context = Run(progress=lambda doing, fraction: reports.append((doing, fraction)))
    context.part(0.5, 1.0).part(0.0, 0.5, "mlp alone: ").progress("round 1", 0.5)
    assert reports == [("mlp alone: round 1", 0.625)], "parts of a run report their share"
    reports.clear()
    # A budget with no room for a control.
    result = rounds(fake_call("eager", 8 * LONG), fake_call("full", 8 * LONG), budget_s=128 * LONG, context=context)
    first = ["first calls of eager", "first calls of full", "warming up eager", "warming up full"]
    assert [doing for doing, _ in reports[:4]] == first
    assert reports[0] == ("first calls of eager", 0.0)
    of_rounds = [(f"round {number}", (2 + 2 * number) / 16) for number in range(1, result.rounds + 1)]
    assert reports[4:] == of_rounds, "a round of two calls takes 0.25 s"
    assert result.rounds >= 5
    assert all(earlier <= later <= 1.0 for (_, earlier), (_, later) in pairwise(reports))


def test_parts_of_a_sample_come_from_its_median_call(clock: FakeClock, rounds: Rounds) -> None:
    took = cycle([LONG, 9 * LONG, 2 * LONG])
    calls: list[float] = []

    def call() -> None:
        calls.append(next(took))
        clock.spend(calls[-1])

    def parts(number: int, stamps: Sequence[float]) -> dict[str, float]:
        assert clock.seconds(stamps[0], stamps[-1]) == calls[number]
        return {"third": calls[number] / 4, "rest": 3 * calls[number] / 4}

    timed_call = TimedCall("marked", call, select=calls.clear, parts=parts)
    assert timed_call.sample(clock, 3) == {FORWARD: 2 * LONG, "third": LONG / 2, "rest": 3 * LONG / 2}
    result = rounds(timed_call)
    assert result.stopped is StopReason.BUDGET, "parts are never precise enough"
    found = result.parts["marked"]
    assert found.mean(["third", "rest"]) == pytest.approx(found.mean(["third"]) + found.mean(["rest"]))
    assert found.figure(["third"]).value == pytest.approx(found.mean(found.seconds) / 4)
    assert list(rounds(TimedCall("eager", call)).parts) == []


def test_times_and_ratios_are_exact_on_a_steady_clock(rounds: Rounds, fake_call: MakeFakeCall) -> None:
    result = rounds(fake_call("eager", LONG), fake_call("full", LONG / 4))
    assert result.samples["full"][FORWARD] == (LONG / 4,) * result.rounds
    control = result.control_ratios(FORWARD)
    assert control is not None
    assert control.tolist() == [1.0] * result.rounds
    assert result.time("full", FORWARD) == Figure(LONG / 4, LONG / 4, LONG / 4)
    assert result.ratio("full", FORWARD) == Figure(4.0, 4.0, 4.0)
    assert result.ratio("lite", FORWARD) is None
    busy = dataclasses.replace(result, noise=Noise(rounds=30, disturbed=25))
    assert busy.ratio("full", FORWARD) == Figure(4.0, why="the machine was too busy")
    few = rounds(fake_call("eager", 8.0), fake_call("full", 4.0), budget_s=1.0)
    assert few.time("full", FORWARD) == Figure(4.0, why="too few rounds (1)")
    trained = rounds(fake_call("eager", LONG, LONG), fake_call("full", LONG / 2, LONG))
    assert [trained.ratio("full", phase) for phase in Phase] == [exactly(2.0), exactly(1.0), exactly(4 / 3)]


def test_work_between_rounds_is_not_charged(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    def between() -> None:
        clock.log.append("between")
        clock.spend(100.0)

    result = run_rounds(
        [fake_call("eager", LONG), noisy_call(fake_call, "full", LONG)], 4.0, clock=clock, between=between
    )
    assert result.rounds > 50
    assert 3.9 < result.spent_s <= 4.05
    places = [number for number, name in enumerate(clock.log) if name == "between"]
    assert len(places) == 6, "at first, at each look, and at last"
    assert places[-1] == len(clock.log) - 1
    assert all(later - earlier > 10 for earlier, later in pairwise(places))


def test_first_calls_sets_the_number_of_untimed_calls(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    run_rounds([fake_call("eager", 8.0)], 4.0, clock=clock, first_calls=1)
    assert clock.log == ["eager"] * 3, "one first call, one that warms up, and a round"


# --------------------------------------------------------------------------------------------------------- the machine

GIB = 1 << 30
COOL = DeviceState(1980, 45, 10 * GIB, 80 * GIB)
HOT = DeviceState(1400, 83, 12 * GIB, 80 * GIB)


class DeviceClock(FakeClock):
    """A device that is done ``behind_s`` later than the host."""

    behind_s = 0.0

    def seconds(self, begin: float, end: float) -> float:
        return super().seconds(begin, end) + self.behind_s


def test_launches_are_separated_from_work() -> None:
    clock = DeviceClock()
    forward = TimedCall("full", lambda: clock.spend(1.0))
    for clock.behind_s, warned in ((0.0, True), (0.1, True), (9.0, False)):
        assert launch_share(forward, clock) == pytest.approx(1.0 / (1.0 + clock.behind_s))
        assert bool(launch_warnings([forward], clock, SAME_THREAD, nullcontext)) is warned
    clock.behind_s = 3.0
    both = TimedCall("full", lambda: clock.spend(1.0), lambda _: clock.spend(2.0))
    assert launch_share(both, clock) == pytest.approx(0.5)


def test_unknown_load_of_other_processes_is_none(tmp_path: Path) -> None:
    assert other_processes_s(tmp_path / "nothing") is None
    (tmp_path / "stat").write_text("cpu  one two\n")
    assert other_processes_s(tmp_path / "stat") is None
    (tmp_path / "stat").write_text("cpu  500000 0 250000 9 9 0 0 0 0 0\n")
    assert 0.0 < (other_processes_s(tmp_path / "stat") or 0.0) < 750_000 / os.sysconf("SC_CLK_TCK")


@dataclass
class DisturbedMachine:
    """A machine on which fixed work and calls take longer in some rounds, by ``factors``."""

    clock: FakeClock
    factors: Iterator[float]
    factor: float = 1.0

    @cached_property
    def sentinel(self) -> Sentinel:
        """The fixed work; the factor changes before each look at it."""
        disturbed = self

        class Changing(Sentinel):
            def time_s(self, clock: Clock[Any]) -> float:
                disturbed.factor = next(disturbed.factors)
                return super().time_s(clock)

        return Changing(TimedCall("fixed work", lambda: self.clock.spend(1e-4 * self.factor)))

    def fake_call(self, name: str, seconds: float) -> TimedCall:
        """Return a call that takes longer while the machine is disturbed, and never twice the same time."""
        spread = np.random.default_rng(len(name))
        return TimedCall(name, lambda: self.clock.spend(seconds * self.factor * spread.uniform(1.0, 1.3)))

    def run(self, earlier: RoundsResult | None = None, budget_s: float = 8.0) -> RoundsResult:
        calls = [self.fake_call("eager", LONGER), self.fake_call("full", LONGER / 2)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regional_explorer.measure.rounds.fixed_work", lambda _clock: self.sentinel)
            return run_rounds(calls, budget_s, clock=self.clock, earlier=earlier)


def often(share: float, seed: int = 0) -> Iterator[float]:
    """Yield the factors of a machine that is disturbed whenever one looks, with this probability."""
    chance = np.random.default_rng(seed)
    while True:
        yield 3.0 if chance.random() < share else 1.0


def test_disturbed_rounds_are_left_out_and_counted(clock: FakeClock) -> None:
    result = DisturbedMachine(clock, often(0.2)).run()
    assert result.noise.rounds == result.rounds
    assert 0.2 * result.rounds < result.noise.disturbed == result.noise.left_out < 0.4 * result.rounds, (
        "the round before a disturbance counts, too: it may have begun in it"
    )
    assert max(result.samples["eager"][FORWARD]) < 1.3 * LONGER
    assert len(result.samples["full"][FORWARD]) == result.rounds - result.noise.left_out
    assert result.noise.sentence.startswith(
        f"The machine was busy: {result.noise.left_out} of {result.rounds} rounds left out"
    )


def test_a_machine_that_is_hardly_ever_quiet_gives_no_verdict(clock: FakeClock) -> None:
    result = DisturbedMachine(clock, often(0.58)).run()
    assert result.noise.left_out == 0
    assert result.noise.is_too_much
    assert result.verdict("full", FORWARD) is Verdict.BUSY
    assert not result.is_precise()
    assert "disturbed and kept, as too few would be left without them" in result.noise.sentence


def let_others_use(cores: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes use this many cores."""
    monkeypatch.setattr("regional_explorer.measure.machine.Watch._other_cores", lambda _: cores)


def test_a_never_quiet_machine_is_compared_with_earlier_runs(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nine of ten rounds are disturbed, so is the quickest fifth."""
    let_others_use(1.8, monkeypatch)
    blind = DisturbedMachine(clock, chain([3.0], cycle([3.0, 3.1, 3.2]))).run()
    assert blind.noise.disturbed == 0, "without an earlier run it cannot be seen"
    for fastest in ([1.0], []):  # in this run, or in one before
        machine = DisturbedMachine(clock, chain(fastest, cycle([3.0, 3.1, 3.2])))
        if not fastest:
            machine.sentinel.fastest_s = 1e-4
        busy = machine.run()
        assert busy.noise.is_too_much
        assert busy.verdict("full", FORWARD) is Verdict.BUSY
        assert busy.time("full", FORWARD).why == "the machine was too busy"


def test_a_slower_processor_alone_does_not_count_as_disturbance(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cores, disturbed in ((0.1, False), (None, False), (0.6, True)):
        let_others_use(cores, monkeypatch)  # type: ignore[arg-type]
        machine = DisturbedMachine(clock, repeat(1.0))
        machine.sentinel.fastest_s = 1e-4 / 1.6
        assert (machine.run().noise.disturbed > 0) is disturbed


def test_fixed_work_that_was_interrupted_once_is_timed_again(clock: FakeClock) -> None:
    took = iter([1.0, 3.0, 1.2, 1.4, 3.0, 2.0])
    sentinel = Sentinel(TimedCall("fixed work", lambda: clock.spend(next(took))))
    assert [sentinel.time_s(clock) for _ in range(4)] == pytest.approx([1.0, 1.2, 1.4, 2.0])
    assert sentinel.fastest_s == pytest.approx(1.0)


def test_fixed_work_is_remembered_by_device_and_threads() -> None:
    with torch_threads(1):
        one = fixed_work(CpuClock())
        assert one.time_s(CpuClock()) >= one.fastest_s > 0.0
        assert fixed_work(CpuClock()) is one
    with torch_threads(2):
        assert fixed_work(CpuClock()) is not one


def test_fixed_work_of_inference_mode_serves_later_calls() -> None:
    with torch_threads(torch.get_num_threads() + 1):
        with torch.inference_mode():
            fixed_work(CpuClock())
        assert fixed_work(CpuClock()).time_s(CpuClock()) > 0.0


def test_noise_of_two_runs_is_weighted_by_rounds() -> None:
    long, short = Noise(rounds=300, disturbed=30, others=0.1, cores=2), Noise(rounds=100, others=1.7, cores=2)
    assert replace(long + short, others=None) == Noise(rounds=400, disturbed=30, cores=2)
    assert (long + short).others == pytest.approx(0.5)
    assert (long + QUIET).others == pytest.approx(0.1)
    assert (QUIET + QUIET).others is None


def test_a_quiet_machine_is_not_mentioned(clock: FakeClock) -> None:
    result = DisturbedMachine(clock, repeat(1.0)).run()
    assert (result.noise.disturbed, result.noise.left_out) == (0, 0)
    assert replace(result.noise, others=None).sentence == ""


def test_gpu_state_is_reported() -> None:
    assert HOT.described_since(COOL) == "12.0 of 80.0 GiB in use, SM clock 1980 MHz before, 1400 MHz after, 83 °C"
    unread = DeviceState(None, None, GIB, 2 * GIB)
    assert unread.described_since(unread) == "1.0 of 2.0 GiB in use"
    assert "from 1980 to 1400 MHz" in HOT.throttled_since(COOL)
    assert COOL.throttled_since(HOT) == COOL.throttled_since(COOL) == unread.throttled_since(COOL) == ""
    assert COOL.throttled_since(unread) == ""
    assert device_state("cpu") is None


@pytest.mark.parametrize("states", [(COOL, HOT), (None, None)], ids=["gpu", "cpu"])
def test_a_drop_of_the_gpu_clock_is_reported(
    clock: FakeClock, fake_call: MakeFakeCall, states: tuple[DeviceState | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timings, "device_state", Mock(side_effect=states))
    context = MeasureContext(Run(), ENVIRONMENT, clock)
    calls = [fake_call("eager", LONGER), fake_call("regional", LONG)]
    rounds = measure_rounds(calls, 4.0, context, baseline="eager")
    found, conditions = timings_of(rounds), conditions_of(rounds, ENVIRONMENT)
    fell = "Throttling: the SM clock fell from 1980 to 1400 MHz" in conditions.noise.sentence
    # The fake device is never slower than the host.
    launch_bound = [any("launch-bound" in text for text in timing.warnings) for timing in found]
    gpu = states == (COOL, HOT)
    assert (fell, set(launch_bound), "SM clock 1980 MHz before" in conditions.gpu) == (gpu, {gpu}, gpu)
    assert gpu or not (conditions.gpu or any(timing.warnings for timing in found))
    assert found[1].speedup == exactly(2.0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failure_after_gpu_rounds_loses_no_round(
    error: type[BaseException], clock: FakeClock, fake_call: MakeFakeCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timings, "device_state", Mock(return_value=COOL))
    monkeypatch.setattr("regional_explorer.measure.machine.launch_share", Mock(side_effect=error))
    context = MeasureContext(Run(), ENVIRONMENT, clock)
    rounds = measure_rounds([fake_call("eager", LONGER), fake_call("regional", LONG)], 4.0, context, baseline="eager")
    assert rounds.verdict("regional", FORWARD) is Verdict.FASTER
    assert (rounds.stopped is StopReason.INTERRUPTED) is (error is KeyboardInterrupt)
    assert not rounds.warnings


# --------------------------------------------------------------------------------------------------------- more rounds


def test_two_benchmarks_are_as_precise_as_a_double_one(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    def calls() -> list[TimedCall]:
        return [noisy_call(fake_call, "eager", LONGER), noisy_call(fake_call, "full", LONGER)]

    def width(result: RoundsResult) -> float:
        low, high = (result.ratio("full", FORWARD) or Figure(0.0)).bounds or (0.0, 9.0)
        return high - low

    half, whole = run_rounds(calls(), 8.0, clock=clock), run_rounds(calls(), 16.0, clock=clock)
    twice = run_rounds(calls(), 8.0, clock=clock, earlier=half)
    assert (twice.benchmarks, twice.budget_s) == (2, 16.0)
    assert twice.rounds == twice.noise.rounds == pytest.approx(whole.rounds, rel=0.05)
    assert {len(phases[FORWARD]) for phases in (*twice.samples.values(), twice.control)} == {twice.rounds}
    assert twice.samples["full"][FORWARD][: half.rounds] == half.samples["full"][FORWARD]
    assert width(twice) == pytest.approx(width(whole), rel=0.3)
    assert width(twice) < width(half)


def test_rounds_are_added_only_to_those_of_the_same_variants(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    first = run_rounds([fake_call("eager", LONG), fake_call("full", LONG / 2)], 2.0, clock=clock)
    failed = run_rounds(
        [fake_call("eager", LONGER), TimedCall("full", failing_call(ValueError("x"), clock, 9))], 2.0, clock=clock
    )
    for earlier, names in ((first, ("eager",)), (first, ("eager", "full", "regional")), (failed, ("eager", "full"))):
        later = run_rounds([fake_call(name, LONG) for name in names], 2.0, clock=clock, earlier=earlier)
        assert later.benchmarks == 1
        assert set(later.samples) == set(names)
        assert len({len(phases[FORWARD]) for phases in later.samples.values()}) == 1


def test_a_cancelled_run_keeps_the_rounds_before_it(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    calls = [fake_call("eager", LONG), fake_call("full", LONG / 2)]
    first = run_rounds(calls, 2.0, clock=clock)
    later = run_rounds(calls, 2.0, clock=clock, context=Run(cancelled=lambda: True), earlier=first)
    assert (later.samples, later.stopped) == (first.samples, StopReason.CANCELLED)


@pytest.mark.parametrize(("slower", "drifts"), [(1.0, False), (1.01, False), (1.2, True), (0.8, True)])
def test_a_drifted_machine_is_reported_and_changes_no_ratio(
    clock: FakeClock, fake_call: MakeFakeCall, slower: float, drifts: bool
) -> None:
    def calls(factor: float) -> list[TimedCall]:
        """Return two calls, and a noisy one so that the run does not end early."""
        return [
            fake_call("eager", factor * LONG),
            fake_call("full", factor * LONG / 2),
            noisy_call(fake_call, "lite", LONG),
        ]

    later = run_rounds(calls(slower), 2.0, clock=clock, earlier=run_rounds(calls(1.0), 2.0, clock=clock))
    assert (later.ratio("full", FORWARD) or Figure(0.0)).value == pytest.approx(2.0)
    assert later.verdict("full", FORWARD) is Verdict.FASTER
    assert bool(later.noise.added) is drifts
    assert later.noise.sentence == later.noise.added
    again = run_rounds(calls(slower), 2.0, clock=clock, earlier=later)
    assert again.noise.added or not drifts, "it stays reported"


def test_undisturbed_rounds_of_a_busy_run_are_added(clock: FakeClock) -> None:
    calm = DisturbedMachine(clock, repeat(1.0)).run()
    both = DisturbedMachine(clock, often(0.35)).run(calm)
    assert (both.benchmarks, both.stopped) == (2, StopReason.BUDGET)
    assert calm.rounds < len(both.samples["full"][FORWARD]) == both.rounds - both.noise.left_out < both.rounds
    assert not both.noise.has_kept
    assert both.verdict("full", FORWARD) is Verdict.FASTER


def test_a_run_that_can_add_no_rounds_ends_within_seconds(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    let_others_use(1.8, monkeypatch)
    calm = DisturbedMachine(clock, repeat(1.0)).run(budget_s=1.5)
    busy = DisturbedMachine(clock, chain([1.0], often(0.97))).run(calm, 60.0)
    assert (busy.samples, busy.rounds, busy.benchmarks) == (calm.samples, calm.rounds, 1)
    assert busy.stopped is StopReason.BUSY
    assert busy.spent_s < ADDED_WITHIN_S + 1.0
    assert NOT_ADDED in busy.noise.sentence
    assert NOT_ADDED not in DisturbedMachine(clock, repeat(1.0)).run(busy).noise.sentence


def test_nothing_is_added_to_a_run_with_kept_disturbed_rounds(clock: FakeClock) -> None:
    noisy = DisturbedMachine(clock, often(0.58)).run()
    assert noisy.noise.has_kept
    again = DisturbedMachine(clock, repeat(1.0)).run(noisy)
    assert again.benchmarks == 1
    assert again.verdict("full", FORWARD) is Verdict.FASTER


def test_a_report_disturbs_no_round(clock: FakeClock) -> None:
    """A page that draws the report disturbs the machine for ten milliseconds; rounds take less than a report lasts."""
    drawn_s = -math.inf

    def report(_doing: str, _fraction: float) -> None:
        nonlocal drawn_s
        drawn_s = clock.now() + 0.01

    factor = {True: 3.0, False: 1.0}
    work = Sentinel(TimedCall("fixed work", lambda: clock.spend(1e-4 * factor[clock.now() < drawn_s])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regional_explorer.measure.rounds.fixed_work", lambda _clock: work)
        calls = [TimedCall(name, lambda: clock.spend(LONG)) for name in ("eager", "full")]
        result = run_rounds(calls, 8.0, clock=clock, context=Run(progress=report))
    assert result.noise.disturbed == 0


# ----------------------------------------------------------------------------------------------------------- culprits


def watch_with(monkeypatch: pytest.MonkeyPatch, now: dict[str, float], before: dict[str, float]) -> Watch:
    """Return a watch of ten busy seconds on two cores; ``now`` and ``before`` are CPU seconds by name."""
    monkeypatch.setattr("regional_explorer.measure.machine.seconds_by_culprit", lambda _thread: now)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(time, "perf_counter", lambda: 10.0)
    work = Sentinel(TimedCall("fixed work", lambda: None))
    return Watch(FakeClock(), work, [*[1.0] * 60, *[3.0] * 40], others_before_s=0.0, before=before)


@pytest.mark.parametrize(
    ("used", "others", "said"),
    [
        ({"the browser": 4.0, "python (process 7)": 1.0}, 0.5, "the browser used 0.4 of 2 cores"),
        ({"python (process 7)": 10.0}, 1.0, "python (process 7) used 1.0 of 2 cores"),
        ({"another cell of this kernel": 9.0}, 0.0, "another cell of this kernel used 0.9 of 2 cores"),
        ({"a": 1.0, "b": 1.0}, 0.1, "nothing on this system was seen: a virtual machine's neighbour or the"),
        ({"a": 1.5, "b": 1.5}, 0.3, "other processes used 0.3 of 2 cores"),
        ({}, None, "this system does not say what disturbed them"),
    ],
)
def test_what_made_the_machine_busy_is_named(
    used: dict[str, float], others: float | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict.fromkeys(used, 100.0)
    watch = watch_with(monkeypatch, {name: 100.0 + seconds for name, seconds in used.items()}, before)
    let_others_use(others, monkeypatch)  # type: ignore[arg-type]
    _, noise = watch.used_rounds(100)
    assert noise.sentence.startswith(f"The machine was busy: 40 of 100 rounds left out; {said}")


def test_a_cell_that_ran_between_the_rounds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_with(monkeypatch, {"python (process 7)": 9.0}, {})
    watch.waited_s = 4.0
    assert "another cell of this kernel ran for 4" in watch.used_rounds(100)[1].sentence


def test_processes_and_threads_are_counted_by_name(tmp_path: Path) -> None:
    for pid, command in ((7, "a (b) c"), (8, "chrome"), (9, "Web Content"), (10, "gone"), (11, "kworker/0:1")):
        (tmp_path / str(pid)).mkdir()
        if command != "gone":
            fields = " ".join(["S", *["0"] * 10, "300", "100", *["0"] * 30])
            (tmp_path / str(pid) / "stat").write_text(f"{pid} ({command}) {fields}\n")
    seconds = 400 / os.sysconf("SC_CLK_TCK")
    assert seconds_by_culprit(0, tmp_path) == {"a (b) c (process 7)": seconds, "the browser": 2 * seconds}
    assert seconds_by_culprit(0, tmp_path / "nothing") == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_another_thread_of_this_process_is_counted() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as pool:
        pool.submit(sum, range(1000)).result()
        named = seconds_by_culprit(threading.get_native_id())
    assert "thread 'beside_0'" in named
    assert not [name for name in named if "main thread" in name or "cell" in name]


# ----------------------------------------------------------------------------------------------------- peaks of memory

MIB = 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


class FakeGauge(AllocatorGauge):
    def __init__(self, *peaks: int) -> None:
        self._peaks: Iterator[int] = iter(peaks)

    def peak_of(self, work: Callable[[], object]) -> int:
        work()
        return next(self._peaks)


def test_a_peak_is_a_median_of_enough_calls() -> None:
    work = Mock()
    found = measure_peak("regional", work, FakeGauge(100, 140, 110, 110, 110, 110, 120, 130))
    assert (found.variant, found.peak_bytes, found.how) == ("regional", Figure(110, 100, 140), "allocator")
    assert work.call_count == LEAST_SAMPLES
    assert measure_peak("full", work, FakeGauge(*[64] * 8)).peak_bytes == Figure(64, 64, 64), "exact"
    long = measure_peak("full", work, FakeGauge(64), 0.0).peak_bytes
    assert long == Figure(64, why="a call takes too long for 8 of them")


def test_measuring_a_peak_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(time, "perf_counter", clock.now)

    def work() -> None:
        clock.spend(1.0)

    assert measure_peak("full", work, FakeGauge(*[64] * 8), 3.5).peak_bytes == Figure(
        64, why="a call takes too long for 8 of them"
    )
    assert clock.now() == 3.0
    assert measure_peak("full", work, FakeGauge(*[64] * 8), 8.0).peak_bytes == Figure(64, 64, 64)
    assert clock.now() == 11.0


@pytest.mark.parametrize(
    ("calls_s", "read"),
    [
        ({"eager": 0.01, "regional": 0.01, "full": 0.01}, ["eager", "regional", "full"]),
        ({"eager": 9.0, "regional": 0.01, "full": 0.01}, ["regional", "full"]),
        ({"eager": 9.0, "regional": 9.0, "full": 9.0}, []),
        ({"eager": 0.3, "regional": 0.2, "full": 0.3}, ["regional"]),
    ],
)
def test_memory_is_read_in_a_part_of_the_budget(
    calls_s: dict[str, float], read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the limit it took 16 s beside 3 s of timing; variants that take too long are left out, with a note."""
    clock, budget_s = FakeClock(), 3.0
    monkeypatch.setattr(time, "perf_counter", clock.now)
    monkeypatch.setattr(benchmark, "gauge_for", lambda _device: FakeGauge(*[64] * 99))
    variants: Any = SimpleNamespace(
        call=SimpleNamespace(restoring=nullcontext), program=SimpleNamespace(selected=nullcontext)
    )
    calls = [TimedCall(name, partial(clock.spend, call_s)) for name, call_s in calls_s.items()]
    rounds = run_rounds(calls, budget_s, clock=clock)
    results = benchmark.BenchmarkResults(conditions=timings.conditions_of(rounds, ENVIRONMENT))
    began_s = clock.now()
    benchmark._read_memory(variants, calls, rounds, budget_s, MeasureContext(Run(), ENVIRONMENT, clock), results)
    assert clock.now() - began_s <= budget_s * benchmark.MEMORY_SHARE
    assert [one.variant for one in results.memory] == read
    assert results.conditions is not None
    left_out = [name for name in calls_s if name not in read]
    assert list(results.conditions.memory_left_out) == left_out
    session = Session("f", ENVIRONMENT, grad=False, conditions=results.conditions, memory=tuple(results.memory))
    text = memory_table(session).text()
    assert (f"Not measured for {', '.join(left_out)}: one call takes too long" in " ".join(text.split())) is bool(
        left_out
    )


@linux
def test_a_peak_includes_short_lived_tensors() -> None:
    gauge = gauge_for("cpu")
    assert isinstance(gauge, ResidentGauge)
    found = measure_peak("eager", partial(torch.ones, 64 * MIB // 4), gauge)
    assert 60 * MIB < found.peak_bytes.value < 80 * MIB
    assert found.how == "resident set"
    assert found.least_bytes >= LEAST_RESIDENT


def test_no_gauge_without_a_resettable_peak() -> None:
    """Samples of the resident set would miss short-lived tensors, and so give too small a peak."""
    assert gauge_for("cpu", reset=lambda: False) is None


# ---------------------------------------------------------------------------------------------------------- elimination


def slower_than_eager(result: RoundsResult) -> list[str]:
    """Return the variants whose median over the rounds so far is longer than eager's."""
    medians = {name: float(np.median(phases[FORWARD])) for name, phases in result.samples.items()}
    return [name for name, median in medians.items() if median > medians["eager"]]


def test_pruned_variant_gives_its_time_to_others(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    calls = [
        noisy_call(fake_call, "eager", LONGER),
        noisy_call(fake_call, "slow", 4 * LONGER),
        noisy_call(fake_call, "quick", LONG),
    ]
    whole = run_rounds(calls, 16.0, clock=clock)
    pruned = run_rounds(calls, 16.0, clock=clock, prune=slower_than_eager)
    assert (whole.pruned, pruned.pruned) == ((), ("slow",))
    assert len(pruned.samples["slow"][FORWARD]) < len(whole.samples["slow"][FORWARD])
    assert len(pruned.samples["quick"][FORWARD]) > 1.5 * len(whole.samples["quick"][FORWARD])
    assert pruned.calls_per_sample == whole.calls_per_sample
    assert len(pruned.control[FORWARD]) == len(pruned.samples["eager"][FORWARD]) == pruned.rounds


def test_samples_before_and_after_pruning_have_equally_many_calls(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    blocks: list[int] = []

    def short(name: str, seconds: float) -> TimedCall:
        call = noisy_call(fake_call, name, seconds)
        return dataclasses.replace(call, select=lambda: blocks.append(len(clock.log)))

    calls = [short("eager", 1e-4), short("slow", 1e-3), short("quick", 0.8e-4)]
    result = run_rounds(calls, 4.0, clock=clock, prune=slower_than_eager)
    assert result.pruned == ("slow",)
    sizes = {later - earlier for earlier, later in pairwise(blocks[-200:])}
    assert result.calls_per_sample in sizes
    assert sizes <= {result.calls_per_sample, 1}, "one call stands between two samples of the same variant"


def test_a_run_ends_when_all_but_the_baseline_are_pruned(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    calls = [noisy_call(fake_call, "eager", LONG), noisy_call(fake_call, "slow", 4 * LONG)]
    result = run_rounds(calls, 16.0, clock=clock, prune=slower_than_eager)
    assert result.stopped is StopReason.DECIDED
    assert result.spent_s < 2.0


def test_baseline_cannot_be_pruned(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    result = run_rounds(
        [fake_call("eager", LONG), fake_call("quick", LONG / 2)], 4.0, clock=clock, prune=lambda _: ["eager", "other"]
    )
    assert result.pruned == ()
    assert result.stopped is StopReason.PRECISE


def test_a_pruned_variant_need_not_become_precise(clock: FakeClock, fake_call: MakeFakeCall) -> None:
    calls = [fake_call("eager", LONG), fake_call("quick", LONG / 2), noisy_call(fake_call, "slow", 4 * LONG)]
    assert run_rounds(calls, 16.0, clock=clock).stopped is StopReason.BUDGET
    assert run_rounds(calls, 16.0, clock=clock, prune=slower_than_eager).stopped is StopReason.PRECISE
