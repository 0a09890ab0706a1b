"""Clocks whose time is not that of the machine, and threads that are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from regional_explorer.compiler.run import SameThread, T
from regional_explorer.measure import profile, rounds, timings
from regional_explorer.measure.clock import Clock, TimedCall, do_nothing
from regional_explorer.measure.machine import Sentinel
from regional_explorer.measure.profile import OpTimer

Make = Callable[..., TimedCall]
"""Makes a variant that takes given seconds: ``make("eager", 0.25)``, or one number for each call."""


@dataclass
class FakeClock(Clock[float]):
    """Time stands still but for ``spend``; stamps can be read once the clock was synchronized."""

    time_s: float = 0.0
    rate: float = 1.0
    flushes: int = 0
    settled: bool = True
    log: list[str] = field(default_factory=list)

    def spend(self, seconds: float) -> None:
        self.time_s += self.rate * seconds

    def twice_as_fast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function in which all takes half of its time."""

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
        """Return the time, which may not be read before the clock has settled."""
        self.settled = False
        return self.time_s

    def synchronize(self) -> None:
        self.settled = True

    def seconds(self, begin: float, end: float) -> float:
        assert self.settled, "read before the device was done"
        return end - begin


@dataclass
class TickingClock(FakeClock):
    """It goes on by ``tick_s`` with each stamp, so a budget has as many rounds on every machine, however busy it is."""

    tick_s: float = 1e-3

    def stamp(self) -> float:
        """Return the time, a tick after the last stamp."""
        self.spend(self.tick_s)
        return super().stamp()


class Unwatched(Sentinel):
    def time_s(self, clock: Clock[Any]) -> float:
        return 0.0


class InterruptedWhen(SameThread):
    """The calling thread, which is interrupted once: in the first timed work while ``condition`` holds."""

    def __init__(self, condition: Callable[[], object]) -> None:
        self.condition, self.interrupted = condition, False

    def run_timed(self, work: Callable[[], T]) -> T:
        if not self.interrupted and self.condition():
            self.interrupted = True
            raise KeyboardInterrupt
        return work()


def unwatched(patch: pytest.MonkeyPatch) -> None:
    """Let fixed work take no time, so that no round is disturbed."""
    patch.setattr(rounds, "fixed_work", lambda _clock: Unwatched(TimedCall("fixed work", do_nothing)))


@contextmanager
def timed_by(clock: FakeClock) -> Iterator[None]:
    """Context manager: benchmarks are timed by ``clock``, whatever their device; fixed work takes none of its time."""
    with pytest.MonkeyPatch.context() as patch:
        unwatched(patch)
        patch.setattr(timings, "clock_for", lambda _device: clock)
        yield


def plant_op_times(monkeypatch: pytest.MonkeyPatch, seconds_of: Callable[[str], float]) -> None:
    """Let every op of a profile take the seconds that ``seconds_of`` gives its name, and a stamp a microsecond."""
    spans = OpTimer.spans
    monkeypatch.setattr(
        OpTimer, "spans", lambda timer, run: ((name, seconds_of(name)) for name, _ in spans(timer, run))
    )
    monkeypatch.setattr(profile, "overhead_s", lambda _clock: 1e-6)
