"""What a user explores a call with: every ex.… stands here."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, SupportsIndex

from msgspec.structs import replace

from regional_explorer.capture.call import Call, check_call, check_options
from regional_explorer.capture.misplaced_arguments import misplaced_arguments
from regional_explorer.capture.swapped_functions import under_changed_source
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifact_folder import folder_at
from regional_explorer.compiler.compilation import compile_plan
from regional_explorer.compiler.partition_records import preview_of
from regional_explorer.compiler.program import Program, stacklevel_of_caller
from regional_explorer.compiler.progress_line import reporting
from regional_explorer.compiler.region_config import check_plan, configured, source_plan
from regional_explorer.compiler.run import PLAIN_RUN, Run, check_run, interruptible
from regional_explorer.compiler.workers import AnyExecutor, checked_executor
from regional_explorer.diagnostics.measured import plan_diagnostics, plan_wrong, slower_than
from regional_explorer.errors import (
    ArtifactError,
    InvalidArgumentError,
    NotCompiledError,
    RegionalExplorerError,
    ReproError,
    check_argument,
    check_callable,
    check_flag,
    require_notebook,
    user_facing,
    user_facing_methods,
)
from regional_explorer.exploration.code_results import RegionCode, RegionStages, Roofline, TuningResult, why_no_code
from regional_explorer.exploration.edits import Draft, Edits
from regional_explorer.exploration.exclusive_use import ExclusiveUse
from regional_explorer.exploration.live import Live, collect_dropped
from regional_explorer.exploration.plots import drawings
from regional_explorer.exploration.results import DRAWING, Results
from regional_explorer.export.save import save, save_plan
from regional_explorer.insight.diagnose import diagnose
from regional_explorer.insight.kernel_times import measure_kernel_times
from regional_explorer.insight.repro import repro_script
from regional_explorer.insight.roofline import (
    TRIALS,
    bitwise_trials,
    full_graphs,
    op_differences,
    phase_reaches,
    region_reaches,
)
from regional_explorer.measure.profile import profile
from regional_explorer.measure.rates import copy_bandwidth
from regional_explorer.measure.rounds import Stop, check_budget
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.gpu_targets import gpu_target
from regional_explorer.record.json_file import load_plan_file
from regional_explorer.record.partition import Preview, State
from regional_explorer.record.plan import Cut, Plan, Region, the_region
from regional_explorer.record.plan_file import Explored, PlanFile
from regional_explorer.record.region_code import partition_codes
from regional_explorer.record.roofline import BitwiseTrial, FullGraph, Launches, borders, eager_ops, roundings
from regional_explorer.record.session import Session
from regional_explorer.record.tracing import AS_UPSTREAM, Tracing
from regional_explorer.style.element import clean
from regional_explorer.tables.frame import ShownFrame
from regional_explorer.tables.plan import DiagnosticList, runs_table
from regional_explorer.tables.profile import profile_table
from regional_explorer.tables.suggestion import SuggestionList
from regional_explorer.torch_api.dynamo import original_module
from regional_explorer.tuning.budget import checked_limits
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.ledger import Ledger, default_path

if TYPE_CHECKING:
    import pandas as pd

    from regional_explorer.export.regions_into_source import Contents, SourcePatch


@user_facing_methods
class Exploration(Edits, Results):
    """One call and its trace: its graphs, regions, artifacts and measurements. Made by ``explore``.

    ``results`` has the tables, pictures and texts of all results so far; the tables are also attributes of this class.
    ``live`` has the objects behind it: the call, its trace, and what compiles and measures. Whatever works on them does
    so in a turn of ``exclusive_use``.
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.exclusive_use = ExclusiveUse()
        self.displayed: Session | None = None
        """The session that the running cell has displayed; it is not displayed again as the cell's value."""

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
        if isinstance(plan, Plan) and plan.tracing != self.plan.tracing:
            check_plan(plan)
            self._retrace(plan.tracing, lambda _: plan, dynamic=self.live.capture.dynamic)
        else:
            self._edit_plan(lambda _: plan)

    def _edit_plan(self, change: Callable[[Draft], Plan]) -> Self:
        # From reading the plan until it is replaced: an edit of another thread in between would be lost.
        with self.exclusive_use.editing():
            self.live.require_open()
            plan = change(self.draft())
            check_plan(plan)
            self.live.program.apply(plan)
        return self

    def apply(self, what: Diagnostic | Action, **filled: Any) -> Any:
        """Carry out a diagnostic's remedy, and return what the called method returns.

        ``ex.apply(ex.diagnostics[0])`` does its only action, ``ex.apply(found.actions[1])`` one of several. An edit is
        undone as any other.

        Args:
            what: a diagnostic, or one of its ``actions``.
            filled: the argument that stands as ``…`` in the text of the action.

        Raises:
            InvalidArgumentError: a diagnostic has no action or several, or an argument is left open.
            RegionalExplorerError: as the method called.
        """
        action = self._action(what)
        if action.needs and action.needs not in filled:
            raise InvalidArgumentError(f"{action} leaves {action.needs} to you: ex.apply(action, {action.needs}=…).")
        keywords = {**action.keywords, **filled}
        if action.kind is ActionKind.LOOK:
            return getattr(self, keywords["table"])
        if action.kind is ActionKind.CUT:
            self.plan = replace(self.plan, cut=Cut(keywords.get("cut", Cut.INSTANCES)))
            return self
        return getattr(self, action.kind)(*action.positional, **keywords)

    @staticmethod
    def _action(what: Diagnostic | Action) -> Action:
        check_argument("what", what, (Diagnostic, Action), "a diagnostic of ex.diagnostics, or one of its actions")
        if isinstance(what, Action):
            return what
        if len(what.actions) != 1:
            each = "; ".join(f"ex.apply(found.actions[{number}]) for {one}" for number, one in enumerate(what.actions))
            why = (
                f"{what.code} advises several actions: {each}."
                if each
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
        """Context manager: search in steps, each in a turn for timed or other work; see ``ExclusiveUse.searching``.

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
        partitioner: str | None = None,
        joint_passes: bool | None = None,
        decompositions: bool | None = None,
        frozen: bool | None = None,
        run: Run = PLAIN_RUN,
    ) -> Self:
        """Trace the call again, with other shapes or in another way, under the same regions.

        ``runs`` and ``history`` keep what was measured; an artifact that the new graphs need too is not compiled again.
        Nodes may have other names now: a region that was marked by names and gets other ops is reported as
        ``plan-differs``, one that gets none as ``region-empty``. Functions that ``compiled`` gave before raise
        ClosedError.

        Args:
            dynamic: as in ``torch.compile``: False for static shapes, True for dynamic, None for automatic.
            partitioner: as in ``rx.explore``, like the next three; by default as before.
            joint_passes: whether Inductor's joint-graph passes run before the split.
            decompositions: whether ops are decomposed before autograd.
            frozen: whether the weights of an inference are constants of the regions.
            run: cancelled before and after the trace; the exploration stays as it is then.

        Raises:
            InvalidArgumentError: an argument has the wrong type.
            CaptureError: the call cannot be traced like that; the exploration stays as it is.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("dynamic", dynamic, optional=True)
        tracing = self.plan.tracing.changed(
            partitioner=partitioner, joint_passes=joint_passes, decompositions=decompositions, frozen=frozen
        )
        self._retrace(tracing, lambda plan: plan.traced(tracing), run, dynamic=dynamic)
        return self

    def _retrace(
        self, tracing: Tracing, change: Callable[[Plan], Plan], run: Run = PLAIN_RUN, *, dynamic: bool | None
    ) -> None:
        """Replace the trace by a new trace, and the plan by what ``change`` makes of the plan at that time."""
        self.exclusive_use.refuse_while_searching("traced again")
        with self._turn(run) as run:
            if run.cancelled():
                return
            run.progress("tracing the call again", 0.0)
            retraced = self.live.traced_again(tracing, dynamic=dynamic)
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
        ``caches`` has the cache hits and misses, ``compile_times`` the compile time by phase, ``patterns`` how often
        each pattern of Inductor's passes matched.

        Args:
            cold: compile every partition, again if necessary, with empty caches, to see what the first compile costs.
                The caches on disk are left as they are; nor do they keep compiles of other threads during that time.
            run: cancelled between compiles; the rest stays stale.

        Raises:
            NoCompilerError: there is no C++ compiler.
            CompileEnvironmentError: with ``cold``, there is no room for empty caches.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("cold", cold)
        with self._turn(run) as run:
            artifacts = set() if run.cancelled() else compile_plan(self.live.program, run, cold=cold)
            if cold:  # else no artifact is replaced
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
        from the call: see ``region_timings``, ``partition_timings``, ``region_numerics``, and ``reconciliation`` for
        how the regions add up to the whole. That takes half of the budget in addition, divided among the distinct
        partitions and a run that measures the cost of dispatching the cut graph. ``memory`` has the peak memory of
        each variant.

        Args:
            variants: some of eager, aot_eager, regional and full, and what the marks alone give: upstream (under
                torch's ``regional_inductor``) and lite (under ``torch.compile(mode="lite")``). Eager is always
                included. Where nothing is cut out, all but eager and full equal ``aot_eager`` and are left out if that
                is measured. The default is eager, aot_eager, regional and full; with ``more`` it is what the last
                benchmark of this plan compared.
            budget_s: seconds to measure the variants, without compile time.
            regions: whether to measure regions alone too; requires the variant ``regional``.
            more: whether the rounds are added to those of the last benchmark of this plan, so that twice 30 s say as
                much as 60 s. That has to have compared the same variants, on as many threads and under the same
                settings of torch; else all is measured anew.
            run: cancelled between compiles and samples; the results so far are kept, as they are when interrupted.

        Raises:
            MeasureError: the budget or a variant is invalid, or nothing could be measured.
            BusyError: another thread, such as a job of the panel, measures.
        """
        with self._turn(run, "benchmark") as run:
            self.live.benchmark(variants, budget_s, run, regions=regions, more=more)
        timings: pd.DataFrame = self.timings
        return timings

    def tune(  # noqa: PLR0913 - each is one thing that a search may do or has to keep to
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
        """Search for the plan that makes the call fastest, and return it with all that was tried.

        The whole graph as one region is traced in every sensible way, with C++ wrappers and other configs on the best
        of them; then come the plan at hand in these ways, what ``suggest`` names, and configs per region of the best.
        Plans are checked against eager first; those with equal code are timed once. At the end the best ones, eager,
        plain ``torch.compile`` and the plan at hand take turns in one run, whose figures are the result. If none is
        faster beyond doubt, the result says so. The plan at hand stays unless ``apply`` is given:
        ``ex.plan = result.plan`` applies what was found, ``ex.plan`` kept from before puts it back. It is the one at
        the beginning: between two races the exploration can be edited and compiled, but not traced again or closed.

        Args:
            budget_s: seconds for everything, compiles included; what has begun and cannot be cancelled is completed.
            numerics: ``"close"`` for results that the numerics check passes, ``"bitwise"`` for eager's to the bit.
            max_memory: the most bytes that a plan needs, its peak and the frozen weights in its code; by default its
                peak is at most that of eager, and frozen weights are not counted.
            max_compile_s: the most seconds of a plan's compile.
            keys: configs to try, such as ``[{"max_fusion_size": 8}]``; by default those that are known to matter.
            ledger: the file that remembers tries, so that no later search repeats them; by default one beside
                Inductor's cache.
            executor: what compiles, so that a crash, a hang or too much memory costs one plan alone: a number of
                processes that are started for it, or any ``concurrent.futures.Executor``, such as
                ``Client.get_executor()`` of Dask. By default this process, which checks and times all plans.
            apply: whether the plan found becomes that of the exploration.
            run: cancelled between tries and rounds; the tries so far are kept, as they are when interrupted.

        Raises:
            MeasureError: the budget is invalid, or nothing can be measured.
            InvalidArgumentError: another argument is invalid.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of ``keys`` is invalid.
            NoCompilerError: there is no C++ compiler.
            BusyError: another search is under way, or another thread, such as a job of the panel, measures.
            Exception: what nobody expected; it says what was best until then, and ``ex.tuning`` has the tries.
        """
        check_flag("apply", apply)
        device = self.live.environment.device_type
        limits = checked_limits(budget_s, numerics, max_memory, max_compile_s, keys, device)
        book = Ledger(default_path() if ledger is None else ledger)
        crew = Crew(checked_executor(executor))
        with self._search("tune", run) as (run, turn):
            self.live.tune(limits, book, crew, run, turn)
        found = self.live.tuning
        assert found is not None  # noqa: S101 - else the search has raised
        if apply and found.plan is not None:
            self.plan = found.plan
        return TuningResult(found)

    def suggest(self, budget_s: float | None = None, *, run: Run = PLAIN_RUN) -> SuggestionList:
        """Suggest regions: repeated modules, chains between matrix products, norms, the loss, the whole graph.

        They follow from the graphs, and from ``ex.profile()`` if it was run. Without a budget nothing is compiled or
        run: those that were measured before come first, and the order of the others is a guess. With one each is
        compiled and checked as the only region, and the call is timed with and without it: what it saves counts the
        cost of the cut, too.
        Nothing is marked: ``ex.mark(one.name, *one.selectors)`` does that.

        Args:
            budget_s: seconds for compiling and measuring; what they do not reach keeps its guess.
            run: cancelled between steps; what was measured stays, as it does when interrupted: ``suggest()`` has it.

        Raises:
            MeasureError: the budget is invalid.
            NoCompilerError: there is no C++ compiler.
            BusyError: a search is under way, or another thread, such as a job of the panel, measures.
        """
        found = super().suggest()
        if budget_s is None:
            return found
        check_budget(budget_s)
        with self._search("suggest", run) as (run, turn):
            self.live.measure_suggestions(found, budget_s, run, turn)
        return super().suggest()

    # ------------------------------------------------------------------------------------------ code, time and roofline

    def code(
        self,
        name: str | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        target: str | None = None,
        run: Run = PLAIN_RUN,
    ) -> RegionCode:
        """Return the generated code of a region, each kernel linked to the nodes and lines it computes.

        The kernels are determined on the first call: Inductor lowers each distinct partition once more, without
        compiling it. From then on the session has them. With ``config`` or ``target`` nothing needs to have been
        compiled: that code is generated and not run.

        Args:
            name: the region; it can be left out if there is only one.
            config: changes to the region's config, to see the code it would give: ``ex.code("mlp").diff(…)``.
            target: a GPU, which this machine need not have, to see its Triton code: h100, b200, a100, l4 or mi300x.
            run: cancelled between partitions; the remaining ones are left out.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: it is not compiled or has changed since, and neither ``config`` nor ``target`` is given.
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
            # An edit of another thread in between would bring partitions whose layouts are not recorded.
            with self.exclusive_use.editing():
                live.program.record_layouts()
                changed, session = live.insights.changed(region, changes), live.session
            codes = live.insights.under(region, changed, gpu, run)
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
            run: cancelled between partitions; the remaining ones are left out.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: it is not compiled or has changed since, and neither ``config`` nor ``target`` is given.
            UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: ``config`` is invalid.
            InvalidArgumentError: there is no such target.
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
            ClosedError: the exploration is closed, and only the code of its artifacts is kept.
        """
        region_code = self.code(name, config=config, target=target, run=run)
        return RegionStages.of(self.session, region_code, needed=not run.cancelled())

    def kernel_times(self, name: str | None = None, budget_s: float = 2.0, *, run: Run = PLAIN_RUN) -> pd.DataFrame:
        """Time each kernel inside the generated code of a region; return one row each, most wasted time first.

        The generated code of each distinct partition is loaded again, with a clock around every launch, and runs on
        inputs recorded from the call. The timings of regions and variants do not come from this run. ``wasted_us`` is
        the time beyond the bound: that of copying as many bytes on this machine, or of a matrix product of its size.
        Only kernels on the CPU are timed; a partition on another device has a ``problem`` instead.

        Args:
            name: the region, which must have been compiled; all regions if left out.
            budget_s: seconds to measure, divided among the regions and their distinct partitions.
            run: cancelled between rounds; the results so far are kept.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: it is not compiled or has changed since.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed; ``ex.results.kernel_times(name)`` has what was measured.
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

        There always is a ``region-time``: what its time consists of, and what was looked at. With it come what else was
        found, ``kernel-bound``, ``launch-bound``, ``op-recomputed`` or ``fusion-refused``; what Inductor warned of; and
        ``config-inert`` if its config changes nothing. A config is compiled and measured against the current region
        before it is suggested. Kernels are timed on the CPU only.

        Args:
            name: the region, which must have been compiled; all regions if left out.
            budget_s: seconds to measure, divided among the regions: half of it the kernels, half of it remedies.
            run: cancelled between rounds; there are no findings then.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            NotCompiledError: it is not compiled or has changed since.
            MeasureError: the budget is invalid.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        half_s = check_budget(budget_s) / 2
        if name is None:
            with self._turn(run, "diagnose") as run:
                shares = self._shares(2 * half_s, run)
                of_all = [
                    found for region, share_s, part in shares for found in self.diagnose(region, share_s, run=part)
                ]
            return DiagnosticList(finding for finding in self.session.diagnostics if finding in of_all)
        name = self.plan[name].name
        with self._turn(run, "diagnose") as run:
            if run.cancelled():
                return DiagnosticList()
            self.code(name, run=run.part(0.0, 0.0, then_s=2 * half_s))
            measure_kernel_times(self.live.insights, name, half_s, run.part(0.0, 0.5, then_s=half_s))
            partitions = super().code(name).partitions
            found = diagnose(self.live.insights, self.live.environment, name, partitions, half_s, run.part(0.5, 1.0))
            of_code = DiagnosticCode.INDUCTOR_WARNING, DiagnosticCode.CONFIG_INERT
            return DiagnosticList(
                finding
                for finding in self.session.diagnostics
                if finding in found or (found and finding.region == name and finding.code in of_code)
            )

    def _shares(self, budget_s: float, run: Run) -> Iterator[tuple[str, float, Run]]:
        """Yield each enabled region with its share of a budget and its part of a run."""
        states = State.STALE, State.COMPILED, State.MEASURED
        compiled = {part.region for part in self.session.partitions if part.state in states}
        plan = self.plan
        names = [region.name for region in plan.regions if region.name in compiled]
        if not names:  # the first one says why there is no code
            names = [plan.regions[0].name if plan.regions else the_region(plan, None).name]
        for number, name in enumerate(names):
            share_s, later = budget_s / len(names), len(names) - number - 1
            yield name, share_s, run.part(number / len(names), (number + 1) / len(names), then_s=later * share_s)

    def profile(self, budget_s: float = 5.0, *, run: Run = PLAIN_RUN) -> pd.DataFrame:
        """Measure the eager time of every op of the captured graphs, and return where the time goes.

        Modules that are equal in all layers are one row, as ``layers.*.mlp``; ``op_times`` has each by itself.

        Forward and backward run op by op, in rounds that alternate with an unmodified ``aot_eager``; the cost of timing
        an op is measured and subtracted. Nothing is compiled, and the plan does not matter.

        Args:
            budget_s: seconds to measure, exceeded by one round at most.
            run: cancelled between rounds; the results so far are kept, as they are when interrupted.

        Raises:
            MeasureError: the budget is invalid, or the call runs no op of the captured graphs.
            BusyError: another thread, such as a job of the panel, measures.
        """
        budget = check_budget(budget_s)
        with self._turn(run, "profile") as run:
            live, found = self.live, None
            if not run.cancelled():
                found = profile(live.variants, budget, live.environment.device, run)
            if found is not None:
                live.profile = found
                Stop(found.stopped).raise_interrupt()
        return profile_table(self.session).dataframe()

    def roofline(self, *, bitwise: bool = True, run: Run = PLAIN_RUN) -> Roofline:
        """Return how much of full Inductor's gain the plan reaches, and where the rest is lost.

        It has each region's part of full's gain; the bytes that move between regions and eager ops, and how many of
        them full Inductor avoids by fusion, according to the code that it generates for the whole graphs; and how the
        results of full differ from those of eager: by op, and bitwise.

        Args:
            bitwise: whether to compile the whole call again under configs that may make full bitwise equal to eager.
            run: cancelled between steps; the remaining ones are left out, and ``problems`` says so.

        Raises:
            MeasureError: the plan was not measured with ``regional`` and ``full``: call ``ex.benchmark()`` first.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("bitwise", bitwise)
        bandwidth, ops, trials = None, None, tuple[BitwiseTrial, ...]()
        with self._turn(run, "roofline") as run:
            live, untimed = self.live, run.threads.run_untimed
            reach = phase_reaches(live.session)
            costs = {cost.what: cost.seconds for cost in live.session.variant_costs}
            full_s = costs.get(VariantName.FULL, 0.0)  # a compile of the whole call
            trials_s = full_s * len(TRIALS) if bitwise else 0.0
            whole, reading = run.part(0.0, 0.3, then_s=full_s + trials_s), run.part(0.3, 0.4, then_s=trials_s)
            whole_graphs = untimed(lambda: full_graphs(live.program, whole))
            for region in live.session.plan.regions:
                untimed(partial(live.insights.read, region.name, reading))
            full = {graph_id: graph for graph_id, graph in whole_graphs.items() if graph.code.problem is None}
            session = live.session
            crossing = borders(session, full)
            if not run.cancelled():
                run.estimate(trials_s or None)
                run.progress("measuring the copy bandwidth", 0.4)
                largest = max((border.fused_bytes for border in crossing), default=0)
                bandwidth = run.threads.run_timed(lambda: copy_bandwidth(session.environment.device, largest))
            if not run.cancelled():
                run.progress("comparing ops with their decompositions", 0.5)
                ops = untimed(lambda: op_differences(live.variants))
            if bitwise and not run.cancelled():
                trying = run.part(0.5, 1.0)
                trials = untimed(lambda: bitwise_trials(live.variants, TRIALS, trying, full_s))
        left_out = {graph_id: graph.code.problem for graph_id, graph in whole_graphs.items() if graph_id not in full}
        problems = [f"The graph {graph_id} is left out: {problem}." for graph_id, problem in left_out.items()]
        if run.cancelled():
            problems.append("Cancelled: what was not determined yet is left out.")
        return Roofline(
            reach=reach,
            regions=region_reaches(session, reach[-1]),
            borders=crossing,
            launches=_launches(session, full) if full else None,
            roundings=roundings(session, full),
            ops=ops,
            trials=trials,
            bandwidth=bandwidth,
            problems=tuple(problems),
        )

    # -------------------------------------------------------------------------------------------------------- exports

    def to_source(self, *, apply: bool = False, run: Run = PLAIN_RUN) -> str:
        """Return the plan as a change of the source: a unified diff, and the new text of cells of a notebook.

        Regions become ``torch.fx.traceback.annotate`` around statements and functions. The call is traced again under
        the changed source, once or a few times, which must give the same partitions and configs. For a region that no
        annotation can express, the text says why, and has the calls that mark it.

        Args:
            apply: also write the files. They must be tracked by git and clean; either all are written or none.
            run: how to cancel it, which leaves the source as it is, and where it reports.

        Raises:
            SourcePatchError: ``apply``, and a file is not tracked or not clean, is a cell, or cannot be written.
            ClosedError: the exploration is closed.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_flag("apply", apply)
        with self._turn(run) as run:
            patch = source_patch(self.live, run)
        if apply:
            patch.apply()
        return "".join(f"# {found.message}\n" for found in _of_the_plan(self.live.session)) + str(patch)

    def save_plan(self, path: str | Path) -> Path:
        """Write the plan to a JSON file, for ``explore(..., plan=path)`` and ``rx.compile(fn, path)``.

        The file also says what the plan was explored and measured on; a warning says so if its results were wrong, or
        if it was slower than eager or than ``torch.compile``. It lists the SHA-256 of its artifacts that
        ``ex.save_artifacts`` has written so far: ``rx.compile`` then loads no others.

        Raises:
            PlanError: the file cannot be written.
        """
        live = self.live
        session = live.session
        modes = live.capture.modes_of_calls()[0]
        explored = Explored.of(session, modes)
        explored = replace(explored, slower=slower_than(session), wrong=session.plan_errors)
        keys = {partition.artifact for partition in session.partitions}
        artifacts = sorted({sha256 for key, sha256 in live.saved_artifacts.items() if key in keys})
        saved = save_plan(live.program.plan, path, explored, tuple(artifacts))
        for item in _of_the_plan(session):
            text = f"{item.message} It was saved all the same. {item.remedy}"
            warnings.warn(text, stacklevel=stacklevel_of_caller())
        return saved

    def save_artifacts(self, path: str | Path) -> Path:
        """Write the compiled partitions of the plan to a directory, for ``rx.compile(fn, plan, artifacts=path)``.

        Stale partitions are compiled first. A process that runs the same call under the same plan then starts without
        compiling, on a machine without a compiler too. Artifacts are code: loading them runs them. A plan that is saved
        afterwards lists them.

        Raises:
            ArtifactError: an artifact cannot be written, or torch cannot serialize it; the others are written. Or
                ``path`` is not a directory, or one that others may write.
            NoCompilerError: there is no C++ compiler.
            BusyError: another thread, such as a job of the panel, measures.
        """
        saved_keys: set[str] = set()
        with self._turn(PLAIN_RUN) as run:
            folder = folder_at(path)
            compile_plan(self.live.program, run)
            for switch in self.live.program.switches:
                artifact = switch.artifact
                if artifact is None or artifact.pack is None or artifact.key in saved_keys:
                    continue
                saved_keys.add(artifact.key)
                label = self.live.program.wanted(artifact.key, switch).label()
                with self.live.capture.generated.collected():
                    sha256 = folder.save(label, artifact.pack)
                if sha256 is not None:
                    self.live.saved_artifacts[artifact.key] = sha256
            folder.finish()
        unsaved = [finding for finding in folder.findings if finding.code is DiagnosticCode.ARTIFACT_UNSAVED]
        if unsaved:
            raise ArtifactError(" ".join(finding.message for finding in unsaved))
        return folder.path

    def repro(self, name: str | None = None, *, partition: str | None = None) -> str:
        """Return a script that compiles, checks and times one partition of a region, to attach to a bug report.

        It needs nothing but torch: the graph is written as code, the inputs by size, stride and dtype, the config as
        requested. A partition that does not compile fails there as it does here. Nothing needs to be compiled.

        Args:
            name: the region; it can be left out if there is only one.
            partition: the id of one of its partitions; by default one that failed, else the first.

        Raises:
            UnknownRegionError: there is no such region; or there are several, or none, and no name is given.
            ReproError: the region has no such partition, or it cannot be written as a script.
            BusyError: another thread, such as a job of the panel, measures.
        """
        check_argument("partition", partition, (str, type(None)), "the id of a partition")
        program = self.live.program
        with self._turn(PLAIN_RUN) as run:
            run.progress("recording the inputs of the partitions", 0.0)
            region = the_region(self.plan, name)
            program.record_layouts()
        switches = [switch for switch in program.switches if switch.piece.claim.region == region.name]
        keys, failures = program.keys(), program.store.failures
        switches.sort(key=lambda switch: keys.get(switch) not in failures)
        chosen = next((switch for switch in switches if partition in (None, switch.partition.name)), None)
        if chosen is None:
            existing = ", ".join(switch.partition.name for switch in switches) or "none at all"
            requested = "partition" if partition is None else f"partition {partition!r}"
            raise ReproError(f"Region {region.name!r} has no {requested}; there is {existing}.")
        named, graph = f"Partition {chosen.partition.name}", chosen.piece.graph_id
        if chosen.workpiece is None:
            raise ReproError(f"{named} cannot be written as a script: {chosen.failure}.")
        title = f"{named} of region {region.name!r} of {self.live.title}, graph {graph}."
        try:
            return repro_script(title, chosen.piece, chosen.workpiece.inputs, program.config_for(chosen))
        except ReproError as problem:
            raise ReproError(f"{named} cannot be written as a script: {problem}") from problem

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
        """The sessions of the last benchmark of each plan, in the order they were measured; also of earlier traces.

        Plans that differ in configs alone and run the same code have the figures of the newest of their benchmarks.
        """
        return self.live.measurements.runs

    @property
    def history(self) -> pd.DataFrame:
        """One row per measured plan: step times, speedup, compile time, how plans differ, and which run equal code."""
        return runs_table(self.runs).dataframe()

    def save(self, path: str | Path) -> Path:
        """Write the session to a ``.json`` or ``.html`` file, its graph to ``.svg``, its timings to ``.csv``.

        The HTML file is an interactive page. It also lists the other measured plans, and has the drawings of ``plot``
        if matplotlib is installed.
        """
        with reporting(PLAIN_RUN) as run:
            run.progress(DRAWING, 0.0)
            return save(self.session, path, self.runs, drawings)

    def show(self, *, widget: bool = True) -> None:
        """Open the panel in the notebook; with ``widget=False`` show only tables and pictures.

        Raises:
            MissingPackageError: the packages of the notebook extra are not installed.
        """
        check_flag("widget", widget)
        require_notebook("ex.show()")
        importlib.import_module("regional_explorer.ui.display").show(self, widget=widget)

    def _repr_mimebundle_(self, **wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends; one line where the cell has displayed them already."""
        if self.displayed is self.session:
            return {"text/plain": f"{clean(self.title)}: displayed above."}
        return super()._repr_mimebundle_(**wanted)

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

        Traces and compiles of other threads finish first; an interrupt meanwhile leaves the exploration open.

        Raises:
            BusyError: a measurement is running.
        """
        self.exclusive_use.refuse_while_searching("closed")
        with self.exclusive_use.turn(PLAIN_RUN) as run, self.exclusive_use.editing():
            if not run.cancelled():
                self.live.close()


def _of_the_plan(session: Session) -> list[Diagnostic]:
    """Return the warnings that are saved with a plan: its results are wrong, or it is slower."""
    wrong = plan_wrong(session)
    return [*([] if wrong is None else [wrong]), *plan_diagnostics(session)]


def _launches(session: Session, full: Mapping[str, FullGraph]) -> Launches:
    codes = [code for code in partition_codes(session) if code.partition.graph in full]
    compiled = [part for part in session.partitions if part.graph in full and part.artifact is not None]
    return Launches(
        eager_ops(session, full),
        sum(len(part.kernels) for part in codes) if len(codes) == len(compiled) else None,
        sum(len(graph.code.kernels) for graph in full.values()),
    )


def source_patch(live: Live, run: Run = PLAIN_RUN) -> SourcePatch:
    """Return the change of the source that marks the plan there; see ``to_source``."""
    from regional_explorer.export.regions_into_source import partition_contents, plan_in_source

    plan, capture = live.program.plan, live.capture

    def retraced(texts: Mapping[str, tuple[str, str]], others: Sequence[Region]) -> Contents | None:
        if run.cancelled():
            return None
        run.progress("tracing the changed source", 0.0)
        changed = under_changed_source(texts, lambda: Capture(live.call, capture.tracing, dynamic=capture.dynamic))
        try:
            regions = (*source_plan(changed.graphs)[0].regions, *others)
            marked = replace(plan, regions=tuple({region.name: region for region in regions}.values()))
            return partition_contents(preview_of(Program(changed, marked), marked).partitions)
        finally:
            changed.close()

    def previewed(changed: Plan) -> Contents:
        parts = preview_of(live.program, changed).partitions
        return partition_contents(part for part in parts if part.graph not in capture.late_graphs)

    return plan_in_source(capture.graphs, capture.breaks, plan, previewed, retraced)


@user_facing
def explore(  # noqa: PLR0913 - options by keyword
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *misplaced: Never,
    grad: bool | None = None,
    dynamic: bool | None = None,
    plan: Plan | str | Path | None = None,
    partitioner: str | None = None,
    joint_passes: bool | None = None,
    decompositions: bool | None = None,
    frozen: bool | None = None,
    **unknown: Never,
) -> Exploration:
    """Trace one call and return an Exploration of it, without compiling or measuring.

    The call runs in eager mode once (twice if it assigns Python state or computes in threads) and once traced, with
    gradients if it has any. In-place changes and random generators are restored afterwards; arguments are kept by
    reference.

    Args:
        fn: the function or module; one that is compiled already stands for what it was compiled from.
        args: its positional arguments, a tuple or list.
        kwargs: its keyword arguments.
        grad: whether to take gradients; None as the call would, False to run under ``no_grad``.
        dynamic: as in ``torch.compile``.
        plan: a plan, or the path of a saved one, to use instead of the regions marked in the source.
        partitioner: how AOTAutograd splits forward from backward, ``"default"`` (as upstream's regional path: the
            forward keeps what the backward reads) or ``"min_cut"`` (the backward recomputes cheap ops).
        joint_passes: whether Inductor's joint-graph passes, such as those that find attention, run before the split.
        decompositions: whether ops are decomposed as Inductor does before autograd. With ``"min_cut"`` and both, the
            call is traced as by ``torch.compile``.
        frozen: whether the weights of an inference are constants of the regions, so that Inductor folds and packs them;
            it implies the two before it. These four are by default those of the ``plan``.
        *misplaced: nothing: arguments of the call go in ``args``.
        **unknown: nothing: keyword arguments of the call go in ``kwargs``.

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
    of_plan = AS_UPSTREAM if initial_plan is None else initial_plan.tracing
    tracing = of_plan.changed(
        partitioner=partitioner, joint_passes=joint_passes, decompositions=decompositions, frozen=frozen
    )
    collect_dropped()
    named = original_module(fn)
    title = getattr(named, "__qualname__", type(named).__name__).replace("<locals>.", "")
    with reporting(PLAIN_RUN) as run, interruptible(run):
        run.progress("running the call eagerly", 0.0)
        call = Call(fn, args, kwargs, grad=grad)
        run.progress("tracing the call", 0.5)
        with call.undone_if_refused():
            return Exploration(Live(call, title, dynamic=dynamic, plan=initial_plan, tracing=tracing))
