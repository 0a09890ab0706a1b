"""Benchmarks every distinct partition alone, then the dispatch: the cut graph with all its partitions eager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regional_explorer.compiler.run_context import no_progress
from regional_explorer.compiler.variants import Variants
from regional_explorer.errors import MeasureError
from regional_explorer.measure.benchmark import Outcome, timed_call
from regional_explorer.measure.partition_benchmark import distinct, measure_partitions
from regional_explorer.measure.reconcile import CUT_GRAPH
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.measured_rounds import MeasureContext
from regional_explorer.measure.timing.rounds import run_rounds
from regional_explorer.measure.timing.rounds_result import RoundsResult
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.variant_name import VariantName


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
            context=replace(context.run, progress=no_progress),
        )
