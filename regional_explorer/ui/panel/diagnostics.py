"""The list of diagnostics, each with a button that shows its nodes in the graph and its lines in the source."""

from __future__ import annotations

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.session import Session
from regional_explorer.render.report.diagnostics_list import diagnostics_nodes
from regional_explorer.render.style.element import Node
from regional_explorer.ui.control import nodes_of_region
from regional_explorer.ui.panel.controls import button


def diagnostics_list(session: Session) -> list[Node]:
    """Return the diagnostics as a list, folded if there are many."""

    def show(number: int, found: Diagnostic) -> Node | None:
        if not nodes_of(found, session):
            return None
        title = "Select its nodes in the graph and in the source"
        return button("Show", "show", str(number), title=title, aria_label=f"Show the nodes of {found.code}")

    return diagnostics_nodes(session.diagnostics, show)


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
    return on_lines or nodes_of_region(session, found.region or "")
