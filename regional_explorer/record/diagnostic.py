"""One diagnostic: what happened, where, what upstream torch does, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from regional_explorer.record.graph import SourceLine


class Severity(StrEnum):
    """How much a diagnostic matters to somebody who reads only the first line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding with a stable ``code``, such as ``region-split``.

    ``where`` holds the lines of the user's program, ``nodes`` node names of ``graph``; any may be empty.
    """

    code: str
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
        place = f" ({', '.join(str(line) for line in self.where[:3])})" if self.where else ""
        parts = [f"[{self.code}] {self.message}{place}"]
        if self.upstream:
            parts.append(f"Upstream torch: {self.upstream}")
        if self.remedy:
            parts.append(f"What to do: {self.remedy}")
        return " ".join(parts)
