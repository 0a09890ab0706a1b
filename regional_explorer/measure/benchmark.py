"""Checks and measures the variants of a call, and its partitions."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch

from regional_explorer.capture.call import Call
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError, RegionCompileError
from regional_explorer.measure.clock import TimedCall, do_nothing
from regional_explorer.measure.memory import Gauge, gauge_for, peak
from regional_explorer.measure.numerics import (
    TWIN_NOTE,
    Reference,
    compare,
    failing_twice,
    nondeterministic,
    not_comparable,
    run_once,
    verdict,
    without_twin,
)
from regional_explorer.measure.partitions import CUT_GRAPH, NO_RESULTS, PartitionResults, distinct, measure_partitions
from regional_explorer.measure.reference import find_reference, unless_repeating
from regional_explorer.measure.rounds import BenchmarkOptions, RoundsResult, Stop, run_rounds
from regional_explorer.measure.summary import MeasureContext, measure_rounds
from regional_explorer.measure.variants import Variant, Variants, failed
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.timing import (
    BY_TORCH,
    CompileCost,
    Conditions,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    Reconciled,
    Timing,
    VariantName,
    Verdict,
)


@dataclass(frozen=True)
class Outcome:
    """The results of a benchmark, or a part of them. ``a + b`` has the results of both.

    ``partition_results`` are those of partitions measured alone, ``cut`` the rounds of the cut graph with all regions
    eager against ``aot_eager``.
    """

    timings: tuple[Timing, ...] = ()
    conditions: Conditions | None = None
    numerics: tuple[Numerics, ...] = ()
    costs: tuple[CompileCost, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    memory: tuple[MemoryPeak, ...] = ()
    partition_results: PartitionResults = NO_RESULTS
    cut: RoundsResult | None = None
    reconciliation: tuple[Reconciled, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        """Return the results of both."""
        return Outcome(
            timings=self.timings + other.timings,
            conditions=other.conditions or self.conditions,
            numerics=self.numerics + other.numerics,
            costs=self.costs + other.costs,
            diagnostics=self.diagnostics + other.diagnostics,
            memory=self.memory + other.memory,
            partition_results=self.partition_results + other.partition_results,
            cut=other.cut or self.cut,
            reconciliation=self.reconciliation + other.reconciliation,
        )


def benchmark(
    variants: Variants, names: Sequence[VariantName], options: BenchmarkOptions, context: MeasureContext
) -> Generator[Outcome, None, bool]:
    """Check and measure the variants ``names``, yielding each result at once, so that an interrupt loses none of them.

    Returns:
        Whether all measurements were completed.

    Raises:
        MeasureError: no variant could be measured.
        KeyboardInterrupt: it was interrupted.
    """
    run, call, program = context.run, variants.call, variants.program
    untimed = run.executor.run_untimed
    ready, outcome = untimed(lambda: _ready_variants(variants, names, run))
    yield outcome
    traces = variants.traces()
    if run.cancelled():
        return False
    verdicts = yield from _check_numerics(variants, ready, run)
    if run.cancelled():
        return False
    timed_calls = [timed_call(call, variant) for variant in ready]
    try:
        with call.restoring():
            rounds = measure_rounds(timed_calls, options, context, baseline=VariantName.EAGER, numerics=verdicts)
    finally:
        program.select_regional(on=True)
    timings = tuple(_without_verdict(rounds.timings, variants.traced_since(traces), variants.given_up()))
    yield Outcome(timings=timings, conditions=rounds.conditions, diagnostics=rounds.diagnostics)
    rounds.result.stopped.raise_interrupt()
    if rounds.result.stopped not in (Stop.PRECISE, Stop.BUDGET):
        return False
    gauge = gauge_for(context.environment.device)
    for variant in ready:
        if gauge is None or run.cancelled():
            break
        if variant.name not in rounds.result.dropped:
            run.progress(f"reading the memory of {variant.name}", 1.0)
            yield Outcome(memory=(untimed(partial(_memory_peak, variants, variant, gauge)),))
    return True


def _check_numerics(
    variants: Variants, ready: list[Variant], run: Run
) -> Generator[Outcome, None, Mapping[str, NumericsVerdict]]:
    """Compare the variants with eager; return their verdicts. One that raises is reported and taken out of ``ready``.

    Before a variant is called wrong, eager is looked at once more: it may differ from itself now and then only.
    """
    call, program, untimed = variants.call, variants.program, run.executor.run_untimed
    run.progress("checking numerics: eager", 0.0)
    found = untimed(lambda: find_reference(call, program, run.cancelled))
    yield Outcome(diagnostics=found.diagnostics)
    reference, verdicts = found.reference, dict[str, NumericsVerdict]()
    for variant in [variant for variant in ready if variant.name is not VariantName.EAGER]:
        if run.cancelled():
            break
        run.progress(f"checking numerics: {variant.name}", 0.0)
        try:
            rows = untimed(partial(_numerics_rows, call, program, variant, reference))
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything; the other variants go on
            ready.remove(variant)
            yield Outcome(diagnostics=(_raised(variant.name, error),))
            continue
        if verdict(rows) is NumericsVerdict.FAILED:
            again = untimed(partial(unless_repeating, call, reference.eager, reference.arithmetic))
            if again is not None:
                reference, rows = again.reference, nondeterministic(rows)
                yield Outcome(diagnostics=again.diagnostics)
        yield Outcome(numerics=rows)
        verdicts[variant.name] = verdict(rows)
    verdicts[VariantName.EAGER] = (
        NumericsVerdict.NOT_COMPARABLE if reference.nondeterministic else NumericsVerdict.REFERENCE
    )
    return verdicts


def _without_verdict(
    timings: Sequence[Timing], traces: Mapping[VariantName, int], given_up: Collection[VariantName]
) -> Sequence[Timing]:
    """Return the timings, without verdicts on variants that Dynamo traced again meanwhile, or gave up on before."""
    reasons = {name: _retraced_warning(name, count) for name, count in traces.items()}
    for name in given_up:
        reasons.setdefault(name, "Dynamo traced the call too often: part of it runs in plain Python now; no verdict")
    return [
        replace(timing, verdict=Verdict.NONE, warnings=(*timing.warnings, reasons[name]))
        if (name := VariantName(timing.variant)) in reasons
        else timing
        for timing in timings
    ]


def _raised(name: VariantName, error: Exception) -> Diagnostic:
    """Return the diagnostic of a variant that raised before it was measured."""
    return Diagnostic(
        DiagnosticCode.VARIANT_FAILED,
        f"Variant '{name}' raised {type(error).__name__} when its results were to be compared with eager's: "
        f"{(str(error).splitlines() or [''])[0]}",
        Severity.ERROR,
        remedy="The other variants were measured; call this one by hand to see the full traceback.",
    )


def _retraced_warning(name: VariantName, traces: int) -> str:
    return f"Dynamo traced the call again ({traces} new graphs) while it was measured: no verdict; " + (
        "the samples include compiles"
        if name in BY_TORCH
        else "new graphs run eagerly, and the diagnostics name the guards that failed"
    )


def timed_call(call: Call, variant: Variant) -> TimedCall:
    """Return a variant as the thing to time."""
    threads = torch.get_num_threads()
    # Autocast keeps casts of weights until its outermost block ends. Here each call casts again, as each step of a
    # training loop does; else only the first variant of a round would cast.
    casting = call.modes.casts

    def before() -> None:
        if casting:
            torch.clear_autocast_cache()
        if call.stateful:
            call.restore()

    def select() -> None:
        variant.select()
        # The user's code may set another number: all variants run with the same.
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    return TimedCall(
        name=variant.name,
        forward=variant.forward,
        backward=variant.backward,
        # Else there is nothing to restore: the call neither changes tensors nor draws random numbers.
        before=before if casting or call.stateful else do_nothing,
        select=select,
    )


def _memory_peak(variants: Variants, variant: Variant, gauge: Gauge) -> MemoryPeak:
    call = variants.call

    def run_call() -> None:
        if call.stateful:
            call.restore()
        outputs = variant.forward()
        if variant.backward is not None:
            variant.backward(outputs)

    variant.select()
    try:
        with call.restoring():
            return peak(variant.name, run_call, gauge)
    finally:
        variants.program.select_regional(on=True)


def _ready_variants(variants: Variants, names: Sequence[VariantName], run: Run) -> tuple[list[Variant], Outcome]:
    """Return the variants that can run and the results so far; those that torch compiles are compiled here."""
    ready, costs, diagnostics = [], [], list[Diagnostic]()
    for name in names:
        if run.cancelled():
            break
        if name in BY_TORCH:
            run.progress(_COMPILE_TASKS[name], 0.0)
            try:
                compiled = variants.compile(name)
            except Exception as error:  # noqa: BLE001 - Dynamo and Inductor may raise anything; other variants go on
                diagnostics.append(failed(name, error))
                continue
            costs.append(compiled.cost)
            diagnostics += compiled.findings
        ready.append(variants.get(name))
    return ready, Outcome(costs=tuple(costs), diagnostics=tuple(diagnostics))


_COMPILE_TASKS = {
    VariantName.FULL: "compiling the whole call with torch.compile",
    VariantName.UPSTREAM: "compiling the marks with upstream's regional_inductor",
    VariantName.LITE: "compiling the marks with torch.compile(mode='lite')",
}


def _numerics_rows(call: Call, program: Program, variant: Variant, reference: Reference) -> tuple[Numerics, ...]:
    variant.select()
    marked_draws = any(switch.draws for switch in program.switches)
    is_upstream = variant.name is VariantName.UPSTREAM
    needs_twin = variant.name is VariantName.REGIONAL and marked_draws

    def rows_of_a_call() -> tuple[Numerics, ...]:
        note = TWIN_NOTE if needs_twin else ""
        return compare(variant.name, run_once(call, variant.function), reference, note)

    try:
        with program.drawing_as_eager() if needs_twin else nullcontext():
            rows = failing_twice(rows_of_a_call)
    except RegionCompileError as error:
        rows = compare(variant.name, run_once(call, variant.function), reference)
        return without_twin(rows, error)
    finally:
        program.select_regional(on=True)
    if call.draws and (variant.name in (VariantName.FULL, VariantName.LITE) or (marked_draws and is_upstream)):
        return not_comparable(rows, "Inductor draws its own random numbers; try fallback_random")
    return rows


def benchmark_regions(variants: Variants, options: BenchmarkOptions, context: MeasureContext) -> Iterator[Outcome]:
    """Measure every distinct partition alone, and the overhead of the cut graph, yielding results at once.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    program, run = variants.program, context.run
    if not program.switches:
        return
    kinds = run.executor.run_untimed(lambda: distinct(program))
    dispatch_options = replace(options, budget_s=options.budget_s / (len(kinds) + 1))
    partition_options = replace(options, budget_s=options.budget_s - dispatch_options.budget_s)
    try:
        for results in measure_partitions(program, kinds, partition_options, context):
            yield Outcome(partition_results=results)
        if not run.cancelled():
            run.progress("dispatch of the cut graph", 1.0)
            try:
                result = _measure_dispatch(variants, dispatch_options, context)
            except MeasureError as error:
                message = f"The cut graph with eager regions: {error}"
                yield Outcome(diagnostics=(Diagnostic(DiagnosticCode.VARIANT_FAILED, message, Severity.ERROR),))
            else:
                yield Outcome(cut=result)
                result.stopped.raise_interrupt()
    finally:
        program.apply_artifacts()
        program.select_regional(on=True)


def _measure_dispatch(variants: Variants, options: BenchmarkOptions, context: MeasureContext) -> RoundsResult:
    """Measure the cut graph with every region eager against the graph as captured."""
    call, program = variants.call, variants.program
    aot_eager, regional = variants.get(VariantName.AOT_EAGER), variants.get(VariantName.REGIONAL)
    for switch in program.switches:
        switch.use_eager()
    with call.restoring():
        entries = [timed_call(call, aot_eager), replace(timed_call(call, regional), name=CUT_GRAPH)]
        return run_rounds(
            entries,
            options,
            baseline=VariantName.AOT_EAGER,
            clock=context.clock,
            context=context.run.silent(),
        )
