"""Fake clocks, fake times of ops, and threads that are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from regional_explorer.compiler.run import SameThread, T
from regional_explorer.measure import profile, rounds, timings
from regional_explorer.measure.clock import Clock, CpuClock, TimedCall, do_nothing
from regional_explorer.measure.machine import Sentinel
from regional_explorer.measure.profile import OpTimer

MakeFakeCall = Callable[..., TimedCall]
"""Makes a fake variant that takes the given seconds: ``fake_call("eager", 0.25)``, or one number for each call."""


@dataclass
class FakeClock(Clock[float]):
    """A clock that only ``spend`` advances; its stamps can be read once it is synchronized."""

    time_s: float = 0.0
    rate: float = 1.0
    flushes: int = 0
    settled: bool = True
    log: list[str] = field(default_factory=list)

    def spend(self, seconds: float) -> None:
        self.time_s += self.rate * seconds

    def twice_as_fast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function in which everything takes half the time."""

        def faster(*args: Any) -> Any:
            self.rate /= 2
            try:
                return function(*args)
            finally:
                self.rate *= 2

        return faster

    def now(self) -> float:
        return self.time_s

    def flush(self) -> None:
        self.flushes += 1

    def stamp(self) -> float:
        """Return the time, which may not be read before the clock is synchronized."""
        self.settled = False
        return self.time_s

    def synchronize(self) -> None:
        self.settled = True

    def seconds(self, begin: float, end: float) -> float:
        assert self.settled, "read before the device was done"
        return end - begin


@dataclass
class TickingClock(FakeClock):
    """A clock that each stamp advances by ``tick_s``: a budget has as many rounds on every machine."""

    tick_s: float = 1e-3

    def stamp(self) -> float:
        """Return the time, a tick after the last stamp."""
        self.spend(self.tick_s)
        return super().stamp()


@dataclass
class BudgetByStamps(CpuClock):
    """The host's clock, but each stamp spends ``tick_s`` of a budget, and nothing else does."""

    tick_s: float = 1e-3
    stamps: int = 0

    def now(self) -> float:
        return self.stamps * self.tick_s

    def stamp(self) -> float:
        self.stamps += 1
        return super().stamp()


class QuietSentinel(Sentinel):
    def time_s(self, clock: Clock[Any]) -> float:
        return 0.0


class InterruptedWhen(SameThread):
    """The calling thread, interrupted once: in the first timed work while ``condition`` holds."""

    def __init__(self, condition: Callable[[], object]) -> None:
        self.condition, self.interrupted = condition, False

    def run_timed(self, work: Callable[[], T]) -> T:
        if not self.interrupted and self.condition():
            self.interrupted = True
            raise KeyboardInterrupt
        return work()


def ignore_disturbances(patch: pytest.MonkeyPatch) -> None:
    """Let fixed work take no time, so that no round is disturbed."""
    patch.setattr(rounds, "fixed_work", lambda _clock: QuietSentinel(TimedCall("fixed work", do_nothing)))


@contextmanager
def timed_by(clock: FakeClock) -> Iterator[None]:
    """Context manager: ``clock`` times benchmarks of any device; fixed work takes none of its time."""
    with pytest.MonkeyPatch.context() as patch:
        ignore_disturbances(patch)
        patch.setattr(timings, "clock_for", lambda _device: clock)
        yield


def fake_op_times(monkeypatch: pytest.MonkeyPatch, seconds_of: Callable[[str], float]) -> None:
    """Let ``seconds_of`` say how long each op of a profile takes, by its name; a stamp takes a microsecond."""
    spans = OpTimer.spans
    monkeypatch.setattr(
        OpTimer, "spans", lambda timer, run: ((name, seconds_of(name)) for name, _ in spans(timer, run))
    )
    monkeypatch.setattr(profile, "overhead_s", lambda _clock: 1e-6)
