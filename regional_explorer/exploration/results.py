"""The results of an exploration: tables, pictures, texts and files of its session; code, stages, floor, a search."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from regional_explorer.compiler.progress_line import reporting
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.errors import (
    InvalidArgumentError,
    MeasureError,
    NotCompiledError,
    PlanError,
    SessionError,
    check_argument,
    require_notebook,
    shown_value,
    user_facing,
    user_facing_methods,
)
from regional_explorer.exploration.plots import Plots, drawings
from regional_explorer.page.answer import ShownAnswer
from regional_explorer.page.code import code_html, code_text, diff_html, diff_text, stages_html, stages_text
from regional_explorer.page.report import page_html, session_html, session_text
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.artifact import ArtifactCode, CodeDiff
from regional_explorer.record.files import dump_session, file_path, load_session, save_plan, write_file
from regional_explorer.record.floor import Floor
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan, the_region
from regional_explorer.record.plan_file import ExplorationRecord
from regional_explorer.record.reach import phase_reaches, reach_of
from regional_explorer.record.region_code import Coverage, PartitionCode, partition_codes, region_code, total_coverage
from regional_explorer.record.session import Session
from regional_explorer.record.stages import PartitionStages, check_followed, region_stages
from regional_explorer.record.tuning import Tuning
from regional_explorer.style.css import PAGE, page_css
from regional_explorer.style.element import node, to_html
from regional_explorer.style.formats import config_text, size
from regional_explorer.tables import benchmark as benchmark_tables
from regional_explorer.tables.code import (
    compile_costs_table,
    kernel_times_table,
    kernels_table,
    patterns_table,
    stage_nodes_table,
    stages_table,
)
from regional_explorer.tables.floor import floor_sentence, floor_table, gain_table
from regional_explorer.tables.frame import ShownFrame, table_csv
from regional_explorer.tables.plan import kept_table, measured_plans, partitions_table, runs_table
from regional_explorer.tables.profile import op_times_table
from regional_explorer.tables.regions import passes_table, regions_table
from regional_explorer.tables.table import TEXT_WIDTH, Table
from regional_explorer.tables.tuning import (
    SuggestionList,
    search_sentences,
    tries_table,
    tuning_table,
)

if TYPE_CHECKING:
    import graphviz
    import pandas as pd


DRAWING = "drawing the graphs"
"""The progress text of a call while it makes pictures."""

ENDINGS = (".json", ".html", ".svg", ".csv")
"""The extensions of the files that a session can be saved to."""


def save(session: Session, path: str | Path, runs: Sequence[Session] = ()) -> Path:
    """Write ``session`` to ``path``: ``.json`` (all of it), ``.html``, ``.svg`` (picture), ``.csv`` (timings).

    The HTML page also lists the measured plans, those of ``runs``, and has the drawings if matplotlib is installed.

    Raises:
        SessionError: the extension is not one of these, or the file cannot be written.
    """
    target = file_path(path, SessionError)
    with reporting(PLAIN_RUN) as run:
        run.progress(DRAWING, 0.0)
        match target.suffix.lower():
            case ".json":
                text = dump_session(session)
            case ".html":
                text = page_html(session, measured_plans(runs, session), drawings(session))
            case ".svg":
                text = session_svg(session)
            case ".csv":
                text = table_csv(benchmark_tables.timings_table(session).dataframe())
            case other:
                raise SessionError(
                    f"Cannot save to {target.name!r}: the extension must be one of {', '.join(ENDINGS)}, not {other!r}."
                )
    write_file(target, text, SessionError)
    return target


def result_table(table: Callable[[Session], Table[Any]]) -> property:
    """Return a property with the DataFrame of a table of the session."""

    def frame(results: Results) -> pd.DataFrame:
        return table(results.session).dataframe()

    return property(frame, doc=table.__doc__)


@user_facing_methods
class Results:
    """The tables, pictures and texts of one session, displayed as text or HTML."""

    regions = result_table(regions_table)
    partitions = result_table(partitions_table)
    timings = result_table(benchmark_tables.timings_table)
    reconciliation = result_table(benchmark_tables.reconciliation_table)
    kept = result_table(kept_table)
    numerics = result_table(benchmark_tables.numerics_table)
    region_numerics = result_table(benchmark_tables.region_numerics_table)
    compile_costs = result_table(compile_costs_table)
    patterns = result_table(patterns_table)
    passes = result_table(passes_table)
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
        """Drawings by matplotlib: ``gain()``, ``waterfall()``, ``samples()``, ``timeline()``.

        Raises:
            MissingPackageError: matplotlib is not installed.
        """
        return Plots(self.session)

    def code(self, name: str | None = None) -> RegionCode:
        """Return the generated code of a region that ``ex.code(name)`` or other calls have read so far.

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

    def floor(self) -> FloorResult:
        """Return the least time of the call on its machine, as ``ex.floor()`` has measured it, and what is left.

        Raises:
            MeasureError: it was not measured.
        """
        result = FloorResult(self.session)
        _ = result.record
        return result

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
        return save(self.session, path)

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


# --------------------------------------------------------------------------------------- -- code, stages, floor, search


class CodeResult(ABC):
    """A result that displays as text or HTML."""

    def __repr__(self) -> str:
        """Return the result as text."""
        return str(self)

    def _repr_mimebundle_(self, **_requested: Any) -> dict[str, str]:
        """Return plain text and HTML for Jupyter front ends."""
        return {"text/plain": str(self), "text/html": self._html()}

    @abstractmethod
    def _html(self) -> str: ...


@dataclass(frozen=True, repr=False)
class CodeDiffs(CodeResult):
    """The differences in the code of a region's partitions; it displays as text or HTML."""

    region: str
    partitions: tuple[CodeDiff, ...]

    @property
    def same(self) -> bool:
        """Whether nothing changed in any partition."""
        return all(part.same for part in self.partitions)

    def __iter__(self) -> Iterator[CodeDiff]:
        """Iterate over the partitions."""
        return iter(self.partitions)

    def __str__(self) -> str:
        """Return the differences as text."""
        return diff_text(self.region, self.partitions)

    def _html(self) -> str:
        return diff_html(self.region, self.partitions)


@dataclass(frozen=True, repr=False)
class TuningResult(CodeResult):
    """The result of a search for the best plan: the answer, then the plans that were timed.

    ``ex.plan = ex.tune().plan`` applies the plan; ``ex.tuning`` has every try. ``explored`` is what a saved plan says
    of the call.
    """

    record: Tuning
    explored: ExplorationRecord

    @property
    def plan(self) -> Plan | None:
        """The best plan; None if no plan is faster than eager or ``torch.compile``, or if the search was cancelled."""
        return self.record.plan

    def save(self, path: str | Path) -> Path:
        """Write the best plan to a JSON file, for ``rx.compile(fn, path)``; the plan of the exploration stays.

        Raises:
            PlanError: there is no such plan, or the file cannot be written.
        """
        if self.plan is None:
            raise PlanError(f"There is no plan to save. {search_sentences(self.record)}")
        speed = self.record.by_title[self.record.answer].speedup
        bounds = (speed and speed.bounds) or (None, None)
        explored = msgspec.structs.replace(
            self.explored, speedup=speed and speed.value, speedup_low=bounds[0], speedup_high=bounds[1]
        )
        return save_plan(self.plan, path, explored)

    def __str__(self) -> str:
        """Return the answer, and the table."""
        return "\n".join(
            [*textwrap.wrap(search_sentences(self.record), TEXT_WIDTH), "", tries_table(self.record).text()]
        )

    def _html(self) -> str:
        nodes = [node("p", search_sentences(self.record)), *tries_table(self.record).elements()]
        return f'<div class="{PAGE}"><style>{page_css()}</style>{to_html(*nodes)}</div>'


@user_facing_methods
@dataclass(frozen=True, repr=False)
class RegionCode(CodeResult):
    """The generated code of a region, an entry for each partition whose code is known; it displays as text or HTML."""

    region: str
    partitions: tuple[PartitionCode, ...]
    note: str = ""

    @classmethod
    def of(cls, session: Session, region: str | None) -> RegionCode:
        """Return the code of a region that ``session`` holds.

        Raises:
            UnknownRegionError: there is no such region, or ``region`` is None and there are several.
        """
        name = the_region(session.plan, region).name
        return cls(name, region_code(session, name))

    @classmethod
    def under(
        cls,
        session: Session,
        region: str,
        config: Mapping[str, Any],
        target: GpuTarget | None,
        codes: Mapping[str, ArtifactCode],
    ) -> RegionCode:
        """Return the code ``codes``, by partition id, which was generated but not compiled."""
        notes = [f"Generated under {config_text(config)}, not compiled." if config else "", _gpu_note(target)]
        return cls(region, tuple(partition_codes(session, codes)), " ".join(filter(None, notes)))

    def diff(self, other: RegionCode) -> CodeDiffs:
        """Return the differences to the code of ``other``: ``ex.code("mlp").diff(ex.code("mlp", config={…}))``.

        Raises:
            InvalidArgumentError: ``other`` is not code, or is for another region.
        """
        check_argument("other", other, RegionCode, "what ex.code(…) returns")
        if other.region != self.region:
            raise InvalidArgumentError(f"The code of {self.region!r} cannot be compared with code of {other.region!r}.")
        after = {part.partition.id: part.code for part in other.partitions}
        pairs = ((part.partition.id, part.code) for part in self.partitions if part.partition.id in after)
        return CodeDiffs(self.region, tuple(CodeDiff(name, before, after[name]) for name, before in pairs))

    def __iter__(self) -> Iterator[PartitionCode]:
        """Iterate over the partitions."""
        return iter(self.partitions)

    @property
    def coverage(self) -> Coverage:
        """The numbers of nodes and kernels, and of those that are linked."""
        return total_coverage(tuple(part.coverage for part in self.partitions))

    @property
    def kernels(self) -> pd.DataFrame:
        """One row per kernel, in the order they run: its ops, bytes and operations, and its nodes and source lines.

        Code for a GPU that is not there has more columns: bound, registers, spilled and shared bytes, occupancy, launch
        config.
        """
        return kernels_table(self.partitions).dataframe()

    def __str__(self) -> str:
        """Return the kernels and the code of all partitions as text."""
        return code_text(self.region, self.partitions, self.note)

    def _html(self) -> str:
        return code_html(self.region, self.partitions, self.note)


def _gpu_note(target: GpuTarget | None) -> str:
    if target is None:
        return ""
    shared = f" or {size(target.last_cache_bytes)} of Infinity Cache" if target.last_cache_bytes else ""
    return (
        f"Generated for {target.title}, not run. Bounds come from its data sheet ({target.source}: "
        f"{target.memory_gb_s:,} GB/s); nothing was measured. They hold for data in memory: data still in its "
        f"{size(target.l2_bytes)} of L2 cache{shared} moves faster. Launch costs are not included. "
        "Registers are counted for the first launch config: nothing was autotuned. "
        "For extern calls only bytes and operations are known. kernel.gpu.assembly has the assembly of each kernel."
    )


def why_no_code(session: Session, region: str) -> str:
    """Return why ``session`` has no generated code of a region, and what to do."""
    name = repr(region)
    partitions = [part for part in session.partitions if part.region == region]
    error = next((part.error for part in partitions if part.state is State.FAILED and part.error), None)
    if error is not None:
        return (
            f"Region {name} has no code, because it did not compile: {error} "
            f"Try another config with ex.configure({name}, …), or see ex.repro({name})."
        )
    if not session.plan[region].enabled:
        return f"Region {name} has no code: it is disabled and runs eagerly. Call ex.enable({name}), then ex.compile()."
    if not any(part.state is not State.EAGER for part in partitions):
        return f"Region {name} has no code: none of its ops could be cut out. ex.diagnostics says why."
    if any(part.artifact is not None for part in partitions):
        return f"The code of region {name} is not in this session: call ex.code({name}) before ex.save."
    return (
        f"Region {name} has no code yet: it has not been compiled in its current form. Call ex.compile(). "
        f"ex.code({name}, target='h100') needs no compile: it shows the code for a GPU that this machine may lack."
    )


@user_facing_methods
@dataclass(frozen=True, repr=False)
class RegionStages(CodeResult):
    """The stages of a region, an entry for each distinct partition; it displays as text or HTML.

    ``nodes`` are the names of nodes to follow through all stages.
    """

    region: str
    session: Session
    partitions: tuple[PartitionStages, ...]
    nodes: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, session: Session, code: RegionCode, *, needed: bool = True) -> RegionStages:
        """Return the stages of the partitions whose code is known.

        Raises:
            NotCompiledError: code is ``needed`` and none is known; after a cancel it is not needed.
        """
        if needed and not code.partitions:
            raise NotCompiledError(why_no_code(session, code.region))
        return cls(code.region, session, region_stages(session, code.partitions), note=code.note)

    def follow(self, *nodes: str) -> RegionStages:
        """Return the same stages with nodes followed through earlier and later stages.

        Args:
            nodes: names of nodes of any stage, such as ``"gelu"``; all of them together are followed.

        Raises:
            InvalidArgumentError: no stage has a node of such a name.
        """
        if not nodes or not all(isinstance(name, str) for name in nodes):
            raise InvalidArgumentError(f"Give the names of nodes: stages.follow('gelu'); got {shown_value(nodes)}.")
        check_followed(self.partitions, nodes)
        return replace(self, nodes=nodes)

    def __iter__(self) -> Iterator[PartitionStages]:
        """Iterate over the distinct partitions."""
        return iter(self.partitions)

    @property
    def changes(self) -> pd.DataFrame:
        """One row per partition and stage: its number of ops and views, and what became of the previous stage's ops."""
        return stages_table(self.partitions).dataframe()

    @property
    def frame(self) -> pd.DataFrame:
        """One row per node of each stage: its op, the previous stage's nodes that it comes from, and their lines."""
        return stage_nodes_table(self.partitions, self.nodes).dataframe()

    def __str__(self) -> str:
        """Return the changes of each stage as text."""
        return stages_text(self.region, self.partitions, self.nodes, self.note)

    def _html(self) -> str:
        return stages_html(self.session, self.region, self.partitions, self.nodes, self.note)


@dataclass(frozen=True, repr=False)
class FloorResult(CodeResult):
    """The floor of a call in a session, and the gain of ``torch.compile`` that the plan reaches; text or HTML."""

    session: Session

    @property
    def record(self) -> Floor:
        """The floor."""
        if self.session.floor is None:
            raise MeasureError("The floor of this call was not measured: ex.floor().")
        return self.session.floor

    @property
    def sentence(self) -> str:
        """What is left above the floor, in a sentence."""
        return floor_sentence(self.record, reach_of(self.session))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per kind of product: its least time by any library here, and ATen's; then the moved bytes."""
        return floor_table(self.record, reach_of(self.session)).dataframe()

    def _tables(self) -> Iterator[Table[Any]]:
        yield floor_table(self.record, reach_of(self.session))
        if reaches := phase_reaches(self.session):
            yield gain_table(reaches)

    def __str__(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(table.text() for table in self._tables())

    def _html(self) -> str:
        nodes = [node for table in self._tables() for node in table.elements()]
        return f'<div class="{PAGE}"><style>{page_css()}</style>{to_html(*nodes)}</div>'
