"""Displays an exploration in a terminal, as text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from regional_explorer.render.report.plan_tables import partitions_table, regions_table
from regional_explorer.render.report.result_tables import numerics_table, timings_table
from regional_explorer.render.report.text import diagnostics_text, summary_text, table_text
from regional_explorer.ui.threads.progress import StreamProgress, Throttle

if TYPE_CHECKING:
    from regional_explorer.compiler.run_context import ProgressCallback
    from regional_explorer.exploration.exploration import Exploration


class TerminalDisplay:
    """Prints an exploration as plain text."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._measured = False

    def set_benchmark(self, variants: Sequence[str], budget_s: float | None) -> None:
        """Do nothing: there is no panel."""

    def begin(self) -> None:
        """Show what was captured."""
        session = self._exploration.session
        print(summary_text(session), table_text(regions_table(session)), sep="\n\n")  # noqa: T201 - a terminal's way to show

    @contextmanager
    def working(self, name: str) -> Iterator[ProgressCallback]:  # noqa: ARG002 - the notebook shows the name
        """Context manager around work: print its progress to stderr, and erase it afterwards."""
        self._measured = True
        with closing(StreamProgress(sys.stderr)) as progress:
            yield Throttle(progress)

    def show_note(self, note: str) -> None:
        """Show a note."""
        print(note, file=sys.stderr)  # noqa: T201 - a terminal's way to show

    def finish(self) -> None:
        """Print the results found since ``begin``."""
        session = self._exploration.session
        sections = [diagnostics_text(session.diagnostics)]
        if self._measured:
            tables = partitions_table(session), timings_table(session), numerics_table(session)
            sections = [*map(table_text, tables), *sections]
        print("", *sections, sep="\n\n" if self._measured else "\n")  # noqa: T201 - a terminal's way to show
