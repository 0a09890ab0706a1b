"""The panel of one exploration: header, graph, source, regions, actions and results."""

from __future__ import annotations

from collections.abc import Mapping

import ipywidgets as widgets

from regional_explorer.record.session import Session
from regional_explorer.render.report.html import results_html
from regional_explorer.render.report.plan_tables import summary
from regional_explorer.render.style.css import PAGE
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.actions import Actions
from regional_explorer.ui.panel.diagnostics_list import DiagnosticsList
from regional_explorer.ui.panel.editing import Editing
from regional_explorer.ui.panel.marking import Marking
from regional_explorer.ui.panel.measured_plans import MeasuredPlans
from regional_explorer.ui.panel.panel_style import style_html
from regional_explorer.ui.panel.region_list import RegionList
from regional_explorer.ui.views.graph_view import GraphView
from regional_explorer.ui.views.overlay import overlays
from regional_explorer.ui.views.source_view import SourceView
from regional_explorer.ui.views.widget_tree import close_tree, keep_message_order


class Panel:
    """The widgets of one exploration, inside ``box``. Panels of the same exploration show the same state."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self._session: Session | None = None
        self._selected: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self._style = widgets.HTML(layout={"display": "none"})
        self._header = widgets.HTML()
        self.regions = RegionList(control)
        self.graph = GraphView(height=440)
        self.source = SourceView()
        self.source.link(self.graph)
        self._views = widgets.Box([self.graph, self.source])
        self._views.add_class("rx-views")
        self.editing = Editing(control, self.graph)
        self.marking = Marking(control, self.graph)
        self.actions = Actions(control)
        self.measured_plans = MeasuredPlans(control)
        self.diagnostics = DiagnosticsList(control, self.graph)
        self._results = widgets.HTML()
        self.box = widgets.VBox(
            [
                self._style,
                self._header,
                self._views,
                self.regions.box,
                self.editing.box,
                self.marking.box,
                self.actions.box,
                self.measured_plans.box,
                self.diagnostics.tree_widget,
                self._results,
            ]
        )
        for name in (PAGE, "rx-panel"):
            self.box.add_class(name)
        keep_message_order(self.box)
        control.listeners.append(self.show)
        control.heartbeat.pings.append(self.graph.ping)
        self.graph.on_pong = control.heartbeat.on_reply
        self.show(control)

    def show(self, control: Control) -> None:
        """Show the state and the session of ``control``."""
        fresh = control.session is not self._session
        self._session = control.session
        if fresh:
            self._show_session(control.session)
        self.regions.show(control)
        self._select(control)
        self.editing.show(control.state)
        self.marking.show(control.state)
        self.actions.show(control.state)
        self.measured_plans.show(control)

    def _select(self, control: Control) -> None:
        """Highlight the nodes of the regions whose rows are selected, in the graphs and in the source."""
        selected = {name: control.session.members.get(name, {}) for name in control.state.picked}
        if selected != self._selected:  # other rows, or the same with other nodes
            self._selected = selected
            self.graph.select(
                f"{graph}:{name}" for one in selected.values() for graph, names in one.items() for name in names
            )

    def _show_session(self, session: Session) -> None:
        _set(self._style, style_html([paint(number) for number in range(len(session.plan.regions))]))
        _set(self._header, _header(session))
        self.graph.set_session(session)
        self.graph.overlays = overlays(session)
        self.source.set_session(session)
        self.diagnostics.show(session)
        _set(self._results, results_html(session))

    def close(self) -> None:
        """Disconnect the panel from its control, and close its widgets."""
        if self.show in self.control.listeners:
            self.control.listeners.remove(self.show)
            self.control.heartbeat.pings.remove(self.graph.ping)
        self.marking.debounce.cancel()
        self.source.unlink()
        close_tree(self.box)


def _set(widget: widgets.HTML, value: str) -> None:
    # Sending the same value again would redraw it: opened sections would collapse and the page would jump.
    if widget.value != value:
        widget.value = value


def _header(session: Session) -> str:
    facts = dict(summary(session))
    facts["torch"] = f"torch {facts['torch']}"
    facts["graph breaks"] = f"graph breaks: {facts['graph breaks']}"
    return f'<h3>{markup(session.title)}</h3><div class="rx-quiet">{markup(" · ".join(facts.values()))}</div>'
