"""Trees of HTML elements as nested lists, shown by one widget; no markup to escape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from regional_explorer.render.style.untrusted import LONG_TEXT, clean, sendable
from regional_explorer.ui.static import script

Tree = list[Any]
"""An element: its tag, its attributes, and what is in it, elements or texts."""

Told = Callable[[Mapping[str, Any]], None]
"""Told what was pressed: ``do`` and ``of`` of the element, ``value`` of an input, and whether ``shift`` or ``ctrl``."""


def node(tag: str, /, *children: object, **attributes: object) -> Tree:
    """Return an element. Texts are cleaned here; ``class_`` is written so, and ``_`` within a name stands for ``-``."""
    named = {
        name.rstrip("_").replace("_", "-"): sendable(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value not in (None, False)
    }
    inside = (child if isinstance(child, list) else clean(child, LONG_TEXT) for child in children)
    return [tag, named, *(child for child in inside if child != "")]


class Sheet(anywidget.AnyWidget):
    """Shows ``tree``, the elements at its top; ``on_message`` hears of what is pressed or typed in those with a ``do``.

    Elements whose ``do`` is ``pick`` are rows that the keyboard walks through. ``lit`` lights some of them without
    sending the tree again: ``rows`` has words for what they are ``of``, ``say`` what a screen reader says of it.
    """

    _esm = script("sheet")

    kind = traitlets.Unicode("rxt").tag(sync=True)
    label: Any = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    tree: Any = traitlets.List().tag(sync=True)
    lit: Any = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    def __init__(self, on_message: Told, **traits: Any) -> None:
        super().__init__(**traits)
        self._on_message = on_message
        self.on_msg(self.receive)

    def receive(self, widget: Any, message: Any, buffers: Any) -> None:  # noqa: ARG002 - as ipywidgets calls it
        """Pass on what the page says; afterwards it shows what stands, also where that is not what was typed."""
        match message:
            case {"do": str(), "of": str()}:
                self._on_message(message)
                if message.get("value") is not None:
                    self.send({"again": True})

    def press(self, do: str, of: str = "", **more: Any) -> None:
        """Do as the page does when an element is pressed."""
        self.receive(self, {"do": do, "of": of, "value": None, "shift": False, "ctrl": False, **more}, None)
