"""Traces, compiles, checks and times the plans of a live call, and what suggested regions of it gain."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace

from regional_explorer.capture.shorter_call import ShorterCall, repeats_of
from regional_explorer.capture.trace import Capture, TracedGraphs
from regional_explorer.compiler import toolchain
from regional_explorer.compiler.artifact_folder import Machine
from regional_explorer.compiler.compilation import compile_plan, start_toolchain
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run, T, no_progress
from regional_explorer.compiler.shipment import Values, needs_value, values_to_send
from regional_explorer.compiler.switch import Switch, standalone_call
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import MeasureError, NoCompilerError, RegionCompileError, error_line
from regional_explorer.measure.alone import (
    RecordedInputs,
    as_in_the_call,
    race,
    record_inputs,
    surely_slower,
    timed_call,
)
from regional_explorer.measure.benchmark import BenchmarkResults, check_numerics
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.floor import ProductFile, measure_floor
from regional_explorer.measure.memory import gauge_for, memory_peak
from regional_explorer.measure.numerics import error_in_words
from regional_explorer.measure.partitions import distinct_kinds
from regional_explorer.measure.rounds import RoundsResult, figure_of
from regional_explorer.measure.timings import MeasureContext, measure_rounds
from regional_explorer.measure.turns import in_state_of_call
from regional_explorer.measure.variants import Variants, compile_failed_diagnostic
from regional_explorer.record.artifact import launches_in
from regional_explorer.record.benchmark import MemoryPeak, NumericsVerdict, Phase, VariantName, Verdict
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.floor import Floor
from regional_explorer.record.graph import GraphKind, kept_for_backward
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Direction, Plan, Region, Tracing
from regional_explorer.record.statistics import paired_gaps
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE, Outcome, Suggestion, best_first
from regional_explorer.regions.suggest import suggest_regions
from regional_explorer.torch_api.inductor import without_autotune_reports
from regional_explorer.torch_api.torch_config import settings_text
from regional_explorer.tuning.bench import CheckResult, CompileResult, RaceResult, TimedPiece
from regional_explorer.tuning.budget import Spending
from regional_explorer.tuning.crew import Crew

_OUTCOMES = {NumericsVerdict.FAILED: Outcome.WRONG, NumericsVerdict.CHAOTIC: Outcome.CHAOTIC}
"""The outcome of a try whose results were not found right."""


MOST_OF_CALL = 0.7
"""A call with more than this share of the ops of the whole one is no shorter call: it compiles hardly faster."""


@dataclass(frozen=True)
class LivePlan:
    """A plan on a trace of the call."""

    variants: Variants
    key: str
    kept_bytes: int | None
    checked: BenchmarkResults

    @property
    def program(self) -> Program:
        """The cut graphs."""
        return self.variants.program

    @property
    def constant_bytes(self) -> int:
        """The bytes of the frozen weights in its code, once it is compiled."""
        artifacts = map(self.program.store.artifacts.get, set(self.program.keys().values()))
        return sum(artifact.constants.size_bytes for artifact in artifacts if artifact and artifact.constants)


class LiveBench:
    """The bench of a live call: it traces, compiles, checks and times for real.

    All plans of one tracing share one trace; the exploration's own trace serves its tracing. Calls of the exploration
    keep running what they ran. All plans share the exploration's artifacts, so that equal code is compiled once, and
    not again when the answer is applied. Use it in a block of ``closing``.

    ``turn`` gives a turn of the exploration, for timed or for untimed work. ``crew`` compiles. ``remember`` gets the
    final comparison, as a benchmark of each plan that took part.
    """

    def __init__(
        self,
        variants: Variants,
        environment: Environment,
        run: Run,
        turn: Callable[[bool], AbstractContextManager[Any]],
        crew: Crew,
        remember: Callable[[Program, BenchmarkResults], object] = lambda _program, _results: None,
    ) -> None:
        self.variants = variants
        self.repeats = ""
        self.floor: Floor | None = None
        self._environment = environment
        self._shorter: LiveBench | None = None
        self._crew = crew
        self._remember = remember
        self._full = BenchmarkResults()
        self._peaks: dict[str, MemoryPeak] = {}
        self._values: dict[str, Values | None] = {}
        self._call = variants.call
        self._turn = turn
        self.grad = variants.call.grad
        self.at_hand = variants.program.plan
        self.device_type = environment.device_type
        self.context = MeasureContext.of(run, replace(environment, threads=torch.get_num_threads()))
        self._machine = Machine.here([environment.device.partition(" ")[0]])
        self.suggested: Sequence[Suggestion] = suggest_regions(variants.program.capture.graphs)
        self._own_tracing = variants.program.capture.tracing
        self._programs: dict[Tracing, list[Program]] = {}
        self._frames: dict[TracedGraphs, int] = {}
        self._kept_keys: set[str] = set()

    @contextmanager
    def step(self, *, timed: bool) -> Iterator[None]:
        """Context manager: hold the turn of the exploration; at its end calls run the exploration's own plan again."""
        with self._turn(timed), self.variants.program.capture.generated.collecting():
            captures = [self.variants.program.capture, *(programs[0].capture for programs in self._programs.values())]
            self._frames = {capture: len(capture.frames) for capture in captures}
            with self.variants.program.selected():
                yield

    # ---------------------------------------------------------------------------------------------------------- plans

    def start(self) -> None:
        """Start the toolchain, once per process."""
        self._crew.start()
        self._run_untimed(lambda: start_toolchain(self.variants.program, no_progress))

    def shorter(self) -> LiveBench | None:
        """Return the bench of the call in which one of each kind of repeated modules runs; None if nothing repeats."""
        self._shorter = self._run_untimed(self._make_shorter)
        return self._shorter

    def _make_shorter(self) -> LiveBench | None:
        main = self.variants.program
        try:
            repeats = repeats_of(self._call)
            if not repeats:
                return None
            call = ShorterCall(self._call, repeats)
            capture = Capture(call, self._own_tracing, dynamic=self.variants.dynamic)
        except Exception:  # noqa: BLE001 - the user's code may raise anything without its modules
            return None
        plan = Plan(tracing=self._own_tracing)
        program = Program(capture, plan, main.store, tried_configs=main.tried_configs, toolchain=main.toolchain)
        variants = Variants(call, program, dynamic=self.variants.dynamic)
        shorter = LiveBench(variants, self._environment, self.context.run, self._turn, self._crew)
        shorter.repeats = ", ".join(map(str, repeats))
        if _ops_of(program) <= MOST_OF_CALL * _ops_of(main):
            return shorter
        shorter.close()
        return None

    def prepare(self, plan: Plan) -> LivePlan:
        """Trace the call with a plan's tracing, unless that trace exists, and cut it.

        A plan that differs from an earlier one only in its configs costs no further run of the call.
        """
        return self._run_untimed(lambda: self._prepare(plan))

    def _prepare(self, plan: Plan) -> LivePlan:
        program = self._program(plan)
        program.record_layouts()
        keys = program.keys()
        key = _content(program, lambda switch: keys.get(switch, f"{switch.failure}"))
        facts = f"{key}{self._machine}{torch.get_num_threads()}{self.grad}"
        variants = Variants(self._call, program, dynamic=self.variants.dynamic)
        checked = copy.deepcopy(self._full)
        return LivePlan(variants, hashlib.sha256(facts.encode()).hexdigest()[:20], self._kept_bytes(program), checked)

    def _program(self, plan: Plan) -> Program:
        """Return the program of a plan on the trace that it requests, beside other plans' programs."""
        main, programs = self.variants.program, self._programs.setdefault(plan.tracing, [])
        if not programs and plan.tracing == self._own_tracing:
            main.record_layouts()  # for the plan at hand, they are recorded once
            programs.append(main.beside(self.at_hand))
        elif not programs:
            capture = Capture(self._call, plan.tracing, dynamic=self.variants.dynamic)
            programs.append(
                Program(capture, plan, main.store, tried_configs=main.tried_configs, toolchain=main.toolchain)
            )
        same_cut = next((program for program in programs if program.plan.cuts_the_same(plan)), None)
        program = (same_cut or programs[0]).beside(plan)
        if same_cut is None:
            programs.append(program)
        return program

    def _kept_bytes(self, program: Program) -> int | None:
        """Return the bytes that forwards keep for their backward; None if a size is unknown, or without a backward."""
        sizes = [kept.size_bytes for kept in kept_for_backward(program.capture.graphs)]
        known_sizes = [size for size in sizes if size is not None]
        return sum(known_sizes) if self.grad and len(known_sizes) == len(sizes) else None

    def compile(self, prepared: Sequence[LivePlan], run: Run) -> list[CompileResult | None]:
        """Compile plans side by side; None for those that were not reached before ``run`` was cancelled."""
        programs = [plan.program for plan in prepared]
        with without_autotune_reports():
            self._run_untimed(lambda: self._compile(programs, run))
        return list(map(_compile_result, programs))

    def _compile(self, programs: Sequence[Program], run: Run) -> None:
        first, *others = programs

        def elsewhere(todo: Sequence[WantedArtifact], run: Run) -> Sequence[WantedArtifact]:
            return self._crew.compile(todo, first.store, lambda wanted: self._values_of(wanted, programs), run)

        compile_plan(first, run, beside=others, elsewhere=elsewhere)

    def _values_of(self, wanted: WantedArtifact, programs: Sequence[Program]) -> Values | None:
        """Return the inputs of a piece that cannot be random numbers, recorded in a run of the call."""
        layouts, values = wanted.workpiece.inputs, self._values
        if not any(map(needs_value, layouts)):
            return {}
        if wanted.workpiece.fingerprint not in values:
            values[wanted.workpiece.fingerprint] = None
            program = next(program for program in programs if wanted.key in program.keys().values())
            for recorded in record_inputs(program, distinct_kinds(program)):
                if (workpiece := recorded.switch.workpiece) is not None and not recorded.why_not:
                    values[workpiece.fingerprint] = values_to_send(workpiece.inputs, recorded.args)
        return values[wanted.workpiece.fingerprint]

    def check(self, prepared: LivePlan | None) -> CheckResult:
        """Compare results with eager's, as ``ex.benchmark`` does: a plan's, or plain ``torch.compile``'s for None.

        Raises:
            CancelledError: the search was cancelled.
            RegionCompileError: it does not run.
        """
        name, variants, results = VariantName.FULL, self.variants, self._full
        if prepared is not None:
            name, variants, results = VariantName.REGIONAL, prepared.variants, prepared.checked
        run, ready = self.context.run.silent(), [name]
        results.add_verdicts(*check_numerics(variants, ready, run, results))
        verdict = results.verdicts[0].get(name, NumericsVerdict.NOT_CHECKED)
        if run.cancelled():
            raise CancelledError
        if not ready:
            raise RegionCompileError(results.diagnostics[-1].message)
        if prepared is not None and (trouble := self.trouble(prepared)):
            raise RegionCompileError(trouble)
        rows = [row for row in results.numerics if row.variant == name]
        outcome = _OUTCOMES.get(verdict, Outcome.MEASURED)
        worst = max(rows, key=lambda row: (row.verdict.withholds_speedup, row.share))
        why = "" if outcome is Outcome.MEASURED else error_in_words(worst)
        return CheckResult(outcome, why, all(row.bitwise for row in rows), verdict)

    def trouble(self, prepared: LivePlan) -> str:
        """Return what has gone wrong in this step; empty if nothing."""
        capture = prepared.program.capture
        if len(capture.frames) != self._frames[capture]:
            return "Dynamo traced the call again while it ran"
        refusals = (switch.refusal for switch in prepared.program.switches if switch.refused is not None)
        return next(filter(None, refusals), "")

    # ---------------------------------------------------------------------------------------------------------- calls

    def call(self, prepared: LivePlan, title: str) -> TimedCall:
        """Return the call under a compiled plan."""
        return dataclasses.replace(prepared.variants.get(VariantName.REGIONAL), name=title)

    def gain_s(self, prepared: LivePlan, budget_s: float, end_s: float) -> Figure:
        """Return the seconds that a call saves by a compiled plan, beside its trace with every op eager.

        Slow calls get the budget again until there are enough rounds for an interval, or the clock is at ``end_s``.

        Raises:
            MeasureError: the plan raised, or no round was complete.
            CancelledError, KeyboardInterrupt: it was cancelled or interrupted.
        """
        # Eager takes its turns as in a benchmark: what ran before a call changes its caches and the allocator's state.
        names = (VariantName.EAGER, VariantName.AOT_EAGER, VariantName.REGIONAL)
        calls = [prepared.variants.get(name) for name in names]
        phase, earlier = Phase.STEP if self.grad else Phase.FORWARD, None
        while True:
            with self.measuring(self._silent) as context:
                result = measure_rounds(calls, budget_s, context, baseline=VariantName.AOT_EAGER, earlier=earlier)
            result.stopped.raise_if_ended()
            if trouble := result.dropped.get(VariantName.REGIONAL) or self.trouble(prepared):
                raise MeasureError(trouble)
            gain_s = figure_of(paired_gaps(*(result.samples[name][phase] for name in names[1:])), result.noise)
            if gain_s.bounds or result.noise.is_too_much or self.context.clock.now() > end_s:
                return gain_s
            earlier = result

    # --------------------------------------------------------------------------------------------------------- pieces

    def pieces(self, prepared: LivePlan, budget_s: float) -> list[TimedPiece]:
        """Record the inputs of each kind of partition of a compiled plan, and time it alone.

        Partitions that run eagerly, or that this call does not run, are left out.
        """
        program = prepared.program
        records = self._run_untimed(lambda: record_inputs(program, distinct_kinds(program)))
        kinds = {kind.switch.partition.name: kind for kind in records if not kind.why_not and kind.switch.artifact}
        with as_in_the_call():
            calls = self._run_untimed(
                lambda: [call for name, kind in kinds.items() for call in _recorded_call(name, kind)]
            )
            if not calls:
                return []
            result = measure_rounds(calls, budget_s, self._silent, baseline=calls[0].name)
        result.stopped.raise_interrupt()
        return [
            TimedPiece(
                name,
                kind.switch.piece.claim.region,
                Direction.of_graph(kind.switch.piece.graph_id),
                sum(kind.runs.values()),
                result.time(name, Phase.FORWARD).value,
                kind,
            )
            for name, kind in kinds.items()
            if name in result.samples
        ]

    def race_piece(self, piece: TimedPiece, others: Mapping[str, LivePlan], budget_s: float) -> dict[str, RaceResult]:
        """Race a piece against the same piece under other plans of the same cut, unless its results there are wrong.

        Plans that give the piece equal code share one figure. Plans that do not change its code get the baseline's.
        """
        switch, artifact = piece.handle.switch, piece.handle.switch.artifact
        store, workpiece = self.variants.program.store, switch.known_workpiece
        titles: dict[str, list[str]] = {}
        configs: dict[str, Mapping[str, Any]] = {}
        for title, other in others.items():
            twin = next(twin for twin in other.program.switches if twin.partition == switch.partition)
            treatment = other.program.treatment_for(twin)  # the same in all: plans of a search differ in configs
            key = other.program.keys().get(twin, "")
            if key in store.artifacts:
                code = store.code_hash(key) or key
                titles.setdefault(code, []).append(title)
                configs.setdefault(code, other.program.config_for(twin))
        as_it_was = titles.pop(store.code_hash(artifact.key) or artifact.key, [])
        settings = settings_text()
        timings = race(
            workpiece,
            piece.handle.args,
            artifact,
            {code: configs[code] for code in titles},
            lambda config: store.artifact(workpiece.wanted(config, settings, treatment)),
            budget_s,
            self._silent,
            prune=lambda result: surely_slower(result, Phase.FORWARD, list(result.samples)),
        )
        raced = {
            code: RaceResult(timing.speedup, timing.verdict)
            for code, timing in timings.items()
            if code in titles and timing.speedup is not None
        }
        return {
            **{title: RaceResult(exactly(1.0), Verdict.BASELINE) for title in as_it_was},
            **{title: raced[code] for code, equal in titles.items() if code in raced for title in equal},
        }

    @property
    def _silent(self) -> MeasureContext:
        return dataclasses.replace(self.context, run=self.context.run.silent())

    # -------------------------------------------------------------------------------------------------- references

    def eager(self) -> TimedCall:
        """Return the call as it is."""
        return dataclasses.replace(self.variants.get(VariantName.EAGER), name=EAGER)

    def full(self) -> tuple[TimedCall, float]:
        """Return the call under plain ``torch.compile``, and the seconds of its compile."""
        try:
            compiled = self._run_untimed(lambda: self.variants.compile(VariantName.FULL))
        except Exception as error:
            self._full.diagnostics.append(compile_failed_diagnostic(VariantName.FULL, error))
            raise
        self._full.costs.append(compiled.cost)
        self._crew.longest_s = max(self._crew.longest_s, compiled.cost.seconds)
        return dataclasses.replace(self.variants.get(VariantName.FULL), name=TORCH_COMPILE), compiled.cost.seconds

    def floor_s(self, limit_s: float) -> float | None:
        """Return the floor of the call; None if products were measured only on a busy machine."""
        program, run = self.variants.program, self.context.run.silent()
        self.floor = measure_floor(program, self._environment, run, limit_s, ProductFile())
        return None if self.floor.busy else self.floor.seconds

    def peak_memory(self, call: TimedCall, limit_s: float) -> MemoryPeak | None:
        """Return the peak memory of a call; None if this system cannot measure it."""
        gauge = gauge_for(self.context.environment.device)
        if gauge is None:
            return None
        self._peaks[call.name] = self._run_untimed(lambda: memory_peak(self.variants, call, gauge, limit_s))
        return self._peaks[call.name]

    @contextmanager
    def measuring(self, context: MeasureContext) -> Iterator[MeasureContext]:
        """Context manager: yield the context in which calls are timed, and restore the user's state afterwards."""
        toolchain.build.wait()
        with in_state_of_call(self.variants, context.run) as turn:
            yield dataclasses.replace(context, turn=turn)

    # -------------------------------------------------------------------------------------------------------- freeing

    def free(self, keep: Collection[Tracing]) -> None:
        """Free the traces of all other tracings; the exploration's trace stays."""
        for tracing in self._programs.keys() - {*keep, self._own_tracing}:
            for program in self._programs.pop(tracing):
                if program.main is None:
                    program.capture.close()

    def keep(self, compared: RoundsResult, plans: Mapping[str, LivePlan]) -> None:
        """Keep the final comparison as a benchmark of each plan, and their artifacts when the traces are freed.

        If the plan at hand was not compared, it gets what was measured of eager and ``torch.compile``.
        """
        main = self.variants.program
        for title, prepared in plans.items():
            self._kept_keys |= set(prepared.program.keys().values())
            self._remember(prepared.program, self._measured(prepared.checked, compared, title))
        if main.plan not in [prepared.program.plan for prepared in plans.values()]:
            self._remember(main, self._measured(self._full, compared))

    def _measured(self, results: BenchmarkResults, compared: RoundsResult, title: str = "") -> BenchmarkResults:
        """Return the results of a plan with its rounds of a comparison, in which it had a title."""
        names = {EAGER: VariantName.EAGER, TORCH_COMPILE: VariantName.FULL, title: VariantName.REGIONAL}
        results.add_rounds(compared.of(names), self.context.environment)
        results.memory = [replace(peak, variant=names[name]) for name, peak in self._peaks.items() if name in names]
        return results

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Context manager: at the end, free all traces, and all artifacts except those of plans to ``keep``."""
        program = self.variants.program
        known_keys = set(program.store.artifacts)
        try:
            yield
        finally:
            program.store.retried |= self._crew.given_up
            kept_keys = known_keys | self._kept_keys | set(program.keys().values())
            for key in program.store.artifacts.keys() - kept_keys:
                del program.store.artifacts[key]
            self.free(())
            if self._shorter is not None:
                self._shorter.close()

    def close(self) -> None:
        """Free a shorter call with its traces."""
        self.free(())
        self.variants.close()
        self.variants.program.capture.close()
        self._call.close()

    def _run_untimed(self, work: Callable[[], T]) -> T:
        return self.context.run.threads.run_untimed(work)


def _ops_of(program: Program) -> int:
    return sum(len(graph.ops) for graph in program.capture.graphs)


def _recorded_call(name: str, recorded: RecordedInputs) -> Iterator[TimedCall]:
    """Yield the call of a compiled partition on its recorded inputs, unless it refuses them."""
    switch = recorded.switch
    if switch.artifact is not None:
        with suppress(RegionCompileError):
            compiled = standalone_call(switch.known_workpiece, switch.artifact, recorded.args)
            yield timed_call(name, compiled, recorded.args, switch.known_workpiece.restorer(recorded.args))


def _content(program: Program, name_of: Callable[[Switch], str]) -> str:
    """Return a hash of all code that runs: the partitions of each graph by name, and the ops around them."""
    switches = grouped((switch.piece.graph_id, switch) for switch in program.switches)
    content = []
    for graph in program.capture.graphs:
        inside = {name for switch in switches.get(graph.id, ()) for name in switch.piece.nodes}
        if graph.kind is not GraphKind.DYNAMO:
            around = [node.target for node in graph.ops if node.name not in inside]
            content.append((graph.id, [name_of(switch) for switch in switches.get(graph.id, ())], around))
    return hashlib.sha256(repr(content).encode()).hexdigest()[:20]


def _compile_result(program: Program) -> CompileResult | None:
    """Return the result of a program's compile; None if it was not completed."""
    store, keys = program.store, program.keys()
    failed = next((switch.failure for switch in program.switches if switch.failure is not None), "")
    failed_keys = [key for key in keys.values() if key in store.failures]
    if failed or failed_keys:
        return CompileResult("", 0.0, failed or store.failures[failed_keys[0]])
    if any(key not in store.artifacts for key in keys.values()):
        return None
    code = _content(
        program, lambda switch: store.code_hash(keys[switch]) or keys[switch] if switch in keys else "eager"
    )
    artifacts = [store.artifacts[key] for key in keys.values()]
    launches = (
        sum(launches_in(artifact.code) for artifact in artifacts)
        if all(artifact.code for artifact in artifacts)
        else None
    )
    seconds = sum(store.artifacts[key].made.waited_s for key in set(keys.values()))
    return CompileResult(code, seconds, launches=launches)


# ------------------------------------------------------------------------------------------ what suggested regions gain


NO_BUDGET = "the budget was spent before"
CANCELLED = "it was cancelled before"
INTERRUPTED = "it was interrupted before"


def measure_suggestions(
    bench: LiveBench, suggested: Sequence[Suggestion], budget_s: float, keep: Callable[[Sequence[Suggestion]], object]
) -> None:
    """Measure the gain of each suggestion. At the end ``keep`` gets all of them, even after a cancel or an interrupt.

    The best come first, then those that were not measured. Suggestions with earlier figures are measured last, and keep
    those figures if they are not reached. Nothing is marked, and the plan at hand stays. Each suggestion gets the same
    time; pieces of equal code are compiled once.

    Raises:
        NoCompilerError: there is no C++ compiler.
        KeyboardInterrupt: it was interrupted.
    """
    time, why_not = Spending(bench, budget_s, lambda: ""), NO_BUDGET
    todo, measured = sorted(suggested, key=lambda suggestion: suggestion.gain_s is not None), list[Suggestion]()
    try:
        with time.step("compiling", "starting the toolchain"):
            bench.start()
        timing_s = budget_s / (2 * max(1, len(todo)))
        for suggestion in todo:
            measured.append(_measured_suggestion(bench, time, suggestion, timing_s))
    except CancelledError:
        why_not = CANCELLED
    except KeyboardInterrupt:
        why_not = INTERRUPTED
        raise
    except Exception as error:
        why_not = error_line(error)
        raise
    finally:
        keep(best_first([*measured, *(_with_why_not(suggestion, why_not) for suggestion in todo[len(measured) :])]))


def _with_why_not(suggestion: Suggestion, why_not: str) -> Suggestion:
    """Return a suggestion with the reason why it was not measured now, unless it has an earlier figure."""
    return suggestion if suggestion.gain_s is not None else replace(suggestion, why_not=why_not)


def _measured_suggestion(bench: LiveBench, time: Spending, suggestion: Suggestion, timing_s: float) -> Suggestion:
    if time.now() >= time.end_s:
        return _with_why_not(suggestion, NO_BUDGET)
    suggestion = replace(suggestion, gain_s=None, compile_s=None, why_not="")
    plan = Plan((Region(suggestion.name, suggestion.selectors),), tracing=bench.at_hand.tracing)
    try:
        with time.step("tracing", f"cutting {suggestion.name}"):
            prepared = bench.prepare(plan)
        with time.step("compiling", f"compiling {suggestion.name}"):
            (built,) = bench.compile([prepared], time.reporting())
        if built is None or built.failure:
            time.stop_if_cancelled()
            return replace(suggestion, why_not=built.failure if built else NO_BUDGET)
        with time.step("checking", f"checking numerics: {suggestion.name}"):
            outcome, why, *_ = bench.check(prepared)
        if outcome is not Outcome.MEASURED:
            return replace(suggestion, why_not=f"{outcome}: {why}")
        with time.step("timing", f"timing {suggestion.name}", timed=True):
            gain_s = bench.gain_s(prepared, timing_s, time.end_s)
    except (CancelledError, NoCompilerError):
        raise
    except Exception as error:  # noqa: BLE001 - compiled code may raise anything; the other suggestions go on
        return replace(suggestion, why_not=error_line(error))
    return replace(suggestion, gain_s=gain_s if gain_s.bounds else None, compile_s=built.seconds, why_not=gain_s.why)
