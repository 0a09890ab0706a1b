"""Runs benchmarks and keeps their results by the content of the compiled partitions."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from regional_explorer.compiler import toolchain
from regional_explorer.compiler.compilation import compile_plan, start_toolchain
from regional_explorer.compiler.partition_records import partitions
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError, NoCompilerError, check_flag
from regional_explorer.measure.benchmark import BenchmarkResults, benchmark
from regional_explorer.measure.partitions import benchmark_partitions
from regional_explorer.measure.rounds import check_budget
from regional_explorer.measure.timings import MeasureContext
from regional_explorer.measure.variants import Variants
from regional_explorer.record.benchmark import (
    BY_DEFAULT,
    BY_TORCH,
    CompileCost,
    Numerics,
    PartitionTiming,
    Timing,
    VariantName,
    Verdict,
    checked_variants,
)
from regional_explorer.record.changes import run_same_code, under_plan_of
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.environment import Environment
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import (
    Partition,
    PartitionContent,
    PlanContent,
    partition_content,
    plan_content,
)
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import Session

MAX_PLANS = 50
"""The maximum number of measured plans that are kept."""


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """The figures of a partition measured alone; ``sampled`` is the run and the partition of the samples."""

    timing: PartitionTiming
    numerics: tuple[Numerics, ...]
    cure: Mapping[str, Any] | None
    sampled: tuple[int, PartitionContent]


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """One benchmark: its plan, the ``partitions`` it ran with, and its results for the call and each partition.

    ``dynamic`` is that of the trace.
    """

    plan: Plan
    dynamic: bool | None
    partitions: tuple[Partition, ...]
    results: BenchmarkResults
    alone: Mapping[PartitionContent, MeasuredPartition]


REGION_SHARE = 0.5
"""The time for measuring regions alone, in addition to the budget and as a share of it."""


class Measurements:
    """Runs the benchmarks of one exploration and keeps their results by the content of the compiled partitions.

    ``last`` is the newest benchmark, ``of(partitions)`` the benchmark of a given plan. ``runs`` are the sessions of the
    last benchmark of each plan, in the order they were measured, including earlier traces of the call. ``revision``
    changes with every new result. ``full`` has the last timings of ``torch.compile`` and their cost, by environment, of
    earlier traces too.
    """

    def __init__(self, variants: Variants, environment: Callable[[], Environment]) -> None:
        self._variants = variants
        self._environment = environment
        self.last: MeasuredPlan | None = None
        self.runs: tuple[Session, ...] = ()
        self.revision = 0
        self.full: dict[str, tuple[tuple[Timing, ...], CompileCost]] = {}
        self._plans: dict[tuple[str, int, PlanContent], MeasuredPlan] = {}
        self._alone: dict[str, dict[PartitionContent, MeasuredPartition]] = {}

    def _chosen(self, variants: Sequence[str] | None, *, more: bool = False) -> list[VariantName]:
        """Return the variants to compare; by default ``torch.compile`` too, unless an earlier run has timed it.

        Raises:
            MeasureError: a variant is invalid.
        """
        compared = self._compared_variants() if more and variants is None else ()
        names = checked_variants(compared or (BY_DEFAULT if variants is None else variants))
        is_known = not compared and tuple(names) == BY_DEFAULT and repr(self._environment()) in self.full
        is_known = is_known and not self._variants.is_full_compiled()
        return self._variants.measurable([name for name in names if not (is_known and name is VariantName.FULL)])

    def at_once(self, variants: Sequence[str] | None) -> list[VariantName]:
        """Return the variants to compare, without ``torch.compile`` if its compile, of a minute perhaps, is to come."""
        names = self._chosen(variants)
        others: list[VariantName] = [name for name in names if name is not VariantName.FULL]
        return names if len(others) < 2 or self._variants.is_full_compiled() else others  # noqa: PLR2004 - eager is one

    def torch_compile_follows(self, variants: Sequence[str] | None) -> bool:
        """Return whether a comparison of ``variants`` lacks ``torch.compile`` yet, as that compiles long."""
        return self._chosen(variants) != self.at_once(variants)

    def steps(self, variants: Sequence[str] | None, *, more: bool) -> Iterator[tuple[list[VariantName], bool]]:
        """Yield the variants of each step of a benchmark, and whether the step only adds ``torch.compile``.

        The figures of the others come first, unless they are known.

        Raises:
            MeasureError: a variant is invalid.
        """
        check_flag("more", more)
        names = self._chosen(variants, more=more)
        others = names if more else self.at_once(variants)
        measured = self._earlier_results() if others != names else BenchmarkResults()
        are_known = measured.is_complete and measured.environment == self._environment()
        if not are_known or not {timing.variant for timing in measured.timings}.issuperset(others):
            yield others, False
        if others != names:
            yield names, True

    def measure(
        self,
        names: list[VariantName],
        budget_s: float,
        run: Run,
        results: BenchmarkResults,
        *,
        regions: bool,
        more: bool = False,
    ) -> None:
        """Compile stale partitions, check the numerics and measure, adding to ``results``.

        With ``more`` rounds are added to those that were measured of the same code under the same settings, by default
        of the same variants, and nothing else is done.

        Raises:
            MeasureError: the budget or a variant is invalid, no rounds can be added, or nothing could be measured.
        """
        check_budget(budget_s)
        check_flag("regions", regions)
        alone = regions and VariantName.REGIONAL in names
        alone_s = REGION_SHARE * budget_s if alone else 0.0
        if not run.cancelled() and (VariantName.REGIONAL in names or set(BY_TORCH).intersection(names)):
            compiling = run.part(0.0, 1.0, then_s=budget_s + alone_s)
            names = run.threads.run_untimed(functools.partial(self._compile_stale, names, compiling, results))
        if run.cancelled():
            return
        toolchain.build.wait()
        # Artifacts are compiled for the present settings, and all variants run with them.
        context = MeasureContext.of(run, self._environment())
        alone = alone and VariantName.REGIONAL in names
        results.environment = context.environment
        if more and self._continue(results, names):
            alone, alone_s = False, 0.0
        share = budget_s / (budget_s + alone_s)
        with suppress(CancelledError):
            whole = context.part(0.0, share, then_s=alone_s if alone else 0.0)
            completed = benchmark(self._variants, names, budget_s, whole, results)
            if completed and alone:
                benchmark_partitions(self._variants, alone_s, context.part(share, 1.0), results)

    def _earlier_results(self) -> BenchmarkResults:
        """Return the results of the last benchmark of the plan at hand; empty ones without a benchmark."""
        measured = self.of(partitions(self._variants.program)) or self.nearest
        same_plan = measured is not None and measured.plan == self._variants.program.plan
        return measured.results if measured is not None and same_plan else BenchmarkResults()

    def keep_alone(self, results: BenchmarkResults) -> None:
        """Add what the last benchmark of the plan at hand has measured of partitions alone and of the cut graph."""
        earlier = self._earlier_results()
        results.partition_timings, results.partition_numerics = earlier.partition_timings, earlier.partition_numerics
        results.cures, results.cut = earlier.cures, earlier.cut

    def _compared_variants(self) -> Sequence[str]:
        """Return the variants that the last benchmark of the plan at hand has measured; empty without one."""
        rounds = self._earlier_results().rounds
        return () if rounds is None else tuple(rounds.samples)

    def _continue(self, results: BenchmarkResults, names: Sequence[str]) -> bool:
        """Begin with the results of the last benchmark of the plan at hand; return False if there was none.

        Raises:
            MeasureError: no rounds can be added to it.
        """
        earlier = self._earlier_results()
        if earlier.rounds is None:
            return False
        why_not = ""
        if results.environment is not None and (changes := results.environment.changes_since(earlier.environment)):
            why_not = f"ran in another environment, and now there is {', '.join(changes)}"
        elif any(timing.verdict is Verdict.NONE for timing in earlier.timings):
            why_not = "did not run the same code in all rounds"
        elif earlier.rounds.noise.has_kept:
            why_not = "had too few undisturbed rounds; once nothing else runs, a new one tells more"
        elif not earlier.rounds.can_continue(names, VariantName.EAGER):
            why_not = "compared other variants, or one failed"
        if why_not:
            raise MeasureError(f"No rounds can be added: the benchmark before {why_not}. ex.benchmark() measures anew.")
        vars(results).update({name: copy.copy(value) for name, value in vars(earlier).items()}, reconciliation=())
        return True

    def _compile_stale(self, names: list[VariantName], run: Run, results: BenchmarkResults) -> list[VariantName]:
        """Compile stale partitions; return the variants that can run: only the eager ones without a C++ compiler."""
        program = self._variants.program
        try:
            if set(BY_TORCH).intersection(names):
                start_toolchain(program, run.progress)
            compile_plan(program, run)
        except NoCompilerError as error:
            results.diagnostics.append(DiagnosticCode.NO_COMPILER.finding("Nothing was compiled", f": {error}"))
            return [name for name in names if name in (VariantName.EAGER, VariantName.AOT_EAGER)]
        return names

    def take_over(self, earlier: Measurements) -> None:
        """Continue with the measured plans of an earlier trace of the call."""
        self.runs, self.full, self._plans = earlier.runs, earlier.full, earlier._plans

    def add(self, results: BenchmarkResults, program: Program) -> None:
        """Keep the results of a benchmark of a program's plan, in place of an earlier benchmark of the same plan.

        The program may be of another trace. A benchmark that ended before it measured anything is kept only if the
        plan has no other.
        """
        measured_before = self.last is not None and self.last.results.timings
        if not results.timings and (measured_before or not (results.numerics or results.diagnostics)):
            return
        main = self._variants.program
        if program is not main and program.capture is main.capture:
            main.learn_from(program)
        # Read after the run: an artifact may have rejected its inputs during it. The plan cannot have changed.
        measured = partitions(program)
        environment = repr(results.environment or self._environment())
        content = environment, _trace_content(program), _content(program, measured)
        whole = tuple(timing for timing in results.timings if timing.variant == VariantName.FULL)
        for cost in results.costs if whole and results.is_complete else ():
            if cost.what == VariantName.FULL:
                self.full[environment] = tuple(replace(timing, earlier=True) for timing in whole), cost
        if content in self._plans:
            results = _with_earlier_verdicts(results, self._plans[content].results)
        self.revision += 1
        alone = _measured_by_content(self.revision, measured, results)
        self.last = MeasuredPlan(program.plan, program.capture.dynamic, measured, results, alone)
        self._alone.setdefault(environment, {}).update(alone)
        others = [(key, other) for key, other in self._plans.items() if key != content]
        self._plans = dict([*others, (content, self.last)][-MAX_PLANS:])

    def remember(self, session: Session) -> None:
        """Keep the session of the newest benchmark, in place of an earlier session of the same plan.

        Artifacts that another plan had compiled before count as reused. Plans that differ only in configs and have the
        same code share one set of figures, the newest.
        """
        runs = grouped((_history_key(run) == _history_key(session), run) for run in self.runs)
        other_runs, own_runs = runs.get(False, []), runs.get(True, [])
        reused = {made for run in other_runs for made in _compiles(run)} & _compiles(session)
        # Other plans may have reused compiles of this plan since.
        reused -= {made for run in own_runs for made in _compiles(run) if made[0] not in run.reused}
        session = replace(session, reused=tuple(sorted(artifact for artifact, _ in reused)))
        updated = (under_plan_of(run, session) if run_same_code(run, session) else run for run in other_runs)
        self.runs = (*updated, session)[-MAX_PLANS:]

    def of(self, partitions: Iterable[Partition]) -> MeasuredPlan | None:
        """Return the last benchmark of the plan with these partitions in the present environment, or None."""
        program = self._variants.program
        return self._plans.get((repr(self._environment()), _trace_content(program), _content(program, partitions)))

    @property
    def nearest(self) -> MeasuredPlan | None:
        """The newest benchmark of the plan at hand, or of any plan, in the environment most similar to the present.

        It is of a call that is traced in the same way.
        """
        now, plan, trace = self._environment(), self._variants.program.plan, self._variants.program.capture
        plans = (
            one
            for one in reversed(self._plans.values())
            if (one.plan.tracing, one.dynamic) == (trace.tracing, trace.dynamic)
        )

        def difference(measured: MeasuredPlan) -> tuple[bool, int]:
            return measured.plan != plan, len(now.changes_since(measured.results.environment))

        return min(plans, key=difference, default=None)

    def figures(
        self, partitions: Sequence[Partition]
    ) -> tuple[tuple[PartitionTiming, ...], tuple[Numerics, ...], Mapping[str, Mapping[str, Any] | None]]:
        """Return the timings, numerics and cures of all partitions whose content was measured, under any plan.

        They are of the present environment, and those of this plan come first. Partitions have their current names;
        cures are by partition id.
        """
        measured_plan = self.of(partitions)
        alone = self._alone.get(repr(self._environment()), {})
        measured = alone if measured_plan is None else {**alone, **measured_plan.alone}
        pairs = [(part, measured[content]) for part in partitions if (content := partition_content(part)) in measured]
        # Partitions with equal content refer to the sampled partition, or if it is gone, to the first of them.
        names = {figures.sampled: part.id for part, figures in reversed(pairs)}
        names |= {figures.sampled: part.id for part, figures in pairs if figures.sampled[1] == partition_content(part)}
        timings, numerics, cures = [], [], {}
        for part, figures in pairs:
            name = names[figures.sampled]
            own = replace(figures.timing, partition=part.id, measured_as=None)
            timings.append(own if name == part.id else own.measured_with(name))
            if name == part.id:
                numerics += [replace(row, partition=part.id) for row in figures.numerics]
                cures[part.id] = figures.cure
        return tuple(timings), tuple(numerics), cures


def _content(program: Program, partitions: Iterable[Partition]) -> PlanContent:
    """Return the content of a plan in the graphs of the explored call, without the graphs of later calls."""
    return plan_content(part for part in partitions if part.graph not in program.capture.late_graphs)


def _trace_content(program: Program) -> int:
    """Return a hash of all ops of the explored call: other traces may have other ops around the same partitions."""
    capture = program.capture
    graphs = [graph for frame in capture.current_frames() if not frame.late for graph in frame.graphs]
    return hash((capture.dynamic, tuple((node.name, node.target) for graph in graphs for node in graph.nodes)))


MEASURED_AGAIN = "Measured again without a verdict: the figures are of the run before."


def _with_earlier_verdicts(results: BenchmarkResults, earlier: BenchmarkResults) -> BenchmarkResults:
    """Return the earlier results of the same plan, if they have the verdicts that the later ones lack.

    ``results`` are returned if other variants were compared, ``torch.compile`` aside, or if numerics differ.
    """
    runs = [[row for row in run.timings if row.variant != VariantName.FULL] for run in (results, earlier)]
    same = [[(row.variant, row.phase, row.numerics) for row in rows] for rows in runs]
    lost = any(row.verdict in {Verdict.BUSY, Verdict.UNKNOWN} for row in runs[0])
    unsure = any(row.verdict.is_unsure for row in runs[1])
    if same[0] != same[1] or not lost or unsure or earlier.conditions is None:
        return results
    noise = replace(earlier.conditions.noise, added=MEASURED_AGAIN)
    full = [row for row in results.numerics if row.variant == VariantName.FULL]
    return dataclasses.replace(
        earlier,
        conditions=replace(earlier.conditions, noise=noise),
        numerics=[*(row for row in earlier.numerics if not full or row.variant != VariantName.FULL), *full],
        diagnostics=list(dict.fromkeys((*earlier.diagnostics, *results.diagnostics))),
        reconciliation=(),
    )


def _measured_by_content(
    run: int, partitions: Iterable[Partition], results: BenchmarkResults
) -> dict[PartitionContent, MeasuredPartition]:
    contents = {part.id: partition_content(part) for part in partitions}
    numerics = grouped((row.partition, row) for row in results.partition_numerics)
    measured = {}
    for timing in results.partition_timings:
        name = timing.measured_as or timing.partition
        if timing.partition in contents and name in contents:
            measured[contents[timing.partition]] = MeasuredPartition(
                timing, tuple(numerics.get(name, ())), results.cures.get(name), sampled=(run, contents[name])
            )
    return measured


def _compiles(run: Session) -> set[tuple[str, float]]:
    """Return keys of the compiles of a run: the key of each artifact, and the seconds of its compile."""
    return {(key, artifact.compile.seconds) for key, artifact in run.artifacts.items() if artifact.compile}


def _history_key(run: Session) -> tuple[object, ...]:
    """Return the key of a plan in the history: its shapes and environment, and its configs even if of equal code.

    As in ``_content``, graphs of later calls do not count.
    """
    explored = (part for part in run.partitions if part.graph not in run.late_graphs)
    return (
        run.shapes,
        repr(run.environment),
        [(part.graph, part.nodes, part.artifact, partition_content(part).state) for part in explored],
    )
