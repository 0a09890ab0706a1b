"""Samples to timings, verdicts, warnings and conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec.structs import replace

from regional_explorer.compiler.run import Run
from regional_explorer.measure.clock import Clock, TimedCall, clock_for
from regional_explorer.measure.machine import describe, device_state, launch_warnings, throttled
from regional_explorer.measure.rounds import (
    RoundsResult,
    Stop,
    run_rounds,
)
from regional_explorer.record.benchmark import LEAST_SAMPLES, Conditions, NumericsVerdict, Phase, Timing, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.session import Environment
from regional_explorer.record.statistics import (
    CONFIDENCE,
    MIN_FLOOR,
    VERDICT_CONFIDENCE,
    disagreement,
    interval,
    median_and_iqr,
    smallest_difference,
    trend,
)

_MAX_DRIFT = 0.02
_MIN_CALL_S = 1e-6


def _warnings(result: RoundsResult, variant: str, phase: Phase, speedup: Figure | None) -> Iterator[str]:
    """Yield warnings about a variant; ``speedup`` is None of the baseline."""
    control = result.control_ratios(phase)
    if variant == result.baseline and control is not None and (bounds := interval(control, VERDICT_CONFIDENCE)):
        low, high = bounds
        if not low - MIN_FLOOR <= 1.0 <= high + MIN_FLOOR:
            yield f"the baseline differs from itself ({low:.3f} to {high:.3f}): small differences mean nothing here"
    if speedup is not None and (ratios := result.ratios(variant, phase)) is not None:
        if interval(ratios, VERDICT_CONFIDENCE) is None:
            yield f"too few samples for a verdict ({len(ratios)}): a larger budget_s helps"
        eager_s, own_s = (np.median(result.samples[name][phase]) for name in (result.baseline, variant))
        if disagrees := disagreement(float(eager_s / own_s), speedup):
            yield disagrees
        drift = trend(ratios)
        if abs(drift) > _MAX_DRIFT:
            yield f"the speedup drifted while measuring, by {drift:+.0%}: the variant may not have been warm"
    if np.median(result.samples[variant][phase]) < _MIN_CALL_S:
        yield "under a microsecond per call: the clock's own overhead matters in this figure"


@dataclass(frozen=True)
class Measured:
    """The rounds of some calls, and their timings with verdicts and warnings."""

    result: RoundsResult
    timings: tuple[Timing, ...]
    conditions: Conditions
    diagnostics: tuple[Diagnostic, ...]


NOTHING: Mapping[str, Any] = MappingProxyType({})


def summarize(
    result: RoundsResult,
    environment: Environment,
    *,
    numerics: Mapping[str, NumericsVerdict] = NOTHING,
    warnings: Mapping[str, Sequence[str]] = NOTHING,
    gpu: str = "",
) -> Measured:
    """Return the timings of a run in ``environment`` with verdicts, warnings and diagnostics.

    ``numerics`` has the verdict of the numerics check by variant: others are "not checked", and where it failed no
    speedup is given. ``warnings`` are more of them, by variant; ``gpu`` is its state before and after.
    """
    timings = tuple(
        _phase_timing(
            result, variant, phase, numerics.get(variant, NumericsVerdict.NOT_CHECKED), warnings.get(variant, ())
        )
        for variant, phases in result.samples.items()
        for phase in phases
    )
    conditions = Conditions(
        device=environment.device,
        torch=environment.torch,
        threads=environment.threads,
        confidence=CONFIDENCE,
        rounds=result.rounds,
        stopped=str(result.stopped),
        budget_s=result.budget_s,
        smallest_difference=_smallest_difference(result),
        gpu=gpu,
        noise=result.noise,
    )
    failures = (
        DiagnosticCode.VARIANT_FAILED.found(
            f"Variant {text}",
            remedy="The other variants were measured; call this one by hand to see the full traceback.",
        )
        for text in result.dropped.values()
    )
    return Measured(result, timings, conditions, tuple(failures))


def _phase_timing(
    result: RoundsResult, variant: str, phase: Phase, numerics: NumericsVerdict, more_warnings: Sequence[str]
) -> Timing:
    samples = result.samples[variant][phase]
    enough_samples = len(samples) >= LEAST_SAMPLES
    has_ratio = enough_samples and not numerics.withholds_speedup and variant != result.baseline
    speedup = result.ratio(variant, phase) if has_ratio else None
    warnings = [*_warnings(result, variant, phase, speedup), *more_warnings]
    if variant in result.dropped:
        warnings.append(f"stopped early: {result.dropped[variant]}")
    timing = Timing(
        variant,
        phase,
        samples,
        result.time(variant, phase),
        median_and_iqr(samples)[1] if enough_samples else None,
        calls_per_sample=result.calls_per_sample,
        numerics=numerics,
        warnings=tuple(warnings),
    )
    if variant == result.baseline:
        return replace(timing, speedup=exactly(1.0), verdict=Verdict.BASELINE)
    if speedup is None:
        return timing
    return replace(timing, speedup=speedup, verdict=result.verdict(variant, phase))


def _smallest_difference(result: RoundsResult) -> float | None:
    """Return the smallest relative difference that would be detected in every variant and phase, or None."""
    if result.noise.is_too_much:
        return None
    differences = [
        smallest_difference(ratios, result.floor(phase))
        for variant, phases in result.samples.items()
        for phase in phases
        if variant != result.baseline and (ratios := result.ratios(variant, phase)) is not None
    ]
    known_differences = [difference for difference in differences if difference is not None]
    return max(known_differences) if known_differences and len(known_differences) == len(differences) else None


@dataclass(frozen=True)
class MeasureContext:
    """The context of a measurement: the run's context, the environment, and the clock of the device."""

    run: Run
    environment: Environment
    clock: Clock[Any]

    @classmethod
    def of(cls, run: Run, environment: Environment) -> MeasureContext:
        """Return the context of a run in ``environment``, timed by the clock of its device."""
        return cls(run, environment, clock_for(environment.device))

    def part(self, start: float, end: float, title: str = "") -> MeasureContext:
        """Return the context of a part of the run; see ``Run.part``."""
        return dataclasses.replace(self, run=self.run.part(start, end, title))


def measure_rounds(
    timed_calls: Sequence[TimedCall],
    budget_s: float,
    context: MeasureContext,
    *,
    baseline: str,
    numerics: Mapping[str, NumericsVerdict],
) -> Measured:
    """Measure the calls against ``baseline``; ``numerics`` has the verdict of the numerics check by variant name.

    Raises:
        MeasureError: nothing could be measured.
    """
    run = context.run
    state_before = device_state(context.environment.device)
    result = run_rounds(timed_calls, budget_s, baseline=baseline, clock=context.clock, context=run)
    state_after = device_state(context.environment.device)
    launches: Mapping[str, Sequence[str]] = {}
    if state_before is not None and result.stopped is not Stop.INTERRUPTED and not run.cancelled():
        measured_calls = [timed_call for timed_call in timed_calls if timed_call.name not in result.dropped]
        launches = launch_warnings(measured_calls, context.clock, run.executor)
    throttling = throttled(state_before, state_after)
    return summarize(
        dataclasses.replace(result, noise=replace(result.noise, throttled=throttling)),
        context.environment,
        numerics=numerics,
        warnings=launches,
        gpu=describe(state_before, state_after),
    )
