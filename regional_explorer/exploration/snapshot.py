"""Builds the session of an exploration: the frozen record of all results so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.status import diagnostics, partitions
from regional_explorer.exploration.advice import region_diagnostics, without_outdated
from regional_explorer.exploration.benchmarks import Benchmarks
from regional_explorer.measure.benchmark import Outcome
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.record.region import Plan
from regional_explorer.record.session import Environment, Session
from regional_explorer.record.timing import CompileCost, Conditions
from regional_explorer.regions.select import members


def take_snapshot(
    title: str,
    environment: Environment,
    program: Program,
    toolchain: CompileCost | None,
    benchmarks: Benchmarks,
    plan_diagnostics: Sequence[Diagnostic],
    codes: Mapping[str, ArtifactCode],
) -> Session:
    """Return the session with all results so far; its diagnostics are sorted by severity."""
    capture, outcome = program.capture, benchmarks.outcome
    graphs = capture.graphs
    parts = partitions(program)
    compiled = [CompileCost(part.id, part.compile_s, part.cache or "") for part in parts if part.compile_s]
    found = Session(
        title=title,
        environment=environment,
        grad=capture.call.grad,
        graphs=tuple(program.assignment.with_carved_marked(graphs)),
        breaks=capture.breaks,
        plan=program.plan,
        members=members(graphs, program.assignment),
        partitions=parts,
        timings=outcome.timings,
        conditions=_conditions(outcome.conditions, benchmarks.measured, program.plan),
        numerics=outcome.numerics,
        compile_costs=(*([toolchain] if toolchain else []), *compiled, *outcome.costs),
        partition_timings=tuple(outcome.partition_results.timings),
        partition_numerics=tuple(outcome.partition_results.numerics),
        reconciliation=outcome.reconciliation,
        memory=tuple(outcome.memory),
        codes=tuple(codes[key] for key in dict.fromkeys(part.artifact or "" for part in parts) if key in codes),
    )
    found_diagnostics = [
        *plan_diagnostics,
        *diagnostics(program, parts, environment.device_type),
        *_measured(found, outcome),
    ]
    return replace(found, diagnostics=tuple(sorted(found_diagnostics, key=_rank)))


def _conditions(conditions: Conditions | None, measured: Plan | None, plan: Plan) -> Conditions | None:
    return replace(conditions, outdated=True) if conditions is not None and measured != plan else conditions


def _measured(session: Session, outcome: Outcome) -> list[Diagnostic]:
    return [
        *outcome.diagnostics,
        *without_outdated(session, outcome.partition_results.diagnostics),
        *region_diagnostics(session),
    ]


def _rank(item: Diagnostic) -> int:
    return list(Severity)[::-1].index(item.severity)
