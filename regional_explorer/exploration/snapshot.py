"""Takes the snapshot of an exploration: the session with its graphs, partitions, timings, numerics and diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regional_explorer.compiler.partition_records import diagnostics, partitions
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.recompiles import recompiles
from regional_explorer.exploration.advice import numerics_diagnostics, region_diagnostics
from regional_explorer.exploration.benchmarks import Benchmarks, reconciled
from regional_explorer.measure.benchmark import Outcome
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.kernel_times import ArtifactKernelTimes
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.record.plan_content import with_measured_states
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import CompileCost
from regional_explorer.regions.select import members


@dataclass(frozen=True)
class Insights:
    """Results about the generated code: codes and kernel times by artifact, and why regions are slow."""

    codes: Mapping[str, ArtifactCode]
    kernel_times: Mapping[str, ArtifactKernelTimes]
    diagnostics: Sequence[Diagnostic]


def take_snapshot(
    title: str,
    environment: Environment,
    program: Program,
    toolchain: CompileCost | None,
    benchmarks: Benchmarks,
    plan_diagnostics: Sequence[Diagnostic],
    insights: Insights,
) -> Session:
    """Return the session with all results so far; its diagnostics are sorted by severity."""
    capture, graphs, plan_partitions = program.capture, program.capture.graphs, partitions(program)
    measured = benchmarks.measurements.of(plan_partitions)
    shown_plan = measured or benchmarks.measurements.last
    outcome = shown_plan.outcome if shown_plan else Outcome()
    figures = benchmarks.measurements.figures(plan_partitions)
    keys = dict.fromkeys(part.artifact or "" for part in plan_partitions)
    artifacts = program.store.artifacts
    compiled = [CompileCost(part.id, part.compile_s, part.cache or "") for part in plan_partitions if part.compile_s]
    session = Session(
        title=title,
        environment=environment,
        grad=capture.call.grad,
        dynamic=capture.dynamic,
        graphs=tuple(program.assignment.with_carved_marked(graphs)),
        breaks=capture.breaks,
        plan=program.plan,
        members=members(graphs, program.assignment),
        partitions=plan_partitions,
        timings=outcome.timings,
        conditions=outcome.conditions and replace(outcome.conditions, outdated=measured is None),
        numerics=outcome.numerics,
        compile_costs=(*([toolchain] if toolchain else []), *compiled, *outcome.costs),
        partition_timings=figures.timings,
        partition_numerics=figures.numerics,
        reconciliation=outcome.reconciliation,
        memory=outcome.memory,
        codes=tuple(insights.codes[key] for key in keys if key in insights.codes),
        compiles=tuple(artifacts[key].made for key in keys if key in artifacts),
        kernel_times=tuple(insights.kernel_times[key] for key in keys if key in insights.kernel_times),
    )
    session = with_measured_states(session)
    if measured is not None and [part.id for part in measured.partitions] != [part.id for part in plan_partitions]:
        session = replace(session, reconciliation=reconciled(session, outcome))  # its regions have other names now
    all_diagnostics = [
        *plan_diagnostics,
        *diagnostics(program, plan_partitions, environment.device_type),
        *recompiles(program),
        *outcome.diagnostics,
        *outcome.partition_results.diagnostics,
        *numerics_diagnostics(session, figures.cures),
        *region_diagnostics(session),
        *insights.diagnostics,
    ]
    all_diagnostics.sort(key=lambda diagnostic: list(Severity).index(diagnostic.severity), reverse=True)
    return replace(session, diagnostics=tuple(all_diagnostics))
