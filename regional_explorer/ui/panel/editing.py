"""Buttons that edit the selected regions: rename, merge, split, carve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from regional_explorer.errors import RegionalExplorerError
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.render.style.untrusted import SHORT, markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.state import PanelState
from regional_explorer.ui.views.graph_view import GraphView

MIN_MERGED = 2


class Editing:
    """A name field and a row of buttons; each is enabled when it applies to the selection."""

    def __init__(self, control: Control, graph: GraphView) -> None:
        self._control = control
        self._graph = graph
        self._picked = widgets.HTML()
        # The name is sent when the field loses focus: sent letter by letter, the last ones could arrive after a click.
        self.name = widgets.Text(placeholder="new name", continuous_update=False)
        self.name.tooltip = "A new name for the selected region, or for the merged one"
        self.rename = self._button("Rename", "Give the selected region this name", self._rename)
        self.merge = self._button(
            "Merge", "Merge the selected regions into one, with the config of the first", self._merge
        )
        self.split = self._button("Split", "Split at the node selected in the graph, or else by instance", self._split)
        self.carve = self._button("Carve out", "Run the ops selected in the graph eagerly", self._carve)
        self.uncarve = self._button("Take back", "Return carved ops to the selected region", self._uncarve)
        self.buttons = (self.rename, self.merge, self.split, self.carve, self.uncarve)
        self._error = widgets.HTML()
        self._error.add_class("rx-error-line")
        line = widgets.Box([self._picked, self.name, *self.buttons])
        line.add_class("rx-editing")
        self.box = widgets.VBox([line, self._error])
        graph.observe(lambda _: self._enable(), names="selection")
        self._enable()

    def show(self, state: PanelState) -> None:
        """Enable the buttons that apply to the selection."""
        self.box.layout.display = "" if state.plan.regions else "none"
        self._show_error("")
        self._enable()

    def _enable(self) -> None:
        state = self._control.state
        picked = [state.plan[name] for name in state.picked if name in state.plan]
        one = len(picked) == 1
        can = {
            self.rename: one,
            self.merge: len(picked) >= MIN_MERGED,
            self.split: one,
            self.carve: bool(self._partly_selected(state)),
            self.uncarve: one and bool(picked[0].carved),
        }
        for button, possible in can.items():
            button.disabled = state.busy or not possible
        self.name.disabled = state.busy
        words = (
            f"<b>{markup(', '.join(state.picked), SHORT)}</b> selected" if picked else "Select a row to edit a region"
        )
        self._picked.value = f'<span class="rx-quiet">{words}</span>'

    def _partly_selected(self, state: PanelState) -> dict[str, list[str]]:
        """Return the nodes selected in the graph by region, without regions that are selected completely."""
        chosen = self._graph.selection
        found: dict[str, list[str]] = {}
        for region in state.plan.regions:
            assigned = self._control.session.members.get(region.name, {})
            mine = {f"{graph}:{name}" for graph, names in assigned.items() for name in names}
            partly = [node for node in chosen if node in mine]
            if 0 < len(partly) < len(mine):
                found[region.name] = partly
        return found

    def _rename(self) -> None:
        (name,), new = self._control.state.picked, self.name.value.strip()
        if not new:
            self._show_error("Type the new name first.")
            return
        self._do(lambda ex: ex.rename(name, new))

    def _merge(self) -> None:
        plan, names, new = self._control.state.plan, self._control.state.picked, self.name.value.strip()
        self._do(lambda ex: ex.merge(*names, name=new or None, config=plan[names[0]].config))

    def _split(self) -> None:
        (name,) = self._control.state.picked
        at = self._partly_selected(self._control.state).get(name, [])
        self._do(lambda ex: ex.split(name, at[0] if at else None))

    def _carve(self) -> None:
        found = self._partly_selected(self._control.state)

        def carve(ex: Exploration) -> None:
            draft = ex.draft()
            for name, nodes in found.items():
                draft.carve(name, nodes=nodes)
            ex.plan = draft.plan  # in one step: if one is invalid, none is carved

        self._do(carve)

    def _uncarve(self) -> None:
        (name,) = self._control.state.picked
        self._do(lambda ex: ex.uncarve(name))

    def _do(self, change: Callable[[Exploration], Any]) -> None:
        with self._control.showing_errors():
            try:
                self._control.edit(change)
            except RegionalExplorerError as error:
                self._show_error(str(error))
                return
            self.name.value = ""

    def _show_error(self, error: str) -> None:
        self._error.value = f'<span role="alert">✗ {markup(error)}</span>' if error else ""
        self._error.layout.display = "" if error else "none"

    def _button(self, text: str, title: str, press: Callable[[], None]) -> widgets.Button:
        button = widgets.Button(description=text, tooltip=title)
        button.on_click(lambda _: press())
        return button
