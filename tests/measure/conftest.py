"""Fake variants that take given times, on a clock that only they advance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import pytest

from regional_explorer.measure.clock import TimedCall
from tests.shared.fakes import FakeClock, MakeFakeCall


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def fake_call(clock: FakeClock) -> MakeFakeCall:
    """A function that makes fake variants: ``fake_call("eager", 0.25)`` takes 0.25 s, or one number for each call."""

    def make(name: str, forward: float | Iterable[float], backward: float | None = None) -> TimedCall:
        durations: Iterator[float] = repeat(forward) if isinstance(forward, float) else iter(forward)

        def forward_call() -> str:
            clock.log.append(name)
            clock.spend(next(durations))
            return name

        def back(outputs: str) -> None:
            assert outputs == name
            clock.spend(backward or 0.0)

        return TimedCall(name, forward_call, None if backward is None else back)

    return make
