"""rx.compile and rx.status."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regional_explorer.backend.planned_backend import (
    BackendOptions,
    GraphCompile,
    PlannedBackend,
    PlannedProgram,
    planned_backend_of,
    subject_of,
    worded_for_production,
)
from regional_explorer.capture.live_graph import Frame
from regional_explorer.compiler.partition_records import artifact_records, diagnostics, environment_of, partitions
from regional_explorer.compiler.program import dynamic_remedy, frame_inputs
from regional_explorer.errors import InvalidArgumentError, check_callable, check_flag, count, shown_value, user_facing
from regional_explorer.record.artifact import ArtifactRecord
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan, Region, Tracing
from regional_explorer.record.plan_file import (
    environment_difference,
    mode_differences,
    partition_differences,
    slower_when_explored,
)
from regional_explorer.torch_api.dynamo import compile_isolated


@user_facing
def compile(  # noqa: A001, PLR0913 - named like torch.compile; options by keyword
    fn: Callable[..., Any],
    plan: Plan | str | Path | None = None,
    *,
    strict: bool | str = False,
    tracing: Tracing | None = None,
    artifacts: str | Path | None = None,
    trust_artifacts: bool = False,
    ranges: bool = False,
    dynamic: bool | None = None,
    fullgraph: bool = False,
) -> Callable[..., Any]:
    """Return ``fn`` compiled under a plan: each region by Inductor under its own config, the rest eager.

    It is ``torch.compile`` with a backend that cuts the plan's regions out of each graph. The regions of a graph are
    compiled when it first runs, and give its results already; the backward has a first run of its own.

    Args:
        fn: the function or module.
        plan: a plan, or the path of one saved with ``ex.save_plan``; without it the regions marked in the source.
        strict: raise PlanError if a call differs from the plan, instead of warning once and running that part eagerly;
            and at once if the file of the plan says that its results were wrong. With ``"environment"`` also if torch,
            the device or the number of threads is not that of the exploration.
        tracing: how calls are traced, instead of as the plan says. With frozen weights a call that takes gradients is
            an error, and a region whose weights have changed runs eagerly from then on, which is reported.
        artifacts: a directory of compiled partitions, as ``ex.save_artifacts`` writes it. What fits is loaded instead
            of compiled; what does not is reported, compiled, and saved there. Artifacts are code: name no directory
            whose code you would not run. If the plan lists its artifacts, only those are loaded.
        trust_artifacts: load whatever fits, even if the plan does not list it or others may write the directory.
        ranges: make each call of a partition a ``torch.profiler.record_function`` range, named ``mlp (forward)``; off,
            it costs nothing.
        dynamic: as in ``torch.compile``.
        fullgraph: as in ``torch.compile``.

    Raises:
        InvalidArgumentError: an argument has the wrong type.
        ArtifactError: ``artifacts`` is not a directory, or others may write to it.
        PlanError: the plan's file cannot be read; with ``strict``: its results were wrong when it was explored, or when
            called, the call differs from it.
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config of an rx.Plan is invalid.
    """
    check_callable("fn", fn, "the function or module itself: rx.compile(fn, plan='plan.json')")
    check_flag("dynamic", dynamic, optional=True)
    check_flag("fullgraph", fullgraph)
    backend = PlannedBackend(BackendOptions(plan, strict, tracing, artifacts, trust_artifacts, ranges))
    compiled = compile_isolated(fn, backend, dynamic=dynamic, fullgraph=fullgraph)
    backend.watch(compiled)
    return compiled


@dataclass(frozen=True)
class Status:
    """How a compiled function runs; ``partitions`` are those of all graphs traced so far.

    ``compiles`` says of each graph that has run when its partitions were compiled, and what that cost; ``artifacts``
    has what they run by key, with the config as it was read inside the compile.
    """

    plan: Plan
    partitions: tuple[Partition, ...]
    diagnostics: tuple[Diagnostic, ...]
    graphs: tuple[str, ...]
    compiles: tuple[GraphCompile, ...] = ()
    artifacts: Mapping[str, ArtifactRecord] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a line per region and one per diagnostic."""
        return "\n".join(self._report_lines())

    def _report_lines(self) -> Iterator[str]:
        if not self.graphs:
            yield "Nothing is compiled yet: no call was traced."
            yield from map(str, self.diagnostics)
            return
        yield f"graphs: {', '.join(self.graphs)}"
        if self.compiles:
            waited = ", ".join(f"{compiled.graph} {compiled.seconds:.1f} s" for compiled in self.compiles)
            yield f"compiled in: {waited}"
        if not self.plan.regions:
            yield "no region: everything runs eagerly"
        width = max((len(region.name) for region in self.plan.regions), default=0)
        for region in self.plan.regions:
            yield f"{region.name:<{width}}  {self._region_states(region)}"
        for diagnostic in self.diagnostics:
            yield str(diagnostic)

    def _region_states(self, region: Region) -> str:
        region_partitions = [partition for partition in self.partitions if partition.region == region.name]
        if not region_partitions:
            return "not in any graph"
        counts = Counter(partition.state for partition in region_partitions)
        words = {State.COMPILED: "compiled", State.STALE: "not compiled", State.EAGER: "eager", State.FAILED: "failed"}
        states = ", ".join(f"{counts[state]} {word}" for state, word in words.items() if state in counts)
        artifact_count = len({partition.artifact for partition in region_partitions} - {None})
        artifacts_text = f", {count(artifact_count, 'artifact')}" if artifact_count else ""
        return f"{states}{artifacts_text}{'' if region.enabled else ' (disabled)'}"


@user_facing
def status(compiled: Any) -> Status:
    """Return which regions of ``compiled``, a result of ``rx.compile``, run compiled, which run eagerly, and why.

    Raises:
        InvalidArgumentError: it was not compiled by this backend.
    """
    backend = planned_backend_of(compiled)
    if backend is None:
        raise InvalidArgumentError(
            f"{shown_value(compiled)} was not compiled under a plan: give what rx.compile(fn, plan=…) returned, or "
            'torch.compile(fn, backend="regional_explorer") after its first call.'
        )
    program, explored = backend.program, backend.explored
    records, environment = partitions(program), environment_of(backend.traced.graphs)
    current = [*backend.unknown_configs, *(slower_when_explored(explored) if explored is not None else ())]
    if backend.traced.frames:
        current += diagnostics(program, records, environment.device_type)
        if explored is not None:
            current += partition_differences(explored, records, backend.traced.late_graphs)
            current += environment_difference(explored, environment)
            current += mode_differences(explored, backend.traced.modes_of_calls())
        current += _later_traces(program)
    reported = set(map(subject_of, backend.findings))
    empty = {finding.region for finding in backend.findings if finding.code is DiagnosticCode.REGION_EMPTY} - {None}
    unreported = [
        worded_for_production(diagnostic)
        for diagnostic in current
        if subject_of(diagnostic) not in reported
        and not (diagnostic.code is DiagnosticCode.PLAN_DIFFERS and diagnostic.region in empty)  # REGION_EMPTY says it
    ]
    graphs = tuple(live.id for live in program.capture.live)
    compiles = tuple(program.compiles[graph] for graph in graphs if graph in program.compiles)
    return Status(
        program.plan, records, (*backend.findings, *unreported), graphs, compiles, artifact_records(program, records)
    )


def _later_traces(program: PlannedProgram) -> Iterator[Diagnostic]:
    """Yield a ``recompiled`` diagnostic for each graph that Dynamo traced in a later call."""
    for frame in program.capture.frames:
        if not frame.late:
            continue
        yield DiagnosticCode.RECOMPILED.finding(
            f"A later call was traced again, as graph {frame.index} ({frame_inputs(frame)})",
            f"{frame.retrace_clause}. {_cost_of(program, frame)}",
            graph=frame.dynamo[0].id,
            remedy=dynamic_remedy(frame, program.capture.frames),
            upstream="",
        )


def _cost_of(program: PlannedProgram, frame: Frame) -> str:
    graphs = [live.id for live in frame.live]
    compiles = [program.compiles[graph] for graph in graphs if graph in program.compiles]
    if not any(switch.piece.graph_id in graphs for switch in program.switches):
        return "It has no partitions."
    if not compiles:
        return "None of its partitions has run yet."
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(each.began for each in compiles)))
    artifacts, seconds = sum(each.artifacts for each in compiles), sum(each.seconds for each in compiles)
    return (
        f"Its partitions were compiled in that call, at {began}: {count(artifacts, 'new artifact')} in {seconds:.1f} s."
    )
