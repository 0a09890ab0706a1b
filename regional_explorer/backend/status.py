"""``rx.status``: which regions of a compiled function run compiled, which run eagerly, and why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regional_explorer.backend.planned_backend import PlannedBackend, in_production, planned_backend_of, subject_of
from regional_explorer.backend.planned_program import GraphCompile, PlannedProgram
from regional_explorer.compiler.partition_records import diagnostics, environment_of, partitions
from regional_explorer.compiler.recompiles import frame_inputs
from regional_explorer.errors import InvalidArgumentError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region


@dataclass(frozen=True)
class Status:
    """How a compiled function runs; ``partitions`` are those of all graphs traced so far.

    ``compiles`` says of each graph that has run when its partitions were compiled, and what that cost.
    """

    plan: Plan
    partitions: tuple[Partition, ...]
    diagnostics: tuple[Diagnostic, ...]
    graphs: tuple[str, ...]
    compiles: tuple[GraphCompile, ...] = ()

    def __repr__(self) -> str:
        """Return a line per region and one per diagnostic."""
        return "\n".join(self._report_lines())

    def _report_lines(self) -> Iterator[str]:
        if not self.graphs:
            yield "Nothing is compiled yet: the function has not been called."
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
        words = {State.COMPILED: "compiled", State.STALE: "not run yet", State.EAGER: "eager", State.FAILED: "failed"}
        states = ", ".join(f"{counts[state]} {word}" for state, word in words.items() if state in counts)
        artifact_count = len({partition.artifact for partition in region_partitions} - {None})
        artifacts_text = f", {count(artifact_count, 'artifact')}" if artifact_count else ""
        return f"{states}{artifacts_text}{'' if region.enabled else ' (disabled)'}"


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
    return status_of(backend)


def status_of(backend: PlannedBackend) -> Status:
    """Return the status of one backend."""
    program = backend.program
    records, device = partitions(program), environment_of(backend.traced.graphs).device_type
    reported = set(map(subject_of, backend.findings))
    current = (*diagnostics(program, records, device), *backend.differences(), *_later_traces(program))
    empty = {diagnostic.region for diagnostic in backend.findings if diagnostic.code is DiagnosticCode.REGION_EMPTY}
    unreported = [
        in_production(diagnostic)
        for diagnostic in current
        if subject_of(diagnostic) not in reported
        and not (
            diagnostic.code is DiagnosticCode.PLAN_DIFFERS and diagnostic.region in empty - {None}
        )  # REGION_EMPTY says it
    ]
    graphs = tuple(live.id for live in program.capture.live)
    compiles = tuple(program.compiles[graph] for graph in graphs if graph in program.compiles)
    return Status(program.plan, records, (*backend.findings, *unreported), graphs, compiles)


def _later_traces(program: PlannedProgram) -> Iterator[Diagnostic]:
    """Yield one ``recompiled`` per graph of Dynamo's that a later call made it trace."""
    for frame in program.capture.frames:
        if not frame.late:
            continue
        why = f", since a guard failed: {frame.reason.strip().rstrip('. ')}" if frame.reason else ""
        cost = _cost_of([program.compiles[live.id] for live in frame.live if live.id in program.compiles])
        sizes_differ = "size mismatch" in frame.reason
        yield Diagnostic(
            DiagnosticCode.RECOMPILED,
            f"A later call was traced again, as graph {frame.index} ({frame_inputs(frame)}){why}. {cost}",
            Severity.INFO,
            graph=frame.dynamo[0].id,
            remedy="With dynamic=True one trace may serve all sizes." if sizes_differ else "",
        )


def _cost_of(compiles: Sequence[GraphCompile]) -> str:
    if not compiles:
        return "None of its partitions has run yet."
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(one.began for one in compiles)))
    artifacts, seconds = sum(one.artifacts for one in compiles), sum(one.seconds for one in compiles)
    return (
        f"Its partitions were compiled in that call, at {began}: {count(artifacts, 'new artifact')} in {seconds:.1f} s."
    )
