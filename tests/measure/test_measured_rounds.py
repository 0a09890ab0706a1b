"""Rounds with the state of the device around them: launch-bound calls, a clock that fell."""

from __future__ import annotations

from regional_explorer.compiler.run import Run
from regional_explorer.measure.machine import DeviceState
from regional_explorer.measure.rounds import BenchmarkOptions
from regional_explorer.measure.summary import MeasureContext, Measured, measure_rounds
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import NumericsVerdict
from tests.measure.fakes import FakeClock, Make
from tests.measure.test_machine_state import COOL, HOT

LONG = 2.0**-5


def measured(
    clock: FakeClock, taking: Make, environment: Environment, states: list[DeviceState | None], run: Run
) -> Measured:
    context = MeasureContext(run, environment, clock, lambda: states.pop(0))
    calls = [taking("eager", LONG), taking("regional", LONG / 2)]
    verdicts = {"regional": NumericsVerdict.OK}
    return measure_rounds(calls, BenchmarkOptions(4.0), context, baseline="eager", numerics=verdicts)


def test_a_clock_that_fell_is_said_of_each_timing(clock: FakeClock, taking: Make, environment: Environment) -> None:
    found = measured(clock, taking, environment, [COOL, HOT], Run())
    for timing in found.timings:
        assert sum("throttling: the SM clock fell from 1980 to 1400 MHz" in text for text in timing.warnings) == 1
        assert any("launch-bound" in text for text in timing.warnings), "the fake device is never slower than the host"
    assert "SM clock 1980 MHz before" in found.conditions.gpu


def test_a_cpu_has_neither(clock: FakeClock, taking: Make, environment: Environment) -> None:
    found = measured(clock, taking, environment, [None, None], Run())
    assert not any(timing.warnings for timing in found.timings)
    assert found.conditions.gpu == ""
    assert found.timings[1].speedup == 2.0


def test_parts_of_a_run_report_their_share() -> None:
    reports: list[tuple[str, float]] = []
    run = Run(progress=lambda doing, fraction: reports.append((doing, fraction)))
    run.part(0.5, 1.0).part(0.0, 0.5, "mlp alone: ").progress("round 1", 0.5)
    assert reports == [("mlp alone: round 1", 0.625)]
