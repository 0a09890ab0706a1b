"""Buttons and input fields as elements; the page sends an event with their ``do`` and ``of`` when they are used."""

from __future__ import annotations

from collections.abc import Iterable

from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.tones import toned
from regional_explorer.ui.state import IMPORT_RX


def button(text: str, do: str, of: str = "", *, title: str = "", disabled: bool = False, **attributes: object) -> Node:
    """Return a button that sends the event ``do``."""
    return node(
        "button", text, type="button", data_do=do, data_of=of, title=title or None, disabled=disabled, **attributes
    )


def copy_button(text: str, what: str, *, title: str = "") -> Node:
    """Return a button that copies ``what`` to the clipboard; the page does this without the kernel."""
    return node("button", text, type="button", data_do="copy", data_of=what, title=title or None)


def copy_python_button(code: str, *, title: str = "") -> Node:
    """Return a button that copies Python code, with the import that it needs."""
    return copy_button("Copy as Python", f"{IMPORT_RX}\n{code}" if "rx." in code else code, title=title)


def field(label: str, do: str, value: object, *, of: str = "", kind: str = "text", **attributes: object) -> Node:
    """Return a labelled input that sends the event ``do`` with what was typed."""
    return node(
        "label", node("span", label), node("input", type=kind, data_do=do, data_of=of, value=str(value), **attributes)
    )


def checkbox(label: str, do: str, of: str, *, checked: bool, disabled: bool = False, **attributes: object) -> Node:
    """Return a labelled checkbox."""
    box = node("input", type="checkbox", data_do=do, data_of=of, checked=checked, disabled=disabled, **attributes)
    return node("label", box, node("span", label), class_="rx-check")


def choice(label: str, do: str, options: Iterable[tuple[str, str]], value: str, **attributes: object) -> Node:
    """Return a labelled menu of ``options``, each a value and its text."""
    entries = (node("option", text, value=name, selected=name == value) for name, text in options)
    return node("label", node("span", label), node("select", *entries, data_do=do, **attributes))


def alert(error: str) -> list[Node]:
    """Return an error message to place at a field; nothing without an error."""
    return [node("div", toned(error, "bad"), role="alert", class_="rx-error")] if error else []
