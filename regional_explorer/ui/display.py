"""Shows an exploration where the front end allows it: a panel with its static copy, or text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython import get_ipython
from IPython.display import DisplayHandle, display

from regional_explorer.record.session import Session
from regional_explorer.render.picture.svg import session_svg
from regional_explorer.render.report.html import session_html
from regional_explorer.render.report.text import (
    diagnostics_text,
    numerics_text,
    partitions_text,
    regions_text,
    session_text,
    summary_text,
    timings_text,
)
from regional_explorer.render.style.untrusted import markup
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.panel.panel_style import TWIN, WAITING
from regional_explorer.ui.threads.progress import StreamProgress, Throttle

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration
    from regional_explorer.ui.panel.panel import Panel

ProgressCallback = Callable[[str, float], None]


def show(exploration: Exploration, *, widget: bool = True) -> None:
    """Show ``exploration`` here: in a notebook the panel and its static twin, elsewhere text.

    Args:
        exploration: what to show.
        widget: whether to show the panel.
    """
    place = display_for(exploration, widget=widget)
    place.begin()
    place.finish()


def display_for(exploration: Exploration, *, widget: bool = True) -> Notebook | Terminal:
    """Return the place where ``exploration`` can be shown now."""
    if getattr(get_ipython(), "kernel", None) is None:
        return Terminal(exploration)
    return Notebook(exploration, widget=widget)


class Terminal:
    """Plain text, each part once."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._measured = False

    def begin(self) -> None:
        """Show what was captured."""
        session = self._exploration.session
        print(summary_text(session), regions_text(session), sep="\n\n")  # noqa: T201 - a terminal's way to show

    @contextmanager
    def working(self, name: str) -> Iterator[ProgressCallback]:  # noqa: ARG002 - the notebook shows the name
        """A block of work: what it tells stands on stderr, and is taken away after."""
        progress = StreamProgress(sys.stderr)
        self._measured = True
        try:
            yield Throttle(progress)
        finally:
            progress.finish()

    def say(self, note: str) -> None:
        """Show a note."""
        print(note, file=sys.stderr)  # noqa: T201 - a terminal's way to show

    def finish(self) -> None:
        """Show what was found since the beginning."""
        session = self._exploration.session
        parts = [diagnostics_text(session.diagnostics)]
        if self._measured:
            parts = [partitions_text(session), timings_text(session), numerics_text(session), *parts]
        print("", *parts, sep="\n\n" if self._measured else "\n")  # noqa: T201 - a terminal's way to show


class Notebook:
    """Outputs below a cell: the static twin, which a saved notebook keeps; then the panel, or the progress."""

    def __init__(self, exploration: Exploration, *, widget: bool) -> None:
        self._control = control_of(exploration)
        self._control.main_loop = _main_loop
        self._widget = widget
        self._twin: DisplayHandle | None = None
        self._shown: Session | None = None
        self._note: DisplayHandle | None = None
        self._panel: Panel | None = None
        self._pictures = Pictures()

    def begin(self) -> None:
        """Show what was captured."""
        _SHOWN.take_place_of_earlier(self)
        self._control.refresh()
        self._shown = self._control.session
        if self._widget:
            from regional_explorer.ui.panel.panel import Panel

            # The place of the twin is above. It is filled after: it takes a while to draw, and only the panel is seen.
            self._twin = display({"text/plain": "drawing …"}, raw=True, display_id=True)
            try:
                self._panel = Panel(self._control)
                display(self._panel.box)
            finally:
                self._twin.update(self._bundle(), raw=True)
        else:
            self._twin = display(self._bundle(), raw=True, display_id=True)
        self._control.listeners.append(self._follow)

    @contextmanager
    def working(self, name: str) -> Iterator[ProgressCallback]:
        """A block of work, shown in the panel, or in a line that is taken away after."""
        with self._control.working_here(name) as progress:
            if self._widget:
                yield progress
                return
            self._note = display(_line(f"{name} …"), raw=True, display_id=True)

            def told(doing: str, fraction: float) -> None:
                progress(doing, fraction)
                self._update_note(doing, fraction)

            try:
                yield Throttle(told)
            finally:
                self._update_note("", None)

    def _update_note(self, doing: str, fraction: float | None) -> None:
        if self._note is not None:
            self._note.update(_line(doing, fraction), raw=True)

    def say(self, note: str) -> None:
        """Show a note in the cell."""
        display(_line(note), raw=True)

    def finish(self) -> None:
        """Nothing: what was found is shown already."""

    def _follow(self, control: Control) -> None:
        """Bring the twin up to date with what this cell and its panel do; other cells have outputs of their own."""
        if control.elsewhere:
            return
        if control.session is not self._shown and self._twin is not None:
            self._shown = control.session
            self._twin.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        session = self._control.session
        html = session_html(session, picture=self._pictures.of(session))
        return {"text/plain": session_text(session), "text/html": f'<div class="{TWIN}">{html}</div>{WAITING}'}

    def refresh(self) -> None:
        """Take up what code in a cell changed."""
        self._control.presence.excuse()
        self._control.refresh()

    def close(self) -> None:
        """Let go: what is shown stays as it is, work of its panel ends."""
        if self._follow in self._control.listeners:
            self._control.listeners.remove(self._follow)
        if self._panel is not None:
            self._panel.close()
        if not self._control.listeners:
            self._control.cancel()


class Pictures:
    """The picture of a session, drawn anew only when something in it changed."""

    def __init__(self) -> None:
        self._key: Any = None
        self._picture = ""

    def of(self, session: Session) -> str:
        """Return the picture of ``session``."""
        key = (session.plan, session.partitions, session.graphs)
        if key != self._key:
            self._key, self._picture = key, session_svg(session)
        return self._picture


class _Shown:
    """What stands below which cell, so that a cell that runs again leaves nothing of its last run behind."""

    def __init__(self) -> None:
        self._by_cell: dict[str, tuple[str, list[Notebook]]] = {}
        self._shell: Any = None

    def take_place_of_earlier(self, notebook: Notebook) -> None:
        """Note that ``notebook`` stands in the running cell, and close what an earlier run of it showed."""
        cell, run = _running_cell()
        earlier, stands = self._by_cell.get(cell, ("", []))
        if earlier != run or not cell:
            for other in stands if cell else ():
                other.close()
            stands = []
        self._by_cell[cell] = (run, [*stands, notebook])
        self._hook()

    def _hook(self) -> None:
        shell = get_ipython()
        if shell is not None and shell is not self._shell:
            shell.events.register("post_run_cell", lambda *_: self.refresh())
            self._shell = shell

    def refresh(self) -> None:
        """Let all that is shown take up what a cell changed."""
        for _, stands in list(self._by_cell.values()):
            for notebook in stands:
                notebook.refresh()


_SHOWN = _Shown()


def _main_loop() -> Any:
    """Return the event loop of the kernel's main thread; None where ``%gui`` keeps that thread in a loop of its own."""
    kernel = getattr(get_ipython(), "kernel", None)
    return getattr(kernel, "io_loop", None) if getattr(kernel, "eventloop", None) is None else None


def _running_cell() -> tuple[str, str]:
    """Return the ids of the cell that runs and of its run, as far as the front end tells them."""
    kernel = getattr(get_ipython(), "kernel", None)
    parent = kernel.get_parent() if kernel is not None else {}
    header, metadata = parent.get("header", {}), parent.get("metadata", {})
    return str(metadata.get("cellId", "")), str(header.get("msg_id", ""))


def _line(text: str, fraction: float | None = None) -> dict[str, str]:
    bar = f'<progress max="1" value="{fraction:.3f}"></progress> ' if fraction is not None else ""
    return {"text/plain": text, "text/html": f"<div>{bar}{markup(text)}</div>"}
