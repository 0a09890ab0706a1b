"""Variants that take exactly as long as they are told, on a clock that only moves with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import pytest

from regional_explorer.measure.clock import TimedCall
from tests.shared.fakes import FakeClock, Make


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def taking(clock: FakeClock) -> Make:
    """Return a maker of variants that take given seconds: ``taking("eager", 0.25)``, or one number for each call."""

    def make(name: str, forward: float | Iterable[float], backward: float | None = None) -> TimedCall:
        durations: Iterator[float] = repeat(forward) if isinstance(forward, float) else iter(forward)

        def run() -> str:
            clock.log.append(name)
            clock.spend(next(durations))
            return name

        def back(outputs: str) -> None:
            assert outputs == name
            clock.spend(backward or 0.0)

        return TimedCall(name, run, None if backward is None else back)

    return make
