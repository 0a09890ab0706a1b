"""The panel of one exploration: header, regions, actions, tables and picture."""

from __future__ import annotations

import ipywidgets as widgets

from regional_explorer.record.session import Session
from regional_explorer.render.html import (
    diagnostics_html,
    numerics_html,
    partitions_html,
    timings_html,
)
from regional_explorer.render.palette import paint
from regional_explorer.render.style import PAGE
from regional_explorer.render.tables import regions_table, summary
from regional_explorer.render.untrusted import markup
from regional_explorer.ui.actions import Actions
from regional_explorer.ui.control import Control
from regional_explorer.ui.fields import close_tree
from regional_explorer.ui.graph_view import GraphView
from regional_explorer.ui.look import style_html
from regional_explorer.ui.marking import Marking
from regional_explorer.ui.rows import RegionRow
from regional_explorer.ui.source_view import SourceView


class Panel:
    """The widgets of one exploration; ``box`` is what is displayed. Two panels of one exploration show the same."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self._session: Session | None = None
        self._chosen: str | None = None
        self.rows: dict[str, RegionRow] = {}
        self._style = widgets.HTML(layout={"display": "none"})
        self._header = widgets.HTML()
        self._regions = widgets.VBox()
        self._regions.add_class("rx-regions")
        self.graph = GraphView(height=440)
        self.source = SourceView()
        self._links = self.source.link(self.graph)
        self._source = widgets.Accordion([self.source], titles=("Source, line by line",))
        self.marking = Marking(control, self.graph)
        self.actions = Actions(control)
        self._results = widgets.HTML()
        self.box = widgets.VBox(
            [
                self._style,
                self._header,
                self.graph,
                self._source,
                self._regions,
                self.marking.box,
                self.actions.box,
                self._results,
            ]
        )
        for name in (PAGE, "rx-panel"):
            self.box.add_class(name)
        control.listeners.append(self.show)
        self.show(control)

    def show(self, control: Control) -> None:
        """Show the state and the session of ``control``."""
        fresh = control.session is not self._session
        self._session = control.session
        if fresh:
            self._show_session(control.session)
        self._show_rows(control)
        self._select(control)
        self.marking.show(control.state)
        self.actions.show(control.state)

    def _show_rows(self, control: Control) -> None:
        names = [region.name for region in control.state.plan.regions]
        for name in [name for name in self.rows if name not in names]:
            close_tree(self.rows.pop(name).box)
        table = regions_table(control.session)
        cells = {row[0].region: dict(zip(table.columns, row, strict=True)) for row in table.rows}
        for number, region in enumerate(control.state.plan.regions):
            if region.name not in self.rows:
                self.rows[region.name] = RegionRow(control, region)
            self.rows[region.name].show(control.state, number, cells[number])
        boxes = tuple(self.rows[name].box for name in names)
        if self._regions.children != boxes:
            self._regions.children = boxes
        self._regions.layout.display = "" if names else "none"

    def _select(self, control: Control) -> None:
        """Light the nodes of the region whose row was opened, in the graphs and in the source."""
        chosen = control.state.selected
        if chosen != self._chosen:
            self._chosen = chosen
            held = control.session.members.get(chosen or "", {})
            self.graph.select(f"{graph}:{name}" for graph, names in held.items() for name in names)

    def _show_session(self, session: Session) -> None:
        _set(self._style, style_html([paint(number) for number in range(len(session.plan.regions))]))
        _set(self._header, _header(session))
        self.graph.set_session(session)
        self.source.set_session(session)
        _set(
            self._results,
            diagnostics_html(session.diagnostics)
            + timings_html(session)
            + partitions_html(session)
            + numerics_html(session),
        )

    def close(self) -> None:
        """Take the panel off its control, and close its widgets."""
        if self.show in self.control.listeners:
            self.control.listeners.remove(self.show)
        for link in self._links:
            link.unlink()
        close_tree(self.box)


def _set(widget: widgets.HTML, value: str) -> None:
    # A value that is sent again is drawn again: folded parts would open and the page would jump.
    if widget.value != value:
        widget.value = value


def _header(session: Session) -> str:
    facts = dict(summary(session))
    facts["torch"] = f"torch {facts['torch']}"
    facts["graph breaks"] = f"graph breaks: {facts['graph breaks']}"
    return f'<h3>{markup(session.title)}</h3><div class="rx-quiet">{markup(" · ".join(facts.values()))}</div>'
