"""The tables, pictures and texts of a session, live or loaded from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regional_explorer.errors.arguments import check_argument
from regional_explorer.exploration.viewer import require_notebook
from regional_explorer.export import frames, region_frames
from regional_explorer.export.compile_frames import caches_frame, compile_times_frame
from regional_explorer.export.profile_frame import profile_frame
from regional_explorer.export.save import save
from regional_explorer.insight.code import RegionCode
from regional_explorer.insight.kernel_times_frame import kernel_times_frame
from regional_explorer.insight.region_stages import RegionStages
from regional_explorer.record.codec import load_session
from regional_explorer.record.session import Session
from regional_explorer.render.picture.svg import session_svg
from regional_explorer.render.report.html import session_html
from regional_explorer.render.report.text import session_text

if TYPE_CHECKING:
    import graphviz
    import pandas as pd


def result_table(frame: Callable[[Session], pd.DataFrame]) -> property:
    """Return a property with the ``frame`` of the session."""

    def table(results: Results) -> pd.DataFrame:
        return frame(results.session)

    return property(table, doc=frame.__doc__)


class Results:
    """The tables, pictures and texts of one session, displayed as text or HTML."""

    regions = result_table(frames.regions_frame)
    partitions = result_table(frames.partitions_frame)
    timings = result_table(frames.timings_frame)
    region_timings = result_table(region_frames.region_timings_frame)
    partition_timings = result_table(region_frames.partition_timings_frame)
    reconciliation = result_table(region_frames.reconciliation_frame)
    memory = result_table(frames.memory_frame)
    numerics = result_table(frames.numerics_frame)
    region_numerics = result_table(frames.region_numerics_frame)
    compile_costs = result_table(frames.compiles_frame)
    caches = result_table(caches_frame)
    compile_times = result_table(compile_times_frame)
    op_times = result_table(profile_frame)

    def __init__(self, session: Session) -> None:
        check_argument("session", session, Session, "an rx.Session, or open a file with rx.load('x.json')")
        self._session = session

    @property
    def session(self) -> Session:
        """The frozen record."""
        return self._session

    def code(self, name: str) -> RegionCode:
        """Return the generated code of a region, as far as ``ex.code(name)`` or a benchmark has added it.

        Raises:
            UnknownRegionError: there is no such region.
        """
        return RegionCode.of(self.session, name)

    def stages(self, name: str) -> RegionStages:
        """Return the stages of a region, as far as the session has its code.

        Raises:
            UnknownRegionError: there is no such region.
            NotCompiledError: nothing of it was compiled, or ``ex.stages(name)`` was not called.
        """
        return RegionStages.of(self.session, self.code(name))

    def kernel_times(self, name: str) -> pd.DataFrame:
        """One row per kernel of a region that ``ex.kernel_times(name)`` has timed, most wasted time first.

        Raises:
            UnknownRegionError: there is no such region.
        """
        return kernel_times_frame(self.session, name)

    def graph(self, graph_id: str | None = None) -> graphviz.Digraph:
        """Return the graphs, or the one called ``graph_id``, drawn with regions as coloured clusters."""
        require_notebook("ex.graph()", ("graphviz",))
        from regional_explorer.render.picture.digraph import digraph

        return digraph(self.session, graph_id)

    def save(self, path: str | Path) -> Path:
        """Write everything to a ``.json``, ``.html``, ``.svg`` or ``.csv`` file."""
        return save(self.session, path)

    def __repr__(self) -> str:
        """Return the session as plain text."""
        return session_text(self.session)

    def _repr_mimebundle_(self, **_wanted: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        session = self.session
        return {
            "text/plain": session_text(session),
            "text/html": session_html(session, picture=session_svg(session)),
        }


class SavedSession(Results):
    """The results of a session loaded from a file; does not need torch."""


class ResultTable:
    """A property of an exploration that returns the table of the same name from its results."""

    def __set_name__(self, owner: type, name: str) -> None:
        """Store the name, and copy the docstring of the table."""
        self._name = name
        self.__doc__ = getattr(Results, name).__doc__

    def __get__(self, owner: ResultsOwner, kind: type) -> pd.DataFrame:
        """Return the current table."""
        table: pd.DataFrame = getattr(owner.results, self._name)
        return table


class ResultsOwner(Protocol):
    """An object with results."""

    @property
    def results(self) -> Results:
        """The tables, pictures and texts of all results so far."""


def load(path: str | Path) -> SavedSession:
    """Open a session saved as JSON.

    Raises:
        SessionError: the file cannot be read, is not a session, or has a newer format.
    """
    return SavedSession(load_session(path))
