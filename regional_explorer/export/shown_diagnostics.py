"""A list of diagnostics that notebooks show as a table."""

from __future__ import annotations

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.render.report.shown_frame import ShownFrame

DIAGNOSTIC_COLUMNS = ("severity", "code", "message", "where", "what to do")


class DiagnosticList(list[Diagnostic]):
    """The diagnostics, most severe first; a list like any other."""

    def __repr__(self) -> str:
        """Return a paragraph per diagnostic."""
        return "\n".join(map(str, self)) or "No diagnostics."

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        rows = [
            (str(entry.severity), str(entry.code), entry.message, ", ".join(map(str, entry.where[:3])), entry.remedy)
            for entry in self
        ]
        return ShownFrame(rows, columns=list(DIAGNOSTIC_COLUMNS))._repr_html_() if rows else "<p>No diagnostics.</p>"
