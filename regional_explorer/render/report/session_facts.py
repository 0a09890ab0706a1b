"""The facts of a session that stand above its tables: graphs, shapes, gradients, graph breaks, torch and device."""

from __future__ import annotations

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.session import Session
from regional_explorer.render.style.formats import MOST_ENTRIES
from regional_explorer.render.style.untrusted import SHORT, clean


def session_facts(session: Session) -> tuple[tuple[str, str], ...]:
    """Return the label and the text of each fact: what was captured, and where."""
    environment = session.environment
    graphs = [graph for graph in session.graphs if graph.parent is None and graph.kind is not GraphKind.DYNAMO]
    sizes = ", ".join(f"{clean(graph.id, SHORT)} {count(len(graph.ops), 'op')}" for graph in graphs[:MOST_ENTRIES])
    more = f" and {len(graphs) - MOST_ENTRIES} more" if len(graphs) > MOST_ENTRIES else ""
    shapes = [("shapes", session.shapes)] if session.dynamic is not None else []
    return (
        ("graphs", (sizes + more) or "none was captured"),
        *shapes,
        ("gradients", "captured for training" if session.grad else "captured without gradients"),
        ("graph breaks", str(len(session.breaks)) if session.breaks else "none"),
        ("torch", f"{clean(environment.torch, SHORT)}, Python {clean(environment.python, SHORT)}"),
        ("device", f"{clean(environment.device)}, {count(environment.threads, 'thread')}"),
    )
