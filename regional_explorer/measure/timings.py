"""Samples to timings, verdicts, warnings and conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec.structs import replace

from regional_explorer.compiler.run import Run
from regional_explorer.measure.clock import Clock, TimedCall, Turn, clock_for
from regional_explorer.measure.machine import device_state, launch_warnings
from regional_explorer.measure.rounds import Prune, RoundsResult, StopReason, keep_all, run_rounds
from regional_explorer.record.benchmark import (
    LEAST_SAMPLES,
    Comparison,
    Conditions,
    NumericsVerdict,
    Phase,
    Timing,
    VariantName,
    Verdict,
)
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.statistics import (
    CONFIDENCE,
    MAX_DRIFT,
    MIN_FLOOR,
    VERDICT_CONFIDENCE,
    confidence_interval,
    disagreement,
    iqr,
    smallest_difference,
    trend,
)

_MIN_CALL_S = 1e-6


def timings_of(
    result: RoundsResult,
    numerics: Mapping[str, NumericsVerdict] = MappingProxyType({}),
    against_trace: Mapping[str, NumericsVerdict] = MappingProxyType({}),
) -> tuple[Timing, ...]:
    """Return the timing of each variant and phase, with verdict and warnings.

    ``numerics`` has the verdict of the numerics check by variant; other variants are "not checked". A failed check
    withholds the speedup. ``against_trace`` has the verdicts of comparing variants with the captured graphs instead of
    eager.
    """
    return tuple(
        replace(
            _timing(result, variant, phase, numerics.get(variant, NumericsVerdict.NOT_CHECKED)),
            against_trace=_against_trace(result, variant, phase, against_trace.get(variant)),
        )
        for variant, phases in result.samples.items()
        for phase in phases
    )


def _against_trace(
    result: RoundsResult, variant: str, phase: Phase, numerics: NumericsVerdict | None
) -> Comparison | None:
    """Return the comparison with the captured graphs, measured as ``aot_eager``; None if their results differ."""
    trace = VariantName.AOT_EAGER
    if numerics is None or numerics.withholds_speedup or len(result.samples[variant][phase]) < LEAST_SAMPLES:
        return None
    if variant == trace:
        return Comparison(exactly(1.0), Verdict.BASELINE, NumericsVerdict.REFERENCE)
    speedup = result.ratio(variant, phase, trace)
    return None if speedup is None else Comparison(speedup, result.verdict(variant, phase, trace), numerics)


def _timing(result: RoundsResult, variant: str, phase: Phase, numerics: NumericsVerdict) -> Timing:
    samples = result.samples[variant][phase]
    enough_samples = len(samples) >= LEAST_SAMPLES
    if variant == result.baseline:
        speedup, verdict = exactly(1.0), Verdict.BASELINE
    elif numerics.withholds_speedup:
        speedup, verdict = None, Verdict.WITHHELD
    else:
        speedup = result.ratio(variant, phase) if enough_samples else None
        verdict = result.verdict(variant, phase)
    return Timing(
        variant,
        phase,
        samples,
        result.time(variant, phase),
        iqr(samples) if enough_samples else None,
        speedup,
        verdict,
        result.calls_per_sample,
        numerics,
        tuple(_warnings(result, variant, phase, speedup)),
    )


def _warnings(result: RoundsResult, variant: str, phase: Phase, speedup: Figure | None) -> Iterator[str]:
    if variant == result.baseline:
        control = result.control_ratios(phase)
        low, high = (None if control is None else confidence_interval(control, VERDICT_CONFIDENCE)) or (1.0, 1.0)
        if not low - MIN_FLOOR <= 1.0 <= high + MIN_FLOOR:
            yield f"the baseline differs from itself ({low:.3f} to {high:.3f}): small differences mean nothing here"
    elif speedup is not None and (ratios := result.ratios(variant, phase)) is not None:
        if confidence_interval(ratios, VERDICT_CONFIDENCE) is None:
            yield f"too few samples for a verdict ({len(ratios)}): a larger budget_s helps"
        eager_s, own_s = (np.median(result.samples[name][phase]) for name in (result.baseline, variant))
        if disagrees := disagreement(float(eager_s / own_s), speedup):
            yield disagrees
        drift = trend(ratios)
        if abs(drift) > MAX_DRIFT:
            yield f"the speedup drifted while measuring, by {drift:+.0%}: the variant may not have been warm"
    if np.median(result.samples[variant][phase]) < _MIN_CALL_S:
        yield "under a microsecond per call: the clock's own overhead matters in this figure"
    yield from result.warnings.get(variant, ())
    if variant in result.dropped:
        yield f"stopped early: {result.dropped[variant]}"


def conditions_of(result: RoundsResult, environment: Environment) -> Conditions:
    """Return the conditions of a run in ``environment``."""
    return Conditions(
        device=environment.device,
        torch=environment.torch,
        threads=environment.threads,
        environment=environment,
        confidence=CONFIDENCE,
        rounds=result.rounds,
        stopped=str(result.stopped),
        budget_s=result.budget_s,
        smallest_difference=_smallest_difference(result),
        floors={phase: result.floor(phase) for phase in result.samples.get(result.baseline, {})},
        gpu=result.gpu,
        noise=result.noise,
        benchmarks=result.benchmarks,
    )


def _smallest_difference(result: RoundsResult) -> float | None:
    """Return the smallest relative difference that would be detected in every variant and phase, or None."""
    if result.noise.is_too_much:
        return None
    differences = [
        smallest_difference(ratios, result.floor(phase), result.benchmarks)
        for variant, phases in result.samples.items()
        for phase in phases
        if variant != result.baseline and (ratios := result.ratios(variant, phase)) is not None
    ]
    known_differences = [difference for difference in differences if difference is not None]
    return max(known_differences) if known_differences and len(known_differences) == len(differences) else None


@dataclass(frozen=True)
class MeasureContext:
    """The context of a measurement: the run's context, the environment, the clock of the device, and the state."""

    run: Run
    environment: Environment
    clock: Clock[Any]
    turn: Turn = nullcontext

    @classmethod
    def of(cls, run: Run, environment: Environment) -> MeasureContext:
        """Return the context of a run in ``environment``, timed by the clock of its device."""
        return cls(run, environment, clock_for(environment.device))

    def part(self, start: float, end: float, title: str = "", *, then_s: float = 0.0) -> MeasureContext:
        """Return the context of a part of the run; see ``Run.part``."""
        return dataclasses.replace(self, run=self.run.part(start, end, title, then_s=then_s))


def measure_rounds(
    timed_calls: Sequence[TimedCall],
    budget_s: float,
    context: MeasureContext,
    *,
    baseline: str,
    prune: Prune = keep_all,
    earlier: RoundsResult | None = None,
) -> RoundsResult:
    """Measure the calls against ``baseline``; on a GPU also its state, and which calls are launch-bound.

    Raises:
        MeasureError: nothing could be measured.
    """
    run, device = context.run, context.environment.device
    before = device_state(device)
    result = run_rounds(
        timed_calls,
        budget_s,
        baseline=baseline,
        clock=context.clock,
        context=run,
        turn=context.turn,
        prune=prune,
        earlier=earlier,
    )
    after = device_state(device)
    if before is None or after is None:
        return result
    warnings: Mapping[str, Sequence[str]] = {}
    if result.stopped is not StopReason.INTERRUPTED and not run.cancelled():
        measured_calls = [timed_call for timed_call in timed_calls if timed_call.name not in result.dropped]
        try:
            warnings = launch_warnings(measured_calls, context.clock, run.threads, context.turn)
        except KeyboardInterrupt:
            result = dataclasses.replace(result, stopped=StopReason.INTERRUPTED)
    noise = replace(result.noise, throttled=after.throttled_since(before) or result.noise.throttled)
    return dataclasses.replace(result, noise=noise, warnings=warnings, gpu=after.described_since(before))
