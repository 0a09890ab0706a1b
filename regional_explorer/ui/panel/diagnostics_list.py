"""The list of diagnostics, each with a link to its nodes in the graph and its lines in the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.session import Session
from regional_explorer.render.style.figures import count
from regional_explorer.render.style.untrusted import clean
from regional_explorer.ui.control import Control
from regional_explorer.ui.views.element_tree import Sheet, Tree, node
from regional_explorer.ui.views.graph_view import GraphView

FEW = 5
"""More diagnostics than this are folded away."""
_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn"}
_SIGNS = {"bad": "✗ ", "warn": "! "}


class Findings:
    """The list; a button of each diagnostic selects its nodes and brings them into view."""

    def __init__(self, control: Control, graph: GraphView) -> None:
        self._control = control
        self._graph = graph
        self.sheet = Sheet(self._on_message)

    def show(self, session: Session) -> None:
        """Show the diagnostics of ``session``."""
        self.sheet.tree = findings_tree(session)
        self.sheet.layout.display = "" if session.diagnostics else "none"

    def _on_message(self, message: Mapping[str, Any]) -> None:
        with self._control.guarded():
            session = self._control.session
            nodes = places(session.diagnostics[int(message["of"])], session)
            here = {node.partition(":")[0] for node in nodes}
            if here and self._graph.tab not in here:
                self._graph.tab = min(here)
            self._graph.select(nodes)
            self._graph.show_nodes(nodes)


def places(found: Diagnostic, session: Session) -> list[str]:
    """Return the nodes that a diagnostic is about as ``graph:name``: its own, those of its lines, or of its region."""
    if found.graph is not None and found.nodes:
        return [f"{found.graph}:{name}" for name in found.nodes]
    lines = {(line.file, line.line) for line in found.where}
    there = [
        f"{graph.id}:{node.name}"
        for graph in session.graphs
        for node in graph.ops
        if lines and any((line.file, line.line) in lines for line in node.stack)
    ]
    held = session.members.get(found.region or "", {})
    return there or [f"{graph}:{name}" for graph, names in held.items() for name in names]


def findings_tree(session: Session) -> list[Tree]:
    """Return the diagnostics as a list; many are folded away."""
    if not session.diagnostics:
        return []
    items = [_item(number, found, session) for number, found in enumerate(session.diagnostics)]
    title = count(len(items), "diagnostic")
    listed = node("ul", *items, class_="rx-list")
    if len(items) > FEW:
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
        aria_label=f"Show the place of {clean(found.code)}",
    )
    word = node("span", f"{_SIGNS.get(tone, '')}{found.severity}", class_=f"rx-{tone}")
    shown = [button] if places(found, session) else []
    return node("li", word, node("code", found.code), node("span", found.message), *shown, *rest)
