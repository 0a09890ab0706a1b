"""``rx.status``: which regions of a compiled function run compiled, which run eagerly, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regional_explorer.backend.planned_backend import PlannedBackend, planned_backend_of
from regional_explorer.compiler.partition_records import diagnostics, environment_of, partitions
from regional_explorer.errors import InvalidArgumentError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan
from regional_explorer.record.region import Region


@dataclass(frozen=True)
class Status:
    """How a compiled function runs; ``partitions`` are those of all graphs traced so far."""

    plan: Plan
    partitions: tuple[Partition, ...]
    diagnostics: tuple[Diagnostic, ...]
    graphs: tuple[str, ...]

    def __repr__(self) -> str:
        """Return a line per region and one per diagnostic."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.graphs:
            yield "Nothing is compiled yet: the function has not been called."
            return
        yield f"graphs: {', '.join(self.graphs)}"
        if not self.plan.regions:
            yield "no region: everything runs eagerly"
        width = max((len(region.name) for region in self.plan.regions), default=0)
        for region in self.plan.regions:
            yield f"{region.name:<{width}}  {self._region(region)}"
        for found in self.diagnostics:
            yield f"[{found.code}] {found.message}"

    def _region(self, region: Region) -> str:
        parts = [part for part in self.partitions if part.region == region.name]
        if not parts:
            return "not in any graph"
        counts = Counter(part.state for part in parts)
        words = {State.COMPILED: "compiled", State.STALE: "not run yet", State.EAGER: "eager", State.FAILED: "failed"}
        states = ", ".join(f"{counts[state]} {word}" for state, word in words.items() if state in counts)
        artifacts = len({part.artifact for part in parts} - {None})
        shared = f", {count(artifacts, 'artifact')}" if artifacts else ""
        return f"{states}{shared}{'' if region.enabled else ' (disabled)'}"


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
    parts, device = partitions(program), environment_of(backend.traced.graphs).device_type
    reported = {(found.code, found.region) for found in backend.findings}
    found_now = (*diagnostics(program, parts, device), *backend.differences())
    empty = {found.region for found in backend.findings if found.code is DiagnosticCode.REGION_EMPTY}
    unreported = [
        found
        for found in found_now
        if (found.code, found.region) not in reported
        and not (found.code is DiagnosticCode.PLAN_DIFFERS and found.region in empty)  # REGION_EMPTY covers it
    ]
    graphs = tuple(live.id for live in program.capture.live)
    return Status(program.plan, parts, (*backend.findings, *unreported), graphs)
