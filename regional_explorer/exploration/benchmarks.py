"""``ex.benchmark``: compiles what is stale, checks the numerics, measures, and keeps the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from regional_explorer.compiler.processes import toolchain
from regional_explorer.compiler.variants import VariantName, Variants
from regional_explorer.errors import MeasureError, NoCompilerError, did_you_mean
from regional_explorer.measure.benchmark import Outcome, ProgressCallback, benchmark
from regional_explorer.measure.reconcile import reconcile
from regional_explorer.measure.region_benchmark import benchmark_regions
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.measure.timing.executor import SAME_THREAD, Executor
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.region import Plan
from regional_explorer.record.region_timing import region_timings
from regional_explorer.record.session import Environment, Session

if TYPE_CHECKING:
    import pandas as pd

ALL_VARIANTS = tuple(VariantName)
REGION_SHARE = 0.5
"""Of the budget, so much again goes to the regions alone."""
MOST_RUNS = 50
"""So many measured plans are kept."""


def silent(_doing: str, _fraction: float) -> None:
    """Tell nobody."""


class Measuring(ABC):
    """What an exploration measures, and what it keeps of it."""

    plan: Plan
    _variants: Variants
    _environment: Environment

    def __init__(self) -> None:
        self._outcome = Outcome()
        self._measured: Plan | None = None
        self._runs: tuple[Session, ...] = ()

    @property
    @abstractmethod
    def session(self) -> Session:
        """The frozen record."""

    @property
    @abstractmethod
    def timings(self) -> pd.DataFrame:
        """The table that ``benchmark`` returns."""

    @abstractmethod
    def compile(self, *, cancelled: Callable[[], bool] = ..., progress: ProgressCallback = ...) -> pd.DataFrame:
        """Compile what is stale."""

    @abstractmethod
    def _warm_up(self, progress: ProgressCallback) -> None:
        """Pay for the toolchain once, so that no compile is charged for it."""

    @abstractmethod
    def _alive(self) -> None:
        """Raise if the exploration was closed."""

    def benchmark(
        self,
        variants: Sequence[str] = ALL_VARIANTS,
        budget_s: float = 5.0,
        *,
        regions: bool = True,
        cancelled: Callable[[], bool] = lambda: False,
        progress: ProgressCallback = silent,
        executor: Executor = SAME_THREAD,
    ) -> pd.DataFrame:
        """Compile what is stale, check the numerics, then measure; return ``timings``.

        With ``regions`` each distinct partition is then measured alone, its artifact against its eager piece, on
        inputs recorded from the call: ``region_timings``, ``partition_timings``, ``region_numerics``, and in
        ``reconciliation`` how the regions add up to the whole. That takes half the budget once more, divided among
        the distinct partitions and one run for what dispatching the cut graph costs. ``memory`` has the peak of each
        variant.

        Args:
            variants: which of eager, aot_eager, regional and full; eager is always among them.
            budget_s: seconds to measure the variants for, compiling not counted.
            regions: whether to measure regions alone too; only where ``regional`` is among the variants.
            cancelled: asked between compiles and samples; what is done is kept.
            progress: called with what is being done and the fraction done.
            executor: on which threads it is done.

        Raises:
            MeasureError: the budget or a variant is none, or nothing could be measured.
        """
        self._alive()
        options = BenchmarkOptions(budget_s=budget_s)
        names = _variants(variants)
        if self._variants.program.capture.failed_ops:  # told as aot-eager-failed
            names = [name for name in names if name is not VariantName.AOT_EAGER]
        outcome = Outcome()
        if VariantName.REGIONAL in names or VariantName.FULL in names:
            wanted = names
            names = executor.run_untimed(lambda: self._compile_or_tell(wanted, outcome, cancelled, progress))
        if cancelled():
            return self.timings
        measured = self.plan
        toolchain.build.wait()
        # As it is now: artifacts are compiled for this number, and all variants run with it.
        environment = replace(self._environment, threads=torch.get_num_threads())
        regions = regions and VariantName.REGIONAL in names
        part = 1.0 / (1.0 + REGION_SHARE) if regions else 1.0

        def tell_variants(doing: str, fraction: float) -> None:
            progress(doing, part * fraction)

        def tell_regions(doing: str, fraction: float) -> None:
            progress(doing, part + (1.0 - part) * fraction)

        try:
            benchmark(
                self._variants,
                names,
                options,
                environment,
                outcome,
                cancelled=cancelled,
                progress=tell_variants,
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
                    progress=tell_regions,
                    executor=executor,
                )
        finally:
            # What ended before it measured anything takes no earlier measurement away.
            if outcome.timings or (not self._outcome.timings and (outcome.numerics or outcome.diagnostics)):
                self._outcome, self._measured = outcome, measured
                if outcome.partition_results.timings:
                    rows = region_timings(self.session)
                    outcome.reconciliation = reconcile(outcome.timings, rows, outcome.cut, options.confidence)
                self._keep_run()
        return self.timings

    @property
    def runs(self) -> tuple[Session, ...]:
        """The record of the last measurement of each plan, in the order they were measured."""
        return self._runs

    def _keep_run(self) -> None:
        if self._outcome.timings:
            others = (run for run in self._runs if run.plan != self.plan)
            self._runs = (*others, self.session)[-MOST_RUNS:]

    def _compile_or_tell(
        self, names: list[VariantName], outcome: Outcome, cancelled: Callable[[], bool], progress: ProgressCallback
    ) -> list[VariantName]:
        try:
            if VariantName.FULL in names:
                self._warm_up(progress)
            self.compile(cancelled=cancelled, progress=progress)
        except NoCompilerError as error:
            outcome.diagnostics.append(Diagnostic("no-compiler", str(error), Severity.ERROR))
            return [name for name in names if name in (VariantName.EAGER, VariantName.AOT_EAGER)]
        return names


def _variants(names: Sequence[str]) -> list[VariantName]:
    known = [str(name) for name in VariantName]
    for name in names:
        if name not in known:
            raise MeasureError(
                f"No variant is called {name!r}.{did_you_mean(name, known)} Variants: {', '.join(known)}."
            )
    return [name for name in VariantName if name in names or name is VariantName.EAGER]
