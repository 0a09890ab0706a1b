"""Lists the nodes of graphs, regions and diagnostics as ``graph:name``, as selections and pages name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.graph import Graph
from regional_explorer.record.session import Session


def qualified_names(graphs: Iterable[Graph]) -> Iterator[str]:
    """Yield the nodes of ``graphs`` as ``graph:name``."""
    return (f"{graph.id}:{node.name}" for graph in graphs for node in graph.nodes)


def nodes_of_region(session: Session, name: str) -> list[str]:
    """Return the nodes of a region as ``graph:name``."""
    return [f"{graph}:{node}" for graph, nodes in session.members.get(name, {}).items() for node in nodes]


def nodes_of_diagnostic(diagnostic: Diagnostic, session: Session) -> list[str]:
    """Return the nodes of a diagnostic as ``graph:name``: its own, else those of its lines, else of its region."""
    if diagnostic.graph is not None and diagnostic.nodes:
        return [f"{diagnostic.graph}:{name}" for name in diagnostic.nodes]
    lines = {(line.file, line.line) for line in diagnostic.where}
    on_lines = [
        f"{graph.id}:{node.name}"
        for graph in session.graphs
        for node in graph.ops
        if lines and any((line.file, line.line) in lines for line in node.stack)
    ]
    return on_lines or nodes_of_region(session, diagnostic.region or "")
