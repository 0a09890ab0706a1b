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


def keep_message_order(widget: widgets.Widget) -> None:
    """Handle messages from the page to ``widget`` and the widgets inside it in the order they were sent.

    JupyterLab sends all messages of widgets to one thread of the kernel, its subshell. ipykernel 7.4 sends some of them
    on to the main thread: those to a widget that was last changed from a cell (``BaseComm._reply_subshell_for``). Then
    typing a name races with pressing the next button, and the name is delayed while a cell runs. With this patch each
    message stays on the thread it was sent to. Other kernels lack the method and need no patch.
    """
    for one in _tree(widget):
        if hasattr(one.comm, "_reply_subshell_for"):
            one.comm._reply_subshell_for = _same_subshell  # noqa: SLF001 - there is no public way


def _same_subshell(_data: Any, subshell: str | None) -> str | None:
    return subshell


def _tree(widget: widgets.Widget) -> Iterator[widgets.Widget]:
    for child in getattr(widget, "children", ()):
        yield from _tree(child)
    yield widget
