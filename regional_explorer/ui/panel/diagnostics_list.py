"""The list of diagnostics, each with a link to its nodes in the graph and its lines in the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.session import Session
from regional_explorer.render.style.figures import count
from regional_explorer.render.style.untrusted import clean
from regional_explorer.ui.control import Control
from regional_explorer.ui.views.element_tree import ElementTree, Tree, node
from regional_explorer.ui.views.graph_view import GraphView

FOLD_ABOVE = 5
"""A list with more diagnostics than this is collapsed."""
_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn"}
_SIGNS = {"bad": "✗ ", "warn": "! "}


class DiagnosticsList:
    """The diagnostics of a session, each with a button that selects its nodes and scrolls to them."""

    def __init__(self, control: Control, graph: GraphView) -> None:
        self._control = control
        self._graph = graph
        self.tree_widget = ElementTree(self._on_message)

    def show(self, session: Session) -> None:
        """Show the diagnostics of ``session``."""
        self.tree_widget.tree = diagnostics_tree(session)
        self.tree_widget.layout.display = "" if session.diagnostics else "none"

    def _on_message(self, message: Mapping[str, Any]) -> None:
        with self._control.showing_errors():
            session = self._control.session
            nodes = nodes_of(session.diagnostics[int(message["of"])], session)
            here = {node.partition(":")[0] for node in nodes}
            if here and self._graph.tab not in here:
                self._graph.tab = min(here)
            self._graph.select(nodes)
            self._graph.show_nodes(nodes)


def nodes_of(found: Diagnostic, session: Session) -> list[str]:
    """Return the nodes of a diagnostic as ``graph:name``: its own, else those of its lines, else of its region."""
    if found.graph is not None and found.nodes:
        return [f"{found.graph}:{name}" for name in found.nodes]
    lines = {(line.file, line.line) for line in found.where}
    on_lines = [
        f"{graph.id}:{node.name}"
        for graph in session.graphs
        for node in graph.ops
        if lines and any((line.file, line.line) in lines for line in node.stack)
    ]
    assigned = session.members.get(found.region or "", {})
    return on_lines or [f"{graph}:{name}" for graph, names in assigned.items() for name in names]


def diagnostics_tree(session: Session) -> list[Tree]:
    """Return the diagnostics as a list, collapsed if there are many."""
    if not session.diagnostics:
        return []
    items = [_item(number, found, session) for number, found in enumerate(session.diagnostics)]
    title = count(len(items), "diagnostic")
    listed = node("ul", *items, class_="rx-list")
    if len(items) > FOLD_ABOVE:
        return [node("details", node("summary", title), listed)]
    return [node("h4", title), listed]


def _item(number: int, found: Diagnostic, session: Session) -> Tree:
    tone = _TONES.get(found.severity, "quiet")
    where = ", ".join(str(line) for line in found.where[:3])
    rest = [
        node("div", label + text, class_="rx-quiet")
        for label, text in (("At ", where), ("Upstream torch: ", found.upstream), ("What to do: ", found.remedy))
        if text
    ]
    button = node(
        "button",
        "Show",
        type="button",
        data_do="show",
        data_of=str(number),
        title="Select its nodes in the graph and in the source",
        aria_label=f"Show the nodes of {clean(found.code)}",
    )
    word = node("span", f"{_SIGNS.get(tone, '')}{found.severity}", class_=f"rx-{tone}")
    shown = [button] if nodes_of(found, session) else []
    return node("li", word, node("code", found.code), node("span", found.message), *shown, *rest)
