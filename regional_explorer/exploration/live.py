"""One trace, the objects that work on it, and the session made of their results."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from regional_explorer.capture.call import Call, raise_retraced
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifact_folder import ArtifactFolder
from regional_explorer.compiler.compilation import compile_plan
from regional_explorer.compiler.partition_records import (
    artifact_records,
    diagnostics,
    environment_of,
    partitions,
    present_environment,
)
from regional_explorer.compiler.program import Program, recompile_diagnostics
from regional_explorer.compiler.region_config import source_plan, without_unknown_configs
from regional_explorer.compiler.run import Run
from regional_explorer.diagnostics.measured import (
    pattern_diagnostics,
    plan_diagnostics,
    region_diagnostics,
    warning_diagnostics,
    wrong_region_diagnostics,
    wrong_variant_diagnostics,
)
from regional_explorer.errors import ClosedError, MeasureError, ReproError, listing
from regional_explorer.exploration.measurements import Measurements
from regional_explorer.insight.code_store import Insights
from regional_explorer.insight.repro import repro_script
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.floor import ProductFile, measure_floor
from regional_explorer.measure.partitions import reconcile
from regional_explorer.measure.rounds import StopReason, check_budget
from regional_explorer.measure.variants import Variants
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.benchmark import PartitionTiming, VariantName
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.environment import Environment
from regional_explorer.record.expected import compile_rate, compiles_seen, expected_compile_s, expected_plan_s
from regional_explorer.record.floor import Floor
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.grouping import Kept
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan, Region, Tracing
from regional_explorer.record.plan_file import (
    PlanFile,
    environment_difference,
    mode_differences,
    partition_differences,
    wrong_when_explored,
)
from regional_explorer.record.profile import Profile
from regional_explorer.record.region_code import template_times
from regional_explorer.record.regions import region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.tuning import Suggestion, Tuning
from regional_explorer.regions.select import Assignment, assign, members
from regional_explorer.torch_api.torch_config import settings_text
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.ledger import Ledger
from regional_explorer.tuning.live_bench import LiveBench, measure_suggestions
from regional_explorer.tuning.search import tune
from regional_explorer.tuning.waterfall import gain_parts


def initial_program(
    capture: Capture, plan: Plan | PlanFile | None, environment: Environment
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Return the program under ``plan``, or under the marks in the source, and diagnostics about that plan.

    Raises:
        UnknownConfigKeyError, InvalidConfigValueError: a config in the source is invalid; invalid configs in a plan
            file give diagnostics instead.
    """
    chosen, diagnostics = plan, list[Diagnostic]()
    if chosen is None:
        chosen, diagnostics = source_plan(capture.graphs)
    elif isinstance(chosen, PlanFile):
        chosen, diagnostics = without_unknown_configs(chosen.plan)
    program = Program(capture, chosen.traced(capture.tracing))
    if isinstance(plan, PlanFile) and plan.explored is not None:
        diagnostics += partition_differences(plan.explored, partitions(program))
        diagnostics += environment_difference(plan.explored, environment)
        diagnostics += mode_differences(plan.explored, capture.modes_of_calls())
        diagnostics += wrong_when_explored(plan.explored)
    return program, tuple(diagnostics)


def with_measured_states(partitions: Iterable[Partition], timings: Iterable[PartitionTiming]) -> tuple[Partition, ...]:
    """Return the partitions; those that are compiled and have figures get the state ``measured``."""
    measured = {timing.partition for timing in timings}
    return tuple(
        replace(part, state=State.MEASURED) if part.state is State.COMPILED and part.id in measured else part
        for part in partitions
    )


MAX_DROPPED = 8
"""The maximum number of dropped traces that wait for the garbage collector."""

_DROPPED_TRACES: list[weakref.ref[Capture]] = []


def _remember_dropped(trace: weakref.ref[Capture]) -> None:
    """Free the arguments of an exploration whose live objects are no longer referenced, and remember its trace."""
    if (capture := trace()) is not None:
        capture.drop_call()
        _DROPPED_TRACES.append(trace)


def collect_dropped() -> None:
    """Run Python's garbage collector if it has many traces of dropped explorations to free."""
    _DROPPED_TRACES[:] = [trace for trace in _DROPPED_TRACES if trace() is not None]
    if len(_DROPPED_TRACES) >= MAX_DROPPED:
        _DROPPED_TRACES.clear()
        gc.collect()


_COMPILES_SEEN: dict[str, tuple[float, float]] = {}
"""The expected and the real seconds of the compiles of this process, by key."""


def _rate_with(session: Session) -> float:
    """Return the rate of all compiles of this process, with those of ``session``."""
    _COMPILES_SEEN.update(compiles_seen(session))
    return compile_rate(_COMPILES_SEEN)


def _environment_of(traced: Environment, call: Call) -> Environment:
    """Return the environment of a trace with the present settings, and the present mode of the call's modules."""
    return present_environment(traced, call.mode)


class Live:
    """The call, its trace and its program, and the objects that compile it, measure it and read its code.

    For tools that build on an exploration; nothing of this is saved, and the classes may change. Tracing, compiling and
    running the call needs a turn of the exploration's ``exclusive_use``.

    ``plan_diagnostics`` are about ``first_plan``, which the exploration began with. ``other_ops`` are about
    ``traced_plan``, the plan of the last retrace: its regions that got other ops than in the graphs in which they were
    marked. ``marked_in`` has these graphs by region name. ``saved_artifacts`` has the SHA-256 of each artifact that
    ``ex.save_artifacts`` has written, by key.
    """

    def __init__(
        self, call: Call, title: str, *, dynamic: bool | None, plan: Plan | PlanFile | None, tracing: Tracing
    ) -> None:
        self.title = title
        self.call = call
        began_s = time.perf_counter()
        self.capture = Capture(call, tracing, dynamic=dynamic)
        self.trace_s = time.perf_counter() - began_s
        self.environment = environment_of(self.capture.graphs)
        self.program, self.plan_diagnostics = initial_program(self.capture, plan, self.environment)
        self.first_plan = self.traced_plan = self.program.plan
        self.variants = Variants(call, self.program, dynamic=dynamic)
        self.present_environment = partial(_environment_of, self.environment, call)  # without ``self``: no cycle
        self.measurements = Measurements(self.variants, self.present_environment)
        self.insights = Insights(self.program)
        self.profile: Profile | None = None
        self.tuning: Tuning | None = None
        self.floor: Floor | None = None
        self.suggestions: dict[str, tuple[Suggestion, ...]] = {}  # the measured ones, by settings of torch
        self.marked_in: dict[str, Sequence[Graph]] = {}
        self.other_ops: tuple[Diagnostic, ...] = ()
        self.saved_artifacts: dict[str, str] = {}
        self.is_open = True
        self._snapshot: tuple[Any, Session] | None = None
        self._rate = Kept[float]()
        self._marked = Kept[tuple[tuple[Graph, ...], dict[str, dict[str, tuple[str, ...]]]]]()
        weakref.finalize(self, _remember_dropped, weakref.ref(self.capture)).atexit = False

    def benchmark(
        self, variants: Sequence[str] | None, budget_s: float, run: Run, *, regions: bool, more: bool
    ) -> None:
        """Compile, check the numerics, measure, and keep the results; see ``Exploration.benchmark``."""
        check_budget(budget_s)
        for names, only_adds in self.measurements.steps(variants, more=more):
            results, self.variants.expected_s = BenchmarkResults(), expected_compile_s(self.session)
            run.estimate((expected_plan_s(self.session) or 0.0) + budget_s)
            if only_adds:
                self.measurements.keep_alone(results)
                regions = False
            try:
                with self.capture.generated.collecting():
                    self.measurements.measure(names, budget_s, run, results, regions=regions, more=more)
            finally:
                if results.is_complete or not only_adds:  # else the figures of the step before stay
                    self.measurements.add(results, self.program)
                    if results.timings:
                        self.measurements.remember(self.session)
            if run.cancelled():
                return

    def tune(
        self,
        limits: Limits,
        ledger: Ledger,
        crew: Crew,
        run: Run,
        turn: Callable[[bool], AbstractContextManager[Any]],
    ) -> None:
        """Search for the best plan, with each step inside a ``turn``, and keep the result; see ``Exploration.tune``."""

        def keep(found: Tuning) -> None:
            self.tuning = replace(found, remarks=dict(crew.remarks))

        bench = LiveBench(self.variants, self.present_environment(), run, turn, crew, self._remember_compared)
        with contextlib.closing(crew), bench.closing():
            found = tune(bench, limits, ledger, keep)
            keep(found)
        self.floor = bench.floor or self.floor
        StopReason(found.stopped).raise_interrupt()

    def _remember_compared(self, program: Program, results: BenchmarkResults) -> None:
        """Keep a search's final comparison as a benchmark of one of its plans."""
        self.measurements.add(results, program)
        if VariantName.REGIONAL in results.verdicts[0]:
            self.measurements.remember(self._measured(program, partitions(program), results))

    def take_gain_apart(self, budget_s: float, run: Run, turn: Callable[[bool], AbstractContextManager[Any]]) -> None:
        """Measure what each change of the plan found saves, and keep it; see ``Exploration.waterfall``."""
        tuning = self.tuning
        if tuning is None or tuning.plan is None:
            raise MeasureError("There is no plan whose gain could be taken apart: ex.tune() has found none.")
        bench = LiveBench(self.variants, self.present_environment(), run, turn, Crew(0))
        with bench.closing(), contextlib.suppress(CancelledError):
            self.tuning = replace(tuning, parts=gain_parts(bench, tuning.plan, budget_s))

    def measure_suggestions(
        self,
        found: Sequence[Suggestion],
        budget_s: float,
        run: Run,
        turn: Callable[[bool], AbstractContextManager[Any]],
    ) -> None:
        """Measure the gain of each suggestion, and keep it; see ``Exploration.suggest``."""
        settings = settings_text()

        def keep(measured: Sequence[Suggestion]) -> None:
            self.suggestions[settings] = tuple(measured)

        bench = LiveBench(self.variants, self.environment, run, turn, Crew(0))
        with bench.closing():
            measure_suggestions(bench, found, budget_s, keep)

    def measure_floor(self, budget_s: float, run: Run) -> None:
        """Measure the floor of the call, and keep it; see ``Exploration.floor``."""
        templates = template_times(self.session)
        environment = self.present_environment()
        self.floor = measure_floor(self.program, environment, run, budget_s, ProductFile(), templates)

    def save_artifacts(self, folder: ArtifactFolder, run: Run) -> None:
        """Compile stale partitions, and save the artifacts of the plan; see ``Exploration.save_artifacts``."""
        compile_plan(self.program, run)
        compiled = ((switch, switch.artifact) for switch in self.program.switches)
        by_key = {artifact.key: (switch, artifact.pack) for switch, artifact in compiled if artifact is not None}
        for key, (switch, pack) in by_key.items():
            if pack is None:
                continue
            with self.capture.generated.collecting():
                sha256 = folder.save(self.program.wanted(key, switch).label(), pack)
            if sha256 is not None:
                self.saved_artifacts[key] = sha256
        folder.write_manifest()

    def repro(self, region: Region, partition: str | None, run: Run) -> str:
        """Return a script that compiles one partition of a region; see ``Exploration.repro``."""
        run.progress("recording the inputs of the partitions", 0.0)
        self.program.record_layouts()
        switches = [switch for switch in self.program.switches if switch.piece.claim.region == region.name]
        keys, failures = self.program.keys(), self.program.store.failures
        switches.sort(key=lambda switch: keys.get(switch) not in failures)
        chosen = next((switch for switch in switches if partition in (None, switch.partition.name)), None)
        if chosen is None:
            existing = ", ".join(switch.partition.name for switch in switches) or "none at all"
            requested = "partition" if partition is None else f"partition {partition!r}"
            raise ReproError(f"Region {region.name!r} has no {requested}; there is {existing}.")
        named, graph = f"Partition {chosen.partition.name}", chosen.piece.graph_id
        if chosen.workpiece is None:
            raise ReproError(f"{named} cannot be written as a script: {chosen.failure}.")
        title = f"{named} of region {region.name!r} of {self.title}, graph {graph}."
        try:
            return repro_script(title, self.program.wanted(keys.get(chosen, ""), chosen))
        except ReproError as problem:
            raise ReproError(f"{named} cannot be written as a script: {problem}") from problem

    @property
    def session(self) -> Session:
        """The frozen record of all results so far; after ``close`` the last one."""
        revision = None
        if self.is_open:
            self.program.follow_trace()
            results = self.measurements.revision, self.insights.revision, self.call.mode
            found = self.profile, self.tuning, self.floor, *self.suggestions.values()
            revision = (self.program.revision(), *results, *found)
        if self._snapshot is None or (revision is not None and self._snapshot[0] != revision):
            self._snapshot = (revision, self._new_session())
        return self._snapshot[1]

    def _new_session(self) -> Session:
        """Return the session with all results so far; its diagnostics are sorted by severity."""
        program, plan_partitions = self.program, partitions(self.program)
        measured = self.measurements.of(plan_partitions)
        shown_plan = measured or self.measurements.nearest
        if measured is None and shown_plan is not None and shown_plan.results.conditions is None:
            shown_plan = None  # a session without conditions cannot say that its verdicts are of another plan
        results = shown_plan.results if shown_plan else BenchmarkResults()
        timings, costs = tuple(results.timings), tuple(results.costs)
        if timings and VariantName.FULL not in {timing.variant for timing in timings}:
            earlier, cost = self.measurements.full.get(repr(results.environment), ((), None))
            timings, costs = (*timings, *earlier), (*costs, *([cost] if cost else []))
        conditions = results.conditions
        if measured is None and shown_plan is not None and conditions is not None:
            moved = self.present_environment().changes_since(conditions.environment) and shown_plan.plan == program.plan
            of_a_plan = VariantName.REGIONAL in {timing.variant for timing in timings}
            conditions = replace(conditions, outdated=of_a_plan and not moved)
        partition_timings, partition_numerics, cures = self.measurements.figures(plan_partitions)
        session = replace(
            self._measured(program, with_measured_states(plan_partitions, partition_timings), results),
            timings=timings,
            conditions=conditions,
            variant_costs=costs,
            partition_timings=partition_timings,
            partition_numerics=partition_numerics,
            reconciliation=results.reconciliation,
            trace_s=self.trace_s,
            profile=self.profile,
            tuning=self.tuning,
            floor=self.floor,
            suggestions=self.suggestions.get(settings_text(), ()) if self.suggestions else (),
        )
        compiled = tuple(program.store.artifacts), costs, len(_COMPILES_SEEN)
        session = replace(session, compile_rate=self._rate.of(compiled, lambda: _rate_with(session)))
        renamed = measured and [part.id for part in measured.partitions] != [part.id for part in plan_partitions]
        if measured is not None and results.partition_timings and (renamed or not results.reconciliation):
            session = replace(session, reconciliation=reconcile(results.timings, region_timings(session), results.cut))
            results.reconciliation = results.reconciliation or session.reconciliation
        of_benchmark = [
            *(found for found in results.diagnostics if measured or not _depends_on_plan(found)),
            *wrong_region_diagnostics(session, cures),
        ]
        all_diagnostics = [
            *(found for found in self.plan_diagnostics if _is_still_open(found, self.first_plan, session)),
            *(found for found in self.other_ops if _is_still_open(found, self.traced_plan, session)),
            *diagnostics(program, plan_partitions, self.environment.device_type),
            *warning_diagnostics(session),
            *recompile_diagnostics(program, plan_partitions),
            *of_benchmark,
            *wrong_variant_diagnostics(session, of_benchmark),
            *plan_diagnostics(session),
            *region_diagnostics(session),
            *pattern_diagnostics(session),
            *(self.insights.diagnostics if self.insights.diagnoses else ()),
        ]
        all_diagnostics.sort(key=lambda diagnostic: list(Severity).index(diagnostic.severity), reverse=True)
        return replace(session, diagnostics=tuple(all_diagnostics))

    def _measured(self, program: Program, parts: tuple[Partition, ...], results: BenchmarkResults) -> Session:
        """Return the session of a program, whose partitions are ``parts``, with the results for the whole call."""
        capture, graphs = program.capture, program.capture.graphs
        codes, kernel_times = self.insights.codes, self.insights.kernel_times
        marked = self._marked.of(
            (graphs, program.assignment),
            lambda: (tuple(program.assignment.with_carved_marked(graphs)), members(graphs, program.assignment)),
        )
        return Session(
            title=self.title,
            environment=self.present_environment(),
            grad=capture.call.grad,
            dynamic=capture.dynamic,
            late_graphs=tuple(sorted(capture.late_graphs)),
            graphs=marked[0],
            breaks=capture.breaks,
            plan=program.plan,
            members=marked[1],
            partitions=parts,
            artifacts={
                key: replace(artifact, code=codes.get(key), kernel_times=kernel_times.get(key))
                for key, artifact in artifact_records(program, parts).items()
            },
            toolchain=program.toolchain,
            timings=tuple(results.timings),
            conditions=results.conditions,
            numerics=tuple(results.numerics),
            variant_costs=tuple(results.costs),
            memory=tuple(results.memory),
        )

    def require_open(self) -> None:
        """Raise ClosedError if the exploration is closed."""
        if not self.is_open:
            raise ClosedError(f"The exploration of {self.title} was closed. Make a new one with rx.explore(...).")

    def retraced(self, tracing: Tracing, *, dynamic: bool | None) -> Live:
        """Return new live objects of the same call, under the same regions.

        Raises:
            CaptureError: the call cannot be traced with these shapes.
        """
        return Live(self.call, self.title, dynamic=dynamic, plan=self.program.plan, tracing=tracing)

    def follow(self, earlier: Live, plan: Plan) -> None:
        """Apply a plan of an earlier trace of the call, or one that is to be traced as this trace."""
        self.traced_plan = plan
        self.program.apply(plan)
        marked = (region for region in plan.regions if region.name in earlier.program.plan)
        self.marked_in = {region.name: earlier.graphs_of_mark(region) for region in marked}
        self.other_ops = tuple(_changed_region_diagnostics(self))

    def graphs_of_mark(self, region: Region) -> Sequence[Graph]:
        """Return the graphs in which a region of the plan was marked: this trace's or an earlier trace's.

        Graphs of later calls are left out: they repeat the ops, and a new trace does not have these graphs.
        """
        if region.name in self.marked_in and region.same_nodes(self.traced_plan[region.name]):
            return self.marked_in[region.name]
        return [graph for frame in self.capture.current_frames() if not frame.late for graph in frame.graphs]

    def take_over(self, earlier: Live) -> None:
        """Continue with the artifacts and the measured plans of an earlier trace of the call, and free that trace.

        If the plan is one of these, the call runs once, so that its artifacts and figures are found.
        """
        self.plan_diagnostics, self.first_plan = earlier.plan_diagnostics, earlier.first_plan
        self.measurements.take_over(earlier.measurements)
        self.saved_artifacts, self.tuning, self.floor = earlier.saved_artifacts, earlier.tuning, earlier.floor
        earlier.capture.instead = raise_retraced
        earlier.keep_session()
        self.program.take_over(earlier.program)
        earlier.free_trace()
        if self.measurements.nearest is not None and self.measurements.nearest.plan == self.program.plan:
            self.program.record_layouts()

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable."""
        if self.is_open:
            self.keep_session()
            self.call.close()
            self.free_trace()

    def keep_session(self) -> None:
        """Keep the session as it is now; the call cannot run after that."""
        self._snapshot = (None, self.session)
        self.is_open = False

    def free_trace(self) -> None:
        """Free the traces and artifacts, but not the call."""
        self.variants.close()
        self.program.close()


_OF_THE_PLAN = (
    *(DiagnosticCode.PLAN_FAILED, DiagnosticCode.VARIANT_FAILED),
    *(DiagnosticCode.UPSTREAM_FAILED, DiagnosticCode.NO_COMPILER),
)
"""Codes of a benchmark's findings that depend on the plan without naming a region."""


def _depends_on_plan(diagnostic: Diagnostic) -> bool:
    """Return whether a benchmark's finding depends on the plan; a finding about whole-graph Inductor does not."""
    return diagnostic.region is not None or diagnostic.code in _OF_THE_PLAN


def _is_still_open(diagnostic: Diagnostic, earlier: Plan, session: Session) -> bool:
    """Return whether a diagnostic about an ``earlier`` plan asks for a step that ``session`` has not taken yet."""
    name, plan = diagnostic.region, session.plan
    if diagnostic.code is DiagnosticCode.VARIANT_WRONG:
        return plan == earlier and session.plan_numerics is None
    if name is None or name not in earlier:
        return True
    if name not in plan:
        return False
    if diagnostic.code is DiagnosticCode.CONFIG_UNKNOWN:
        return plan[name].configs == earlier[name].configs
    return plan[name].same_nodes(earlier[name])


MOST_NAMED_OPS = 6
"""The maximum number of ops that a message names."""


def _changed_region_diagnostics(live: Live) -> Iterator[Diagnostic]:
    """Yield a ``plan-differs`` for each region marked by node names that mean other ops in the new trace."""
    for region in live.program.plan.regions:
        by_names = any(selector.by_name for selector in (*region.selectors, *region.carved))
        if not by_names or region.name not in live.marked_in:
            continue
        graphs = live.marked_in[region.name]
        old_ops = _op_counts(graphs, assign(graphs, live.program.plan), region.name)
        new_ops = _op_counts(live.capture.graphs, live.program.assignment, region.name)
        if new_ops and old_ops != new_ops:
            title = (
                f"Region {region.name!r} was marked by node names, which mean other ops since the call was traced again"
            )
            details = f": {_listed_ops(new_ops)} instead of {_listed_ops(old_ops)}."
            retraces = Action(ActionKind.RETRACE, needs="dynamic")
            remedy = (
                "Look at the graph and mark the ops again; ",
                retraces,
                " with the earlier shapes brings the earlier ops back.",
            )
            yield DiagnosticCode.PLAN_DIFFERS.finding(title, details, region=region.name, remedy=remedy, upstream="")


def _op_counts(graphs: Sequence[Graph], assignment: Assignment, region: str) -> Counter[str]:
    """Return how often each operator occurs among a region's nodes in Dynamo's graphs."""
    node_names = members(graphs, assignment).get(region, {})
    return Counter(
        node.target
        for graph in graphs
        if graph.kind is GraphKind.DYNAMO
        for node in graph.ops
        if node.name in node_names.get(graph.id, ())
    )


def _listed_ops(ops: Counter[str]) -> str:
    return listing(list(ops.elements()), MOST_NAMED_OPS) if ops else "none"
