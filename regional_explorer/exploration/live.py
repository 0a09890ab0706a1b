"""One trace with the objects that work on it, and the session made of them."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from regional_explorer.capture.call import Call, traced_again
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.partition_records import artifact_records, diagnostics, environment_of, partitions
from regional_explorer.compiler.program import Program, recompiles
from regional_explorer.compiler.region_config import source_plan, without_unknown_configs
from regional_explorer.compiler.run import Run
from regional_explorer.diagnostics.measured import (
    pattern_diagnostics,
    plan_diagnostics,
    region_diagnostics,
    warning_diagnostics,
    wrong_regions,
    wrong_variants,
)
from regional_explorer.errors import ClosedError, listing
from regional_explorer.exploration.measurements import Measurements
from regional_explorer.insight.code_store import Insights
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.partitions import reconcile
from regional_explorer.measure.rounds import Stop
from regional_explorer.measure.variants import Variants
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.benchmark import PartitionTiming
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph, GraphKind
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan, Region
from regional_explorer.record.plan_file import (
    PlanFile,
    environment_difference,
    mode_differences,
    partition_differences,
    wrong_when_explored,
)
from regional_explorer.record.profile import Profile
from regional_explorer.record.regions import region_timings
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.suggestion import Suggestion
from regional_explorer.record.tracing import Tracing
from regional_explorer.record.tuning import Tuning
from regional_explorer.regions.select import Assignment, assign, members
from regional_explorer.torch_api.torch_config import surroundings
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.ledger import Ledger
from regional_explorer.tuning.live_bench import LiveBench
from regional_explorer.tuning.search import tune
from regional_explorer.tuning.suggested import measure_suggestions


def initial_program(
    capture: Capture, plan: Plan | PlanFile | None, environment: Environment
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Return the program under ``plan``, or under the marks in the source, and diagnostics about that plan.

    Raises:
        UnknownConfigKeyError, InvalidConfigValueError: a config in the source is invalid; for the plan of a file there
            are diagnostics instead.
    """
    if plan is None:
        marked_plan, diagnostics = source_plan(capture.graphs)
        return Program(capture, marked_plan.traced(capture.tracing)), tuple(diagnostics)
    if isinstance(plan, Plan):
        return Program(capture, plan.traced(capture.tracing)), ()
    valid_plan, diagnostics = without_unknown_configs(plan.plan)
    program = Program(capture, valid_plan.traced(capture.tracing))
    if plan.explored is not None:
        diagnostics += partition_differences(plan.explored, partitions(program))
        diagnostics += environment_difference(plan.explored, environment)
        diagnostics += mode_differences(plan.explored, capture.modes_of_calls())
        diagnostics += wrong_when_explored(plan.explored)
    return program, tuple(diagnostics)


def with_measured_states(partitions: Iterable[Partition], timings: Iterable[PartitionTiming]) -> tuple[Partition, ...]:
    """Return the partitions, compiled ones that have figures in the state ``measured``."""
    measured = {timing.partition for timing in timings}
    return tuple(
        replace(part, state=State.MEASURED) if part.state is State.COMPILED and part.id in measured else part
        for part in partitions
    )


MAX_DROPPED = 8
"""The maximum number of dropped traces that wait for the garbage collector."""

_DROPPED_TRACES: list[weakref.ref[Capture]] = []


def _note_dropped(trace: weakref.ref[Capture]) -> None:
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


class Live:
    """The call, its trace and its program, and the objects that compile it, measure it and read its code.

    For tools that build on an exploration; none of it is saved, and the classes may change. Whatever traces, compiles
    or runs the call does so in a turn of the exploration's ``exclusive_use``. ``plan_diagnostics`` are about
    ``first_plan``, which the exploration began with; ``other_ops`` about ``traced_plan``, the one under which the call
    was traced again, and its regions that got other ops than in the graphs in which they were marked, ``marked_in`` by
    name. ``saved_artifacts`` has the SHA-256 of each artifact that ``ex.save_artifacts`` has written, by key.
    """

    def __init__(
        self, call: Call, title: str, *, dynamic: bool | None, plan: Plan | PlanFile | None, tracing: Tracing
    ) -> None:
        self.title = title
        self.call = call
        self.capture = Capture(call, tracing, dynamic=dynamic)
        self.environment = environment_of(self.capture.graphs)
        self.program, self.plan_diagnostics = initial_program(self.capture, plan, self.environment)
        self.first_plan = self.traced_plan = self.program.plan
        self.variants = Variants(call, self.program, dynamic=dynamic)
        self.measurements = Measurements(self.variants, self.environment)
        self.insights = Insights(self.program)
        self.profile: Profile | None = None
        self.tuning: Tuning | None = None
        self.suggestions: dict[str, tuple[Suggestion, ...]] = {}  # those that were measured, by settings of torch
        self.marked_in: dict[str, Sequence[Graph]] = {}
        self.other_ops: tuple[Diagnostic, ...] = ()
        self.saved_artifacts: dict[str, str] = {}
        self.is_open = True
        self._snapshot: tuple[Any, Session] | None = None
        weakref.finalize(self, _note_dropped, weakref.ref(self.capture)).atexit = False

    def benchmark(
        self, variants: Sequence[str] | None, budget_s: float, run: Run, *, regions: bool, more: bool
    ) -> None:
        """Compile, check the numerics, measure, and keep the results; see ``Exploration.benchmark``."""
        results = BenchmarkResults()
        try:
            with self.capture.generated.collected():
                self.measurements.measure(variants, budget_s, run, results, regions=regions, more=more)
        finally:
            self.measurements.add(results)
            if results.timings:
                self.measurements.remember(self.session)

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

        bench = LiveBench(self.variants, self.environment, run, turn, crew)
        with contextlib.closing(crew), bench.closing():
            found = tune(bench, limits, ledger, keep)
            keep(found)
        Stop(found.stopped).raise_interrupt()

    def measure_suggestions(
        self,
        found: Sequence[Suggestion],
        budget_s: float,
        run: Run,
        turn: Callable[[bool], AbstractContextManager[Any]],
    ) -> None:
        """Measure what each suggestion would gain, and keep that; see ``Exploration.suggest``."""
        settings = surroundings()

        def keep(measured: Sequence[Suggestion]) -> None:
            self.suggestions[settings] = tuple(measured)

        bench = LiveBench(self.variants, self.environment, run, turn, Crew(0))
        with bench.closing():
            measure_suggestions(bench, found, budget_s, keep)

    @property
    def session(self) -> Session:
        """The frozen record of all results so far; after ``close`` the last one."""
        revision = None
        if self.is_open:
            results = self.measurements.revision, self.insights.revision
            found = self.profile, self.tuning, *self.suggestions.values()
            revision = (self.program.revision(), *results, *found)
        if self._snapshot is None or (revision is not None and self._snapshot[0] != revision):
            self._snapshot = (revision, self._new_session())
        return self._snapshot[1]

    def _new_session(self) -> Session:
        """Return the session with all results so far; its diagnostics are sorted by severity."""
        program, capture, graphs = self.program, self.capture, self.capture.graphs
        plan_partitions = partitions(program)
        measured = self.measurements.of(plan_partitions)
        shown_plan = measured or self.measurements.last
        if measured is None and shown_plan is not None and shown_plan.results.conditions is None:
            shown_plan = None  # without conditions nothing can say that its verdicts are of another plan
        results = shown_plan.results if shown_plan else BenchmarkResults()
        conditions = results.conditions and replace(results.conditions, outdated=measured is None)
        threads = conditions.threads if conditions else self.environment.threads
        partition_timings, partition_numerics, cures = self.measurements.figures(plan_partitions)
        codes, kernel_times = self.insights.codes, self.insights.kernel_times
        artifacts = {
            key: replace(artifact, code=codes.get(key), kernel_times=kernel_times.get(key))
            for key, artifact in artifact_records(program, plan_partitions).items()
        }
        session = Session(
            title=self.title,
            environment=replace(self.environment, threads=threads),
            grad=capture.call.grad,
            dynamic=capture.dynamic,
            late_graphs=tuple(sorted(capture.late_graphs)),
            graphs=tuple(program.assignment.with_carved_marked(graphs)),
            breaks=capture.breaks,
            plan=program.plan,
            members=members(graphs, program.assignment),
            partitions=with_measured_states(plan_partitions, partition_timings),
            timings=tuple(results.timings),
            conditions=conditions,
            numerics=tuple(results.numerics),
            artifacts=artifacts,
            toolchain=program.toolchain,
            variant_costs=tuple(results.costs),
            partition_timings=partition_timings,
            partition_numerics=partition_numerics,
            reconciliation=results.reconciliation,
            memory=tuple(results.memory),
            profile=self.profile,
            tuning=self.tuning,
            suggestions=self.suggestions.get(surroundings(), ()),
        )
        renamed = measured and [part.id for part in measured.partitions] != [part.id for part in plan_partitions]
        if measured is not None and results.partition_timings and (renamed or not results.reconciliation):
            session = replace(session, reconciliation=reconcile(results.timings, region_timings(session), results.cut))
            results.reconciliation = results.reconciliation or session.reconciliation
        of_benchmark = [
            *(found for found in results.diagnostics if measured or not _depends_on_plan(found)),
            *wrong_regions(session, cures),
        ]
        all_diagnostics = [
            *(found for found in self.plan_diagnostics if _still_asks(found, self.first_plan, session)),
            *(found for found in self.other_ops if _still_asks(found, self.traced_plan, session)),
            *diagnostics(program, plan_partitions, self.environment.device_type),
            *warning_diagnostics(session),
            *recompiles(program, plan_partitions),
            *of_benchmark,
            *wrong_variants(session, of_benchmark),
            *plan_diagnostics(session),
            *region_diagnostics(session),
            *pattern_diagnostics(session),
            *self.insights.diagnostics,
        ]
        all_diagnostics.sort(key=lambda diagnostic: list(Severity).index(diagnostic.severity), reverse=True)
        return replace(session, diagnostics=tuple(all_diagnostics))

    def require_open(self) -> None:
        """Raise ClosedError if the exploration is closed."""
        if not self.is_open:
            raise ClosedError(f"The exploration of {self.title} was closed. Make a new one with rx.explore(...).")

    def traced_again(self, tracing: Tracing, *, dynamic: bool | None) -> Live:
        """Return new live objects of the same call, under the same regions.

        Raises:
            CaptureError: it cannot be traced with these shapes.
        """
        return Live(self.call, self.title, dynamic=dynamic, plan=self.program.plan, tracing=tracing)

    def follow(self, earlier: Live, plan: Plan) -> None:
        """Apply ``plan``, of an earlier trace of the call or to be traced in this way."""
        self.traced_plan = plan
        self.program.apply(plan)
        marked = (region for region in plan.regions if region.name in earlier.program.plan)
        self.marked_in = {region.name: earlier.graphs_of_mark(region) for region in marked}
        self.other_ops = tuple(_changed_regions(self))

    def graphs_of_mark(self, region: Region) -> Sequence[Graph]:
        """Return the graphs in which a region of the plan was marked: this trace's or an earlier trace's.

        Graphs of later calls are left out: they repeat the ops, and a new trace has none.
        """
        if region.name in self.marked_in and region.same_nodes(self.traced_plan[region.name]):
            return self.marked_in[region.name]
        return [graph for frame in self.capture.frames if not frame.late for graph in (*frame.dynamo, *frame.records)]

    def take_over(self, earlier: Live) -> None:
        """Continue with the artifacts and the measured plans of an earlier trace of the call, and free that trace."""
        self.plan_diagnostics, self.first_plan = earlier.plan_diagnostics, earlier.first_plan
        self.measurements.runs = earlier.measurements.runs
        self.saved_artifacts, self.tuning = earlier.saved_artifacts, earlier.tuning
        earlier.capture.instead = traced_again
        earlier.keep_session()
        self.program.take_over(earlier.program)
        earlier.free_trace()

    def close(self) -> None:
        """Free arguments, traces and artifacts. The session stays readable."""
        if self.is_open:
            self.keep_session()
            self.call.close()
            self.free_trace()

    def keep_session(self) -> None:
        """Keep the session as it is now; nothing can be run after that."""
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
"""Codes of a benchmark's findings that depend on the plan although they name no region."""


def _depends_on_plan(diagnostic: Diagnostic) -> bool:
    """Return whether a benchmark's finding depends on the plan; a finding about whole-graph Inductor does not."""
    return diagnostic.region is not None or diagnostic.code in _OF_THE_PLAN


def _still_asks(diagnostic: Diagnostic, about: Plan, session: Session) -> bool:
    """Return whether a session has still to do what a diagnostic of the plan ``about`` asks for."""
    name, plan = diagnostic.region, session.plan
    if diagnostic.code is DiagnosticCode.VARIANT_WRONG:
        return plan == about and session.plan_numerics is None
    if name is None or name not in about:
        return True
    if name not in plan:
        return False
    if diagnostic.code is DiagnosticCode.CONFIG_UNKNOWN:
        return plan[name].configs == about[name].configs
    return plan[name].same_nodes(about[name])


MOST_NAMED_OPS = 6
"""The maximum number of ops that a message names."""


def _changed_regions(live: Live) -> Iterator[Diagnostic]:
    """Yield a ``plan-differs`` for each region marked by node names that are other ops in the new trace."""
    for region in live.program.plan.regions:
        by_names = any(selector.by_name for selector in (*region.selectors, *region.carved))
        if not by_names or region.name not in live.marked_in:
            continue
        graphs = live.marked_in[region.name]
        old_ops = _op_counts(graphs, assign(graphs, live.program.plan), region.name)
        new_ops = _op_counts(live.capture.graphs, live.program.assignment, region.name)
        if new_ops and old_ops != new_ops:
            message = (
                f"Region {region.name!r} was marked by node names, which name other ops since the call was traced "
                f"again: {_listed_ops(new_ops)} instead of {_listed_ops(old_ops)}."
            )
            retraces = Action(ActionKind.RETRACE, needs="dynamic")
            remedy = (
                "Look at the graph and mark the ops again; ",
                retraces,
                " with the earlier shapes brings them back.",
            )
            yield DiagnosticCode.PLAN_DIFFERS.found(message, region=region.name, remedy=remedy, upstream="")


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
