"""``ex.benchmark``: compiles stale partitions, checks the numerics, measures, and stores the results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import torch

from regional_explorer.compiler.compilation import Compiling
from regional_explorer.compiler.partition_records import partitions
from regional_explorer.compiler.processes import toolchain
from regional_explorer.compiler.run_context import RunContext
from regional_explorer.compiler.variants import Variants
from regional_explorer.errors import InvalidArgumentError, NoCompilerError
from regional_explorer.errors.arguments import check_flag, shown_value
from regional_explorer.exploration.measurements import MAX_PLANS, Measurements
from regional_explorer.measure.benchmark import Outcome, benchmark
from regional_explorer.measure.reconcile import reconcile
from regional_explorer.measure.region_benchmark import benchmark_regions
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.clock import Clock
from regional_explorer.measure.timing.measured_rounds import MeasureContext
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.plan_content import partition_content
from regional_explorer.record.region_timing import region_timings
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import Reconciled
from regional_explorer.record.variant_name import BY_TORCH, VariantName, checked_variants

REGION_SHARE = 0.5
"""Measuring regions alone takes this much of the budget in addition."""


class Benchmarks:
    """Runs the benchmarks of one exploration and keeps their results as ``measurements``.

    ``runs`` are the sessions of the last benchmark of each plan, in the order they were measured, those of earlier
    traces of the call included. ``revision`` changes with every new result.
    """

    def __init__(self, variants: Variants, compiling: Compiling, environment: Environment) -> None:
        self._variants = variants
        self._compiling = compiling
        self._environment = environment
        self.measurements = Measurements()
        self.runs: tuple[Session, ...] = ()
        self.revision = 0

    def run(
        self,
        variants: Sequence[str],
        budget_s: float,
        *,
        regions: bool,
        run: RunContext,
        clock: Clock[Any] | None,
        session: Callable[[], Session],
    ) -> None:
        """Compile stale partitions, check the numerics, measure, and store the results; see ``Exploration.benchmark``.

        ``session`` returns the current session of the exploration.
        """
        options = BenchmarkOptions(budget_s=budget_s)
        names = self._variants.measurable(checked_variants(variants))
        check_flag("regions", regions)
        check_clock(clock)
        outcome = Outcome()
        if VariantName.REGIONAL in names or set(BY_TORCH).intersection(names):
            names, outcome = run.executor.run_untimed(functools.partial(self._compile_stale, names, run))
        if run.cancelled():
            return
        toolchain.build.wait()
        # The current number of threads: artifacts are compiled for it, and all variants run with it.
        environment = replace(self._environment, threads=torch.get_num_threads())
        context = MeasureContext.of(run, environment, clock)
        try:
            with suppress(CancelledError), closing(self._outcomes(names, options, context, regions=regions)) as results:
                for result in results:
                    outcome += result
        finally:
            self._store(outcome, session)

    def _outcomes(
        self, names: Sequence[VariantName], options: BenchmarkOptions, context: MeasureContext, *, regions: bool
    ) -> Generator[Outcome]:
        if not (regions and VariantName.REGIONAL in names):
            yield from benchmark(self._variants, names, options, context)
            return
        share = 1.0 / (1.0 + REGION_SHARE)
        if (yield from benchmark(self._variants, names, options, context.part(0.0, share))):
            region_options = BenchmarkOptions(budget_s=options.budget_s * REGION_SHARE)
            yield from benchmark_regions(self._variants, region_options, context.part(share, 1.0))

    def _store(self, outcome: Outcome, session: Callable[[], Session]) -> None:
        """Store the results, unless the run ended before it measured anything and there are earlier results."""
        last = self.measurements.last
        if not outcome.timings and ((last and last.outcome.timings) or not (outcome.numerics or outcome.diagnostics)):
            return
        # Read only now: an artifact may have rejected its inputs during the run. The plan cannot have changed.
        self.measurements.add(partitions(self._variants.program), outcome)
        self.revision += 1
        self.measurements.reconcile(reconciled(session(), outcome))
        self.revision += 1
        if outcome.timings:
            current = session()
            other_runs = (run for run in self.runs if _history_key(run) != _history_key(current))
            self.runs = (*other_runs, current)[-MAX_PLANS:]

    def _compile_stale(self, names: list[VariantName], run: RunContext) -> tuple[list[VariantName], Outcome]:
        """Compile stale partitions; return the variants that can run, only the eager ones without a C++ compiler."""
        try:
            if set(BY_TORCH).intersection(names):
                self._compiling.start_toolchain(run.progress)
            self._compiling.compile_stale(run)
        except NoCompilerError as error:
            missing = Diagnostic(DiagnosticCode.NO_COMPILER, str(error), Severity.ERROR)
            runnable = (VariantName.EAGER, VariantName.AOT_EAGER)
            return [name for name in names if name in runnable], Outcome(diagnostics=(missing,))
        return names, Outcome()


def _history_key(run: Session) -> tuple[object, ...]:
    """Return what distinguishes plans in the history: shapes, and configs even where they give equal code."""
    partition_keys = [(part.graph, part.nodes, part.artifact, partition_content(part).state) for part in run.partitions]
    return run.shapes, partition_keys


def reconciled(session: Session, outcome: Outcome) -> tuple[Reconciled, ...]:
    """Return how the regions of ``session`` add up to the variants that ``outcome`` measured."""
    if not outcome.partition_results.timings or outcome.conditions is None:
        return ()
    return reconcile(outcome.timings, region_timings(session), outcome.cut, outcome.conditions.confidence)


def check_clock(clock: object) -> None:
    """Raise InvalidArgumentError unless ``clock`` is None or has the methods of a ``Clock``."""
    for method in ("now", "flush", "mark", "synchronize", "seconds"):
        if clock is not None and not callable(getattr(clock, method, None)):
            raise InvalidArgumentError(f"clock={shown_value(clock)}: it has no {method}(); leave it out.")
