"""Displays an exploration in a terminal, as text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regional_explorer.render.report.text import (
    diagnostics_text,
    numerics_text,
    partitions_text,
    regions_text,
    summary_text,
    timings_text,
)
from regional_explorer.ui.threads.progress import StreamProgress, Throttle

if TYPE_CHECKING:
    from regional_explorer.compiler.run_context import ProgressCallback
    from regional_explorer.exploration.exploration import Exploration


class TerminalDisplay:
    """Prints an exploration as plain text."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._measured = False

    def begin(self) -> None:
        """Show what was captured."""
        session = self._exploration.session
        print(summary_text(session), regions_text(session), sep="\n\n")  # noqa: T201 - a terminal's way to show

    @contextmanager
    def working(self, name: str) -> Iterator[ProgressCallback]:  # noqa: ARG002 - the notebook shows the name
        """Context manager around work: print its progress to stderr, and erase it afterwards."""
        progress = StreamProgress(sys.stderr)
        self._measured = True
        try:
            yield Throttle(progress)
        finally:
            progress.finish()

    def show_note(self, note: str) -> None:
        """Show a note."""
        print(note, file=sys.stderr)  # noqa: T201 - a terminal's way to show

    def finish(self) -> None:
        """Print the results found since ``begin``."""
        session = self._exploration.session
        parts = [diagnostics_text(session.diagnostics)]
        if self._measured:
            parts = [partitions_text(session), timings_text(session), numerics_text(session), *parts]
        print("", *parts, sep="\n\n" if self._measured else "\n")  # noqa: T201 - a terminal's way to show
