"""The widget that shows a tree of HTML elements and sends back what is pressed and typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from regional_explorer.render.static import script

OnMessage = Callable[[Mapping[str, Any]], None]
"""Called with a message of the page: ``do`` and ``of`` of the element, an input's ``value``, ``shift``, ``ctrl``."""


class ElementTree(anywidget.AnyWidget):
    """Widget that shows a list of elements; ``on_message`` is called for input to elements with a ``do`` attribute.

    Elements whose ``do`` is ``pick`` are rows, reachable by arrow keys. ``lit`` highlights some of them without
    sending the tree again: ``rows`` maps their ``of`` to kinds of highlight, ``say`` is announced by screen readers.
    """

    _esm = script("element_tree")

    kind = traitlets.Unicode("rxt").tag(sync=True)
    label: Any = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    tree: Any = traitlets.List().tag(sync=True)
    lit: Any = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    def __init__(self, on_message: OnMessage, **traits: Any) -> None:
        super().__init__(**traits)
        self._on_message = on_message
        self.on_msg(self.receive)

    def receive(self, widget: Any, message: Any, buffers: Any) -> None:  # noqa: ARG002 - as ipywidgets calls it
        """Handle a message from the page."""
        match message:
            case {"do": str(), "of": str()}:
                self._on_message(message)

    def press(self, do: str, of: str = "", **more: Any) -> None:
        """Simulate pressing an element on the page."""
        self.receive(self, {"do": do, "of": of, "value": None, "shift": False, "ctrl": False, **more}, None)
