"""Operations on a widget and all widgets inside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ipywidgets as widgets


def close_tree(widget: widgets.Widget) -> None:
    """Close ``widget`` and all widgets inside it, with their layouts and styles."""
    for one in list(_tree(widget)):
        for part in ("layout", "style"):
            if isinstance(inner := getattr(one, part, None), widgets.Widget):
                inner.close()
        one.close()


def hear_in_order(widget: widgets.Widget) -> None:
    """Hear what the page tells ``widget`` and those inside it in the order in which it was told.

    JupyterLab sends all messages of widgets to one thread of the kernel, its subshell. ipykernel 7.4 sends some of them
    on to the main thread: those to a widget that was last changed from a cell (``BaseComm._reply_subshell_for``). A
    name that was typed and the button that was pressed next then race, and the name waits where a cell runs. Here each
    message stays with the thread it was sent to; other kernels have no such method, and need none.
    """
    for one in _tree(widget):
        if hasattr(one.comm, "_reply_subshell_for"):
            one.comm._reply_subshell_for = _as_sent  # noqa: SLF001 - there is no public way


def _as_sent(_data: Any, subshell: str | None) -> str | None:
    return subshell


def _tree(widget: widgets.Widget) -> Iterator[widgets.Widget]:
    for child in getattr(widget, "children", ()):
        yield from _tree(child)
    yield widget
