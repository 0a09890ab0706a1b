"""Diagnostics: a finding with its code and severity, where it is, what upstream torch does, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from regional_explorer.record import Record
from regional_explorer.record.action import Action
from regional_explorer.record.graph import Node, SourceLine

Advice = tuple[str | Action, ...]
"""A remedy: its actions, and the words around them."""


def in_sentences(*parts: str | Action | Advice) -> Advice:
    """Return the parts of a remedy with spaces between them, without empty parts."""
    pieces = [part if isinstance(part, tuple) else (part,) for part in parts if part]
    return tuple(piece for number, part in enumerate(pieces) for piece in ((" ", *part) if number else part))


class Severity(StrEnum):
    """The severity of a diagnostic, least severe first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class DiagnosticCode(StrEnum):
    """The subject of a diagnostic, with its usual severity and upstream torch's behaviour in that case.

    ``docs/diagnostics.md`` has a section for each.
    """

    severity: Severity
    """The usual severity."""
    upstream: str
    """What upstream torch does in that case."""

    def __new__(cls, code: str, severity: Severity, upstream: str = "") -> Self:
        """Return the code with its ``severity`` and ``upstream``."""
        member = str.__new__(cls, code)
        member._value_, member.severity, member.upstream = code, severity, upstream
        return member

    REGION_MERGED = "region-merged", Severity.INFO, "the same."
    REGION_SPLIT = "region-split", Severity.WARNING, "the same."
    REGION_CYCLE = "region-cycle", Severity.WARNING
    REGION_LOST = "region-lost", Severity.ERROR, "the same, without a warning."
    REGION_EMPTY = "region-empty", Severity.WARNING, "the same, without a warning."
    REGION_SHRUNK = (
        "region-shrunk",
        Severity.INFO,
        "the same under this partitioner; its regional path uses the default one, which folds nothing.",
    )
    BACKWARD_UNMARKED = "backward-unmarked", Severity.INFO, "all such ops run eagerly, without a warning."
    BACKWARD_ONLY = "backward-only", Severity.WARNING, "it compiles the backward of such a region, and not its forward."
    CONFIG_CONFLICT = (
        "config-conflict",
        Severity.WARNING,
        "each piece is compiled under the config that comes first in it, without a warning.",
    )
    CONFIG_NESTED = "config-nested", Severity.WARNING, "the same: an inner annotation replaces the outer one entirely."
    CONFIG_INERT = "config-inert", Severity.INFO, "the same, without a warning."
    CONFIG_GLOBAL = ("config-global", Severity.WARNING, "it is patched in for the one compile, whatever it does there.")
    CONFIG_UNKNOWN = (
        "config-unknown",
        Severity.WARNING,
        "a key that torch does not have is an error; a value of the wrong type is taken as it is.",
    )
    SUBGRAPH_OPTIONS = (
        "subgraph-options",
        Severity.WARNING,
        "each direction is compiled by the compiler in the options, and runs eagerly if there is none.",
    )
    ANNOTATION_FALSE = "annotation-false", Severity.WARNING, "the same: only the presence of the key counts."
    GRAPH_BREAK = "graph-break", Severity.INFO, "the same, without a warning; this line runs as plain Python."
    STATE_KEPT = "state-kept", Severity.INFO, "any first call leaves the same values."
    STATE_GUARDED = "state-guarded", Severity.WARNING, "the same, without a warning before Dynamo's limit."
    SOURCE_CHANGED = "source-changed", Severity.WARNING, "the new text is shown beside the old numbers."
    RECOMPILED = "recompiled", Severity.INFO, "it would compile all its regions again at that moment."
    PLAN_DIFFERS = "plan-differs", Severity.WARNING, "no warning."
    AOT_EAGER_FAILED = (
        "aot-eager-failed",
        Severity.WARNING,
        "aot_eager fails with this error, and so do regions that leave this op outside; plain torch.compile runs.",
    )
    REGION_FAILED = "region-failed", Severity.ERROR, "the whole call would fail."
    PASS_FAILED = "pass-failed", Severity.WARNING, "a custom pass of Inductor's that raises ends the call."
    NO_COMPILER = "no-compiler", Severity.ERROR
    ARTIFACT_DIFFERS = "artifact-differs", Severity.WARNING, "it has no artifacts."
    ARTIFACT_DAMAGED = "artifact-damaged", Severity.WARNING, "it has no artifacts."
    ARTIFACT_UNSAVED = "artifact-unsaved", Severity.WARNING, "it has no artifacts."
    FULL_FAILED = "full-failed", Severity.ERROR
    UPSTREAM_FAILED = "upstream-failed", Severity.ERROR, "this is what the marks alone give."
    UPSTREAM_MERGED = (
        "upstream-merged",
        Severity.WARNING,
        "joins all ops of one id, unless a path through other ops separates them.",
    )
    UPSTREAM_CONFIG = (
        "upstream-config",
        Severity.WARNING,
        (
            "regional_inductor takes the first config it meets in a piece, that of a region feeding it included; lite "
            "mode takes none."
        ),
    )
    UPSTREAM_IGNORED = "upstream-ignored", Severity.WARNING, "the same, without a warning."
    PLAN_FAILED = "plan-failed", Severity.ERROR
    VARIANT_FAILED = "variant-failed", Severity.ERROR
    VARIANT_WRONG = "variant-wrong", Severity.ERROR, "the same, without a warning."
    TRACE_DIFFERS = (
        "trace-differs",
        Severity.ERROR,
        "the same, without a warning: every compiler of this trace gives these values.",
    )
    CALL_NONDETERMINISTIC = "call-nondeterministic", Severity.WARNING, "the same, without a warning."
    REGION_NUMERICS = "region-numerics", Severity.WARNING, "runs it anyway."
    REGION_SLOWER = "region-slower", Severity.INFO, "compiles it anyway."
    PLAN_SLOWER = "plan-slower", Severity.WARNING, ""
    REGION_WORTH = "region-worth", Severity.INFO
    INDUCTOR_WARNING = (
        "inductor-warning",
        Severity.INFO,
        "the same warning, without the region, often once per process; none where the code comes from a cache.",
    )
    PATTERN_LOST = "pattern-lost", Severity.INFO, "the same, without a warning."
    REGION_TIME = "region-time", Severity.INFO, "it does not measure this."
    OP_RECOMPUTED = "op-recomputed", Severity.INFO, "the same, without a warning."
    FUSION_REFUSED = "fusion-refused", Severity.INFO, "the same, without a warning."
    KERNEL_BOUND = "kernel-bound", Severity.INFO, "the same, without a warning."
    LAUNCH_BOUND = "launch-bound", Severity.INFO, "the same, without a warning."

    def finding(  # noqa: PLR0913 - one for each field of a diagnostic
        self,
        title: str,
        details: str = ".",
        *,
        region: str | None = None,
        graph: str | None = None,
        at: Iterable[Node | str] = (),
        where: Iterable[Node | SourceLine | None] | None = None,
        remedy: str | Advice = "",
        severity: Severity | None = None,
        upstream: str | None = None,
    ) -> Diagnostic:
        """Return a finding with this code; ``title`` is its first clause, ``details`` the rest of what it says.

        A remedy that has actions is a tuple of them and of the words around them. ``at`` are the nodes of ``graph``
        that it is about, or their names. ``where`` are its lines, or nodes that have lines, if these are not the nodes
        of ``at``; None in it is left out. ``severity`` and ``upstream`` replace the usual ones; an empty ``upstream``
        leaves that sentence out.
        """
        at = list(at)
        places = (place for place in at if isinstance(place, Node)) if where is None else where
        lines = (place.source if isinstance(place, Node) else place for place in places)
        return Diagnostic(
            self,
            title,
            details,
            severity or self.severity,
            region,
            graph,
            tuple(node.name if isinstance(node, Node) else node for node in at),
            tuple(dict.fromkeys(line for line in lines if line is not None)),
            self.upstream if upstream is None else upstream,
            remedy if isinstance(remedy, tuple) else tuple(filter(None, (remedy,))),
        )


class Diagnostic(Record, frozen=True):
    """One finding with a stable ``code``, such as ``region-split``."""

    code: DiagnosticCode
    title: str
    """What was found, in a clause."""
    details: str = "."
    """What follows the title: how it ends, and further sentences."""
    severity: Severity = Severity.WARNING
    """How serious it is."""
    region: str | None = None
    """The name of its region; None without one."""
    graph: str | None = None
    """The id of its graph; None without one."""
    nodes: tuple[str, ...] = ()
    """Names of nodes of ``graph``."""
    where: tuple[SourceLine, ...] = ()
    """Lines of the user's program."""
    upstream: str = ""
    """What upstream torch does in that case."""
    advice: Advice = ()
    """The remedy, in words and actions."""

    @property
    def message(self) -> str:
        """What was found, in sentences."""
        return f"{self.title}{self.details}"

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of its remedy, in order."""
        return tuple(part for part in self.advice if isinstance(part, Action))

    @property
    def remedy(self) -> str:
        """The remedy, in words and Python."""
        return "".join(map(str, self.advice))

    def __str__(self) -> str:
        """Return one readable paragraph."""
        lines = f" ({', '.join(map(str, self.where[:3]))})" if self.where else ""
        upstream = f" Upstream torch: {self.upstream}" if self.upstream else ""
        remedy = f" What to do: {self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.message}{lines}{upstream}{remedy}"
