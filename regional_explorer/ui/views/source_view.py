"""The source view: the user's functions, each line coloured by its regions and linked to its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import traitlets

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import Graph
from regional_explorer.record.session import Session
from regional_explorer.render.report.source_listing import Function, Line, listing
from regional_explorer.render.viewer.source_tree import LIVE_REGION, source_tree
from regional_explorer.ui.views.linked_view import LinkedView


class SourceView(LinkedView):
    """Widget that shows the functions that the nodes of a session come from.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph; a click on a line selects its nodes and those of
            the functions it calls, with Shift those of a range of lines, with Ctrl it adds or removes them.
        hover: nodes under the pointer, in this view or a linked one.
        height: maximal height in pixels, from the next session on; the lower edge can be dragged.
    """

    height = traitlets.Int(360)

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        super().__init__(self._on_line_message, kind="rxs", **traits)
        self.tree = [LIVE_REGION]
        self._graphs: tuple[Graph, ...] = ()
        self._functions: tuple[Function, ...] = ()
        self._lines: dict[str, tuple[Function, Line]] = {}
        self._own_lines: dict[str, list[str]] = {}
        self._passing_lines: dict[str, list[str]] = {}
        self._anchor_line = ""
        self.observe(lambda _: self._highlight_lines(), ("selection", "hover"))
        if session is not None:
            self.set_session(session)

    def set_session(self, session: Session) -> None:
        """Show the source of ``session``."""
        if session.graphs != self._graphs:  # an edit of the plan changes no graph, unless it carves
            self._read_lines(session)
        self._anchor_line = ""
        with self.hold_sync():
            self.tree = source_tree(self._functions, session, self.height)
            self._highlight_lines()

    def _read_lines(self, session: Session) -> None:
        self._graphs, self._functions = session.graphs, listing(session)
        lines = [(function, line) for function in self._functions for line in function.lines if line.passing]
        self._lines = {str(number): line for number, line in enumerate(lines)}
        self._own_lines, self._passing_lines = {}, {}
        for key, (_, line) in self._lines.items():
            for name in line.own:
                self._own_lines.setdefault(name, []).append(key)
            for name in line.passing:
                self._passing_lines.setdefault(name, []).append(key)

    def _on_line_message(self, message: Mapping[str, Any]) -> None:
        key = message["of"]
        match message["do"]:
            case "point":
                self._point_at(self._lines[key][1].passing if key in self._lines else ())
            case "pick" if key in self._lines:
                lines = self._lines_to(key, shift=bool(message.get("shift")))
                nodes = self._picked((name for line in lines for name in line.passing), ctrl=bool(message.get("ctrl")))
                self._select_nodes(nodes)
                self._highlight_lines(f"{count(len(nodes), 'node')} selected")
            case "clear":
                self._select_nodes([])

    def _lines_to(self, key: str, *, shift: bool) -> list[Line]:
        """Return the line ``key``; with Shift, those of its function from the last one clicked on."""
        anchor = self._anchor_line if shift and self._anchor_line else key
        if self._lines[anchor][0] is not self._lines[key][0]:
            anchor = key
        if not shift:
            self._anchor_line = key
        first, last = sorted((int(anchor), int(key)))
        return [self._lines[str(number)][1] for number in range(first, last + 1)]

    def _highlight_lines(self, announcement: str = "") -> None:
        """Send the page which lines to highlight, for nodes of their own or of functions they call."""
        rows: dict[str, dict[str, None]] = {}
        for highlight, nodes, lines in (
            ("selected", self.selection, self._passing_lines),
            ("chosen", self.selection, self._own_lines),
            ("hovered", self.hover, self._own_lines),
            ("above", self.hover, self._passing_lines),
        ):
            for name in nodes:
                for key in lines.get(name, ()):
                    rows.setdefault(key, {})[highlight] = None
        self.lit = {"rows": {key: " ".join(highlights) for key, highlights in rows.items()}, "say": announcement}
