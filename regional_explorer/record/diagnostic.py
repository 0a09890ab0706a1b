"""Diagnostics: a finding with its code and severity, where it is, what upstream torch does, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from regional_explorer.record.graph import SourceLine


class Severity(StrEnum):
    """The severity of a diagnostic, least severe first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class DiagnosticCode(StrEnum):
    """What a diagnostic is about; ``docs/diagnostics.md`` has a section for each."""

    REGION_MERGED = "region-merged"
    REGION_SPLIT = "region-split"
    REGION_CYCLE = "region-cycle"
    REGION_LOST = "region-lost"
    REGION_EMPTY = "region-empty"
    REGION_SHRUNK = "region-shrunk"
    REGION_GROWN = "region-grown"
    BACKWARD_UNMARKED = "backward-unmarked"
    BACKWARD_ONLY = "backward-only"
    RECOMPUTE_PARTIAL = "recompute-partial"
    CONFIG_NEIGHBOUR = "config-neighbour"
    CONFIG_CONFLICT = "config-conflict"
    CONFIG_NESTED = "config-nested"
    CONFIG_INERT = "config-inert"
    CONFIG_GLOBAL = "config-global"
    CONFIG_UNKNOWN = "config-unknown"
    CONFIG_DIRECTION = "config-direction"
    SUBGRAPH_EAGER = "subgraph-eager"
    SUBGRAPH_OPTIONS = "subgraph-options"
    ANNOTATION_FALSE = "annotation-false"
    GRAPH_BREAK = "graph-break"
    STATE_KEPT = "state-kept"
    SOURCE_CHANGED = "source-changed"
    RECOMPILED = "recompiled"
    PLAN_DIFFERS = "plan-differs"
    AOT_EAGER_FAILED = "aot-eager-failed"
    REGION_FAILED = "region-failed"
    NO_COMPILER = "no-compiler"
    ARTIFACT_DIFFERS = "artifact-differs"
    ARTIFACT_DAMAGED = "artifact-damaged"
    ARTIFACT_UNSAVED = "artifact-unsaved"
    FULL_FAILED = "full-failed"
    UPSTREAM_FAILED = "upstream-failed"
    UPSTREAM_MERGED = "upstream-merged"
    UPSTREAM_CONFIG = "upstream-config"
    UPSTREAM_IGNORED = "upstream-ignored"
    VARIANT_FAILED = "variant-failed"
    TRACE_DIFFERS = "trace-differs"
    CALL_NONDETERMINISTIC = "call-nondeterministic"
    REGION_NUMERICS = "region-numerics"
    REGION_SLOWER = "region-slower"
    REGION_WORTH = "region-worth"
    OP_RECOMPUTED = "op-recomputed"
    FUSION_REFUSED = "fusion-refused"
    KERNEL_BOUND = "kernel-bound"
    LAUNCH_BOUND = "launch-bound"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding with a stable ``code``, such as ``region-split``.

    ``where`` holds the lines of the user's program, ``nodes`` node names of ``graph``; any may be empty.
    """

    code: DiagnosticCode
    message: str
    severity: Severity = Severity.WARNING
    region: str | None = None
    graph: str | None = None
    nodes: tuple[str, ...] = ()
    where: tuple[SourceLine, ...] = ()
    upstream: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        """Return one readable paragraph."""
        lines = f" ({', '.join(str(line) for line in self.where[:3])})" if self.where else ""
        sentences = [f"[{self.code}] {self.message}{lines}"]
        if self.upstream:
            sentences.append(f"Upstream torch: {self.upstream}")
        if self.remedy:
            sentences.append(f"What to do: {self.remedy}")
        return " ".join(sentences)
