"""Clocks: the host's, and events of a device that is played by a stand-in."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from regional_explorer.measure.clock import CpuClock, CudaClock, TimedCall, clock_for
from regional_explorer.record.timing import Phase


class Device:
    """A CUDA device on paper: what is asked of it is written down, its events tick 2 ms each."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self.log: list[str] = []
        self.ticks_ms = 0.0

    def as_torch(self) -> SimpleNamespace:
        """Return the part of torch that the clock uses."""
        device = self

        class Event:
            at_ms = 0.0

            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: str) -> None:
                assert stream == "stream of cuda:1"
                device.log.append("mark")
                device.ticks_ms += 2.0
                self.at_ms = device.ticks_ms

            def elapsed_time(self, other: Event) -> float:
                return other.at_ms - self.at_ms

        def empty(size: int, *, dtype: str, device: str) -> SimpleNamespace:
            self.log.append(f"scratch of {size} {dtype} on {device}")
            return SimpleNamespace(zero_=lambda: self.log.append("flush"))

        cuda = SimpleNamespace(
            Event=Event,
            current_stream=lambda where: f"stream of {where}",
            synchronize=lambda where: self.log.append(f"wait for {where}"),
            get_device_properties=lambda _: SimpleNamespace(L2_cache_size=1000),
        )
        return SimpleNamespace(cuda=cuda, device=str, empty=empty, int8="bytes")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Put a stand-in in the place of torch."""
    made = Device()
    monkeypatch.setitem(sys.modules, "torch", made.as_torch())
    return made


def test_the_device_chooses_the_clock(device: Device) -> None:
    assert isinstance(clock_for("cpu"), CpuClock)
    assert isinstance(clock_for("cuda:1 (NVIDIA of some kind)"), CudaClock)
    assert device.log == ["scratch of 2000 bytes on cuda:1"]


def test_cpu_marks_are_seconds() -> None:
    clock = CpuClock()
    begin, end = clock.mark(), clock.mark()
    clock.flush()
    clock.synchronize()
    assert clock.seconds(begin, end) == end - begin >= 0.0
    assert clock.now() >= end


def test_cuda_waits_once_per_sample_and_flushes_outside_of_the_marks(device: Device) -> None:
    clock = CudaClock("cuda:1")
    device.log.clear()
    timed_call = TimedCall("full", lambda: device.log.append("forward"), lambda _: device.log.append("backward"))
    figures = timed_call.sample(clock, 2)
    call = ["flush", "mark", "forward", "mark", "backward", "mark"]
    assert device.log == [*call, *call, "wait for cuda:1"]
    assert figures == {Phase.FORWARD: 0.002, Phase.BACKWARD: 0.002, Phase.STEP: 0.004}
    assert clock.now() > 0.0
