"""The state of a panel as a frozen record, and everything that the panel shows."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from regional_explorer.errors import RegionalExplorerError
from regional_explorer.exploration.results import RegionCode
from regional_explorer.page.panes import BESIDE, COLUMNS
from regional_explorer.record.benchmark import BY_DEFAULT, DEFAULT_BUDGET_S, VariantName
from regional_explorer.record.partition import Preview
from regional_explorer.record.plan import Direction, Plan, Region, SelectorKind, config_of
from regional_explorer.record.session import Session
from regional_explorer.regions.describe import NO_CHOICE, Choice

MAX_UNDO = 100
WHY, CODE, CONFIG, TIME = PANES = ("why", "code", "config", "time")
"""The panes beside graph and source, one at a time."""
SELECTOR = "selector"
"""The key of a region's selector text in the invalid inputs."""
SELECTION = "selection"
"""The kind of mark for the nodes selected in the graph."""

IMPORT_RX = "import regional_explorer as rx"
"""The import that the panel's Python code needs: loading the extension imports nothing for the user."""

Setting = tuple[str, Direction | None, str]
"""A region's name, the direction of the config (None for both), and a config key."""


@dataclass(frozen=True, slots=True)
class InvalidInput:
    """Invalid text of an input field, with the error message."""

    text: str
    error: str


CANCEL = "Cancel"


@dataclass(frozen=True, slots=True)
class Job:
    """A running job.

    A notebook cell runs a job ``in_cell``. An interrupt of the kernel always stops it; its button stops it if the front
    end's messages reach the kernel while a cell runs, as in JupyterLab with ipykernel 7. Nobody asked for a job in the
    ``background``, so any other work cancels it. ``shapes`` are those of the trace that the job makes; they are empty
    if it makes none. ``stop`` is the text of the button that stops it.
    """

    name: str
    stop: str = CANCEL
    doing: str = ""
    fraction: float = 0.0
    cancelling: bool = False
    in_cell: bool = False
    background: bool = False
    shapes: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error to show: a short text, and details such as a traceback."""

    text: str
    details: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return the problem of ``error``: our own exceptions by message only, others with their traceback."""
        if isinstance(error, RegionalExplorerError):
            return cls(str(error))
        return cls(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))


@dataclass(frozen=True, slots=True)
class Sort:
    """The sort order of the region table."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class MarkForm:
    """The form that marks a region: the typed text, its error, and a preview of the region (or why there is none).

    With ``alike``, the selected nodes are marked in all equal modules.
    """

    kind: str = SELECTION
    pattern: str = ""
    alike: bool = False
    name: str = ""
    error: str = ""
    preview: Preview | str | None = None
    previewed_name: str = ""


@dataclass(frozen=True, slots=True)
class NameForm:
    """The form with the new name for the selected regions, and the error of the last edit."""

    name: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class AppliedFinding:
    """The last applied finding: its predicted gain, the plan ``before`` it, and the ``plan`` after it."""

    title: str
    gain: str
    before: Plan
    plan: Plan


@dataclass(frozen=True, slots=True)
class PanelState:
    """Everything the panel shows except the session.

    Selection: ``selected_rows`` are the regions whose rows are selected, ``selection`` the nodes selected in the graph,
    as ``graph:name``, and ``clicked`` is the kind of element that was clicked to select them. The graph scrolls to the
    ``revealed`` nodes whenever this is another tuple, even an equal one.

    Panes: ``columns`` are the shown ones, ``pane`` is the pane beside graph and source, and ``opened`` the region that
    the panes are about. Its config is shown for ``direction``, if one was chosen; the list of keys shows the matches of
    ``key_query``, and ``added_keys`` have a field but no value yet. Code is shown for the GPU ``target``; an empty
    target means the compiled code.

    ``sort`` is the order of the region table, None for the order of the plan. The next benchmark compares ``variants``
    for ``budget_s`` seconds. ``applied`` is the last applied finding, ``saved`` the last written file.
    """

    plan: Plan
    past: tuple[Plan, ...] = ()
    future: tuple[Plan, ...] = ()
    selected_rows: tuple[str, ...] = ()
    opened: str | None = None
    sort: Sort | None = None
    invalid_inputs: Mapping[Setting, InvalidInput] = field(default_factory=dict)
    job: Job | None = None
    problem: Problem | None = None
    note: str = ""
    saved: str = ""
    selection: tuple[str, ...] = ()
    clicked: SelectorKind | None = None
    mark: MarkForm = MarkForm()
    rename: NameForm = NameForm()
    direction: Direction | None = None
    key_query: str = ""
    added_keys: tuple[str, ...] = ()
    variants: tuple[VariantName, ...] = BY_DEFAULT
    budget_s: float = DEFAULT_BUDGET_S
    columns: frozenset[str] = frozenset(COLUMNS)
    pane: str = WHY
    target: str = ""
    revealed: tuple[str, ...] = ()
    applied: AppliedFinding | None = None

    @property
    def busy(self) -> bool:
        """Whether a job is running that must not be disturbed."""
        return self.job is not None and not self.job.background

    def shows(self, pane: str) -> bool:
        """Return whether a pane is open."""
        return self.pane == pane and BESIDE in self.columns

    # ---------------------------------------------------------------------------------------------------------- plan

    def edited(self, plan: Plan) -> Self:
        """Return the state with a new ``plan``; ``undone`` restores the previous plan, without tracing again."""
        if plan == self.plan:
            return self
        past = (*self.past, self.plan)[-MAX_UNDO:]
        if plan.tracing != self.plan.tracing:
            past = tuple(before.traced(plan.tracing) for before in past)
        return self._with_plan(plan, past, ())

    def undone(self) -> Self:
        """Return the state with the previous plan."""
        return self._with_plan(self.past[-1], self.past[:-1], (self.plan, *self.future)) if self.past else self

    def redone(self) -> Self:
        """Return the state with the plan that ``undone`` left."""
        return self._with_plan(self.future[0], (*self.past, self.plan), self.future[1:]) if self.future else self

    def _with_plan(self, plan: Plan, past: tuple[Plan, ...], future: tuple[Plan, ...]) -> Self:
        # Invalid text is dropped once its field has another value or no longer exists.
        still_invalid = {
            setting: invalid
            for setting, invalid in self.invalid_inputs.items()
            if setting[0] in plan
            and setting[0] in self.plan
            and _config_value(plan, setting) == _config_value(self.plan, setting)
        }
        renamed = _renamed_region(self.plan, plan)
        selected_rows = tuple(new for old in self.selected_rows if (new := renamed.get(old, old)) in plan)
        opened = renamed.get(self.opened or "", self.opened)
        return replace(
            self,
            plan=plan,
            past=past,
            future=future,
            selected_rows=selected_rows,
            opened=opened if opened is not None and opened in plan else None,
            invalid_inputs=still_invalid,
            problem=None,
            note="",
            rename=NameForm(),
        )

    # ----------------------------------------------------------------------------------------------------- selection

    def with_nodes_selected(self, nodes: Iterable[str], clicked: SelectorKind | None = None) -> Self:
        """Return the state with ``nodes`` selected by hand, which the form marks next."""
        state = replace(self, selection=tuple(nodes), clicked=clicked, mark=replace(self.mark, alike=False, error=""))
        if not state.selection or state.mark.kind == SELECTION:
            return state
        return replace(state, mark=replace(state.mark, kind=SELECTION, pattern=""))

    def with_rows_selected(self, names: Iterable[str]) -> Self:
        """Return the state with exactly the rows ``names`` selected."""
        selected_rows = tuple(dict.fromkeys(names))
        state = replace(self, selected_rows=selected_rows)
        # The pane beside the source follows the selected row.
        hidden = BESIDE not in self.columns
        return (
            state
            if hidden or not selected_rows or self.opened in selected_rows
            else state.with_opened(selected_rows[-1])
        )

    # -------------------------------------------------------------------------------------------------------- fields

    def with_pane(self, pane: str, name: str | None = None) -> Self:
        """Return the state with ``pane`` open, about the region ``name``, else the selected or the first region."""
        selected = () if self.opened in self.selected_rows else reversed(self.selected_rows)
        candidates = (name, *selected, self.opened, *(region.name for region in self.plan.regions))
        opened = next((candidate for candidate in candidates if candidate is not None), None)
        return replace(self, pane=pane, columns=self.columns | {BESIDE}).with_opened(opened)

    def with_opened(self, opened: str | None) -> Self:
        """Return the state whose panes are about another region."""
        if opened == self.opened:
            return self
        return replace(self, opened=opened, direction=None, key_query="", added_keys=())

    def direction_of(self, region: Region) -> Direction | None:
        """Return the direction whose config is shown for ``region``; None if one config holds for both."""
        return self.direction or (None if region.backward_config is None else Direction.FORWARD)

    # ---------------------------------------------------------------------------------------------------------- work

    def with_job(self, job: Job) -> Self:
        """Return the state with a new job; an earlier problem is no longer shown."""
        return replace(self, job=job, problem=None, note="", saved="")

    def without_job(self, note: str = "", problem: Problem | None = None) -> Self:
        """Return the state without a job, with a note or a problem to show."""
        return replace(self, job=None, note=note, problem=problem)


def _config_value(plan: Plan, setting: Setting) -> object:
    name, direction, key = setting
    return config_of(plan[name], direction or Direction.FORWARD).get(key, "\0absent")


def _renamed_region(before: Plan, after: Plan) -> dict[str, str]:
    """Return ``{old: new}`` if the plans differ in the name of exactly one region, else an empty dict."""
    pairs = list(zip(before.regions, after.regions, strict=False))
    changed = [(old.name, new.name) for old, new in pairs if old != new]
    if len(before.regions) != len(after.regions) or len(changed) != 1:
        return {}
    return dict(changed) if changed[0][0] not in after else {}


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything a panel shows: the state, the session, and values derived once from the session.

    ``key`` identifies the exploration on a page, ``owner`` is its Python expression, empty if it has none. ``choice``
    has the selectors for the selected nodes. ``code`` is the code of the open region that was read so far, None while
    the code tab is hidden.
    """

    key: str
    owner: str
    state: PanelState
    session: Session
    runs: tuple[Session, ...]
    suggestions: Mapping[str, Sequence[str]]
    code: RegionCode | None
    choice: Choice = NO_CHOICE

    @property
    def opened(self) -> Region | None:
        """The region whose config or code is shown."""
        return None if self.state.opened is None else self.state.plan[self.state.opened]

    @property
    def shapes(self) -> str:
        """The shapes of the trace, or of the trace that a job is making."""
        return (self.state.job and self.state.job.shapes) or self.session.shapes

    @property
    def unread_partitions(self) -> int:
        """How many partitions of the open region have code that was not read yet; 0 while the code tab is hidden."""
        if self.code is None:
            return 0
        read_ids = {part.partition.id for part in self.code.partitions}
        return sum(
            part.region == self.code.region
            and part.id not in read_ids
            and (bool(self.state.target) or part.artifact is not None)
            for part in self.session.partitions
        )
