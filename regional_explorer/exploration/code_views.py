"""The part of an Exploration that looks into the generated code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.config.validate import configured
from regional_explorer.compiler.run_context import (
    SAME_THREAD,
    Executor,
    ProgressCallback,
    RunContext,
    never_cancelled,
    no_progress,
)
from regional_explorer.exploration.results import Results
from regional_explorer.insight.code import RegionCode
from regional_explorer.insight.codes import Codes
from regional_explorer.insight.diagnose import Diagnoses
from regional_explorer.insight.kernel_timer import KernelTimes
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.gpu_targets import gpu_target
from regional_explorer.record.region import Plan

if TYPE_CHECKING:
    import pandas as pd


class CodeViews(ABC):
    """What an exploration can show of the code that Inductor generates; ``_call`` is None once it is closed."""

    _call: Any
    _codes: Codes
    _kernel_times: KernelTimes
    _diagnoses: Diagnoses

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The regions with their selectors and configs."""

    @property
    @abstractmethod
    def results(self) -> Results:
        """The tables, pictures and texts of all results so far."""

    def code(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        target: str | None = None,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
    ) -> RegionCode:
        """Return the generated code of a region, each kernel linked to the nodes and lines it computes.

        What the kernels are is found out when first asked for: Inductor lowers each distinct partition once more,
        without compiling it. From then on the session has it. With ``config`` or ``target`` nothing needs to have been
        compiled: that code is generated and not run.

        Args:
            name: the region.
            config: changes to the region's config, to see the code it would have: ``ex.code("mlp").diff(…)``.
            target: a GPU that need not be here, to see its Triton code: h100, b200, a100, l4 or mi300x.
            cancelled: called between partitions; if it returns True the rest is left out.
            progress: called with what is being done and the fraction done.

        Raises:
            UnknownRegionError: there is no such region.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: ``config`` is invalid.
            InvalidArgumentError: there is no such target.
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
            ClosedError: the exploration is closed, and only the code of its artifacts is kept.
        """
        run = RunContext.checked(cancelled, progress)
        region = self.plan[name].name
        gpu = None if target is None else gpu_target(target)
        if config is None and gpu is None:
            if self._call is not None:
                self._codes.look_at(region, run)
            return self.results.code(name)
        changes = {} if config is None else config
        configured(self.plan, region, changes)
        self._require_open()
        found = self._codes.under(region, changes, gpu, run)
        return RegionCode.under(self.results.session, region, changes, gpu, found)

    def kernel_times(
        self,
        name: str,
        budget_s: float = 2.0,
        *,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> pd.DataFrame:
        """Time each kernel of a region in place, and return the kernels, most wasted time first.

        The generated code of each distinct partition is loaded once more, with a clock around every launch, and runs on
        inputs recorded from the call. The timings of regions and variants never come from it. ``wasted_us`` is the time
        beyond the bound: that of copying as many bytes on this machine, or of a matrix product of its size.

        Args:
            name: the region; it must have been compiled.
            budget_s: seconds to measure, divided among its distinct partitions.
            cancelled: called between rounds; what was measured before is kept.
            progress: called with what is being done and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            UnknownRegionError: there is no such region.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed; ``ex.results.kernel_times(name)`` has what was measured.
        """
        self._require_open()
        run = RunContext.checked(cancelled, progress, executor)
        budget = BenchmarkOptions(budget_s=budget_s).budget_s
        self.code(name, cancelled=cancelled, progress=progress)
        self._kernel_times.measure(name, self._codes.found, budget, run)
        return self.results.kernel_times(name)

    def diagnose(
        self,
        name: str,
        budget_s: float = 4.0,
        *,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> list[Diagnostic]:
        """Return why a region is fast or slow, as far as its kernels tell; ``diagnostics`` has it from then on.

        That is ``kernel-bound``, ``launch-bound`` or ``op-recomputed``, or nothing. A remedy is compiled and measured
        against the region as it is before it is offered.

        Args:
            name: the region; it must have been compiled.
            budget_s: seconds to measure: half of it the kernels, half of it remedies.
            cancelled: called between rounds; if it returns True there are no findings.
            progress: called with what is being done and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            UnknownRegionError: there is no such region.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed.
        """
        run = RunContext.checked(cancelled, progress, executor)
        half_s = BenchmarkOptions(budget_s=budget_s).budget_s / 2
        self.kernel_times(name, half_s, cancelled=cancelled, progress=progress, executor=executor)
        parts = self.results.code(name).partitions
        times = self._kernel_times.found
        return list(self._diagnoses.look_at(name, parts, times, half_s, run))

    @abstractmethod
    def _require_open(self) -> None:
        """Raise ClosedError once the exploration is closed."""
