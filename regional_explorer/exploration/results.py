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
from regional_explorer.export.shown_frame import ShownFrame
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


def result_table(make: Callable[[Any], pd.DataFrame]) -> property:
    """Return a property whose DataFrame is rounded where a notebook shows it; its values stay exact."""

    def table(results: Any) -> pd.DataFrame:
        return ShownFrame(make(results))

    return property(table, doc=make.__doc__)


class Results:
    """The tables, pictures and texts of one session, displayed as text or HTML."""

    def __init__(self, session: Session) -> None:
        check_argument("session", session, Session, "an rx.Session, or open a file with rx.load('x.json')")
        self._session = session

    @property
    def session(self) -> Session:
        """The frozen record."""
        return self._session

    @result_table
    def regions(self) -> pd.DataFrame:
        """One row per region."""
        return frames.regions_frame(self.session)

    @result_table
    def partitions(self) -> pd.DataFrame:
        """One row per partition, with requested and applied config."""
        return frames.partitions_frame(self.session)

    @result_table
    def timings(self) -> pd.DataFrame:
        """One row per variant and phase."""
        return frames.timings_frame(self.session)

    @result_table
    def region_timings(self) -> pd.DataFrame:
        """One row per region and phase, measured alone, eager against compiled; filled by ``ex.benchmark()``."""
        return region_frames.region_timings_frame(self.session)

    @result_table
    def partition_timings(self) -> pd.DataFrame:
        """One row per partition that was measured alone."""
        return region_frames.partition_timings_frame(self.session)

    @result_table
    def reconciliation(self) -> pd.DataFrame:
        """How the regions and the rest add up to the whole call, from one variant to the next."""
        return region_frames.reconciliation_frame(self.session)

    @result_table
    def memory(self) -> pd.DataFrame:
        """One row per variant: the peak memory of one call, and how it was measured."""
        return frames.memory_frame(self.session)

    @result_table
    def numerics(self) -> pd.DataFrame:
        """One row per variant and output or gradient."""
        return frames.numerics_frame(self.session)

    @result_table
    def region_numerics(self) -> pd.DataFrame:
        """One row per output of each partition that was checked alone."""
        return frames.region_numerics_frame(self.session)

    @result_table
    def compile_costs(self) -> pd.DataFrame:
        """One row per compile: what was compiled, seconds, and whether the cache was cold or warm."""
        return frames.compiles_frame(self.session)

    @result_table
    def caches(self) -> pd.DataFrame:
        """One row per artifact: whether Inductor's cache had it, and for a miss which parts of the key changed."""
        return caches_frame(self.session)

    @result_table
    def compile_times(self) -> pd.DataFrame:
        """One row per region: its compile time by phase; the phases add up to ``compile_s``."""
        return compile_times_frame(self.session)

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

    @result_table
    def op_times(self) -> pd.DataFrame:
        """One row per module, source line and op: eager time and bytes moved; filled by ``ex.profile()``."""
        return profile_frame(self.session)

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
