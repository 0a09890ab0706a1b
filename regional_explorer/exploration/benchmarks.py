"""``ex.benchmark``: compiles stale partitions, checks the numerics, measures, and stores the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from regional_explorer.compiler.partition_records import partitions
from regional_explorer.compiler.processes import toolchain
from regional_explorer.compiler.variants import VariantName, Variants
from regional_explorer.errors import InvalidArgumentError, MeasureError, NoCompilerError, did_you_mean
from regional_explorer.errors.arguments import check_callable, check_flag, shown_value
from regional_explorer.exploration.compiling import Compiling
from regional_explorer.exploration.measurements import MAX_PLANS, Measurements
from regional_explorer.measure.benchmark import Outcome, ProgressCallback, benchmark
from regional_explorer.measure.reconcile import reconcile
from regional_explorer.measure.region_benchmark import benchmark_regions
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.executor import Executor
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.plan_content import plan_content
from regional_explorer.record.region import Partition, Plan
from regional_explorer.record.region_timing import region_timings
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import Reconciled

ALL_VARIANTS = tuple(VariantName)
REGION_SHARE = 0.5
"""Measuring regions alone takes this share of the budget in addition."""


def no_progress(_doing: str, _fraction: float) -> None:
    """Ignore the progress."""


class Benchmarks:
    """Runs the benchmarks of one exploration and keeps their results as ``measurements``.

    ``runs`` are the sessions of the last benchmark of each plan, in the order they were measured. ``revision`` changes
    with every new result.
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
        cancelled: Callable[[], bool],
        progress: ProgressCallback,
        executor: Executor,
        session: Callable[[], Session],
    ) -> None:
        """Compile stale partitions, check the numerics, measure, and store the results; see ``Exploration.benchmark``.

        ``session`` returns the current session of the exploration.
        """
        options = BenchmarkOptions(budget_s=budget_s)
        names = _variants(variants)
        check_flag("regions", regions)
        check_progress(cancelled, progress)
        check_executor(executor)
        if self._variants.program.capture.failed_ops:  # reported as aot-eager-failed
            names = [name for name in names if name is not VariantName.AOT_EAGER]
        if VariantName.AOT_EAGER in names and not self._variants.program.switches:  # nothing is cut out: it is the same
            names = [name for name in names if name is not VariantName.REGIONAL]
        outcome = Outcome()
        if VariantName.REGIONAL in names or VariantName.FULL in names:
            requested = names
            names = executor.run_untimed(lambda: self._compile(requested, outcome, cancelled, progress))
        if cancelled():
            return
        plan, compiled = self._variants.program.plan, partitions(self._variants.program)
        toolchain.build.wait()
        # The current number of threads: artifacts are compiled for it, and all variants run with it.
        environment = replace(self._environment, threads=torch.get_num_threads())
        regions = regions and VariantName.REGIONAL in names
        variants_share = 1.0 / (1.0 + REGION_SHARE) if regions else 1.0

        def progress_of_variants(doing: str, fraction: float) -> None:
            progress(doing, variants_share * fraction)

        def progress_of_regions(doing: str, fraction: float) -> None:
            progress(doing, variants_share + (1.0 - variants_share) * fraction)

        try:
            benchmark(
                self._variants,
                names,
                options,
                environment,
                outcome,
                cancelled=cancelled,
                progress=progress_of_variants,
                executor=executor,
            )
            if regions and outcome.complete:
                share = BenchmarkOptions(budget_s=budget_s * REGION_SHARE)
                benchmark_regions(
                    self._variants,
                    share,
                    environment,
                    outcome,
                    cancelled=cancelled,
                    progress=progress_of_regions,
                    executor=executor,
                )
        finally:
            self._store(outcome, plan, compiled, session)

    def _store(
        self, outcome: Outcome, plan: Plan, compiled: Sequence[Partition], session: Callable[[], Session]
    ) -> None:
        """Store the results, unless the run ended before it measured anything and there are earlier results."""
        last = self.measurements.last
        if not outcome.timings and ((last and last.outcome.timings) or not (outcome.numerics or outcome.diagnostics)):
            return
        is_current = self._variants.program.plan == plan
        # An artifact may have refused its inputs meanwhile: what ran is what is there now.
        self.measurements.add(partitions(self._variants.program) if is_current else compiled, outcome)
        self.revision += 1
        if not is_current:
            return
        outcome.reconciliation = reconciled(session(), outcome)
        self.revision += 1
        if outcome.timings:
            now = session()
            others = (run for run in self.runs if plan_content(run.partitions) != plan_content(now.partitions))
            self.runs = (*others, now)[-MAX_PLANS:]

    def _compile(
        self, names: list[VariantName], outcome: Outcome, cancelled: Callable[[], bool], progress: ProgressCallback
    ) -> list[VariantName]:
        """Compile stale partitions; return the variants that can run, only the eager ones without a C++ compiler."""
        try:
            if VariantName.FULL in names:
                self._compiling.start_toolchain(progress)
            self._compiling.compile_stale(cancelled, progress)
        except NoCompilerError as error:
            outcome.diagnostics.append(Diagnostic(DiagnosticCode.NO_COMPILER, str(error), Severity.ERROR))
            return [name for name in names if name in (VariantName.EAGER, VariantName.AOT_EAGER)]
        return names


def reconciled(session: Session, outcome: Outcome) -> tuple[Reconciled, ...]:
    """Return how the regions of ``session`` add up to the variants that ``outcome`` measured."""
    if not outcome.partition_results.timings or outcome.conditions is None:
        return ()
    return reconcile(outcome.timings, region_timings(session), outcome.cut, outcome.conditions.confidence)


def check_progress(cancelled: object, progress: object) -> None:
    """Raise InvalidArgumentError unless both are callable."""
    check_callable("cancelled", cancelled, "a function that returns whether to stop")
    check_callable("progress", progress, "a function that takes what is being done and the fraction done")


def check_executor(executor: object) -> None:
    """Raise InvalidArgumentError unless ``executor`` has ``run_timed`` and ``run_untimed``."""
    for method in ("run_timed", "run_untimed"):
        if not callable(getattr(executor, method, None)):
            raise InvalidArgumentError(f"executor={shown_value(executor)}: it has no {method}(); leave it out.")


def _variants(names: Sequence[str]) -> list[VariantName]:
    known = [str(name) for name in VariantName]
    if isinstance(names, (str, Mapping)) or not isinstance(names, Iterable):
        raise MeasureError(f"variants={shown_value(names)}: give a tuple of names, such as ('eager', 'regional').")
    names = list(names)
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise MeasureError(
                f"No variant is called {shown_value(name)}.{did_you_mean(name, known)} Variants: {', '.join(known)}."
            )
    return [name for name in VariantName if name in names or name is VariantName.EAGER]
