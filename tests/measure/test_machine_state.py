"""What the machine did while it was measured on."""

from __future__ import annotations

from pathlib import Path

import pytest

from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.machine import (
    DeviceState,
    describe,
    device_state,
    launch_share,
    launch_warning,
    throttled,
    waited_s,
)
from regional_explorer.measure.summary import warnings_on_waiting
from tests.measure.fakes import FakeClock

GIB = 1 << 30
COOL = DeviceState(1980, 45, 10 * GIB, 80 * GIB)
HOT = DeviceState(1400, 83, 12 * GIB, 80 * GIB)


class DeviceClock(FakeClock):
    """A device that is done ``behind_s`` after the host."""

    behind_s = 0.0

    def seconds(self, begin: float, end: float) -> float:
        return super().seconds(begin, end) + self.behind_s


@pytest.mark.parametrize(("behind_s", "warned"), [(0.0, True), (0.1, True), (9.0, False)])
def test_launches_are_told_apart_from_work(behind_s: float, *, warned: bool) -> None:
    clock = DeviceClock()
    clock.behind_s = behind_s
    share = launch_share(TimedCall("full", lambda: clock.spend(1.0)), clock)
    assert share == pytest.approx(1.0 / (1.0 + behind_s))
    assert bool(launch_warning(share)) is warned


def test_the_backward_is_launched_too() -> None:
    clock = DeviceClock()
    clock.behind_s = 3.0
    entry = TimedCall("full", lambda: clock.spend(1.0), lambda _: clock.spend(2.0))
    assert launch_share(entry, clock) == pytest.approx(0.5)


def test_waiting_for_a_core_is_a_busy_machine() -> None:
    assert warnings_on_waiting(0.5, 2.0) == ("no core was free for 25% of the time: a busy machine",)
    assert warnings_on_waiting(0.01, 2.0) == warnings_on_waiting(None, 2.0) == ()


def test_a_system_that_does_not_tell_gives_none(tmp_path: Path) -> None:
    assert waited_s(tmp_path / "nothing") is None


def test_the_state_of_a_gpu_is_told_over_the_run() -> None:
    said = describe(COOL, HOT)
    assert said == "12.0 of 80.0 GiB in use, SM clock 1980 MHz before, 1400 MHz after, 83 °C"
    assert describe(None, None) == ""
    assert describe(DeviceState(None, None, GIB, 2 * GIB), DeviceState(None, None, GIB, 2 * GIB)) == (
        "1.0 of 2.0 GiB in use"
    )


def test_a_clock_that_fell_is_throttling() -> None:
    (warning,) = throttled(COOL, HOT)
    assert "from 1980 to 1400 MHz" in warning
    assert throttled(HOT, COOL) == throttled(COOL, COOL) == throttled(None, None) == ()


def test_a_cpu_has_no_such_state() -> None:
    assert device_state("cpu") is None
