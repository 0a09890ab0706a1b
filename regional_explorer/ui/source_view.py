"""The source view: the user's functions, each line coloured by its regions and tied to the nodes that come from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets
from ipywidgets import jslink

from regional_explorer.record.session import Session
from regional_explorer.render.listing import listing
from regional_explorer.ui.static import script, style


class SourceView(anywidget.AnyWidget):
    """Shows the functions that the nodes of a session come from.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph; a click on a line selects the nodes that pass it.
        hover: nodes under the pointer, here or in a view that is linked.
        height: in pixels, at most; the lower edge can be dragged.

    ``payload`` is what the page shows.
    """

    _esm = script("source")
    _css = style("source")

    payload = traitlets.Dict().tag(sync=True)
    selection = traitlets.List(traitlets.Unicode()).tag(sync=True)
    hover = traitlets.List(traitlets.Unicode()).tag(sync=True)
    height = traitlets.Int(360).tag(sync=True)

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        if session is not None:
            self.set_session(session)

    def set_session(self, session: Session) -> None:
        """Show the source of ``session``."""
        self.payload = listing(session)

    def select(self, nodes: Iterable[str]) -> None:
        """Select nodes, given as ``graph:name``, and nothing else."""
        self.selection = list(nodes)

    def link(self, view: Any) -> tuple[Any, ...]:
        """Share selection and hover with a graph view; it happens in the page, also while the kernel is busy.

        Returns:
            The two links; ``unlink()`` ends one.
        """
        self.on_msg(view.receive)
        return tuple(jslink((view, trait), (self, trait)) for trait in ("selection", "hover"))
