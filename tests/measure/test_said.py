"""What the diagnostics of any figures say: no part exceeds its whole, nothing is undefined."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from regional_explorer.diagnostics.measured import plan_diagnostics, region_diagnostics
from regional_explorer.insight.diagnose import from_times
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, BoundBy, Kernel, KernelKind, KernelTime
from regional_explorer.record.benchmark import Phase, Timing, Verdict
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan_file import Explored, slower_when_explored
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.record.session import Environment
from tests.shared.sessions import measured_alone, timing

SECONDS = st.floats(1e-7, 10.0)
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
PART = PartitionCode(
    Partition("r", "r", 0, "0/inference", (), State.COMPILED, artifact="a"),
    ArtifactCode("x", (Kernel("k", KernelKind.POINTWISE),)),
    (),
)


def durations(text: str) -> list[float]:
    found = re.findall(r"(-?[\d,.]+) (ns|µs|ms|s)\b", text)
    return [float(number.replace(",", "")) * UNITS[unit] for number, unit in found]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(SECONDS, st.none() | SECONDS, st.sampled_from(BoundBy)), min_size=1, max_size=4), SECONDS)
def test_no_kernel_needs_more_than_its_region_takes(
    kernels: list[tuple[float, float | None, BoundBy]], between_s: float
) -> None:
    timed = tuple(
        KernelTime(Figure(taken_s), bound_s, None if bound_s is None else by) for taken_s, bound_s, by in kernels
    )
    times = ArtifactKernelTimes(timed, between=Figure(between_s), rounds=9)
    for text in map(str, from_times("r", [dataclasses.replace(PART, times=times)])):
        assert "nan" not in text
        assert all(float(share) <= 100 for share in re.findall(r"([\d.]+) ?%", text))
        assert max(durations(text)) <= times.parts_s * 1.01, text


@settings(max_examples=300, deadline=None)
@given(SECONDS, st.floats(0.1, 10.0), st.sampled_from(Verdict), st.floats(0.1, 10.0))
def test_no_region_saves_more_than_the_call(eager_s: float, speedup: float, verdict: Verdict, alone: float) -> None:
    variants: list[Timing] = [
        timing("eager", eager_s, 1.0, phase=Phase.STEP, verdict=Verdict.BASELINE),
        timing("regional", eager_s / speedup, speedup, phase=Phase.STEP, verdict=verdict),
    ]
    gained = measured_alone(speedup=exactly(alone))
    session = replace(gained, timings=tuple(variants))
    for item in region_diagnostics(session):
        assert "nan" not in str(item)
        saved = re.search(r"'mlp' saves (-?[\d,.]+ \S+) in each call", item.message)
        if saved is not None:
            assert verdict is Verdict.FASTER
            assert 0 <= durations(saved[1])[0] <= (eager_s - eager_s / speedup) * 1.01, item.message
    assert all("nan" not in str(item) for item in plan_diagnostics(session))


@pytest.mark.parametrize("speedup", [0.01, 0.5, 0.99])
def test_what_is_said_in_production_names_no_exploration(speedup: float) -> None:
    environment = Environment("2.13.0", "3.11", "cpu", 2)
    explored = Explored("f", environment, grad=False, verdict=Verdict.SLOWER, speedup=speedup)
    assert all("ex." not in str(item) for item in slower_when_explored(explored))
