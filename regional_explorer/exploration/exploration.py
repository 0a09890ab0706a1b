"""The Exploration: one traced call, with its plan, artifacts, measurements and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

from regional_explorer.compiler.config.validate import check_plan
from regional_explorer.compiler.partition_records import preview_of
from regional_explorer.compiler.run_context import (
    SAME_THREAD,
    Executor,
    ProgressCallback,
    RunContext,
    never_cancelled,
    no_progress,
)
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.errors.arguments import check_flag
from regional_explorer.exploration.code_views import CodeViews
from regional_explorer.exploration.edits import Draft, edit_of_plan
from regional_explorer.exploration.exports import Exports
from regional_explorer.exploration.live import Live, delegate
from regional_explorer.exploration.profiling import Profiling
from regional_explorer.exploration.results import Results, ResultTable
from regional_explorer.exploration.retrace import retrace
from regional_explorer.exploration.rooflines import Rooflines
from regional_explorer.exploration.viewer import open_panel
from regional_explorer.export.compare import compare_frame
from regional_explorer.export.save import save
from regional_explorer.export.shown_diagnostics import DiagnosticList
from regional_explorer.measure.timing.clock import Clock
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.plan import Plan
from regional_explorer.record.preview import Preview
from regional_explorer.record.session import Session
from regional_explorer.record.variant_name import BY_DEFAULT
from regional_explorer.render.report.shown_frame import ShownFrame

if TYPE_CHECKING:
    import graphviz
    import pandas as pd


class Exploration:
    """One call and its trace: its graphs, regions, artifacts and measurements. Made by ``explore``.

    ``results`` has the tables, pictures and texts of all results so far; the tables are also attributes of this class.
    ``live`` has the objects behind it: the call, its trace, and what compiles and measures.
    """

    regions = ResultTable()
    partitions = ResultTable()
    timings = ResultTable()
    numerics = ResultTable()
    compile_costs = ResultTable()
    caches = ResultTable()
    compile_times = ResultTable()
    memory = ResultTable()
    region_timings = ResultTable()
    partition_timings = ResultTable()
    region_numerics = ResultTable()
    reconciliation = ResultTable()
    op_times = ResultTable()

    mark = edit_of_plan(Draft.mark)
    unmark = edit_of_plan(Draft.unmark)
    rename = edit_of_plan(Draft.rename)
    merge = edit_of_plan(Draft.merge)
    split = edit_of_plan(Draft.split)
    carve = edit_of_plan(Draft.carve)
    uncarve = edit_of_plan(Draft.uncarve)
    disable = edit_of_plan(Draft.disable)
    enable = edit_of_plan(Draft.enable)
    configure = edit_of_plan(Draft.configure)
    reset = edit_of_plan(Draft.reset)

    retrace = retrace

    code = delegate(CodeViews, CodeViews.code)
    stages = delegate(CodeViews, CodeViews.stages)
    kernel_times = delegate(CodeViews, CodeViews.kernel_times)
    diagnose = delegate(CodeViews, CodeViews.diagnose)
    profile = delegate(Profiling, Profiling.profile)
    roofline = delegate(Rooflines, Rooflines.roofline)
    to_source = delegate(Exports, Exports.to_source)
    repro = delegate(Exports, Exports.repro)
    save_plan = delegate(Exports, Exports.save_plan)
    save_artifacts = delegate(Exports, Exports.save_artifacts)

    def __init__(self, live: Live) -> None:
        self.live = live

    @property
    def title(self) -> str:
        """The name of the function."""
        return self.live.title

    # ---------------------------------------------------------------------------------------------------------- plan

    @property
    def plan(self) -> Plan:
        """The regions with their selectors and configs."""
        return self.live.program.plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        check_plan(plan)
        with self.live.exclusive_use.editing():
            self.live.require_open()
            self.live.program.apply(plan)

    def draft(self) -> Draft:
        """Return a draft of the plan for edits: ``ex.preview(ex.draft().mark("mlp", modules="*.mlp").plan)``."""
        capture = self.live.capture
        return Draft(self.plan, capture.graphs, capture.breaks)

    def preview(self, plan: Plan) -> Preview:
        """Return the partitions and diagnostics that a plan would give, without applying it.

        Raises:
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of the plan is invalid.
        """
        self.live.require_open()
        check_plan(plan)
        return preview_of(self.live.program, plan)

    # ------------------------------------------------------------------------------------------- compile and measure

    def compile(
        self,
        *,
        cold: bool = False,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
    ) -> pd.DataFrame:
        """Compile the stale partitions; return one row per partition that was compiled or failed, with its cost.

        A region that fails to compile gets a diagnostic and runs eagerly; the others are compiled. Artifacts compiled
        before an interrupt are kept. Compiles on other threads finish first: torch allows one at a time per process.
        ``caches`` has the cache hits and misses, ``compile_times`` the compile time by phase.

        Args:
            cold: compile every partition, again if necessary, with empty caches, to see what the first compile costs.
                The caches on disk are left as they are; nor do they keep compiles of other threads during that time.
            cancelled: called between compiles; if it returns True the rest stays stale.
            progress: called with the current task and the fraction done.

        Raises:
            NoCompilerError: there is no C++ compiler.
            CompileEnvironmentError: with ``cold``, there is no room for empty caches.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("cold", cold)
        artifacts = self._compile_stale(RunContext.checked(cancelled, progress), cold=cold)
        report = self.partitions
        chosen = report["compile_s"].notna() & report["artifact"].isin(artifacts) | (report["state"] == "failed")
        return ShownFrame(report[chosen])

    def _compile_stale(self, run: RunContext, *, cold: bool = False) -> set[str]:
        """Compile the stale partitions; return the keys of the new artifacts."""
        with self.live.exclusive_use.compiling(run) as may_begin:
            self.live.require_open()
            return self.live.compiling.compile_stale(run, cold=cold) if may_begin else set()

    @property
    def compiled(self) -> Callable[..., Any]:
        """The call's function compiled under the plan; stale partitions are compiled first.

        For other shapes or dtypes it is traced again under the same plan; new partitions run eagerly until the next
        ``compile()``, with a warning.
        """
        self._compile_stale(RunContext.checked())
        return self.live.capture.run

    def benchmark(
        self,
        variants: Sequence[str] = BY_DEFAULT,
        budget_s: float = 5.0,
        *,
        regions: bool = True,
        cancelled: Callable[[], bool] = never_cancelled,
        progress: ProgressCallback = no_progress,
        executor: Executor = SAME_THREAD,
        clock: Clock[Any] | None = None,
    ) -> pd.DataFrame:
        """Compile stale partitions, check the numerics, measure, and return ``timings``.

        With ``regions`` each distinct partition is also measured alone, compiled against eager, on inputs recorded
        from the call: see ``region_timings``, ``partition_timings``, ``region_numerics``, and ``reconciliation`` for
        how the regions add up to the whole. That takes half of the budget in addition, divided among the distinct
        partitions and a run that measures the cost of dispatching the cut graph. ``memory`` has the peak memory of
        each variant.

        Args:
            variants: some of eager, aot_eager, regional and full, and what the marks alone give: upstream (under
                torch's ``regional_inductor``) and lite (under ``torch.compile(mode="lite")``). Eager is always
                included. Without a region ``regional`` equals ``aot_eager`` and is left out if that is measured.
            budget_s: seconds to measure the variants, without compile time.
            regions: whether to measure regions alone too; requires the variant ``regional``.
            cancelled: called between compiles and samples; if it returns True the run stops and keeps its results, as
                it does when interrupted.
            progress: called with the current task and the fraction done.
            executor: runs timed and untimed work on the right threads.
            clock: times the calls and the budget; the device's by default.

        Raises:
            MeasureError: the budget or a variant is invalid, or nothing could be measured.
            BusyError: another thread, such as a job of the panel, measures.
        """
        run = RunContext.checked(cancelled, progress, executor)
        with self.live.exclusive_use.measuring("benchmark", run) as may_begin:
            self.live.require_open()
            if may_begin:
                with self.live.capture.generated.collected():
                    self.live.benchmarks.run(
                        variants,
                        budget_s,
                        regions=regions,
                        run=run,
                        clock=clock,
                        session=lambda: self.session,
                    )
        return self.timings

    # ------------------------------------------------------------------------------------------------------- results

    @property
    def session(self) -> Session:
        """The frozen record of all results so far; after ``close`` the last one."""
        return self.live.session

    @property
    def results(self) -> Results:
        """The tables, pictures and texts of all results so far."""
        return Results(self.session)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The diagnostics, most severe first: a list that a notebook shows as a table."""
        return DiagnosticList(self.session.diagnostics)

    @property
    def runs(self) -> tuple[Session, ...]:
        """The sessions of the last benchmark of each plan, in the order they were measured; also of earlier traces."""
        return self.live.benchmarks.runs

    @property
    def history(self) -> pd.DataFrame:
        """One row per measured plan: step times, speedup, compile time, and how the plans differ."""
        return compare_frame(self.runs)

    def graph(self, graph_id: str | None = None) -> graphviz.Digraph:
        """Return the graphs, or the one called ``graph_id``, drawn with regions as coloured clusters."""
        return self.results.graph(graph_id)

    def save(self, path: str | Path) -> Path:
        """Write everything to a ``.json``, ``.html`` (an interactive page), ``.svg`` or ``.csv`` file."""
        return save(self.session, path, self.runs)

    def show(self, *, widget: bool = True) -> None:
        """Open the panel in the notebook; with ``widget=False`` show only tables and pictures.

        Raises:
            MissingPackageError: the packages of the notebook extra are not installed.
        """
        check_flag("widget", widget)
        open_panel(self, widget=widget)

    def __repr__(self) -> str:
        """Return the session as plain text."""
        return repr(self.results)

    def _repr_mimebundle_(self, **wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        return self.results._repr_mimebundle_(**wanted)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise RegionalExplorerError: the traced call cannot leave this process, so it cannot be copied or pickled."""
        raise RegionalExplorerError(
            "An exploration cannot be copied or pickled. To try other plans use ex.draft() and ex.preview(plan), or "
            "make another with rx.explore(fn, args, plan=ex.plan); ex.save('x.json') saves the results."
        )

    def __enter__(self) -> Self:
        """Return the exploration, which is closed at the end of the ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the exploration."""
        self.close()

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable; nothing can be run after that.

        Raises:
            BusyError: a measurement is running.
        """
        self.live.close()
