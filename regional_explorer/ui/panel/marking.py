"""The form that marks a region by modules, lines, ops, or the selection in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from regional_explorer.errors import RegionalExplorerError, SelectorError
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.session import Session
from regional_explorer.regions.subgraphs import subgraph_names, subgraphs
from regional_explorer.render.style.figures import count
from regional_explorer.render.style.untrusted import markup
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel.mark_preview import preview_html
from regional_explorer.ui.panel.proposed_name import proposed_name
from regional_explorer.ui.state import PanelState
from regional_explorer.ui.threads.debounce import Debounce
from regional_explorer.ui.views.graph_view import GraphView

HINTS = {
    "selection": "the nodes selected in the graph or the source",
    "modules": "a glob over module paths, such as layers.*.mlp",
    "lines": "function:3-7 (the def is line 1) or file.py:10-20",
    "ops": "a glob over operators, such as aten.gelu*",
    "subgraphs": "a glob over functions marked by nested_compile_region, such as Block.forward",
}
MAX_SUGGESTED = 300


class Marking:
    """A form for a kind of selector, a pattern and a name, with suggestions from the captured graphs."""

    def __init__(self, control: Control, graph: GraphView) -> None:
        self._control = control
        self._graph = graph
        self._busy = False
        self._suggestions = suggestions(control.session)
        self._title = widgets.HTML()
        self.kind = widgets.Dropdown(options=list(HINTS), description="Mark by")
        self.kind.observe(lambda _: self._show_kind(), names="value")
        # The text is sent when the field loses focus: sent letter by letter, the last ones could arrive after a click.
        self.pattern = widgets.Combobox(description="Pattern", ensure_option=False, continuous_update=False)
        self.name = widgets.Text(description="Name", placeholder="of the region", continuous_update=False)
        self.button = widgets.Button(description="Mark", tooltip="Mark this as a region, without tracing again")
        self.button.on_click(lambda _: self._mark())
        for widget in (self.pattern, self.name):
            widget.observe(lambda _: self._preview(), names="value")
        graph.observe(lambda _: self._count_selection(), names="selection")
        self.debounce = Debounce()
        self.preview = widgets.HTML()
        self.preview.add_class("rx-preview")
        self._error = widgets.HTML()
        self._error.add_class("rx-error-line")
        form = widgets.Box([self.kind, self.pattern, self.name, self.button])
        form.add_class("rx-marking")
        self.box = widgets.VBox([self._title, form, self._error, self.preview])
        self._show_kind()

    def show(self, state: PanelState) -> None:
        """Show the form for ``state``, with instructions if there is no region yet."""
        self._title.value = (
            "<h4>Mark another region</h4>"
            if state.plan.regions
            else "<h4>No region yet</h4><p>Select nodes in the graph or lines in the source and name them here, or "
            "select modules, lines or ops by a pattern; or mark the region in the source: "
            "<code>with rx.region(&quot;mlp&quot;): …</code></p>"
        )
        self._busy = state.busy
        self._enable()
        self._preview()

    def _enable(self) -> None:
        for widget in (self.kind, self.pattern, self.name, self.button):
            widget.disabled = self._busy or (widget is self.pattern and self.kind.value == "selection")

    def _show_kind(self) -> None:
        self.pattern.options = self._suggestions[self.kind.value]
        self.pattern.placeholder = HINTS[self.kind.value]
        self._enable()
        self._count_selection()

    def _count_selection(self) -> None:
        """Show the number of selected nodes in the pattern field."""
        if self.kind.value == "selection":
            chosen = self._graph.selection
            self.pattern.value = f"{count(len(chosen), 'node')} selected" if chosen else ""
            self._preview()  # other nodes may be as many
        elif self.pattern.value.endswith(" selected"):
            self.pattern.value = ""

    def _selector(self) -> dict[str, Any]:
        """Return the selector as keyword arguments of ``mark``, empty if it is incomplete."""
        kind, pattern = self.kind.value, self.pattern.value.strip()
        if kind == "selection":
            return {"nodes": list(self._graph.selection)} if self._graph.selection else {}
        return {kind: pattern} if pattern else {}

    def _name(self, selector: dict[str, Any]) -> str:
        """Return the typed name, or else the one proposed for the selector."""
        return self.name.value.strip() or proposed_name(selector, self._control.session)

    def _preview(self) -> None:
        """Show what marking would give, computed on another thread because cutting a large graph takes a while.

        A proposed name is not written into the name field: that would overwrite what is being typed there.
        """
        self.debounce.cancel()
        selector = self._selector()
        if self._busy or not selector or self._is_selected_region(selector):
            self.preview.value = ""
            return
        control, name = self._control, self._name(selector)

        def work(wanted: Callable[[], bool]) -> None:
            try:
                plan = control.exploration.draft().mark(name, **selector).plan
                html = preview_html(name, control.exploration.preview(plan), control.session)
            except RegionalExplorerError as error:
                html = f'<span class="rx-quiet">{markup(error)}</span>'
            if wanted():
                self.preview.value = html

        self.debounce.submit(work)

    def _is_selected_region(self, selector: dict[str, Any]) -> bool:
        """Return whether the selector is just the nodes of the regions whose rows are selected."""
        members, picked = self._control.session.members, self._control.state.picked
        assigned = [members.get(name, {}) for name in picked]
        nodes = {f"{graph}:{name}" for one in assigned for graph, names in one.items() for name in names}
        return "nodes" in selector and set(selector["nodes"]) == nodes

    def _mark(self) -> None:
        selector = self._selector()
        self._show_error("" if selector else f"Enter a pattern: {HINTS[self.kind.value]}.")
        if not selector:
            return
        with self._control.showing_errors():
            try:
                self._control.edit(lambda ex: ex.mark(self._name(selector), **selector))
            except SelectorError as error:
                self._show_error(str(error))
                return
            self.pattern.value = self.name.value = ""
            self._count_selection()

    def _show_error(self, error: str) -> None:
        self._error.value = f'<span role="alert">✗ {markup(error)}</span>' if error else ""


def suggestions(session: Session) -> dict[str, list[str]]:
    """Return suggested patterns by kind: module paths, functions, operators and subgraphs of the graphs."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in HINTS}
    found["subgraphs"].update((name, None) for graph in subgraphs(session.graphs) for name in subgraph_names(graph))
    for graph in session.graphs:
        for node in graph.ops:
            found["modules"].update((call.path, None) for call in node.modules if call.path)
            found["modules"].update((_any_number(call.path), None) for call in node.modules if call.path)
            if graph.kind is not GraphKind.DYNAMO:
                found["ops"][node.target] = None
            if node.source is not None:
                found["lines"][f"{node.source.function}:1-99"] = None
    return {kind: sorted(names)[:MAX_SUGGESTED] for kind, names in found.items()}


def _any_number(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
