"""The list of diagnostics, each with a button that shows its nodes in the graph and its lines in the source."""

from __future__ import annotations

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.node_names import nodes_of_diagnostic
from regional_explorer.record.session import Session
from regional_explorer.render.report.diagnostics_list import diagnostics_nodes
from regional_explorer.render.style.element import Node
from regional_explorer.ui.panel.controls import button


def diagnostics_list(session: Session) -> list[Node]:
    """Return the diagnostics as a list, folded if there are many."""

    def show_button(number: int, diagnostic: Diagnostic) -> Node | None:
        if not nodes_of_diagnostic(diagnostic, session):
            return None
        title = "Select its nodes in the graph and in the source"
        return button("Show", "show", str(number), title=title, aria_label=f"Show the nodes of {diagnostic.code}")

    return diagnostics_nodes(session.diagnostics, show_button)
