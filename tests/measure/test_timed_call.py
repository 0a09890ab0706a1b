"""One sample: what is timed, what is not, and what is left behind."""

from __future__ import annotations

import gc
import weakref

import pytest

from regional_explorer.measure.clock import TimedCall
from regional_explorer.record.timing import Phase
from tests.measure.fakes import FakeClock, Make


def test_inference_gives_the_forward_alone(clock: FakeClock, taking: Make) -> None:
    timed_call = taking("eager", 0.25)
    assert timed_call.sample(clock, 4) == {Phase.FORWARD: 0.25}


def test_training_gives_all_phases_from_the_same_calls(clock: FakeClock, taking: Make) -> None:
    timed_call = taking("eager", 0.25, 0.5)
    assert timed_call.sample(clock, 3) == {Phase.FORWARD: 0.25, Phase.BACKWARD: 0.5, Phase.STEP: 0.75}
    assert clock.log == ["eager"] * 3


def test_a_sample_is_its_typical_call(clock: FakeClock, taking: Make) -> None:
    assert taking("eager", [0.25, 9.0, 0.25]).sample(clock, 3) == {Phase.FORWARD: 0.25}


def test_restoring_selecting_and_flushing_are_not_timed(clock: FakeClock) -> None:
    log: list[str] = []

    def hook(text: str) -> None:
        log.append(text)
        clock.spend(64.0)

    timed_call = TimedCall(
        "full", lambda: clock.spend(0.5), before=lambda: hook("before"), select=lambda: hook("select")
    )
    assert timed_call.sample(clock, 2) == {Phase.FORWARD: 0.5}
    assert log == ["select", "before", "before"]
    assert clock.flushes == 2


def test_outputs_and_gradients_are_freed_outside_of_the_clock(clock: FakeClock) -> None:
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

    assert TimedCall("eager", make).sample(clock, 2) == {Phase.FORWARD: 0.5}
    assert len(freed) == 2
    freed.clear()
    figures = TimedCall("eager", make, lambda _: make()).sample(clock, 2)
    assert figures == {Phase.FORWARD: 0.5, Phase.BACKWARD: 0.5, Phase.STEP: 1.0}
    assert len(freed) == 4


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_in_a_sample_and_is_left_as_it_was(clock: FakeClock, *, enabled: bool) -> None:
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
