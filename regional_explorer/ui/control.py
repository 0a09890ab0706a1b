"""Holds the state and the results, applies changes, and tells the panels."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.config import check_key, check_value, parse_value
from regional_explorer.compiler.run import Run
from regional_explorer.errors import BusyError, InvalidConfigValueError, RegionalExplorerError, SelectorError
from regional_explorer.record.partition import Preview
from regional_explorer.record.plan import DEFAULT, Plan
from regional_explorer.record.region_code import PartitionCode, nodes_of_region, qualified_names, region_code
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.ui.jobs import DELAY_S, Heartbeat, Jobs, Latest, Loop
from regional_explorer.ui.marking import proposed_name
from regional_explorer.ui.state import SELECTION, PanelState, Problem, Setting

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


@dataclass(frozen=True, slots=True)
class ShownCode:
    """The code of a region as the panel shows it: that of its partitions, and a note on where it comes from."""

    region: str
    partitions: tuple[PartitionCode, ...] = ()
    note: str = ""


class OpenCode:
    """Finds the code of the open region: the session's, or what was generated for a target GPU under this plan."""

    def __init__(self) -> None:
        self._code_for_targets: dict[tuple[str, str], tuple[Plan, ShownCode]] = {}

    def known(self, state: PanelState, session: Session) -> ShownCode | None:
        """Return the code as far as it was read; None if no region is open."""
        region = state.opened
        if region is None or region not in state.plan:
            return None
        if not state.target:
            return ShownCode(region, region_code(session, region))
        plan, code = self._code_for_targets.get((region, state.target), (None, None))
        return code if plan == state.plan and code is not None else ShownCode(region)

    def unread(self, state: PanelState, session: Session) -> int:
        """Return how many partitions of the open region have code that was not read yet."""
        code = self.known(state, session)
        if code is None:
            return 0
        read_ids = {part.partition.id for part in code.partitions}
        unread = (part for part in session.partitions if part.region == code.region and part.id not in read_ids)
        return sum(bool(state.target) or part.artifact is not None for part in unread)

    def read(self, exploration: Exploration, state: PanelState, run: Run) -> None:
        """Read the code of the region that is open in ``state``; this is a job."""
        region, target = state.opened or "", state.target
        code = exploration.code(region, target=target or None, run=run)
        if target:
            self._code_for_targets[region, target] = state.plan, ShownCode(region, code.partitions, code.note)


def read_value(key: str, typed: str | bool) -> Any:  # noqa: FBT001 - the value of a checkbox
    """Return the value typed for a config key; a literal of another type is taken as text if the key accepts text.

    Raises:
        InvalidConfigValueError: the key does not accept it.
    """
    entry = check_key(key)
    if isinstance(typed, bool):
        return check_value(key, typed)
    if entry.choices:
        return check_value(key, next((choice for choice in entry.choices if str(choice) == typed), typed))
    try:
        return parse_value(key, typed)
    except InvalidConfigValueError as error:
        try:
            return check_value(key, typed)
        except InvalidConfigValueError:
            raise error from None


Listener = Callable[["Control"], None]


class Control:
    """Holds the state of one exploration's panels and makes every change to it.

    ``state`` is what the user chose, ``session`` the results. Listeners are called after each change, one at a time, on
    the thread that made it; ``changed_by_cell`` is True meanwhile if code in another cell made it. ``main_loop``
    returns the running event loop of the main thread, or None; ``owner`` the Python expression of the exploration.
    """

    def __init__(self, exploration: Exploration) -> None:
        self.exploration = exploration
        self.state = PanelState(exploration.plan)
        self.session: Session = exploration.session
        self.listeners: list[Listener] = []
        self.changed_by_cell = False
        self.main_loop: Callable[[], Loop | None] = lambda: None
        self.owner: Callable[[], str] = lambda: "ex"
        self.heartbeat = Heartbeat()
        self.runs: tuple[Session, ...] = exploration.runs
        self.summaries = region_summaries(self.session)
        self.previews = Latest(DELAY_S)
        self.jobs = Jobs(self)
        self.lock = threading.RLock()
        self._nodes_of_rows: tuple[str, ...] = ()
        self._open_code = OpenCode()

    # ------------------------------------------------------------------------------------------------------- changes

    def update(self, change: Callable[[PanelState], PanelState]) -> None:
        """Replace the state by what ``change`` returns for it, and call the listeners."""
        with self.lock:
            before, after = self.state, self._with_row_nodes_selected(change(self.state))
            outdated = _previewed(after) != _previewed(before)
            self.state = replace(after, mark=replace(after.mark, preview=None)) if outdated else after
            for listener in list(self.listeners):
                listener(self)
            if outdated or after.mark.name != before.mark.name:
                self._start_preview()

    def _with_row_nodes_selected(self, state: PanelState) -> PanelState:
        """Return the state with the nodes of the selected rows selected in the graph, if these nodes have changed."""
        nodes = tuple(node for name in state.picked for node in nodes_of_region(self.session, name))
        if nodes == self._nodes_of_rows:
            return state
        self._nodes_of_rows = nodes
        return state.with_selection(nodes)

    def read_exploration(self) -> None:
        """Read the session and the runs from the exploration."""
        graphs = self.session.graphs
        self.session, self.runs = self.exploration.session, self.exploration.runs
        self.summaries = region_summaries(self.session)
        if self.session.graphs != graphs:
            self._forget_earlier_graphs()

    def _forget_earlier_graphs(self) -> None:
        """Drop what was selected, previewed or generated in graphs that are no longer there."""
        node_names = set(qualified_names(self.session.graphs))
        state = self.state.with_selection(node for node in self.state.selection if node in node_names)
        self.state = replace(state, mark=replace(state.mark, preview=None))
        self._open_code = OpenCode()

    def refresh(self) -> None:
        """Read the exploration again after code in a cell may have changed it."""
        with self.lock:
            if self.state.busy:  # the worker changes what a session is made of, and may be measuring
                return
            session = self.exploration.session
            if session != self.session or len(self.exploration.runs) != len(self.runs):
                self.read_exploration()
                self.changed_by_cell = True
                try:
                    self.update(lambda state: state.edited(self.exploration.plan))
                finally:
                    self.changed_by_cell = False

    @contextmanager
    def showing_errors(self) -> Iterator[None]:
        """Context manager for callbacks: show exceptions in the panel, because ipywidgets would hide them."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the user must see any of them
            problem = Problem.of(error)
            self.update(lambda state: state.failed(problem))

    # ---------------------------------------------------------------------------------------------------------- plan

    def edit(
        self, change: Callable[[Exploration], Any], then: Callable[[PanelState], PanelState] | None = None
    ) -> None:
        """Apply ``change`` to the exploration's plan, and ``then`` to the state; by default it gets the new plan.

        Raises:
            RegionalExplorerError: a job is running, or the change is not possible.
        """
        with self.lock:
            if self.state.busy:
                raise BusyError("A job is running. Cancel it or wait for it to finish before you change regions.")
            change(self.exploration)
            self.read_exploration()
            self.update(then or (lambda state: state.edited(self.exploration.plan)))

    def undo(self) -> None:
        """Return to the previous plan."""
        self._go_to_plan(PanelState.undone)

    def redo(self) -> None:
        """Repeat the change that was undone last."""
        self._go_to_plan(PanelState.redone)

    def _go_to_plan(self, step: Callable[[PanelState], PanelState]) -> None:
        with self.lock:
            plan = step(self.state).plan
            self.edit(lambda exploration: _set_plan(exploration, plan), step)

    def set_config(self, setting: Setting, typed: str | bool) -> None:  # noqa: FBT001 - the value of a checkbox
        """Set a config value from what was typed; an invalid value is shown with its error at its field."""
        region, direction, key = setting
        try:
            value = read_value(key, typed)
        except RegionalExplorerError as error:
            message = str(error)
            self.update(lambda state: state.with_invalid_input(setting, str(typed), message))
            return
        self.edit(lambda exploration: exploration.configure(region, {key: value}, direction=direction))
        self.update(lambda state: state.without_invalid_input(setting))

    def remove_config(self, setting: Setting) -> None:
        """Remove a config key from a region."""
        region, direction, key = setting
        self.update(lambda state: state.without_invalid_input(setting))
        self.edit(lambda exploration: exploration.configure(region, {key: DEFAULT}, direction=direction))

    # ------------------------------------------------------------------------------------------------------- marking

    def mark(self) -> None:
        """Mark a region as the form says, with the typed or else the proposed name; an error is shown in the form."""
        selector = self.state.selector
        name = self.name_of_mark
        try:
            self.edit(lambda exploration: exploration.mark(name, **selector))
        except SelectorError as error:
            message = str(error)
            self.update(lambda state: replace(state, mark=replace(state.mark, error=message)))
            return
        self.update(lambda state: state.with_mark(pattern="", name=""))

    @property
    def name_of_mark(self) -> str:
        """The name typed for the next region, or else a name proposed for it."""
        return self.state.mark.name.strip() or proposed_name(self.state.selector, self.session)

    def _start_preview(self) -> None:
        """Preview the region that the form would mark, on another thread: cutting a large graph takes a while.

        A proposed name is not written into the name field: that would overwrite what is being typed there.
        """
        self.previews.cancel()
        state, selector = self.state, self.state.selector
        if state.busy or not selector or set(selector.get("nodes", ())) == set(self._nodes_of_rows) != set():
            return
        name = self.name_of_mark

        def preview_mark(outdated: threading.Event) -> None:
            preview: Preview | str
            try:
                preview = self.exploration.preview(self.exploration.draft().mark(name, **selector).plan)
            except Exception as error:  # noqa: BLE001 - last frame of the thread: nothing else would show it
                preview = Problem.of(error).text
            with self.lock:
                if not outdated.is_set():
                    self.update(
                        lambda state: replace(state, mark=replace(state.mark, preview=preview, previewed_name=name))
                    )

        self.previews.submit(preview_mark)

    # ---------------------------------------------------------------------------------------------------------- code

    @property
    def code(self) -> ShownCode | None:
        """The code of the open region for the chosen target, as far as it was read; None if no region is open."""
        return self._open_code.known(self.state, self.session)

    @property
    def unread(self) -> int:
        """How many partitions of the open region have code that was not read yet."""
        return self._open_code.unread(self.state, self.session)

    def read_code(self) -> None:
        """Start a job that reads the code of the open region, unless it was read or a job is running."""
        if not self.state.busy and self.unread:
            self.jobs.start("Read the code", self._open_code.read)


def _previewed(state: PanelState) -> tuple[object, ...]:
    """Return what a preview depends on besides the name; with another one the preview shown is no longer right."""
    form = state.mark
    return form.kind, form.pattern, state.selection if form.kind == SELECTION else (), state.plan, state.busy


def _set_plan(exploration: Exploration, plan: Plan) -> None:
    exploration.plan = plan


_CONTROLS: weakref.WeakValueDictionary[int, Control] = weakref.WeakValueDictionary()
"""Controls by ``id`` of their exploration. A panel keeps its control alive, and a control its exploration."""


def control_of(exploration: Exploration) -> Control:
    """Return the control of ``exploration``, which all its panels share."""
    control = _CONTROLS.get(id(exploration))
    if control is None:
        control = _CONTROLS[id(exploration)] = Control(exploration)
    return control
