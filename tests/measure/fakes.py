"""A clock that only moves when told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.measure import TimedCall

Make = Callable[..., TimedCall]
"""Makes a variant that takes given seconds: ``make("eager", 0.25)``, or one number for each call."""


@dataclass
class FakeClock:
    """Time stands still but for ``spend``; marks can be read once the clock was synchronized."""

    time_s: float = 0.0
    rate: float = 1.0
    flushes: int = 0
    settled: bool = True
    log: list[str] = field(default_factory=list)

    def spend(self, seconds: float) -> None:
        """Let time pass."""
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
        """Return the time."""
        return self.time_s

    def flush(self) -> None:
        """Count."""
        self.flushes += 1

    def mark(self) -> float:
        """Return the time, which may not be read before the clock has settled."""
        self.settled = False
        return self.time_s

    def synchronize(self) -> None:
        """Allow marks to be read."""
        self.settled = True

    def seconds(self, begin: float, end: float) -> float:
        """Return the time between two marks."""
        assert self.settled, "read before the device was done"
        return end - begin
