"""A search with simulated times instead of the machine's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from regional_explorer.measure.clock import TimedCall
from regional_explorer.record.plan import Tracing
from regional_explorer.record.tuning import AT_HAND, SearchStage
from regional_explorer.tuning import budget, space, stages
from regional_explorer.tuning.live_bench import LiveBench
from regional_explorer.tuning.space import Candidate, whole_graph_candidate
from tests.shared.fakes import TickingClock, timed_by


def tracings_alone(*, grad: bool) -> list[Candidate]:
    return [whole_graph_candidate(SearchStage.TRACING, way) for way in space.tracings_to_try(grad=grad)]


@pytest.fixture
def slow_references(monkeypatch: pytest.MonkeyPatch) -> Iterator[TickingClock]:
    """Slow down the references, so that a whole graph wins, on a clock that only calls advance.

    One tracing is tried, and frozen weights where a call has no gradients; C++ wrappers, which take seconds, are not.
    """
    clock = TickingClock()

    def slow_down(call: TimedCall) -> TimedCall:
        def forward() -> Any:
            clock.spend(1e-3)
            return call.forward()

        return dataclasses.replace(call, forward=forward)

    eager, full, call = LiveBench.eager, LiveBench.full, LiveBench.call
    monkeypatch.setattr(LiveBench, "eager", lambda bench: slow_down(eager(bench)))
    monkeypatch.setattr(LiveBench, "full", lambda bench: (slow_down(full(bench)[0]), 0.0))
    monkeypatch.setattr(
        LiveBench,
        "call",
        lambda bench, plan, title: (
            slow_down(call(bench, plan, title)) if title == AT_HAND else call(bench, plan, title)
        ),
    )
    monkeypatch.setattr(space, "WAYS", (Tracing(joint_passes=True),))
    monkeypatch.setattr(stages, "likeliest_candidates", tracings_alone)
    monkeypatch.setattr(stages, "WRAPPED_WITHIN", -1.0)
    monkeypatch.setattr(budget, "shipped_passes", lambda _device_type, _ops: [])
    with timed_by(clock):
        yield clock
