"""``ex.code``, ``ex.stages``, ``ex.kernel_times`` and ``ex.diagnose``: views of the generated code."""

from __future__ import annotations

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
from regional_explorer.errors import NotCompiledError
from regional_explorer.exploration.live import Live
from regional_explorer.exploration.results import Results
from regional_explorer.export.shown_diagnostics import DiagnosticList
from regional_explorer.insight.code import RegionCode
from regional_explorer.insight.no_code import why_no_code
from regional_explorer.insight.region_stages import RegionStages
from regional_explorer.measure.timing.benchmark_options import BenchmarkOptions
from regional_explorer.record.gpu_targets import gpu_target

if TYPE_CHECKING:
    import pandas as pd


class CodeViews:
    """Shows and measures the code that Inductor generates for the regions of an exploration."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def _results(self) -> Results:
        return Results(self._live.session)

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

        The kernels are determined on the first call: Inductor lowers each distinct partition once more, without
        compiling it. From then on the session has them. With ``config`` or ``target`` nothing needs to have been
        compiled: that code is generated and not run.

        Args:
            name: the region.
            config: changes to the region's config, to see the code it would give: ``ex.code("mlp").diff(…)``.
            target: a GPU, which this machine need not have, to see its Triton code: h100, b200, a100, l4 or mi300x.
            cancelled: called between partitions; if it returns True the remaining ones are left out.
            progress: called with the current task and the fraction done.

        Raises:
            UnknownRegionError: there is no such region.
            NotCompiledError: it is not compiled or has changed since, and neither ``config`` nor ``target`` is given.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: ``config`` is invalid.
            InvalidArgumentError: there is no such target.
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
            ClosedError: the exploration is closed, and only the code of its artifacts is kept.
            BusyError: ``config`` or ``target`` is given while another thread, such as a job of the panel, measures.
        """
        run = RunContext.checked(cancelled, progress)
        region = self._live.program.plan[name].name
        gpu = None if target is None else gpu_target(target)
        if config is None and gpu is None:
            if self._live.is_open:
                with run.interrupts.raised_at_the_end():
                    self._live.codes.read(region, run)
            region_code = self._results.code(name)
            if not region_code.partitions and not run.cancelled():
                raise NotCompiledError(why_no_code(self._live.session, region))
            return region_code
        changes = {} if config is None else config
        configured(self._live.program.plan, region, changes)
        exclusive_use = self._live.exclusive_use
        with exclusive_use.compiling(run) as may_begin:
            self._live.require_open()
            if not may_begin:
                return RegionCode.under(self._live.session, region, changes, gpu, {})
            # An edit of another thread in between would bring partitions whose layouts are not recorded.
            with exclusive_use.editing():
                self._live.program.record_layouts()
                changed, session = self._live.codes.changed(region, changes), self._live.session
            codes = self._live.codes.under(region, changed, gpu, run)
        return RegionCode.under(session, region, changes, gpu, codes)

    def stages(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        target: str | None = None,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
    ) -> RegionStages:
        """Return the stages of a region, with a picture of each and a description of its changes.

        The stages are Dynamo's graph, AOTAutograd's forward or backward, the partition, the graph after Inductor's
        passes, and Inductor's output: as a graph if it is Triton code, else the kernels. ``.follow("gelu")`` follows a
        node through all of them.

        Args:
            name: the region.
            config: changes to the region's config, as in ``code``.
            target: a GPU, which this machine need not have, as in ``code``.
            cancelled: called between partitions; if it returns True the remaining ones are left out.
            progress: called with the current task and the fraction done.

        Raises:
            UnknownRegionError: there is no such region.
            NotCompiledError: it is not compiled or has changed since, and neither ``config`` nor ``target`` is given.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: ``config`` is invalid.
            InvalidArgumentError: there is no such target.
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
            ClosedError: the exploration is closed, and only the code of its artifacts is kept.
        """
        region_code = self.code(name, config=config, target=target, cancelled=cancelled, progress=progress)
        return RegionStages.of(self._results.session, region_code, needed=not cancelled())

    def kernel_times(
        self,
        name: str,
        budget_s: float = 2.0,
        *,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> pd.DataFrame:
        """Time each kernel of a region inside its generated code; return one row each, most wasted time first.

        The generated code of each distinct partition is loaded again, with a clock around every launch, and runs on
        inputs recorded from the call. The timings of regions and variants do not come from this run. ``wasted_us`` is
        the time beyond the bound: that of copying as many bytes on this machine, or of a matrix product of its size.
        Only kernels on the CPU are timed; a partition on another device has a ``problem`` instead.

        Args:
            name: the region; it must have been compiled.
            budget_s: seconds to measure, divided among its distinct partitions.
            cancelled: called between rounds; if it returns True the run stops and keeps its results.
            progress: called with the current task and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            UnknownRegionError: there is no such region.
            NotCompiledError: it is not compiled or has changed since.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed; ``ex.results.kernel_times(name)`` has what was measured.
            BusyError: another thread, such as a job of the panel, measures.
        """
        run = RunContext.checked(cancelled, progress, executor)
        budget = BenchmarkOptions(budget_s=budget_s).budget_s
        with self._live.exclusive_use.measuring("kernel_times", run) as may_begin:
            self._live.require_open()
            if may_begin:
                self.code(name, cancelled=run.cancelled, progress=progress)
                self._live.kernel_times.measure(name, self._live.codes.found, budget, run)
        return self._results.kernel_times(name)

    def diagnose(
        self,
        name: str,
        budget_s: float = 4.0,
        *,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
    ) -> DiagnosticList:
        """Return why a region is fast or slow, as far as its kernels show; ``diagnostics`` has it from then on.

        The findings are ``kernel-bound``, ``launch-bound``, ``op-recomputed`` or ``fusion-refused``, or none. A remedy
        is compiled and measured against the current region before it is suggested. The first two come from the times of
        kernels, so they are found on the CPU only.

        Args:
            name: the region; it must have been compiled.
            budget_s: seconds to measure: half of it the kernels, half of it remedies.
            cancelled: called between rounds; if it returns True there are no findings.
            progress: called with the current task and the fraction done.
            executor: runs timed and untimed work on the right threads.

        Raises:
            UnknownRegionError: there is no such region.
            NotCompiledError: it is not compiled or has changed since.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        run = RunContext.checked(cancelled, progress, executor)
        half_s = BenchmarkOptions(budget_s=budget_s).budget_s / 2
        with self._live.exclusive_use.measuring("diagnose", run) as may_begin:
            self._live.require_open()
            if not may_begin:
                return DiagnosticList()
            self.kernel_times(name, half_s, cancelled=run.cancelled, progress=progress, executor=executor)
            partitions = self._results.code(name).partitions
            times = self._live.kernel_times.found
            return DiagnosticList(self._live.diagnoses.diagnose(name, partitions, times, half_s, run))
