"""The base of the source and code views: rows linked to nodes, with the selection and hover of a graph view."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import traitlets

from regional_explorer.render.static import style
from regional_explorer.ui.views.element_tree import ElementTree, OnMessage

if TYPE_CHECKING:
    from regional_explorer.ui.views.graph_view import GraphView

MAX_HOVERED = 400
"""Pointing at a row with more nodes than this highlights none of them."""


class LinkedView(ElementTree):
    """Widget whose rows are highlighted while their nodes are selected or hovered.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph.
        hover: nodes under the pointer, in this view or a linked one.
    """

    _css = style("source")

    selection = traitlets.List(traitlets.Unicode())
    hover = traitlets.List(traitlets.Unicode())

    def __init__(self, on_message: OnMessage, **traits: Any) -> None:
        super().__init__(on_message, **traits)
        self._select_nodes: Callable[[Iterable[str]], None] = self.select
        self._links: tuple[traitlets.link | traitlets.directional_link, ...] = ()

    def select(self, nodes: Iterable[str]) -> None:
        """Select nodes, given as ``graph:name``, and nothing else."""
        self.selection = list(nodes)

    def link(self, view: GraphView) -> None:
        """Share selection and hover with a graph view, until ``unlink``."""
        self.unlink()
        self._select_nodes = view.select_on_page
        self._links = (
            traitlets.dlink((view, "selection"), (self, "selection")),
            traitlets.link((view, "hover"), (self, "hover")),
        )

    def unlink(self) -> None:
        """Stop sharing selection and hover."""
        for link in self._links:
            link.unlink()
        self._links = ()
        self._select_nodes = self.select

    def _picked(self, nodes: Iterable[str], *, ctrl: bool) -> list[str]:
        """Return what is selected after a click on ``nodes``; with Ctrl it adds them, or removes them if all are."""
        picked = dict.fromkeys(nodes)
        if not ctrl:
            return list(picked)
        others = [name for name in self.selection if name not in picked]
        return others if picked.keys() <= set(self.selection) else [*others, *picked]

    def _point_at(self, nodes: Iterable[str]) -> None:
        """Show that the pointer is on ``nodes``."""
        pointed = list(nodes)
        self.hover = pointed if len(pointed) <= MAX_HOVERED else []
