"""``rx.explore`` and the Exploration that it returns: the methods ``ex.…`` that trace, compile and measure."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, SupportsIndex

from msgspec.structs import replace

from regional_explorer.capture.call import Call, check_call, check_options
from regional_explorer.compiler.artifact_folder import folder_at
from regional_explorer.compiler.compilation import compile_plan
from regional_explorer.compiler.partition_records import preview_of
from regional_explorer.compiler.program import stacklevel_of_caller
from regional_explorer.compiler.progress_line import reporting
from regional_explorer.compiler.region_config import check_plan, configured
from regional_explorer.compiler.run import PLAIN_RUN, Run, check_run, interruptible
from regional_explorer.compiler.workers import AnyExecutor, checked_executor
from regional_explorer.diagnostics.measured import plan_diagnostics, slower_speeds, wrong_plan_diagnostic
from regional_explorer.errors import (
    ArtifactError,
    InvalidArgumentError,
    NotCompiledError,
    RegionalExplorerError,
    check_argument,
    check_callable,
    check_flag,
    misplaced_arguments,
    require_notebook,
    user_facing,
    user_facing_methods,
)
from regional_explorer.exploration.edits import Draft, Edits
from regional_explorer.exploration.exclusive_use import ExclusiveUse
from regional_explorer.exploration.live import Live, collect_dropped
from regional_explorer.exploration.results import (
    FloorResult,
    RegionCode,
    RegionStages,
    Results,
    TuningResult,
    save,
    why_no_code,
)
from regional_explorer.export.to_source import source_patch
from regional_explorer.insight.diagnose import diagnose
from regional_explorer.insight.kernel_times import measure_kernel_times
from regional_explorer.measure.profile import profile
from regional_explorer.measure.rounds import StopReason, check_budget
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.expected import expected_plan_s
from regional_explorer.record.files import load_plan_file, save_plan
from regional_explorer.record.gpu_targets import gpu_target
from regional_explorer.record.partition import Preview, State
from regional_explorer.record.plan import AS_UPSTREAM, CutRule, Plan, Tracing, checked_tracing, the_region
from regional_explorer.record.plan_file import ExplorationRecord, PlanFile
from regional_explorer.record.session import Session
from regional_explorer.tables.frame import ShownFrame
from regional_explorer.tables.plan import DiagnosticList, runs_table
from regional_explorer.tables.profile import profile_table
from regional_explorer.tables.tuning import SuggestionList, gain_parts_table
from regional_explorer.torch_api.dynamo import original_module
from regional_explorer.tuning.budget import checked_limits
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.ledger import Ledger, default_path

if TYPE_CHECKING:
    import pandas as pd


@user_facing_methods
class Exploration(Edits, Results):
    """One call and its trace: its graphs, regions, artifacts and measurements. Made by ``explore``.

    ``results`` has the tables, pictures and texts of all results so far; the tables are also attributes of this class.
    ``live`` has the objects behind it: the call, its trace, and the objects that compile and measure. All work on them
    needs a turn of ``exclusive_use``.
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.exclusive_use = ExclusiveUse()
        self.displayed: Plan | None = None
        """The plan that the running cell has displayed: its results are not displayed again as the cell's value."""

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
        if plan.tracing != self.plan.tracing:
            self._retrace(plan.tracing, lambda _: plan, dynamic=self.live.capture.dynamic)
        else:
            self._edit_plan(lambda _: plan)

    def _edit_plan(self, change: Callable[[Draft], Plan]) -> Self:
        # The lock spans reading and replacing the plan: an edit of another thread in between would be lost.
        with self.exclusive_use.editing():
            self.live.require_open()
            self.live.program.apply(change(self.draft()))
        return self

    def apply(self, what: Diagnostic | Action, **filled: Any) -> Any:
        """Make the call of a diagnostic's remedy, and return its result.

        ``ex.apply(ex.diagnostics[0])`` makes the only action of a diagnostic, ``ex.apply(finding.actions[1])`` one of
        several. An edit of the plan can be undone like any other.

        Args:
            what: a diagnostic, or one of its ``actions``.
            filled: the argument that stands as ``…`` in the text of the action.

        Raises:
            InvalidArgumentError: a diagnostic has no action or several, or the argument for ``…`` is missing.
            RegionalExplorerError: as the called method.
        """
        action = self._action(what)
        if action.needs and action.needs not in filled:
            raise InvalidArgumentError(f"{action} needs {action.needs}: ex.apply(action, {action.needs}=…).")
        keywords = {**action.keywords, **filled}
        if action.kind is ActionKind.LOOK:
            return getattr(self, keywords["table"])
        if action.kind is ActionKind.CUT:
            self.plan = replace(self.plan, cut=CutRule(keywords.get("cut", CutRule.INSTANCES)))
            return self
        return getattr(self, action.kind)(*action.positional, **keywords)

    @staticmethod
    def _action(what: Diagnostic | Action) -> Action:
        check_argument("what", what, (Diagnostic, Action), "a diagnostic of ex.diagnostics, or one of its actions")
        if isinstance(what, Action):
            return what
        if len(what.actions) != 1:
            calls = "; ".join(f"ex.apply(finding.actions[{i}]) for {action}" for i, action in enumerate(what.actions))
            why = (
                f"{what.code} advises several actions: {calls}."
                if calls
                else f"{what.code} has no action to apply. {what.remedy}"
            )
            raise InvalidArgumentError(why)
        return what.actions[0]

    def draft(self) -> Draft:
        """Return a draft of the plan for edits: ``ex.preview(ex.draft().mark("mlp", modules="*.mlp").plan)``."""
        capture = self.live.capture
        return Draft(self.plan, capture.graphs, capture.breaks)

    def preview(self, plan: Plan) -> Preview:
        """Return the partitions and diagnostics that a plan would give, without applying it.

        Raises:
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of the plan is invalid.
        """
        live = self.live
        live.require_open()
        check_plan(plan)
        return preview_of(live.program, plan)

    @contextmanager
    def _turn(self, run: Run, measuring: str = "") -> Iterator[Run]:
        """Context manager: the turn to trace, compile or measure, with a line of progress; see ``ExclusiveUse.turn``.

        Raises:
            ClosedError: the exploration is closed.
            BusyError: another thread measures.
        """
        check_run(run)
        with reporting(run) as run, self.exclusive_use.turn(run, measuring) as run:
            self.live.require_open()
            yield run

    @contextmanager
    def _search(self, method: str, run: Run) -> Iterator[tuple[Run, Callable[[bool], AbstractContextManager[None]]]]:
        """Context manager: yield a run, and a function to take the turn for a step; see ``ExclusiveUse.searching``.

        Raises:
            ClosedError: the exploration is closed.
            BusyError: another search is under way.
        """
        check_run(run)
        with reporting(run) as run, interruptible(run) as run, self.exclusive_use.searching(method):
            self.live.require_open()
            yield run, lambda measuring: self.exclusive_use.step(run, method if measuring else "")

    def retrace(
        self,
        *,
        dynamic: bool | None = None,
        tracing: Tracing | None = None,
        run: Run = PLAIN_RUN,
    ) -> Self:
        """Trace the call again, with other shapes or in another way, under the same regions.

        ``runs`` and ``history`` keep the measured results; artifacts that fit the new graphs are not compiled again.
        Nodes may have other names now: a region that was marked by names and gets other ops is reported as
        ``plan-differs``, a region that gets none as ``region-empty``. Functions that ``compiled`` returned before raise
        ClosedError.

        Args:
            dynamic: as in ``torch.compile``: False for static shapes, True for dynamic, None for automatic.
            tracing: how the call is traced; None for the same way as before.
            run: can be cancelled before and after the trace; then the exploration stays as it is.

        Raises:
            InvalidArgumentError: an argument has the wrong type.
            CaptureError: the call cannot be traced like that; the exploration stays as it is.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("dynamic", dynamic, optional=True)
        way = checked_tracing(tracing, self.plan.tracing)
        self._retrace(way, lambda plan: plan.traced(way), run, dynamic=dynamic)
        return self

    def _retrace(
        self, tracing: Tracing, change: Callable[[Plan], Plan], run: Run = PLAIN_RUN, *, dynamic: bool | None
    ) -> None:
        """Replace the trace with a new trace, and the plan with the result of ``change`` for the current plan."""
        self.exclusive_use.refuse_while_searching("traced again")
        with self._turn(run) as run:
            if run.cancelled():
                return
            run.progress("tracing the call again", 0.0)
            retraced = self.live.retraced(tracing, dynamic=dynamic)
            if run.cancelled():
                retraced.free_trace()
                return
            with self.exclusive_use.editing():
                retraced.follow(self.live, change(self.live.program.plan))
                earlier, self.live = self.live, retraced
                retraced.take_over(earlier)

    # ------------------------------------------------------------------------------------------- compile and measure

    def compile(self, *, cold: bool = False, run: Run = PLAIN_RUN) -> pd.DataFrame:
        """Compile the stale partitions; return one row per partition that was compiled or failed, with its cost.

        A region that fails to compile gets a diagnostic and runs eagerly; the others are compiled. Artifacts compiled
        before an interrupt are kept. Compiles on other threads finish first: torch allows one at a time per process.
        ``compile_costs`` has the time by phase and what Inductor's cache answered, ``patterns`` how often each pattern
        of its passes matched.

        Args:
            cold: compile every partition with empty caches, even if it is compiled already, to see what the first
                compile costs. The caches on disk do not change; compiles of other threads are not cached meanwhile.
            run: can be cancelled between compiles; the other partitions stay stale.

        Raises:
            NoCompilerError: there is no C++ compiler.
            CompileEnvironmentError: with ``cold``, there is no room for empty caches.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("cold", cold)
        with self._turn(run) as run:
            run.estimate(expected_plan_s(self.session))
            artifacts = set() if run.cancelled() else compile_plan(self.live.program, run, cold=cold)
            if cold:  # otherwise no artifact is replaced
                self.live.insights.forget_replaced()
        report = self.partitions
        chosen = report["compile_s"].notna() & report["artifact"].isin(artifacts) | (report["state"] == "failed")
        return ShownFrame(report[chosen])

    @property
    def compiled(self) -> Callable[..., Any]:
        """The call's function compiled under the plan; stale partitions are compiled first.

        For other shapes or dtypes it is traced again under the same plan; new partitions run eagerly until the next
        ``compile()``, with a warning.
        """
        with self._turn(PLAIN_RUN) as run:
            compile_plan(self.live.program, run)
            return self.live.capture.run

    def benchmark(
        self,
        variants: Sequence[str] | None = None,
        budget_s: float = 5.0,
        *,
        regions: bool = True,
        more: bool = False,
        run: Run = PLAIN_RUN,
    ) -> pd.DataFrame:
        """Compile stale partitions, check the numerics, measure, and return ``timings``.

        With ``regions`` each distinct partition is also measured alone, compiled against eager, on inputs recorded
        from the call: see ``regions``, ``partitions``, ``region_numerics``, and ``reconciliation`` for how the
        regions add up to the whole. That takes half of the budget in addition, divided among the distinct
        partitions and a run that measures the cost of dispatching the cut graph. The columns ``peak_…`` of
        ``timings`` have the peak memory of each variant.

        Args:
            variants: some of eager, aot_eager, regional and full, or of the two that run the marks alone: upstream
                (torch's ``regional_inductor``) and lite (``torch.compile(mode="lite")``). Eager is always included. If
                nothing is cut out, all but eager and full equal ``aot_eager``, so they are left out if that is
                measured. The default is eager, aot_eager, regional and full; with ``more`` it is what the last
                benchmark of this plan compared. Before full is compiled, the others are measured without it; by
                default it is left out where its time is known from before a retrace.
            budget_s: seconds to measure the variants; compile time comes on top.
            regions: whether to measure regions alone too; requires the variant ``regional``.
            more: whether to add rounds to those of the last benchmark of this plan, so that two benchmarks of 30 s say
                as much as one of 60 s. Nothing else is measured or checked again.
            run: can be cancelled between compiles and samples; the results so far are kept, also after an interrupt.

        Raises:
            MeasureError: the budget or a variant is invalid, or nothing could be measured; or with ``more``, the last
                benchmark compared other variants, ran under other settings or on another number of threads, or has
                too few undisturbed rounds.
            BusyError: another thread, such as a job of the panel, measures.
        """
        with self._turn(run, "benchmark") as run:
            self.live.benchmark(variants, budget_s, run, regions=regions, more=more)
        timings: pd.DataFrame = self.timings
        return timings

    def tune(  # noqa: PLR0913 - each is a choice or a limit of the search
        self,
        budget_s: float = 120.0,
        *,
        numerics: str = "close",
        max_memory: int | None = None,
        max_compile_s: float | None = None,
        keys: Sequence[Mapping[str, Any]] | None = None,
        ledger: str | Path | None = None,
        executor: AnyExecutor = 0,
        apply: bool = False,
        run: Run = PLAIN_RUN,
    ) -> TuningResult:
        """Search for the plan that makes the call fastest, and return it with all tries.

        First, the whole graph is one region, traced in every sensible way; the best of these get C++ wrappers and other
        configs. Then come the current plan traced in these ways, the regions that ``suggest`` names, and configs for
        each region of the best plan. Plans are checked against eager before they are timed; plans with equal code are
        timed once. At the end the best plans, eager, plain ``torch.compile`` and the current plan take turns in one
        run, whose figures are the result. If no plan is faster beyond doubt, the result says so.

        The current plan stays unless ``apply`` is given. ``ex.plan = result.plan`` applies the best plan; to go back,
        keep ``ex.plan`` before. The current plan is the one at the beginning: between two races the exploration can be
        edited and compiled, but not traced again or closed.

        Args:
            budget_s: seconds for everything, compiles included; a step that cannot be cancelled is completed.
            numerics: ``"close"`` for results that pass the numerics check, ``"bitwise"`` for results equal to eager's
                bit by bit.
            max_memory: the most bytes that a plan needs, its peak and the frozen weights in its code together; by
                default its peak is at most eager's, and frozen weights do not count.
            max_compile_s: the most seconds of a plan's compile.
            keys: configs to try, such as ``[{"max_fusion_size": 8}]``; by default those that are known to matter.
            ledger: the file that remembers tries, so that no later search repeats them; by default a file beside
                Inductor's cache.
            executor: the processes that compile, so that a crash, a hang or too much memory costs only one plan: a
                number of processes to start, or any ``concurrent.futures.Executor``, such as ``Client.get_executor()``
                of Dask. By default this process, which checks and times all plans in any case.
            apply: whether the best plan becomes the plan of the exploration.
            run: can be cancelled between tries and rounds; the tries so far are kept, also after an interrupt.

        Raises:
            MeasureError: the budget is invalid, or nothing can be measured.
            InvalidArgumentError: another argument is invalid.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of ``keys`` is invalid.
            NoCompilerError: there is no C++ compiler.
            BusyError: another search is under way, or another thread, such as a job of the panel, measures.
            Exception: an unexpected error; its note gives the best plan so far, and ``ex.tuning`` has the tries.
        """
        check_flag("apply", apply)
        device = self.live.environment.device_type
        ops = {op.op for graph in self.live.capture.graphs for op in graph.ops}
        limits = checked_limits(budget_s, numerics, max_memory, max_compile_s, keys, device, ops)
        book = Ledger(default_path() if ledger is None else ledger)
        crew = Crew(checked_executor(executor))
        with self._search("tune", run) as (run, turn):
            self.live.tune(limits, book, crew, run, turn)
        tuning = self.live.tuning
        assert tuning is not None  # noqa: S101 - else the search has raised
        if apply and tuning.plan is not None:
            self.plan = tuning.plan
        modes = self.live.capture.modes_of_calls()[0]
        explored = ExplorationRecord(self.live.title, self.live.environment, self.live.call.grad, modes=modes)
        return TuningResult(tuning, explored)

    def waterfall(self, budget_s: float = 60.0, *, run: Run = PLAIN_RUN) -> pd.DataFrame:
        """Measure what each change of the plan that ``tune`` found saves of the time of ``torch.compile``.

        The plan is compiled without its way of tracing, and without each of its keys. All of these, the plan and
        ``torch.compile`` are timed in turns. ``together`` is what the changes save beyond the sum.

        Args:
            budget_s: seconds for everything; changes that do not fit in are part of ``together``.
            run: can be cancelled between steps; then the earlier result stays.

        Raises:
            MeasureError: ``tune`` has found no plan, or it cannot be measured.
            BusyError: another search is under way, or another thread, such as a job of the panel, measures.
        """
        check_budget(budget_s)
        with self._search("waterfall", run) as (run, turn):
            self.live.take_gain_apart(budget_s, run, turn)
        return gain_parts_table(self.live.session).dataframe()

    def suggest(self, budget_s: float | None = None, *, run: Run = PLAIN_RUN) -> SuggestionList:
        """Suggest regions: repeated modules, chains between matrix products, norms, the loss, the whole graph.

        They follow from the graphs, and from ``ex.profile()`` if it was run. Without a budget nothing is compiled or
        run: suggestions that were measured before come first, and the order of the others is a guess. With a budget
        each suggestion is compiled and checked as the only region, and the call is timed with and without it: the
        saving includes the cost of the cut.
        Nothing is marked: ``ex.mark(suggestion.name, *suggestion.selectors)`` does that.

        Args:
            budget_s: seconds for compiling and measuring; suggestions that do not fit in keep their guess.
            run: can be cancelled between steps; ``suggest()`` keeps the figures so far, also after an interrupt.

        Raises:
            MeasureError: the budget is invalid.
            NoCompilerError: there is no C++ compiler.
            BusyError: a search is under way, or another thread, such as a job of the panel, measures.
        """
        suggestions = super().suggest()
        if budget_s is None:
            return suggestions
        check_budget(budget_s)
        with self._search("suggest", run) as (run, turn):
            self.live.measure_suggestions(suggestions, budget_s, run, turn)
        return super().suggest()

    # --------------------------------------------------------------------------------------------- code, time and floor

    def code(
        self,
        name: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        target: str | None = None,
        run: Run = PLAIN_RUN,
    ) -> RegionCode:
        """Return the generated code of a region, each kernel linked to the nodes and lines it computes.

        The first call finds the kernels: Inductor lowers each distinct partition once more, without compiling it. From
        then on the session has them. With ``config`` or ``target`` the region need not be compiled: the code is
        generated and not run.

        Args:
            name: the region; it can be left out if there is only one.
            config: changes to the region's config, to see the code they would give: ``ex.code("mlp").diff(…)``.
            target: a GPU, which this machine need not have, to see its Triton code: h100, b200, a100, l4 or mi300x.
            run: can be cancelled between partitions; the remaining partitions are left out.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: the region is not compiled or has changed since, and ``config`` and ``target`` are
                missing.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: ``config`` is invalid.
            InvalidArgumentError: there is no such target.
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
            ClosedError: the exploration is closed, and only the code of its artifacts is kept.
            BusyError: ``config`` or ``target`` is given while another thread, such as a job of the panel, measures.
        """
        region = the_region(self.plan, name).name
        gpu = None if target is None else gpu_target(target)
        if config is None and gpu is None:
            live = self.live
            check_run(run)
            with reporting(run) as run, interruptible(run) as run:
                if live.is_open:
                    live.insights.read(region, run)
            region_code = super().code(region)
            if not region_code.partitions and not run.cancelled():
                raise NotCompiledError(why_no_code(self.session, region))
            return region_code
        changes = {} if config is None else config
        configured(self.plan, region, changes)
        with self._turn(run) as run:
            live = self.live
            if run.cancelled():
                return RegionCode.under(live.session, region, changes, gpu, {})
            # An edit of another thread in between would bring partitions without recorded layouts.
            with self.exclusive_use.editing():
                live.program.record_layouts()
                changed, session = live.insights.wanted_under(region, changes), live.session
            codes = live.insights.codes_under(region, changed, gpu, run)
        return RegionCode.under(session, region, changes, gpu, codes)

    def stages(
        self,
        name: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        target: str | None = None,
        run: Run = PLAIN_RUN,
    ) -> RegionStages:
        """Return the stages of a region, with a picture of each and a description of its changes.

        The stages are Dynamo's graph, AOTAutograd's forward or backward, the partition, the graph after Inductor's
        passes, and Inductor's output: as a graph if it is Triton code, else the kernels. ``.follow("gelu")`` follows a
        node through all of them.

        Args:
            name: the region; it can be left out if there is only one.
            config: changes to the region's config, as in ``code``.
            target: a GPU, which this machine need not have, as in ``code``.
            run: can be cancelled between partitions; the remaining partitions are left out.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: the region is not compiled or has changed since, and ``config`` and ``target`` are
                missing.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: ``config`` is invalid.
            InvalidArgumentError: there is no such target.
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
            ClosedError: the exploration is closed, and only the code of its artifacts is kept.
        """
        region_code = self.code(name, config=config, target=target, run=run)
        return RegionStages.of(self.session, region_code, needed=not run.cancelled())

    def kernel_times(self, name: str | None = None, budget_s: float = 2.0, *, run: Run = PLAIN_RUN) -> pd.DataFrame:
        """Time each kernel inside the generated code of a region; return a row for each, most wasted time first.

        The generated code of each distinct partition is loaded again, with a clock around every launch, and runs on
        inputs recorded from the call. The timings of regions and variants do not come from this run. ``wasted_us`` is
        the time beyond the bound, which is the time to copy as many bytes on this machine, or to multiply matrices of
        that size. Only kernels on the CPU are timed; a partition on another device has a ``problem`` instead.

        Args:
            name: the region, which must have been compiled; all regions if left out.
            budget_s: seconds to measure, divided among the regions and their distinct partitions.
            run: cancelled between rounds; the results so far are kept.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: the region is not compiled or has changed since.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed; ``ex.results.kernel_times(name)`` has the measured times.
            BusyError: another thread, such as a job of the panel, measures.
        """
        budget = check_budget(budget_s)
        if name is None:
            with self._turn(run, "kernel_times") as run:
                for region, share_s, part in self._shares(budget, run):
                    self.kernel_times(region, share_s, run=part)
            return super().kernel_times()
        with self._turn(run, "kernel_times") as run:
            if not run.cancelled():
                self.code(name, run=run.part(0.0, 0.0, then_s=budget))
                measure_kernel_times(self.live.insights, name, budget, run)
        return super().kernel_times(name)

    def diagnose(self, name: str | None = None, budget_s: float = 4.0, *, run: Run = PLAIN_RUN) -> DiagnosticList:
        """Return why a region is fast or slow, as far as its kernels show; ``diagnostics`` has it from then on.

        There is always a ``region-time``: what the region's time consists of, and what was examined. There may be
        ``kernel-bound``, ``launch-bound``, ``op-recomputed`` and ``fusion-refused``, warnings of Inductor, and
        ``config-inert`` if its config changes nothing. A config is suggested only after it was compiled and measured
        against the current region. Only kernels on the CPU are timed.

        Args:
            name: the region, which must have been compiled; all regions if left out.
            budget_s: seconds to measure, divided among the regions: half for the kernels, half for the remedies.
            run: can be cancelled between rounds; then there are no findings.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: the region is not compiled or has changed since.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        half_s = check_budget(budget_s) / 2
        if name is None:
            with self._turn(run, "diagnose") as run:
                shares = self._shares(2 * half_s, run)
                of_all = [
                    finding for region, share_s, part in shares for finding in self.diagnose(region, share_s, run=part)
                ]
            return DiagnosticList(finding for finding in self.session.diagnostics if finding in of_all)
        name = self.plan[name].name
        with self._turn(run, "diagnose") as run:
            if run.cancelled():
                return DiagnosticList()
            self.code(name, run=run.part(0.0, 0.0, then_s=2 * half_s))
            measure_kernel_times(self.live.insights, name, half_s, run.part(0.0, 0.5, then_s=half_s))
            partitions = super().code(name).partitions
            findings = diagnose(self.live.insights, self.live.environment, name, partitions, half_s, run.part(0.5, 1.0))
            of_code = DiagnosticCode.INDUCTOR_WARNING, DiagnosticCode.CONFIG_INERT
            return DiagnosticList(
                finding
                for finding in self.session.diagnostics
                if finding in findings or (findings and finding.region == name and finding.code in of_code)
            )

    def _shares(self, budget_s: float, run: Run) -> Iterator[tuple[str, float, Run]]:
        """Yield each enabled region with its share of a budget and its part of a run."""
        states = State.STALE, State.COMPILED, State.MEASURED
        compiled = {part.region for part in self.session.partitions if part.state in states}
        plan = self.plan
        names = [region.name for region in plan.regions if region.name in compiled]
        if not names:  # the error about the first region says why there is no code
            names = [plan.regions[0].name if plan.regions else the_region(plan, None).name]
        for number, name in enumerate(names):
            share_s, later = budget_s / len(names), len(names) - number - 1
            yield name, share_s, run.part(number / len(names), (number + 1) / len(names), then_s=later * share_s)

    def profile(self, budget_s: float = 5.0, *, run: Run = PLAIN_RUN) -> pd.DataFrame:
        """Measure the eager time of every op of the captured graphs, and return where the time goes.

        Modules that are equal in all layers are one row, such as ``layers.*.mlp``; ``op_times`` has a row for each.

        Forward and backward run op by op, in rounds that alternate with an unmodified ``aot_eager``; the cost of timing
        an op is measured and subtracted. Nothing is compiled, and the plan does not matter.

        Args:
            budget_s: seconds to measure; one round may exceed them.
            run: can be cancelled between rounds; the results so far are kept, also after an interrupt.

        Raises:
            MeasureError: the budget is invalid, or the call runs no op of the captured graphs.
            BusyError: another thread, such as a job of the panel, measures.
        """
        budget = check_budget(budget_s)
        with self._turn(run, "profile") as run:
            live, profiled = self.live, None
            if not run.cancelled():
                environment = live.present_environment()
                profiled = profile(live.variants, budget, environment.device, run)
            if profiled is not None:
                live.profile = replace(profiled, environment=environment)
                if profiled.stopped == StopReason.INTERRUPTED:
                    raise KeyboardInterrupt
        return profile_table(self.session).dataframe()

    def floor(self, budget_s: float = 30.0, *, run: Run = PLAIN_RUN) -> FloorResult:
        """Return the least time that a call takes on this machine, and how much of it a better plan can save at most.

        Each product, such as a matrix product, counts with the least time in which any library computed it here, for
        these shapes, strides and dtypes. The ops between products count with the bytes that they have to move. A
        product is measured once; later processes on this machine read its time from a file.

        Args:
            budget_s: seconds to measure products whose time is not known yet; the remaining ones are left out.
            run: can be cancelled between products; the remaining ones are left out.

        Raises:
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed; ``ex.results.floor()`` has what was measured.
            BusyError: another thread, such as a job of the panel, measures.
        """
        budget = check_budget(budget_s)
        with self._turn(run, "floor") as run:
            self.live.measure_floor(budget, run)
        return super().floor()

    # -------------------------------------------------------------------------------------------------------- exports

    def to_source(self, *, apply: bool = False, run: Run = PLAIN_RUN) -> str:
        """Return the plan as a change of the source: a unified diff, and the new text of notebook cells.

        Regions become ``torch.fx.traceback.annotate`` around statements and functions. To check this, the call is
        traced again under the changed source, once or a few times: it must give the same partitions and configs. For a
        region that no annotation can express, the text says why, and has the calls that mark it.

        Args:
            apply: also write the files. Git must track them, without uncommitted changes; all are written or none.
            run: how to cancel the call, which leaves the source as it is, and where it reports.

        Raises:
            SourcePatchError: with ``apply``, a file is not tracked, has changes, is a cell, or cannot be written.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("apply", apply)
        with self._turn(run) as run:
            patch = source_patch(self.live.program, run)
        if apply:
            patch.apply()
        return "".join(f"# {finding.message}\n" for finding in _plan_warnings(self.live.session)) + str(patch)

    def save_plan(self, path: str | Path) -> Path:
        """Write the plan to a JSON file, for ``explore(..., plan=path)`` and ``rx.compile(fn, path)``.

        The file also has the call and the environment in which the plan was explored and measured. A warning is given
        if its results were wrong, if it was slower than eager or than ``torch.compile``, or if a search has found
        another plan, which ``ex.tune(…).save(path)`` writes. The file lists the SHA-256
        of its artifacts that ``ex.save_artifacts`` has written so far: ``rx.compile`` then loads no others. Passes and
        backends are saved by name.

        Raises:
            PlanError: the file cannot be written, or a pass or backend has no name by which it can be imported.
        """
        live = self.live
        session = live.session
        modes = live.capture.modes_of_calls()[0]
        explored = ExplorationRecord.of(session, modes)
        explored = replace(explored, slower=slower_speeds(session), wrong=session.plan_errors)
        keys = {partition.artifact for partition in session.partitions}
        artifacts = sorted({sha256 for key, sha256 in live.saved_artifacts.items() if key in keys})
        saved = save_plan(live.program.plan, path, explored, tuple(artifacts))
        texts = [f"{item.message} The plan was saved anyway. {item.remedy}" for item in _plan_warnings(session)]
        if (found := session.tuning and session.tuning.plan) and found != session.plan:
            texts.append(
                f"The plan at hand was saved, not the one that ex.tune found: {session.tuning.answer}. To save that "
                "one, apply it first: ex.plan = ex.session.tuning.plan."
            )
        for text in texts:
            warnings.warn(text, stacklevel=stacklevel_of_caller())
        return saved

    def save_artifacts(self, path: str | Path) -> Path:
        """Write the compiled partitions of the plan to a directory, for ``rx.compile(fn, plan, artifacts=path)``.

        Stale partitions are compiled first. A process that runs the same call under the same plan then starts without
        compiling, even on a machine without a compiler. Artifacts are code: loading them runs them. A plan that is
        saved afterwards lists them.

        Raises:
            ArtifactError: an artifact cannot be written, or torch cannot serialize it; the others are written. Or
                ``path`` is not a directory, or other users may write to it.
            NoCompilerError: there is no C++ compiler.
            BusyError: another thread, such as a job of the panel, measures.
        """
        with self._turn(PLAIN_RUN) as run:
            folder = folder_at(path)
            self.live.save_artifacts(folder, run)
        unsaved = [finding for finding in folder.findings if finding.code is DiagnosticCode.ARTIFACT_UNSAVED]
        if unsaved:
            raise ArtifactError(" ".join(finding.message for finding in unsaved))
        return folder.path

    def repro(self, name: str | None = None, *, partition: str | None = None) -> str:
        """Return torch's own script that compiles and checks one partition of a region, to attach to a bug report.

        The script needs only torch: it has the graph as code, the inputs by size, stride and dtype, and the requested
        config. A partition that Inductor cannot compile fails there as it does here. It need not be compiled.

        Args:
            name: the region; it can be left out if there is only one.
            partition: the id of one of its partitions; by default a failed one, else the first.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            ReproError: the region has no such partition, or the partition cannot be written as a script.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_argument("partition", partition, (str, type(None)), "the id of a partition")
        with self._turn(PLAIN_RUN) as run:
            return self.live.repro(the_region(self.plan, name), partition, run)

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
        """The diagnostics, most severe first; a notebook shows the list as a table."""
        return DiagnosticList(self.session.diagnostics)

    @property
    def runs(self) -> tuple[Session, ...]:
        """The sessions of the last benchmark of each plan, of earlier traces too, in the order they were measured.

        Plans that differ only in configs and run the same code share the figures of their newest benchmark.
        """
        return self.live.measurements.runs

    @property
    def history(self) -> pd.DataFrame:
        """One row per measured plan: step times, speedup, compile time, its differences, and plans with equal code."""
        return runs_table(self.runs).dataframe()

    def save(self, path: str | Path) -> Path:
        """Write the session to a ``.json`` or ``.html`` file, its graph to ``.svg``, its timings to ``.csv``.

        The HTML file is an interactive page. It also lists the other measured plans, and has the drawings of ``plot``
        if matplotlib is installed.
        """
        return save(self.session, path, self.runs)

    def show(self, *, widget: bool = True) -> None:
        """Open the panel in the notebook; with ``widget=False`` show only tables and pictures.

        Raises:
            MissingPackageError: the packages of the notebook extra are not installed.
        """
        check_flag("widget", widget)
        require_notebook("ex.show()")
        importlib.import_module("regional_explorer.ui.display").show(self, widget=widget)

    def _ipython_display_(self) -> None:
        """Display nothing if the cell has displayed the results already; else leave it to the representations."""
        if self.displayed is not self.plan:
            raise NotImplementedError

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise RegionalExplorerError: the traced call cannot leave this process."""
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
        """Free arguments, traces and artifacts. The session stays readable; the call cannot run after that.

        Traces and compiles of other threads finish first; an interrupt before that leaves the exploration open.

        Raises:
            BusyError: a measurement is running.
        """
        self.exclusive_use.refuse_while_searching("closed")
        with self.exclusive_use.turn(PLAIN_RUN) as run, self.exclusive_use.editing():
            if not run.cancelled():
                self.live.close()


def _plan_warnings(session: Session) -> list[Diagnostic]:
    """Return the warnings to save with a plan whose results are wrong, or that is slower than eager."""
    wrong = wrong_plan_diagnostic(session)
    return [*([] if wrong is None else [wrong]), *plan_diagnostics(session)]


@user_facing
def explore(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *misplaced: Never,
    grad: bool | None = None,
    dynamic: bool | None = None,
    plan: Plan | str | Path | None = None,
    tracing: Tracing | None = None,
    **unknown: Never,
) -> Exploration:
    """Trace one call and return an Exploration of it, without compiling or measuring.

    The call runs in eager mode once (twice if it assigns Python state or computes in threads) and once traced, with
    gradients if it has any. In-place changes and random generators are restored afterwards; arguments are kept by
    reference.

    Args:
        fn: the function or module; if it is compiled already, the original is explored.
        args: its positional arguments, a tuple or list.
        kwargs: its keyword arguments.
        grad: whether to take gradients; None for what the call would do, False to run under ``no_grad``.
        dynamic: as in ``torch.compile``.
        plan: a plan, or the path of a saved plan, to use instead of the regions marked in the source.
        tracing: how the call is traced, such as ``rx.Tracing("min_cut")``; None for what the ``plan`` says, else for
            upstream's way.
        *misplaced: not allowed: arguments of the call go in ``args``.
        **unknown: not allowed: keyword arguments of the call go in ``kwargs``.

    Raises:
        InvalidArgumentError: an argument has the wrong type or stands in the wrong place, or ``fn`` was made by
            torch.jit.
        CaptureError: the call raises, trains by itself, or cannot be traced.
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a region has an invalid config.
        SelectorError: a selector of the plan is malformed.
        UnsupportedTorchError: torch is too old.
        PlanError: the plan's file cannot be read.
    """
    check_callable("fn", fn, "the function or module, and its arguments separately: rx.explore(fn, (x, y))")
    is_in_place = isinstance(args, (tuple, list)) and isinstance(kwargs, (Mapping, type(None)))
    if misplaced or unknown or not is_in_place:
        raise misplaced_arguments(args, kwargs, misplaced, unknown)
    initial_plan = load_plan_file(plan) if isinstance(plan, (str, Path)) else plan
    check_options(grad, dynamic)
    check_call(fn, args, kwargs)
    if initial_plan is not None and not isinstance(initial_plan, PlanFile):
        check_plan(initial_plan)
    way = checked_tracing(tracing, AS_UPSTREAM if initial_plan is None else initial_plan.tracing)
    collect_dropped()
    named = original_module(fn)
    title = getattr(named, "__qualname__", type(named).__name__).replace("<locals>.", "")
    with reporting(PLAIN_RUN) as run, interruptible(run):
        run.progress("running the call eagerly", 0.0)
        call = Call(fn, args, kwargs, grad=grad)
        run.progress("tracing the call", 0.5)
        with call.undone_if_refused():
            return Exploration(Live(call, title, dynamic=dynamic, plan=initial_plan, tracing=way))
