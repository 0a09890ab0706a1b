"""Diagnostics that follow from what is known of artifacts: what Inductor warned of."""

from __future__ import annotations

from regional_explorer.diagnostics.evidence import lines
from regional_explorer.errors import count
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.grouping import grouped
from regional_explorer.record.session import Session


def warning_diagnostics(session: Session) -> list[Diagnostic]:
    """Return an ``inductor-warning`` for each region and text that Inductor warned of, compiling or lowering it."""
    graphs = {graph.id: graph.by_name for graph in session.graphs}
    warned = grouped(
        ((part.region, text), part)
        for part in session.partitions
        if (artifact := session.artifact_of(part)) is not None
        for text in dict.fromkeys((*artifact.compile.warnings, *(artifact.code.warnings if artifact.code else ())))
    )
    return [
        DiagnosticCode.INDUCTOR_WARNING.found(
            f"Inductor warned when it compiled region {region!r} ({count(len(parts), 'partition')}): {text}",
            region=region,
            graph=parts[0].graph,
            where=lines(graphs[part.graph][name] for part in parts for name in part.nodes)[:1],
            remedy=(Action(ActionKind.DIAGNOSE, (region,)), " says where its time goes."),
        )
        for (region, text), parts in warned.items()
    ]
