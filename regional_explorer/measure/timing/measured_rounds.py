"""One measurement: rounds between two readings of the device's state; timings with verdicts and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from regional_explorer.compiler.run_context import RunContext
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.clock import Clock, clock_for
from regional_explorer.measure.timing.machine_state import (
    DeviceState,
    describe,
    device_state,
    launch_warnings,
    throttled,
)
from regional_explorer.measure.timing.rounds import run_rounds
from regional_explorer.measure.timing.rounds_result import RoundsResult, Stop
from regional_explorer.measure.timing.summary import summarize
from regional_explorer.measure.timing.timed_call import TimedCall
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import Conditions, NumericsVerdict, Timing


@dataclass(frozen=True)
class MeasureContext:
    """The context of a measurement: the run's context, the environment, and the clock and the state of the device."""

    run: RunContext
    environment: Environment
    clock: Clock[Any]
    device_state: Callable[[], DeviceState | None]

    @classmethod
    def of(cls, run: RunContext, environment: Environment, clock: Clock[Any] | None = None) -> MeasureContext:
        """Return the context of a run in ``environment``, timed by ``clock``, or by the clock of its device."""
        clock = clock_for(environment.device) if clock is None else clock
        return cls(run, environment, clock, partial(device_state, environment.device))

    def part(self, start: float, end: float, title: str = "") -> MeasureContext:
        """Return the context of a part of the run; see ``RunContext.part``."""
        return replace(self, run=self.run.part(start, end, title))


@dataclass(frozen=True)
class MeasuredRounds:
    """The rounds of some calls, and their timings with verdicts and warnings."""

    result: RoundsResult
    timings: tuple[Timing, ...]
    conditions: Conditions
    diagnostics: tuple[Diagnostic, ...]


def measure_rounds(
    timed_calls: Sequence[TimedCall],
    options: BenchmarkOptions,
    context: MeasureContext,
    *,
    baseline: str,
    numerics: Mapping[str, NumericsVerdict],
) -> MeasuredRounds:
    """Measure the calls against ``baseline``; ``numerics`` has the verdict of the numerics check by variant name.

    Raises:
        MeasureError: nothing could be measured.
    """
    run = context.run
    state_before = context.device_state()
    result = run_rounds(timed_calls, options, baseline=baseline, clock=context.clock, context=run)
    state_after = context.device_state()
    warnings_by_call = {}
    if state_before is not None and result.stopped is not Stop.INTERRUPTED and not run.cancelled():
        measured_calls = [timed_call for timed_call in timed_calls if timed_call.name not in result.dropped]
        warnings_by_call = launch_warnings(measured_calls, context.clock, run.executor)
    throttle_warnings = throttled(state_before, state_after)
    summary = summarize(result, context.environment, numerics=numerics)
    return MeasuredRounds(
        result,
        tuple(
            replace(timing, warnings=(*timing.warnings, *warnings_by_call.get(timing.variant, ()), *throttle_warnings))
            for timing in summary.timings
        ),
        replace(summary.conditions, gpu=describe(state_before, state_after)),
        summary.diagnostics,
    )
