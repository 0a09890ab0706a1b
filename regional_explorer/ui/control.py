"""The state and the results behind an exploration's panels, every change to them, and the kinds of events."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.run import Run
from regional_explorer.errors import BusyError
from regional_explorer.exploration.results import RegionCode
from regional_explorer.record.files import plan_line
from regional_explorer.record.grouping import Kept
from regional_explorer.record.partition import Preview
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import nodes_of_region, qualified_names, region_code
from regional_explorer.record.session import Session
from regional_explorer.regions.describe import NO_CHOICE, Choice, choice_for
from regional_explorer.ui.jobs import Heartbeat, Jobs, LatestWorkRunner, Loop
from regional_explorer.ui.mark_form import name_of_mark, selectors_of, suggestions
from regional_explorer.ui.parts import whole_regions
from regional_explorer.ui.state import CODE, SELECTION, PanelState, Problem, Shown

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration
from collections.abc import Container, Iterable, Sized
from dataclasses import dataclass

from regional_explorer.errors import sendable


class Control:
    """Holds the state of one exploration's panels and makes every change to it.

    ``state`` is what the user chose, ``session`` the results. After each change the listeners are called one by one, on
    the thread that made the change. Meanwhile ``changed_by_cell`` is True if code in another cell made it.
    ``main_loop`` returns the running event loop of the main thread, or None; ``owner`` returns the Python expression of
    the exploration.
    """

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        self.session: Session = exploration.session
        self.state = PanelState(exploration.plan)
        self.listeners: list[Callable[[Control], None]] = []
        self.changed_by_cell = False
        self.main_loop: Callable[[], Loop | None] = lambda: None
        self.owner: Callable[[], str] = lambda: "ex"
        self.heartbeat = Heartbeat()
        self.runs: tuple[Session, ...] = exploration.runs
        self.suggestions = suggestions(self.session)
        self.previews = LatestWorkRunner()
        self.jobs = Jobs(self)
        self.lock = threading.RLock()
        self._nodes_of_rows: tuple[str, ...] = ()
        self._choice = Kept[Choice]()
        self._code_for_targets: dict[tuple[str, str, str], RegionCode] = {}

    # ------------------------------------------------------------------------------------------------------- changes

    def update(self, change: Callable[[PanelState], PanelState]) -> None:
        """Replace the state with the result of ``change``, and call the listeners.

        If the nodes of the selected rows have changed, the graph's selection becomes these nodes.
        """
        with self.lock:
            before, after = self.state, change(self.state)
            nodes = self.nodes_of_rows(after)
            if nodes != self._nodes_of_rows:
                self._nodes_of_rows = nodes
                if after.selection is before.selection:
                    after = replace(after, selection=nodes, clicked=None)
            outdated = _preview_key(after) != _preview_key(before) or not before.plan.cuts_the_same(after.plan)
            self.state = replace(after, mark=replace(after.mark, preview=None)) if outdated else after
            for listener in list(self.listeners):
                listener(self)
            if outdated or after.mark.name != before.mark.name:
                self._start_preview()

    def set(self, **fields: Any) -> None:
        """Replace fields of the state, and call the listeners."""
        self.update(lambda state: replace(state, **fields))

    def nodes_of_rows(self, state: PanelState) -> tuple[str, ...]:
        """Return the nodes of the regions whose rows are selected."""
        return tuple(node for name in state.selected_rows for node in nodes_of_region(self.session, name))

    @property
    def choice(self) -> Choice:
        """The selectors for the selected nodes, while the form marks a selection that is no region yet."""
        state, graphs = self.state, self.session.graphs
        if state.mark.kind != SELECTION or whole_regions(self.session, state.selection):
            return NO_CHOICE
        chosen = state.selection, graphs, state.clicked
        return self._choice.of(chosen, lambda: choice_for(*chosen))

    def read_exploration(self) -> None:
        """Read the session and the runs from the exploration."""
        graphs = self.session.graphs
        self.session, self.runs = self.exploration.session, self.exploration.runs
        if self.session.graphs == graphs:
            return
        # Drop the selection, the preview and the generated code of graphs that no longer exist.
        node_names = set(qualified_names(self.session.graphs))
        self.state = replace(
            self.state,
            selection=tuple(node for node in self.state.selection if node in node_names),
            mark=replace(self.state.mark, preview=None),
        )
        self._code_for_targets = {}
        self.suggestions = suggestions(self.session)

    def refresh(self) -> None:
        """Read the exploration again after code in a cell may have changed it."""
        with self.lock:
            if self.state.job is not None:  # the job changes the parts of a session, and may be measuring
                return
            session = self.exploration.session
            if session != self.session or self.exploration.runs != self.runs:
                self.read_exploration()
                self.changed_by_cell = True
                try:
                    self.update(lambda state: state.edited(self.exploration.plan))
                finally:
                    self.changed_by_cell = False

    def edit(
        self,
        change: Callable[[Exploration], object],
        then: Callable[[PanelState, Plan], PanelState] = PanelState.edited,
    ) -> None:
        """Apply ``change`` to the exploration's plan, then replace the state with ``then(state, plan)``.

        Edits of the plan by the running cell are read into the state before.

        Raises:
            RegionalExplorerError: a job is running, or the change is not possible.
        """
        with self.lock:
            if self.state.job is not None:
                raise BusyError("A job is running. Cancel it or wait for it to finish before you change regions.")
            with self.exploration.exclusive_use.editing():
                self.refresh()
                change(self.exploration)
            self.read_exploration()
            self.update(lambda state: then(state, self.exploration.plan))

    # ----------------------------------------------------------------------------------------------------- background

    def _start_preview(self) -> None:
        """Preview the region that the form would mark, on another thread: cutting a large graph takes a while.

        A proposed name is not written into the name field: that would overwrite the text being typed there.
        """
        self.previews.cancel()
        state, selectors = self.state, selectors_of(self.state, self.choice)
        if state.job is not None or not selectors:
            return
        name = name_of_mark(state, self.session, self.choice)

        def preview_mark(outdated: threading.Event) -> None:
            preview: Preview | str
            try:
                preview = self.exploration.preview(self.exploration.draft().mark(name, *selectors).plan)
            except Exception as error:  # noqa: BLE001 - last frame of the thread: nothing else would show it
                preview = Problem.of(error).text
            with self.lock:
                if not outdated.is_set():
                    self.update(
                        lambda state: replace(state, mark=replace(state.mark, preview=preview, previewed_name=name))
                    )

        self.previews.submit(preview_mark)

    def read_code(self) -> None:
        """Start a job that reads the code of the open region, unless it was read; only a background job gives way."""

        def read(exploration: Exploration, state: PanelState, run: Run) -> None:
            region, target = state.opened or "", state.target
            code = exploration.code(region, target=target or None, run=run)
            if target:
                self._code_for_targets[region, target, plan_line(state.plan)] = code

        if not self.shown().unread_partitions:
            return
        if self.state.job is None:
            self.jobs.start("Read the code", read)
        elif self.state.job.background:
            self.jobs.run_instead(self.read_code)

    # --------------------------------------------------------------------------------------------------------- shown

    def shown(self) -> Shown:
        """Return the contents of a panel now."""
        return Shown(
            key=f"{id(self):x}",
            owner=self.owner(),
            state=self.state,
            session=self.session,
            runs=self.runs,
            suggestions=self.suggestions,
            choice=self.choice,
            code=self._code() if self.state.shows(CODE) else None,
        )

    def _code(self) -> RegionCode | None:
        """Return the code of the open region that was read so far: from the session, or generated for the target."""
        region, target, plan = self.state.opened, self.state.target, self.state.plan
        if region is None:
            return None
        if not target:
            return RegionCode(region, region_code(self.session, region))
        return self._code_for_targets.get((region, target, plan_line(plan)), RegionCode(region, ()))


def _preview_key(state: PanelState) -> tuple[object, ...]:
    """Return a key of everything a preview depends on, except the name and the plan; else the preview is outdated."""
    form = state.mark
    chosen = (state.selection, state.clicked, form.alike) if form.kind == SELECTION else ()
    return form.kind, form.pattern, chosen, state.job is None


_CONTROLS: weakref.WeakValueDictionary[int, Control] = weakref.WeakValueDictionary()
"""Controls by ``id`` of their exploration. A panel keeps its control alive, and a control its exploration."""


def control_of(exploration: Exploration) -> Control:
    """Return the control of ``exploration``, which all its panels share."""
    control = _CONTROLS.get(id(exploration))
    if control is None:
        control = _CONTROLS[id(exploration)] = Control(exploration)
    return control


# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the page: its name, its subject ``of``, the value of an input, and the modifier keys held."""

    do: str
    of: str = ""
    value: object = None
    shift: bool = False
    ctrl: bool = False

    @property
    def text(self) -> str:
        """The text of an input; empty for a checkbox or a button."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def names(self) -> list[str]:
        """The names in a list; empty for any other value."""
        return self.value if isinstance(self.value, list) else []


def one_of(names: Callable[[Control], Iterable[str]]) -> Callable[[Control, str], str | None]:
    """Return a function that returns the subject of an event if it is among ``names`` now, else None."""
    return lambda control, of: of if of in names(control) else None


def numbers_of(rows: Sized) -> Iterable[str]:
    """Return the numbers of rows, as a page sends them."""
    return map(str, range(len(rows)))


def is_text(value: object) -> bool:
    """Return whether a value comes from a text field."""
    return isinstance(value, str)


def is_flag(value: object) -> bool:
    """Return whether a value comes from a checkbox."""
    return isinstance(value, bool)


def are_names(value: object) -> bool:
    """Return whether a value is a list of names."""
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def is_choice(names: Container[str]) -> Callable[[object], bool]:
    """Return a function that returns whether a value is one of a menu's ``names``."""
    return lambda value: isinstance(value, str) and value in names


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event.

    A page may show an earlier state, or send an event that no page of ours sends. So three checks come before
    anything changes: ``about`` returns None if the region, column or row in ``of`` does not exist (any more), ``value``
    returns whether the input is accepted, and ``when`` whether the event applies now. An event that fails one of them
    is ignored. ``handle`` gets the event with the result of ``about`` as its ``of``.
    """

    handle: Callable[[Control, Event], None]
    about: Callable[[Control, str], str | None] = lambda _control, of: of
    value: Callable[[object], bool] = lambda _value: True
    when: Callable[[Control], bool] = lambda _control: True


def region_of(control: Control, row: str) -> str | None:
    """Return the name of the region whose row, ``row``, an event is about."""
    return next((region.name for region in control.state.plan.regions if sendable(region.name) == row), None)
