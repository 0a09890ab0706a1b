"""Benchmarks the variants of a call: numerics first, then interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch

from regional_explorer.capture.call import Call
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.variants import Variant, VariantName, Variants
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.accuracy.numerics import Reference, compare, not_comparable, run_once, verdict
from regional_explorer.measure.accuracy.reference import find_reference
from regional_explorer.measure.partitions import PartitionResults
from regional_explorer.measure.peak_memory import gauge_for, peak
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.clock import clock_for
from regional_explorer.measure.timing.executor import SAME_THREAD, Executor
from regional_explorer.measure.timing.machine import describe, device_state, launch_warnings, throttled
from regional_explorer.measure.timing.rounds import run_rounds
from regional_explorer.measure.timing.rounds_result import Progress, RoundsResult, Stop
from regional_explorer.measure.timing.summary import summarize
from regional_explorer.measure.timing.timed_call import TimedCall
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.session import Environment
from regional_explorer.record.timing import (
    CompileCost,
    Conditions,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    Reconciled,
    Timing,
    Verdict,
)
from regional_explorer.torch_api import AUTOCAST_DEVICES

ProgressCallback = Callable[[str, float], None]
"""Called with what is being done now, and the fraction of the time budget that is spent."""


@dataclass
class Outcome:
    """What a benchmark found, filled in as it goes: an interrupt keeps what is there.

    ``partition_results`` is of partitions measured alone, ``cut`` the rounds of the cut graph with all regions eager
    against ``aot_eager``; ``complete`` says that the variants were measured to the end.
    """

    timings: tuple[Timing, ...] = ()
    conditions: Conditions | None = None
    numerics: tuple[Numerics, ...] = ()
    costs: list[CompileCost] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    memory: list[MemoryPeak] = field(default_factory=list)
    partition_results: PartitionResults = field(default_factory=PartitionResults)
    cut: RoundsResult | None = None
    reconciliation: tuple[Reconciled, ...] = ()
    complete: bool = False


def benchmark(
    variants: Variants,
    names: Sequence[VariantName],
    options: BenchmarkOptions,
    environment: Environment,
    outcome: Outcome,
    *,
    cancelled: Callable[[], bool],
    progress: ProgressCallback,
    executor: Executor = SAME_THREAD,
) -> None:
    """Check and measure the variants ``names``, writing into ``outcome``.

    Raises:
        MeasureError: no variant could be measured.
    """
    call, program = variants.call, variants.program
    chosen = executor.run_untimed(lambda: _ready(variants, names, outcome, cancelled, progress))
    traces = variants.traces()
    if cancelled():
        return
    said = executor.run_untimed(lambda: _check(call, program, chosen, outcome, cancelled, progress))
    if cancelled():
        return
    timed_calls = [timed_call(call, variant) for variant in chosen]

    def on_progress(stage: Progress) -> None:
        progress(stage.doing, stage.fraction)

    clock, before = clock_for(environment.device), device_state(environment.device)
    try:
        with call.kept():
            result = run_rounds(
                timed_calls,
                options,
                baseline=VariantName.EAGER,
                clock=clock,
                cancelled=cancelled,
                on_progress=on_progress,
                executor=executor,
            )
            steady = [entry for entry in timed_calls if entry.name not in result.dropped]
            asked = before is not None and not cancelled()
            launched = launch_warnings(steady, clock, executor) if asked else {}
    finally:
        program.select_regional(on=True)
    after = device_state(environment.device)
    withheld = [name for name, word in said.items() if word == NumericsVerdict.FAILED]
    summary = summarize(result, environment, numerics=said, withheld=withheld)
    fell = throttled(before, after)
    outcome.timings = tuple(
        replace(timing, warnings=(*timing.warnings, *launched.get(timing.variant, ()), *fell))
        for timing in _without_verdict(summary.timings, traces, variants.traces())
    )
    outcome.conditions = replace(summary.conditions, gpu=describe(before, after))
    outcome.diagnostics += summary.diagnostics
    outcome.complete = result.stopped in (Stop.PRECISE, Stop.BUDGET)
    if outcome.complete:
        ran = [variant for variant in chosen if variant.name not in result.dropped]
        executor.run_untimed(lambda: _read_memory(variants, ran, environment, outcome, cancelled, progress))


def _without_verdict(
    timings: Sequence[Timing], before: Mapping[VariantName, int], after: Mapping[VariantName, int]
) -> Sequence[Timing]:
    """Take away the verdicts on variants that Dynamo traced anew meanwhile."""
    counted = {name: after[name] - before[name] for name in after}
    return [_unless_traced(timing, counted.get(VariantName(timing.variant), 0)) for timing in timings]


def _unless_traced(timing: Timing, traces: int) -> Timing:
    if not traces:
        return timing
    warning = f"Dynamo traced the call anew ({traces} new graphs) while it was measured: no verdict; " + (
        "the samples have compiles in them"
        if timing.variant == VariantName.FULL
        else "new graphs run eagerly, and the diagnostics name the guards that failed"
    )
    return replace(timing, verdict=Verdict.NONE, warnings=(*timing.warnings, warning))


def timed_call(call: Call, variant: Variant) -> TimedCall:
    """Return a variant as the thing to time."""
    threads = torch.get_num_threads()
    # Casts of weights are kept until the outermost autocast block ends. Here each call pays for its own, as a step of a
    # training loop does; else the first variant of a round would pay for all.
    casting = any(torch.is_autocast_enabled(device) for device in AUTOCAST_DEVICES)

    def before() -> None:
        if casting:
            torch.clear_autocast_cache()
        if call.stateful:
            call.restore()

    def select() -> None:
        variant.select()
        # The user's code may have set another number for itself: all variants run with the same.
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return TimedCall(
        name=variant.name,
        forward=variant.forward,
        backward=variant.backward,
        before=before if casting or call.stateful else _nothing,
        select=select,
    )


def _read_memory(
    variants: Variants,
    chosen: Sequence[Variant],
    environment: Environment,
    outcome: Outcome,
    cancelled: Callable[[], bool],
    progress: ProgressCallback,
) -> None:
    call, gauge = variants.call, gauge_for(environment.device)
    for variant in chosen:
        if gauge is None or cancelled():
            return
        progress(f"reading the memory of {variant.name}", 1.0)

        def work(variant: Variant = variant) -> None:
            if call.stateful:
                call.restore()
            outputs = variant.forward()
            if variant.backward is not None:
                variant.backward(outputs)

        variant.select()
        try:
            with call.kept():
                outcome.memory.append(peak(variant.name, work, gauge))
        finally:
            variants.program.select_regional(on=True)


def _nothing() -> None:
    """Restore nothing: the call neither changes tensors nor draws random numbers."""


def _ready(
    variants: Variants,
    names: Sequence[VariantName],
    outcome: Outcome,
    cancelled: Callable[[], bool],
    progress: ProgressCallback,
) -> list[Variant]:
    """Return the variants that can run; ``full`` is compiled here, and left out with a word where it cannot be."""
    ready = []
    for name in names:
        if cancelled():
            break
        if name is VariantName.FULL:
            progress("compiling the whole call with torch.compile", 0.0)
            try:
                variants.compile_full()
            except Exception as error:  # noqa: BLE001 - Dynamo and Inductor raise whatever they like; the rest goes on
                first = (str(error).splitlines() or [""])[0]
                outcome.diagnostics.append(
                    Diagnostic(
                        DiagnosticCode.FULL_FAILED,
                        f"Plain torch.compile failed on this call: {type(error).__name__}: {first}",
                        Severity.ERROR,
                        remedy="The other variants are not touched by it.",
                    )
                )
                continue
        ready.append(variants.get(name))
    if variants.cost is not None:
        outcome.costs.append(variants.cost)
    return ready


def _check(
    call: Call,
    program: Program,
    chosen: Sequence[Variant],
    outcome: Outcome,
    cancelled: Callable[[], bool],
    progress: ProgressCallback,
) -> Mapping[str, NumericsVerdict]:
    """Compare every variant with eager; return the verdicts by variant."""
    progress("checking numerics: eager", 0.0)
    found = find_reference(call, program)
    outcome.diagnostics += found.diagnostics
    steady = not found.reference.nondeterministic
    eager = NumericsVerdict.REFERENCE if steady else NumericsVerdict.NOT_COMPARABLE
    said: dict[str, NumericsVerdict] = {VariantName.EAGER: eager}
    for variant in chosen:
        if variant.name is VariantName.EAGER or cancelled():
            continue
        progress(f"checking numerics: {variant.name}", 0.0)
        rows = _rows(call, program, variant, found.reference)
        outcome.numerics += rows
        said[variant.name] = verdict(rows)
    return said


def _rows(call: Call, program: Program, variant: Variant, reference: Reference) -> tuple[Numerics, ...]:
    variant.select()
    draws = variant.name is VariantName.REGIONAL and any(switch.draws for switch in program.switches)
    try:
        with program.drawing_as_eager() if draws else nullcontext():
            note = "checked on a twin compiled with fallback_random" if draws else ""
            rows = compare(variant.name, run_once(call, variant.function), reference, note)
    except RegionCompileError as error:
        rows = compare(variant.name, run_once(call, variant.function), reference)
        return not_comparable(rows, f"draws random numbers, and no twin with fallback_random compiles: {error}")
    finally:
        program.select_regional(on=True)
    if variant.name is VariantName.FULL and call.draws:
        return not_comparable(rows, "Inductor draws random numbers of its own; try fallback_random")
    return rows
