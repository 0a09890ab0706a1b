"""Summarizes the samples of rounds: timings by phase with speedups and verdicts, conditions, variants that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from regional_explorer.measure.timing.rounds_result import RoundsResult
from regional_explorer.measure.timing.sample_warnings import (
    warnings_on_baseline,
    warnings_on_control,
    warnings_on_variant,
    warnings_on_waiting,
)
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.session import Environment
from regional_explorer.record.statistics import (
    Floats,
    floor_of,
    median_and_iqr,
    rank_interval,
    smallest_difference,
    verdict_of,
)
from regional_explorer.record.timing import LEAST_SAMPLES, Conditions, NumericsVerdict, Phase, Timing, Verdict


class Summary(NamedTuple):
    """The timings, conditions and diagnostics of a run."""

    timings: tuple[Timing, ...]
    conditions: Conditions
    diagnostics: tuple[Diagnostic, ...]


def summarize(
    result: RoundsResult,
    environment: Environment,
    *,
    numerics: Mapping[str, NumericsVerdict] | None = None,
) -> Summary:
    """Return the timings of a run with verdicts, warnings and diagnostics.

    Args:
        result: the result of the run.
        environment: the environment that it ran in.
        numerics: the verdict of the numerics check by variant; others are "not checked".
            No speedup is given where it failed.
    """
    numerics_by_variant = numerics or {}
    timings = tuple(
        _phase_timing(result, variant, phase, numerics_by_variant.get(variant, NumericsVerdict.NOT_CHECKED))
        for variant, phases in result.samples.items()
        for phase in phases
    )
    conditions = Conditions(
        device=environment.device,
        torch=environment.torch,
        threads=environment.threads,
        confidence=result.options.confidence,
        rounds=result.rounds,
        stopped=str(result.stopped),
        budget_s=result.options.budget_s,
        smallest_difference=_smallest_difference(result),
    )
    return Summary(timings, conditions, _failure_diagnostics(result))


def _phase_timing(result: RoundsResult, variant: str, phase: Phase, numerics: NumericsVerdict) -> Timing:
    samples = result.samples[variant][phase]
    median_s, iqr_s = median_and_iqr(samples)
    enough_samples = len(samples) >= LEAST_SAMPLES
    ratios = result.ratios(variant, phase) if enough_samples and numerics is not NumericsVerdict.FAILED else None
    speedup, low, high, verdict = _speedup_and_verdict(result, variant, phase, ratios)
    if variant == result.baseline:
        warnings = (
            *warnings_on_baseline(samples),
            *warnings_on_waiting(result.waited_s, result.spent_s),
            *warnings_on_control(_control_interval(result, phase)),
        )
    else:
        warnings = warnings_on_variant(samples, ratios, result.options)
    if variant in result.dropped:
        warnings = (*warnings, f"stopped early: {result.dropped[variant]}")
    return Timing(
        variant=variant,
        phase=phase,
        samples_s=samples,
        median_s=median_s,
        iqr_s=iqr_s if enough_samples else None,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        verdict=verdict,
        calls_per_sample=result.calls_per_sample,
        numerics=numerics,
        warnings=warnings,
    )


def _speedup_and_verdict(
    result: RoundsResult, variant: str, phase: Phase, ratios: Floats | None
) -> tuple[float | None, float | None, float | None, Verdict]:
    """Return the speedup, the ends of its CI and the verdict."""
    if variant == result.baseline:
        return 1.0, 1.0, 1.0, Verdict.BASELINE
    if ratios is None:
        return None, None, None, Verdict.UNKNOWN
    options = result.options
    low, high = rank_interval(ratios, options.confidence) or (None, None)
    floor = floor_of(result.control_ratios(phase), options.verdict_confidence)
    return median_and_iqr(ratios)[0], low, high, verdict_of(ratios, options.verdict_confidence, floor)


def _control_interval(result: RoundsResult, phase: Phase) -> tuple[float, float] | None:
    control_ratios = result.control_ratios(phase)
    return None if control_ratios is None else rank_interval(control_ratios, result.options.verdict_confidence)


def _smallest_difference(result: RoundsResult) -> float | None:
    """Return the smallest relative difference that would be detected in every variant and phase, or None."""
    confidence = result.options.verdict_confidence
    differences = []
    for variant, phases in result.samples.items():
        for phase in phases:
            ratios = result.ratios(variant, phase)
            if variant == result.baseline or ratios is None:
                continue
            floor = floor_of(result.control_ratios(phase), confidence)
            differences.append(smallest_difference(ratios, confidence, floor))
    known_differences = [difference for difference in differences if difference is not None]
    return max(known_differences) if known_differences and len(known_differences) == len(differences) else None


def _failure_diagnostics(result: RoundsResult) -> tuple[Diagnostic, ...]:
    """Return one diagnostic per variant that raised while it was measured."""
    return tuple(
        Diagnostic(
            code=DiagnosticCode.VARIANT_FAILED,
            message=f"Variant {text}",
            severity=Severity.ERROR,
            remedy="The other variants were measured; call this one by hand to see the full traceback.",
        )
        for text in result.dropped.values()
    )
