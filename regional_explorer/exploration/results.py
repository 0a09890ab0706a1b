"""Tables, pictures and texts of one session; saved sessions, and their comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.progress_line import reporting
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.errors import (
    InvalidArgumentError,
    check_argument,
    require_notebook,
    shown_value,
    user_facing,
    user_facing_methods,
)
from regional_explorer.exploration.code_results import RegionCode, RegionStages
from regional_explorer.exploration.plots import Plots, drawings
from regional_explorer.export.save import save
from regional_explorer.page.answer import ShownAnswer
from regional_explorer.page.report import session_html, session_text
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.json_file import load_session
from regional_explorer.record.session import Session
from regional_explorer.tables import benchmark as benchmark_tables
from regional_explorer.tables.code import kernel_times_table
from regional_explorer.tables.compile import caches_table, compile_times_table, patterns_table
from regional_explorer.tables.plan import kept_table, partitions_table, runs_table
from regional_explorer.tables.profile import op_times_table
from regional_explorer.tables.suggestion import SuggestionList
from regional_explorer.tables.table import Table
from regional_explorer.tables.tuning import tuning_table

if TYPE_CHECKING:
    import graphviz
    import pandas as pd

    from regional_explorer.tables.frame import ShownFrame


DRAWING = "drawing the graphs"
"""The progress text of a call while it makes pictures."""


def result_table(table: Callable[[Session], Table[Any]]) -> property:
    """Return a property with the DataFrame of a table of the session."""

    def frame(results: Results) -> pd.DataFrame:
        return table(results.session).dataframe()

    return property(frame, doc=table.__doc__)


@user_facing_methods
class Results:
    """The tables, pictures and texts of one session, displayed as text or HTML."""

    regions = result_table(benchmark_tables.regions_table)
    partitions = result_table(partitions_table)
    timings = result_table(benchmark_tables.timings_table)
    region_timings = result_table(benchmark_tables.region_timings_table)
    partition_timings = result_table(benchmark_tables.partition_timings_table)
    reconciliation = result_table(benchmark_tables.reconciliation_table)
    memory = result_table(benchmark_tables.memory_table)
    kept = result_table(kept_table)
    numerics = result_table(benchmark_tables.numerics_table)
    region_numerics = result_table(benchmark_tables.region_numerics_table)
    compile_costs = result_table(benchmark_tables.compile_costs_table)
    caches = result_table(caches_table)
    compile_times = result_table(compile_times_table)
    patterns = result_table(patterns_table)
    op_times = result_table(op_times_table)
    tuning = result_table(tuning_table)

    def __init__(self, session: Session) -> None:
        check_argument("session", session, Session, "an rx.Session, or open a file with rx.load('x.json')")
        self._session = session

    @property
    def session(self) -> Session:
        """The frozen record."""
        return self._session

    @property
    def answer(self) -> ShownAnswer:
        """The plan's speed against eager and torch.compile, whether its results are right, its cost, what to do next.

        It prints as about ten lines; ``answer.markdown`` and ``answer.json`` have the same for programs.
        """
        return ShownAnswer.of(self.session)

    @property
    def plot(self) -> Plots:
        """Drawings by matplotlib: ``gain()``, ``samples()``, ``roofline()``, ``timeline()``.

        Raises:
            MissingPackageError: matplotlib is not installed.
        """
        return Plots(self.session)

    def code(self, name: str | None = None) -> RegionCode:
        """Return the generated code of a region that ``ex.code(name)``, ``ex.roofline()`` or others have read so far.

        Without a name, the plan must have only one region.

        Raises:
            UnknownRegionError: there is no such region, or there are several and no name is given.
        """
        return RegionCode.of(self.session, name)

    def stages(self, name: str | None = None) -> RegionStages:
        """Return the stages of a region (without a name, of the only region), as far as the session has its code.

        Raises:
            UnknownRegionError: there is no such region, or there are several and no name is given.
            NotCompiledError: the region was not compiled, or ``ex.stages(name)`` was not called.
        """
        return RegionStages.of(self.session, self.code(name))

    def suggest(self) -> SuggestionList:
        """Suggest regions: repeated modules, chains between matrix products, norms, the loss, the whole graph.

        They follow from the graphs, and from ``ex.profile()`` if it was run; nothing is compiled or run. Regions that
        ``ex.suggest(budget_s=…)`` has measured come first; the order of the others is a guess. To try a suggestion,
        mark it, ``ex.mark(suggestion.name, *suggestion.selectors)``, and measure.
        """
        from regional_explorer.regions.suggest import suggestions_of  # imports torch

        return SuggestionList(suggestions_of(self.session))

    def kernel_times(self, name: str | None = None) -> pd.DataFrame:
        """One row per kernel that ``ex.kernel_times`` has timed, of one region or all regions, most wasted time first.

        Raises:
            UnknownRegionError: there is no such region.
        """
        return kernel_times_table(self.session, name).dataframe()

    def graph(self, graph_id: str | None = None) -> graphviz.Digraph:
        """Return a drawing of all graphs, or of ``graph_id``, with regions as coloured clusters."""
        require_notebook("ex.graph()", ("graphviz",))
        from regional_explorer.picture.svg import digraph

        with reporting(PLAIN_RUN) as run:
            run.progress(DRAWING, 0.0)
            return digraph(self.session, graph_id)

    def save(self, path: str | Path) -> Path:
        """Write the session to a ``.json`` or ``.html`` file, its graph to ``.svg``, its timings to ``.csv``."""
        with reporting(PLAIN_RUN) as run:
            run.progress(DRAWING, 0.0)
            return save(self.session, path, drawings=drawings)

    @property
    def text(self) -> str:
        """All tables and diagnostics as plain text."""
        return session_text(self.session)

    def __repr__(self) -> str:
        """Return the answer in about ten lines."""
        return str(self.answer)

    def _repr_mimebundle_(self, **_requested: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        session = self.session
        with reporting(PLAIN_RUN) as run:
            run.progress(DRAWING, 0.0)
            html = session_html(session, picture=session_svg(session))
        return {"text/plain": str(self.answer), "text/html": html}


class SavedSession(Results):
    """The results of a session loaded from a file; does not need torch."""


@user_facing
def load(path: str | Path) -> SavedSession:
    """Open a session saved as JSON.

    Raises:
        SessionError: the file cannot be read, is not a session, or has another format.
    """
    return SavedSession(load_session(path))


@user_facing
def compare(*views: Results | Session) -> ShownFrame:
    """Return one row per exploration or saved session: step times, speedup, compile time, and what changed.

    Each speedup is against the eager samples of its own run, so sessions of other machines and versions of torch can be
    compared. ``changed`` lists the differences from the first row besides the plan: torch, machine, shapes, ops,
    partitions, and generated code if both sessions have it. ``slowdown`` is the first row's speedup divided by this
    row's, with its 99 % interval; ``difference`` says whether the slowdown is real. A session whose plan has changed
    since it was measured gives no times. ``rx.compare(*ex.runs)`` compares the plans that one exploration measured.
    """
    for view in views:
        if not isinstance(view, (Results, Session)):
            raise InvalidArgumentError(
                f"{shown_value(view)} cannot be compared: give explorations, or sessions loaded with rx.load."
            )
    return runs_table([view.session if isinstance(view, Results) else view for view in views]).dataframe()
