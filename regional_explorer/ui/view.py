"""The widgets that show a session: graph, source, code."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anywidget
import traitlets

from regional_explorer.errors import count, sendable
from regional_explorer.page.code import code_rows
from regional_explorer.page.source import LIVE_REGION, Function, source_listing, source_tree
from regional_explorer.page.static import script, style
from regional_explorer.page.view import Overlay, graph_bars, heat, next_title, titled
from regional_explorer.picture.compose import Detail, Opening
from regional_explorer.picture.records import Outlines, Picture, first_tab, picture, tabs
from regional_explorer.record.graph import Graph
from regional_explorer.record.region_code import PartitionCode, qualified_names
from regional_explorer.record.session import Session
from regional_explorer.style.element import clean_page

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

    def close(self) -> None:
        """Close the widget and its layout."""
        self.layout.close()
        super().close()


_picture_numbers = itertools.count(1)


class GraphView(ElementTree):
    """Widget that shows the graphs of a session, one tab each.

    Attributes:
        tab: id of the current graph, or ``"partitions"``; ``tabs`` lists ids and titles.
        selection: selected nodes as ``graph:name``, of any graph; set by the kernel or the page.
        hover: nodes under the pointer, in this view or a linked one.
        marked: nodes that a pattern would mark; highlighted like search results.
        search: the text of the search field: words, ``op:gelu``, ``2x128`` or ``/a regular expression/``.
        overlays: figures of partitions, one ``Overlay`` shown at a time; values that are not finite are left out. One
            with ``shares`` colours boxes by their share of the time.
        height: height of the drawing in pixels; the lower edge can be dragged.
        problem: the last error message, shown above the drawing.

    ``payload`` and ``heat`` are what the page draws, which places the boxes; ``tree`` has the toolbar and legend.
    """

    _esm = script("graph")
    _css = style("graph")

    payload = traitlets.Dict().tag(sync=True)
    heat = traitlets.Dict().tag(sync=True)
    tab = traitlets.Unicode()
    # No echo: it could overwrite a newer selection on the page with an older one.
    selection = traitlets.List(traitlets.Unicode()).tag(sync=True, echo_update=False)
    hover = traitlets.List(traitlets.Unicode()).tag(sync=True)
    marked = traitlets.List(traitlets.Unicode()).tag(sync=True)
    search = traitlets.Unicode().tag(sync=True)
    overlays: Any = traitlets.List()
    height = traitlets.Int(520).tag(sync=True)
    problem = traitlets.Unicode()

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        super().__init__(self._on_view_message, kind="rxg", label="Graph view", **traits)
        self.tabs: tuple[tuple[str, str], ...] = ()
        self._session: Session | None = None
        self._outlines: Outlines | None = None
        self._picture: Picture | None = None
        self._overlay_title = ""
        self._node_order: dict[str, int] = {}
        self._openings: dict[str, Opening] = {}
        self._focus: dict[str, str] = {}
        self._picture_number = 0
        self._lock = threading.RLock()  # reentrant: observers of the traits set under it take it again
        self.observe(lambda _: self._draw_or_show_error(), "tab")
        self.observe(lambda _: self._apply_overlay(), "overlays")
        self.observe(lambda _: self._update_bars(), "problem")
        self._update_bars()
        if session is not None:
            self.set_session(session)

    # ------------------------------------------------------------------------------------------------- from the kernel

    def set_session(self, session: Session) -> None:
        """Show ``session``; keep tab, folds and selection as far as they exist in it."""
        with self._lock:
            if self._session is None or session.graphs != self._session.graphs:
                self._node_order = {name: at for at, name in enumerate(map(sendable, qualified_names(session.graphs)))}
            self._session = session
            self._outlines = Outlines(session, self._outlines)
            self.tabs = tabs(session)
        node_names = set(qualified_names(session.graphs))
        # Not under the lock: what observes the selection may wait for another one.
        self.selection = [node for node in self.selection if node in node_names]
        tab = self.tab if any(tab_id == self.tab for tab_id, _ in self.tabs) else first_tab(session)
        if tab == self.tab:
            self._draw_or_show_error()
        else:
            self.tab = tab

    def select(self, nodes: Iterable[str]) -> None:
        """Select nodes, given as ``graph:name``, and nothing else."""
        self.selection = list(nodes)

    def select_on_page(self, nodes: Iterable[str]) -> None:
        """Select nodes, in the order they run, and have the page send the selection back.

        The page may be about to send an older one.
        """
        self.select(sorted(nodes, key=lambda name: self._node_order.get(name, len(self._node_order))))
        self.send({"pick": self.selection})

    def reveal(self, nodes: Sequence[str]) -> None:
        """Scroll the first of ``nodes`` that is in the current tab into view; if none is, show the tab of one."""
        graphs = {node.partition(":")[0] for node in nodes}
        if graphs and self.tab not in graphs:
            self.tab = min(graphs)
        self.send({"show": list(nodes)})

    def show_overlay(self, title: str) -> None:
        """Show the overlay with this title; an empty title shows none."""
        self._overlay_title = title
        self._apply_overlay()

    def fold(self, key: str, *, opened: bool) -> None:
        """Open or close a fold of the current tab; keys come with the payload."""
        opening, fold_keys = self._opening, [fold_key for fold_key, _ in self._fold_crumbs(key)]
        focus = key if opened else "".join(fold_keys[-2:-1])
        self._draw_opening(replace(opening, chosen={**opening.chosen, key: opened}), focus=focus)

    def back_to(self, key: str) -> None:
        """Show the fold ``key`` as it was when it was opened; without a key, the current tab in its initial state."""
        if not key:
            self._draw_opening(Opening())
            return
        opening = self._opening
        inner_folds = {fold for fold in opening.chosen if fold != key and key in dict(self._fold_crumbs(fold))}
        chosen = {fold: opened for fold, opened in opening.chosen.items() if fold not in inner_folds}
        self._draw_opening(replace(opening, chosen=chosen), focus=key)

    def expand_all(self) -> None:
        """Open every fold of the current tab."""
        self._draw_opening(Opening(Detail.OPS))

    def collapse_all(self) -> None:
        """Close every fold of the current tab."""
        self._draw_opening(Opening(Detail.NOTHING))

    # --------------------------------------------------------------------------------------------------- from the page

    def receive(self, widget: Any, message: Any, buffers: Any) -> None:
        """Handle a message from the page.

        A selection is sent as a message as well as by its trait: ipywidgets delays a change of a trait while the
        kernel is busy with the previous one, and a button pressed meanwhile would be handled first. Until the page is
        told that its last selection was heard, it takes those that the kernel sends for older ones.
        """
        try:
            match message:
                case {"do": "select", "nodes": [*nodes], "number": int(number)} if all(
                    isinstance(node, str) for node in nodes
                ):
                    self.set_state({"selection": nodes})
                    self.send({"heard": number})
                case _:
                    super().receive(widget, message, buffers)
        except Exception as error:  # noqa: BLE001 - ipywidgets would hide it; the page shows it
            self._show_error(error)

    def _on_view_message(self, message: Mapping[str, Any]) -> None:
        """Do what the page asks for; what is about a tab or a fold that is not there, or no more, is ignored."""
        do, of = message["do"], message["of"]
        match do:
            case "open all":
                self.expand_all()
            case "close all":
                self.collapse_all()
            case "open" | "close" if self._fold_crumbs(of):
                self.fold(of, opened=do == "open")
            case "back" if not of or self._fold_crumbs(of):
                self.back_to(of)
            case "tab" if of in dict(self.tabs):
                self.tab = of
            case "next tab" | "tab before":
                self._go_to_tab(1 if do == "next tab" else -1)
            case "upstream" | "downstream" if self._picture is not None:
                self.select_on_page(self._picture.reach(self.selection, upstream=do == "upstream"))
            case "overlay":
                self.show_overlay(next_title(self.overlays, self._overlay_title))

    def _go_to_tab(self, step: int) -> None:
        tab_ids = [tab for tab, _ in self.tabs]
        if self.tab in tab_ids:
            self.tab = tab_ids[(tab_ids.index(self.tab) + step) % len(tab_ids)]

    def _draw_or_show_error(self) -> None:
        try:
            self._draw()
        except Exception as error:  # noqa: BLE001 - ipywidgets or the worker would hide it; the page shows it
            self._show_error(error)

    def _show_error(self, error: Exception) -> None:
        self.problem = clean_page(f"{type(error).__name__}: {error}")
        self._update_bars()

    # --------------------------------------------------------------------------------------------------------- drawing

    @property
    def _opening(self) -> Opening:
        return self._openings.get(self.tab, Opening())

    def _draw_opening(self, opening: Opening, *, focus: str = "") -> None:
        with self._lock:
            self._openings[self.tab], self._focus[self.tab] = opening, focus
            self._draw()

    def _fold_crumbs(self, key: str) -> Sequence[tuple[str, str]]:
        """Return the key and title of the folds around ``key``, from the outside in, and of itself."""
        return self._picture.crumbs.get(key, ()) if self._picture else ()

    def _update_bars(self) -> None:
        """Update the toolbar, messages and legend."""
        with self._lock:
            self.tree = graph_bars(
                self.tabs,
                self.tab,
                self._fold_crumbs(self._focus.get(self.tab, "")),
                self._picture.legend if self._picture else (),
                figures=bool(self.overlays),
                overlay=self._overlay,
                problem=self.problem,
            )

    @property
    def _overlay(self) -> Overlay | None:
        return titled(self.overlays, self._overlay_title)

    def _apply_overlay(self) -> None:
        with self._lock, self.hold_sync():
            self.heat = heat(self._overlay, self._picture, self.tab, self._picture_number)
            self._update_bars()

    def _draw(self) -> None:
        """Draw the current tab. One thread at a time does: the last picture that is sent shows the newest session."""
        with self._lock:
            if self._session is None:
                return
            self._picture = picture(self._session, self.tab, self._opening, outlines=self._outlines)
            self._picture_number = next(_picture_numbers)
            with self.hold_sync():
                self.problem = ""
                self.payload = {"number": self._picture_number, "tab": self.tab, **self._picture.facts}
                self._apply_overlay()


MAX_HOVERED = 400
"""Pointing at a row with more nodes than this highlights none of them."""


Highlight = tuple[str, str, Mapping[str, Sequence[str]]]
"""A word for highlighted rows, whether ``selection`` or ``hover`` highlights them, and the nodes of each row."""


class LinkedView(ElementTree):
    """Widget whose rows select their nodes, and are highlighted while these are selected or hovered.

    With Ctrl a click adds the nodes of a row to the selection, or removes them.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph.
        hover: nodes under the pointer, in this view or a linked one.
    """

    _css = style("source")

    selection = traitlets.List(traitlets.Unicode())
    hover = traitlets.List(traitlets.Unicode())

    def __init__(self, **traits: Any) -> None:
        super().__init__(self._on_row_message, kind="rxs", **traits)
        self._select_nodes: Callable[[Iterable[str]], None] = self.select
        self._links: tuple[traitlets.link | traitlets.directional_link, ...] = ()
        self._nodes: Mapping[str, Sequence[str]] = {}
        self._highlights: list[tuple[str, str, Mapping[str, Sequence[str]]]] = []  # with the rows of each node
        self.observe(lambda _: self._highlight_rows(), ("selection", "hover"))

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

    def close(self) -> None:
        """Close the view and its links."""
        self.unlink()
        super().close()

    def _set_rows(self, nodes: Mapping[str, Sequence[str]], *highlights: Highlight) -> None:
        """Set the nodes of each row, by its key, and how rows are highlighted."""
        self._nodes = nodes
        self._highlights = [(word, trait, _rows_by_node(rows)) for word, trait, rows in highlights]

    def _on_row_message(self, message: Mapping[str, Any]) -> None:
        key = message["of"]
        match message["do"]:
            case "point":
                pointed = list(self._nodes.get(key, ()))
                self.hover = pointed if len(pointed) <= MAX_HOVERED else []
            case "pick" if self._nodes.get(key):
                nodes = list(dict.fromkeys(self._nodes_to(key, shift=bool(message.get("shift")))))
                if message.get("ctrl"):
                    picked, selected = set(nodes), set(self.selection)
                    others = [name for name in self.selection if name not in picked]
                    nodes = others if picked <= selected else [*others, *nodes]
                self._select_nodes(nodes)
                self._highlight_rows(f"{count(len(nodes), 'node')} selected")
            case "clear":
                self._select_nodes([])

    def _nodes_to(self, key: str, *, shift: bool) -> Iterable[str]:  # noqa: ARG002 - for views whose rows have an order
        """Return the nodes of the row ``key``; with Shift, those from the row clicked on last."""
        return self._nodes[key]

    def _highlight_rows(self, announcement: str = "") -> None:
        """Send the page which rows to highlight."""
        words: dict[str, dict[str, None]] = {}
        for word, trait, rows_by_node in self._highlights:
            for name in getattr(self, trait):
                for key in rows_by_node.get(name, ()):
                    words.setdefault(key, {})[word] = None
        self.lit = {"rows": {key: " ".join(of_row) for key, of_row in words.items()}, "say": announcement}


def _rows_by_node(nodes: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for key, names in nodes.items():
        for name in names:
            rows.setdefault(name, []).append(key)
    return rows


class SourceView(LinkedView):
    """Widget that shows the functions that the nodes of a session come from.

    A click on a line selects its nodes and those of the functions it calls, with Shift those of a range of lines.

    Attributes:
        height: maximal height in pixels, from the next session on; the lower edge can be dragged.
    """

    height = traitlets.Int(360)

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self.tree = [LIVE_REGION]
        self._graphs: tuple[Graph, ...] = ()
        self._functions: tuple[Function, ...] = ()
        self._function_of_line: list[Function] = []
        self._anchor_line = ""
        if session is not None:
            self.set_session(session)

    def set_session(self, session: Session) -> None:
        """Show the source of ``session``."""
        if session.graphs != self._graphs:  # an edit of the plan changes no graph, unless it carves
            self._read_lines(session)
        self._anchor_line = ""
        with self.hold_sync():
            self.tree = source_tree(self._functions, session, self.height)
            self._highlight_rows()

    def _read_lines(self, session: Session) -> None:
        self._graphs, self._functions = session.graphs, source_listing(session)
        lines = [(function, line) for function in self._functions for line in function.lines if line.passing]
        self._function_of_line = [function for function, _ in lines]
        own = {str(number): line.own for number, (_, line) in enumerate(lines)}
        passing = {str(number): line.passing for number, (_, line) in enumerate(lines)}
        self._set_rows(
            passing,
            ("selected", "selection", passing),
            ("chosen", "selection", own),
            ("hovered", "hover", own),
            ("above", "hover", passing),
        )

    def _nodes_to(self, key: str, *, shift: bool) -> Iterable[str]:
        """Return the nodes of the line ``key``; with Shift, those of its function from the line clicked on last."""
        anchor = self._anchor_line if shift and self._anchor_line else key
        if self._function_of_line[int(anchor)] is not self._function_of_line[int(key)]:
            anchor = key
        if not shift:
            self._anchor_line = key
        first, last = sorted((int(anchor), int(key)))
        return [name for number in range(first, last + 1) for name in self._nodes[str(number)]]


class CodeView(LinkedView):
    """Widget that shows generated code; a click on a source line, a kernel or its code selects its nodes."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._partitions: Sequence[PartitionCode] | None = None
        self.set_code(())

    def set_code(self, partitions: Sequence[PartitionCode]) -> None:
        """Show the code of a region's partitions, unless it is shown already."""
        if partitions == self._partitions:
            return
        self._partitions, rows = partitions, code_rows(partitions)
        # The page scrolls to rows of the code that are hovered in another view.
        code = {key: nodes for key, nodes in rows.nodes.items() if key.startswith("c")}
        above = {key: nodes for key, nodes in rows.nodes.items() if key not in code}
        self._set_rows(
            rows.nodes,
            ("selected chosen", "selection", rows.nodes),
            ("hovered", "hover", code),
            ("above", "hover", above),
        )
        with self.hold_sync():
            self.tree = rows.tree
            self._highlight_rows()
