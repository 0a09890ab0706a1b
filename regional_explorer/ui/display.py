"""The displays of an exploration: below a notebook cell, or as text in a terminal."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython import get_ipython
from IPython.display import DisplayHandle, display
from ipywidgets import Output
from ipywidgets.widgets.widget import _instances

import regional_explorer
from regional_explorer.compiler.progress_line import reporting, reporting_of_command
from regional_explorer.compiler.run import Run
from regional_explorer.exploration.results import DRAWING
from regional_explorer.page.answer import answer_text
from regional_explorer.page.report import diagnostics_text, session_html, session_text, summary_text
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.answer import answer_of
from regional_explorer.record.benchmark import BY_DEFAULT, checked_variants
from regional_explorer.record.session import Session
from regional_explorer.style.element import markup
from regional_explorer.tables.benchmark import numerics_table, timings_table
from regional_explorer.tables.plan import measured_plans, partitions_table
from regional_explorer.tables.profile import profile_tables
from regional_explorer.tables.regions import regions_table
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.job_events import compare_in_background, start_job
from regional_explorer.ui.jobs import LatestWorkRunner
from regional_explorer.ui.state import IMPORT_RX

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration
    from regional_explorer.ui.panel import Panel


class TerminalDisplay:
    """Prints an exploration as plain text."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._measured = False

    def set_benchmark(self, variants: Sequence[str], budget_s: float) -> None:
        """Do nothing: there is no panel."""

    def begin(self) -> None:
        """Show what was captured."""
        _remember_last_shown(self._exploration)
        with reporting(Run()) as run:
            run.progress("reading the exploration", 0.0)
            session = self._exploration.session
            texts = summary_text(session), regions_table(session).text()
        print(*texts, sep="\n\n")  # noqa: T201 - a terminal's way to show

    @contextmanager
    def working(self, name: str) -> Iterator[Run]:  # noqa: ARG002 - the notebook shows the name
        """Context manager around work: print its progress to stderr, and erase it afterwards."""
        self._measured = True
        with reporting_of_command(sys.stderr) as run:
            yield run

    compared_at_first = BY_DEFAULT

    def profile_in_background(self) -> bool:
        """Return False: a terminal waits for what it shows."""
        return False

    def compare_in_background(self) -> None:
        """Do nothing: all was compared."""

    def show_note(self, note: str) -> None:
        """Show a note."""
        print(note, file=sys.stderr)  # noqa: T201 - a terminal's way to show

    def finish(self) -> None:
        """Print the results found since ``begin``."""
        session = self._exploration.session
        sections = [diagnostics_text(session)]
        if self._measured:
            compared = timings_table(session), partitions_table(session), numerics_table(session)
            tables = compared if session.timings else profile_tables(session)
            sections = [answer_text(answer_of(session)), *(table.text() for table in tables), *sections]
        print("", *filter(None, sections), sep="\n\n" if self._measured else "\n")  # noqa: T201 - a terminal's way to show
        skip_display_of_value(self._exploration)


STATIC_COPY = "rx-static-copy"
"""The class of a panel's static copy, which the panel's style sheet hides while the panel is shown."""
HIDE_LOADING = (
    f"<style>.jp-OutputArea-child:has(.{STATIC_COPY}) + .jp-OutputArea-child"
    " > .lm-Panel:not(:has(*)) { display: none }</style>"
)
"""Added to the static copy: without a kernel JupyterLab would show "Loading widget" below it forever."""


_last_shown: weakref.ref[Exploration] | None = None


def last_shown() -> Exploration | None:
    """Return the exploration that was shown last, for as long as it is referenced."""
    return None if _last_shown is None else _last_shown()


def _remember_last_shown(exploration: Exploration) -> None:
    global _last_shown  # noqa: PLW0603 - one per process
    _last_shown = weakref.ref(exploration)


def skip_display_of_value(exploration: Exploration) -> None:
    """Keep the running cell from displaying ``exploration`` once more as its value, and ``Out`` from keeping it."""
    shell: Any = get_ipython()
    if shell is None:
        return
    exploration.displayed = exploration.plan

    def forget() -> None:
        exploration.displayed = None
        values: dict[int, object] = shell.user_ns.get("_oh", {})
        for number in [number for number, value in values.items() if value is exploration]:
            del values[number]
        shell.events.unregister("post_execute", forget)

    shell.events.register("post_execute", forget)


def show(exploration: Exploration, *, widget: bool = True) -> None:
    """Show ``exploration``: the panel and its static copy in a notebook, text elsewhere.

    Args:
        exploration: what to show.
        widget: whether to show the panel.
    """
    view = display_for(exploration, widget=widget)
    view.begin()
    view.finish()


def display_for(exploration: Exploration, *, widget: bool = True) -> NotebookDisplay | TerminalDisplay:
    """Return the display of ``exploration`` that the current front end supports.

    Args:
        exploration: what to show.
        widget: whether to show the panel.
    """
    if getattr(get_ipython(), "kernel", None) is None:
        return TerminalDisplay(exploration)
    return NotebookDisplay(exploration, widget=widget)


class NotebookDisplay:
    """Displays an exploration below a cell: a static copy, which a saved notebook keeps, and the panel."""

    def __init__(self, exploration: Exploration, *, widget: bool) -> None:
        self._control = control_of(exploration)
        self._control.main_loop = _main_loop
        self._control.owner = lambda: _owner_expression(exploration)
        self._with_panel = widget
        self._static_copy: DisplayHandle | None = None
        self._drawn_session: Session | None = None
        self._drawing_lock = threading.Lock()
        self._static_copies = LatestWorkRunner()
        self._panel: Panel | None = None
        self._picture_inputs: Any = None
        self._picture = ""

    @property
    def compared_at_first(self) -> Sequence[str]:
        """The variants to compare by default while the cell runs; ``compare_in_background`` adds torch.compile."""
        measurements = self._control.exploration.live.measurements
        return measurements.at_once(self._control.state.variants) if self._with_panel else BY_DEFAULT

    def set_benchmark(self, variants: Sequence[str], budget_s: float) -> None:
        """Set the variants and the budget of the panel's next benchmark; without ``variants`` they stay."""
        names = tuple(checked_variants(variants)) if variants else self._control.state.variants
        self._control.set(variants=names, budget_s=budget_s)

    def begin(self) -> None:
        """Show what was captured."""
        _remember_last_shown(self._control.exploration)
        if self._with_panel:  # before the display of an earlier run closes: the last display to close cancels the job
            self._control.listeners.append(self._on_change)
        _DISPLAYS.replace_earlier_run(self)
        self._control.refresh()
        with reporting(Run()) as run:
            run.progress(DRAWING, 0.0)
            if self._with_panel:
                self._begin_panel()
            else:
                self._static_copy = display(self._mime_bundle(), raw=True, display_id=True)

    def _begin_panel(self) -> None:
        """Display the static copy first but fill it last: drawing takes a while, and only the panel is visible.

        No other output, such as a line of progress, may come between the two: see ``HIDE_LOADING``.
        """
        from regional_explorer.ui.panel import Panel

        try:
            self._panel = Panel(self._control)
        finally:
            self._static_copy = display({"text/plain": f"{DRAWING} …"}, raw=True, display_id=True)
            if self._panel is not None:
                display(self._panel)
            self._update_static_copy()

    @contextmanager
    def working(self, name: str) -> Iterator[Run]:
        """Context manager around work: show its progress in the panels, or in a line of its own if there is none."""
        try:
            with self._control.jobs.running_in_cell(name) as run:
                if self._with_panel:
                    yield run
                    return
                with reporting(Run()) as with_line:
                    yield run.also_reporting(with_line)
        finally:
            # Not later: a program that runs the notebook stops listening once the cell has ended.
            self._update_static_copy()

    def profile_in_background(self) -> bool:
        """Let the panel profile the call in the background, until it gets other work; return False without a panel."""
        if self._with_panel:
            start_job(self._control, "profile", background=True)
        return self._with_panel

    def compare_in_background(self) -> None:
        """Let the panel compile and measure torch.compile in the background, until it gets other work."""
        if self._with_panel:
            compare_in_background(self._control)

    def show_note(self, note: str) -> None:
        """Display a note below the cell."""
        display({"text/plain": note, "text/html": f"<div>{markup(note)}</div>"}, raw=True)

    def finish(self) -> None:
        """Remember that the results are displayed."""
        skip_display_of_value(self._control.exploration)

    def _on_change(self, control: Control) -> None:
        """Schedule an update of the static copy after a change by a panel; other cells have outputs of their own.

        Drawing may take seconds, so another thread does it, which holds no lock that the panel needs.
        """
        if control.session is not self._drawn_session and not control.changed_by_cell:
            self._static_copies.submit(self._update_after_change)

    def _update_after_change(self, _outdated: threading.Event) -> None:
        if self._control.state.job is None:  # drawing would disturb a benchmark; the end of the job is another change
            self._update_static_copy()

    def _update_static_copy(self) -> None:
        with self._drawing_lock:
            if self._control.session is not self._drawn_session and self._static_copy is not None:
                self._static_copy.update(self._mime_bundle(), raw=True)

    def _mime_bundle(self) -> dict[str, str]:
        session = self._drawn_session = self._control.session
        picture_inputs = session.plan, session.partitions, session.graphs
        if picture_inputs != self._picture_inputs:
            self._picture_inputs, self._picture = picture_inputs, session_svg(session)
        html = session_html(session, picture=self._picture, plans=measured_plans(self._control.runs, session))
        if self._with_panel:
            html = f'<div class="{STATIC_COPY}">{html}</div>{HIDE_LOADING}'
        return {"text/plain": session_text(session), "text/html": html}

    def refresh(self) -> None:
        """Show the changes by code in a cell, and the variable that holds the exploration now."""
        self._control.heartbeat.reset()
        self._control.refresh()
        if self._panel is not None:
            with self._control.lock:
                self._panel.show(self._control)

    def close(self) -> None:
        """Disconnect from the control, close the panel and cancel its job; the output stays as it is."""
        if self._on_change in self._control.listeners:
            self._control.listeners.remove(self._on_change)
        self._static_copies.cancel()
        if self._panel is not None:
            self._panel.close()
        if not self._control.listeners:
            self._control.jobs.cancel()


class _OpenDisplays:
    """The open displays; they are closed when their cell runs again or its output is cleared."""

    def __init__(self) -> None:
        # By the ids of the cell and of its run. Weak: a panel keeps its display alive; other displays need not live on.
        self._cells: weakref.WeakKeyDictionary[NotebookDisplay, tuple[str, str]] = weakref.WeakKeyDictionary()
        self._cleared: list[NotebookDisplay] = []
        self._shell: Any = None
        self._publisher: Any = None

    def replace_earlier_run(self, notebook_display: NotebookDisplay) -> None:
        """Register ``notebook_display`` for the running cell, and close the displays of earlier runs of that cell."""
        cell_id, run_id = _running_cell_ids()
        for earlier_display, (earlier_cell, earlier_run) in list(self._cells.items()):
            if cell_id and earlier_cell == cell_id and earlier_run != run_id:
                del self._cells[earlier_display]
                earlier_display.close()
        self._cells[notebook_display] = cell_id, run_id
        self._register_hooks()

    def _register_hooks(self) -> None:
        shell = get_ipython()
        if shell is not None and shell is not self._shell:
            shell.events.register("post_run_cell", lambda *_: self.refresh())
            self._shell = shell
        publisher: Any = getattr(shell, "display_pub", None)
        if publisher is not self._publisher and hasattr(publisher, "register_hook"):
            publisher.register_hook(self._on_display_message)
            self._publisher = publisher

    def _on_display_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Close the displays that ``clear_output`` removes; with ``wait=True``, once the next output comes."""
        message_type = message["header"]["msg_type"]
        if message_type == "clear_output" and not _in_output_widget():
            running = _running_cell_ids()
            for notebook_display in [shown for shown, cell in self._cells.items() if cell == running]:
                del self._cells[notebook_display]
                self._cleared.append(notebook_display)
        if self._cleared and (message_type == "display_data" or not message["content"].get("wait", True)):
            cleared, self._cleared = self._cleared, []
            for notebook_display in cleared:
                notebook_display.close()
        return message

    def refresh(self) -> None:
        """Refresh all displays after a cell has run."""
        for notebook_display in list(self._cells):
            notebook_display.refresh()


_DISPLAYS = _OpenDisplays()


def _in_output_widget() -> bool:
    """Return whether a ``with Output():`` block is running, whose output is not the cell's own."""
    return any(isinstance(widget, Output) and widget.msg_id for widget in list(_instances.values()))


def _main_loop() -> Any:
    """Return the event loop of the kernel's main thread; None if ``%gui`` runs another loop there."""
    kernel = getattr(get_ipython(), "kernel", None)
    return getattr(kernel, "io_loop", None) if getattr(kernel, "eventloop", None) is None else None


def _owner_expression(exploration: Exploration) -> str:
    """Return the variable that holds ``exploration``, else the call that returns it; empty if there is neither.

    The call includes the import if needed: loading the extension imports nothing for the user.
    """
    user_variables = dict(getattr(get_ipython(), "user_ns", {}))
    names = (name for name, variable in user_variables.items() if variable is exploration and not name.startswith("_"))
    call = "rx.last()" if user_variables.get("rx") is regional_explorer else f"{IMPORT_RX}; rx.last()"
    return next(names, call if last_shown() is exploration else "")


def _running_cell_ids() -> tuple[str, str]:
    """Return the ids of the running cell and of its execution; empty if the front end does not send them."""
    kernel = getattr(get_ipython(), "kernel", None)
    parent_message = kernel.get_parent() if kernel is not None else {}
    header, metadata = parent_message.get("header", {}), parent_message.get("metadata", {})
    return str(metadata.get("cellId", "")), str(header.get("msg_id", ""))
