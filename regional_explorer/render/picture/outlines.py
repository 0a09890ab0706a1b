"""Caches what the pictures of a session share: outlines of its graphs, scopes of their ops, facts of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from regional_explorer.record.graph import Graph
from regional_explorer.record.session import Session
from regional_explorer.render.picture.arrays import facts_of_nodes
from regional_explorer.render.picture.compose import SectionBuilder
from regional_explorer.render.picture.outline import Fold, outline
from regional_explorer.render.picture.scopes import Chain, scopes


class GraphFacts:
    """What pictures show of a graph under every plan: the scopes of its ops, and the facts of its nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def scopes(self) -> Mapping[str, Chain]:
        """The scopes of each op."""
        return scopes(self.graph)

    @cached_property
    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        """The facts of each node."""
        return facts_of_nodes(self.graph)


class Outlines:
    """The outlines of a session's graphs, and their ``facts`` by graph id, which do not depend on what is open.

    Of ``before``, the outlines of an earlier session, the facts of graphs that both have are used again.
    """

    def __init__(self, session: Session, before: Outlines | None = None) -> None:
        self._session = session
        self._built: dict[tuple[str, str], tuple[SectionBuilder, tuple[Fold, ...]]] = {}
        facts = before.facts if before else {}
        self.facts: Mapping[str, GraphFacts] = {
            graph.id: facts[graph.id] if graph.id in facts and facts[graph.id].graph is graph else GraphFacts(graph)
            for graph in session.graphs
        }

    def of(self, graph: Graph, name: str) -> tuple[SectionBuilder, tuple[Fold, ...]]:
        """Return the builder of the section called ``name``, and the outline of its graph."""
        if (graph.id, name) not in self._built:
            builder = SectionBuilder(self._session, graph, name)
            folds = outline(graph, builder.pieces, self.facts[graph.id].scopes)
            self._built[graph.id, name] = builder, folds
        return self._built[graph.id, name]
