"""Benchmarks the regions by themselves, and the overhead of calling them from the cut graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regional_explorer.compiler.variants import VariantName, Variants
from regional_explorer.measure.benchmark import Outcome, ProgressCallback, timed_call
from regional_explorer.measure.partitions import distinct, measure_partitions
from regional_explorer.measure.reconcile import AOT_EAGER, CUT
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.clock import Clock, clock_for
from regional_explorer.measure.timing.executor import SAME_THREAD, Executor
from regional_explorer.measure.timing.rounds import run_rounds
from regional_explorer.measure.timing.rounds_result import RoundsResult
from regional_explorer.record.session import Environment


def benchmark_regions(
    variants: Variants,
    options: BenchmarkOptions,
    environment: Environment,
    outcome: Outcome,
    *,
    cancelled: Callable[[], bool],
    progress: ProgressCallback,
    executor: Executor = SAME_THREAD,
) -> None:
    """Measure every distinct partition alone, and what dispatching the cut graph costs, writing into ``outcome``."""
    program, clock = variants.program, clock_for(environment.device)
    if not program.switches:
        return
    kinds = executor.run_untimed(lambda: distinct(program))
    each = replace(options, budget_s=options.budget_s / (len(kinds) + 1))
    rest = replace(options, budget_s=options.budget_s - each.budget_s)
    try:
        measure_partitions(
            program,
            rest,
            environment,
            clock,
            outcome.partition_results,
            cancelled=cancelled,
            progress=progress,
            executor=executor,
        )
        if not cancelled():
            progress("dispatch of the cut graph", 1.0)
            outcome.cut = _dispatch(variants, each, clock, cancelled, executor)
    finally:
        program.apply_artifacts()
        program.select_regional(on=True)


def _dispatch(
    variants: Variants, options: BenchmarkOptions, clock: Clock[Any], cancelled: Callable[[], bool], executor: Executor
) -> RoundsResult:
    """Measure the cut graph with every region eager against the graph as captured."""
    call, program = variants.call, variants.program
    whole, regional = variants.get(VariantName.AOT_EAGER), variants.get(VariantName.REGIONAL)
    for switch in program.switches:
        switch.use_eager()
    with call.kept():
        entries = [timed_call(call, whole), replace(timed_call(call, regional), name=CUT)]
        return run_rounds(entries, options, baseline=AOT_EAGER, clock=clock, cancelled=cancelled, executor=executor)
