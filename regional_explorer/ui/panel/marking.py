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
    "selection": "what is selected in the graph or in the source",
    "modules": "a glob over module paths, such as layers.*.mlp",
    "lines": "function:3-7, counted from its def, or file.py:10-20",
    "ops": "a glob over operators, such as aten.gelu*",
    "subgraphs": "a glob over functions marked by nested_compile_region, such as Block.forward",
}
MOST_SUGGESTED = 300


class Marking:
    """Asks for a kind of selector, a pattern and a name; suggests what the captured graphs have."""

    def __init__(self, control: Control, graph: GraphView) -> None:
        self._control = control
        self._graph = graph
        self._busy = False
        self._suggestions = suggestions(control.session)
        self._title = widgets.HTML()
        self.kind = widgets.Dropdown(options=list(HINTS), description="Mark by")
        self.kind.observe(lambda _: self._show_kind(), names="value")
        # What is typed comes as a whole when the field is left: letter by letter, the last ones could still wait in the
        # page, for a busy kernel, when the button is heard.
        self.pattern = widgets.Combobox(description="Pattern", ensure_option=False, continuous_update=False)
        self.name = widgets.Text(description="Name", placeholder="of the region", continuous_update=False)
        self.button = widgets.Button(description="Mark", tooltip="Mark this as a region; nothing is traced again")
        self.button.on_click(lambda _: self._mark())
        for widget in (self.pattern, self.name):
            widget.observe(lambda _: self._preview(), names="value")
        graph.observe(lambda _: self._count_selection(), names="selection")
        self.later = Debounce()
        self.foreseen = widgets.HTML()
        self.foreseen.add_class("rx-foreseen")
        self._error = widgets.HTML()
        self._error.add_class("rx-error-line")
        form = widgets.Box([self.kind, self.pattern, self.name, self.button])
        form.add_class("rx-marking")
        self.box = widgets.VBox([self._title, form, self._error, self.foreseen])
        self._show_kind()

    def show(self, state: PanelState) -> None:
        """Say how to mark a region, at length where there is none."""
        self._title.value = (
            "<h4>Mark another region</h4>"
            if state.plan.regions
            else "<h4>No region yet</h4><p>Select nodes in the graph or lines of the source and name them here, or "
            "take modules, lines or ops by a pattern; or mark it in the source: "
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
        """Tell in the field of the pattern how much is selected."""
        if self.kind.value == "selection":
            chosen = self._graph.selection
            self.pattern.value = f"{count(len(chosen), 'node')} selected" if chosen else ""
            self._preview()  # other nodes may be as many
        elif self.pattern.value.endswith(" selected"):
            self.pattern.value = ""

    def _asked(self) -> dict[str, Any]:
        """Return what to mark as ``mark`` takes it; nothing where there is none yet."""
        kind, pattern = self.kind.value, self.pattern.value.strip()
        if kind == "selection":
            return {"nodes": list(self._graph.selection)} if self._graph.selection else {}
        return {kind: pattern} if pattern else {}

    def _name(self, asked: dict[str, Any]) -> str:
        """Return the name typed, or else the one proposed for what is asked."""
        return self.name.value.strip() or proposed_name(asked, self._control.session)

    def _preview(self) -> None:
        """Tell under which name what would be marked, off the main thread: a large graph takes a while to cut.

        The name is not told in its own field: whatever is told to a field takes away what is being typed there.
        """
        self.later.stop()
        asked = self._asked()
        if self._busy or not asked or self._is_picked(asked):
            self.foreseen.value = ""
            return
        control, name = self._control, self._name(asked)

        def work(wanted: Callable[[], bool]) -> None:
            try:
                plan = control.exploration.draft().mark(name, **asked).plan
                told = preview_html(name, control.exploration.preview(plan), control.session)
            except RegionalExplorerError as error:
                told = f'<span class="rx-quiet">{markup(error)}</span>'
            if wanted():
                self.foreseen.value = told

        self.later.ask(work)

    def _is_picked(self, asked: dict[str, Any]) -> bool:
        """Tell whether these are the nodes of the regions whose rows are selected: nobody would mark them anew."""
        members, picked = self._control.session.members, self._control.state.picked
        held = [members.get(name, {}) for name in picked]
        nodes = {f"{graph}:{name}" for one in held for graph, names in one.items() for name in names}
        return "nodes" in asked and set(asked["nodes"]) == nodes

    def _mark(self) -> None:
        asked = self._asked()
        self._show_error("" if asked else f"Give a pattern: {HINTS[self.kind.value]}.")
        if not asked:
            return
        with self._control.guarded():
            try:
                self._control.edit(lambda ex: ex.mark(self._name(asked), **asked))
            except SelectorError as error:
                self._show_error(str(error))
                return
            self.pattern.value = self.name.value = ""
            self._count_selection()

    def _show_error(self, error: str) -> None:
        self._error.value = f'<span role="alert">✗ {markup(error)}</span>' if error else ""


def suggestions(session: Session) -> dict[str, list[str]]:
    """Return the patterns worth offering by kind: the module paths, functions, operators and bodies of the graphs."""
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
    return {kind: sorted(names)[:MOST_SUGGESTED] for kind, names in found.items()}


def _any_number(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
