"""The widgets that show a session: graph, source, code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anywidget
import traitlets

from regional_explorer.errors import count, sendable
from regional_explorer.page.code import code_rows
from regional_explorer.page.source import LIVE_REGION, Function, source_listing, source_tree
from regional_explorer.page.static import script, style
from regional_explorer.page.view import PALETTE, graph_bars, view_state
from regional_explorer.picture.records import Records
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


class GraphView(ElementTree):
    """Widget that shows the graphs of a session, one tab each; the page draws them, opens folds, and finds nodes.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph; set by the kernel or the page.
        hover: nodes under the pointer, in this view or a linked one.
        marked: nodes that a pattern would mark; highlighted like search results.
        search: the text of the search field: words, ``op:gelu``, ``2x128`` or ``/a regular expression/``.
        shown: what the page shows: its ``tab``, its ``overlay``, and by tab the ``folds`` that were opened and closed.
        overlays: the available overlays, as ``page.view.overlay`` makes them.
        problem: the last error message, shown above the drawing.

    ``graphs``, ``tabs``, ``first``, ``look`` and ``overlays`` are the state of the view. ``facts0``, ``folds0`` and so
    on are the records of each graph; they are empty until the page shows the graph, and asks for them.
    """

    _esm = script("graph")
    _css = style("graph")

    graphs: Any = traitlets.List().tag(sync=True)
    tabs: Any = traitlets.List().tag(sync=True)
    first = traitlets.Unicode().tag(sync=True)
    look: Any = traitlets.Dict({"regions": [], "pieces": [], "legend": []}).tag(sync=True)
    overlays: Any = traitlets.List().tag(sync=True)
    palette: Any = traitlets.Dict(PALETTE).tag(sync=True)
    shown: Any = traitlets.Dict().tag(sync=True, echo_update=False)
    # No echo: it could overwrite a newer selection on the page with an older one.
    selection = traitlets.List(traitlets.Unicode()).tag(sync=True, echo_update=False)
    hover = traitlets.List(traitlets.Unicode()).tag(sync=True)
    marked = traitlets.List(traitlets.Unicode()).tag(sync=True)
    search = traitlets.Unicode().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: Session | None = None, height: int = 520, **traits: Any) -> None:
        super().__init__(
            lambda message: self._send_graph(message["of"]) if message["do"] == "graph" else None,
            kind="rxg",
            label="Graph view",
            tree=graph_bars(height),
            **traits,
        )
        self._session: Session | None = None
        self._records = Records()
        self._node_order: dict[str, int] = {}
        self._lock = threading.RLock()
        if session is not None:
            self.set_session(session)

    # ------------------------------------------------------------------------------------------------- from the kernel

    def set_session(self, session: Session) -> None:
        """Show ``session``; the page keeps tab, folds and selection as far as they exist in it."""
        with self._lock, self.hold_sync():
            if self._session is None or session.graphs != self._session.graphs:
                self._node_order = {name: at for at, name in enumerate(map(sendable, qualified_names(session.graphs)))}
            self._session = session
            try:
                for name, value in view_state(session, self._records).items():
                    setattr(self, name, value)
                for number in range(len(session.graphs)):
                    self._set_records(number, make=number in self._tab_graphs)
                self.problem = ""
            except Exception as error:  # noqa: BLE001 - ipywidgets would hide it; the page shows it
                self._show_error(error)
        node_names = set(qualified_names(session.graphs))
        self.selection = [node for node in self.selection if node in node_names]

    @property
    def _tab_graphs(self) -> Sequence[int]:
        """The numbers of the graphs in the tab that the page shows."""
        by_id = {tab["id"]: tab["graphs"] for tab in self.tabs}
        return by_id.get(self.shown.get("tab"), by_id.get(self.first, ()))

    def _set_records(self, number: int, *, make: bool) -> None:
        """Send the facts and folds of a graph; unless they are to be made, those that were made already."""
        assert self._session is not None  # noqa: S101 - it was set before
        known = self._records.of(self._session, self._session.graphs[number])
        facts, folds = (known.facts, known.folds) if make else known.made
        for name, value in {f"facts{number}": facts, f"folds{number}": folds}.items():
            if not self.has_trait(name):
                self.add_traits(**{name: traitlets.Dict().tag(sync=True)})
            setattr(self, name, value)

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
        """Scroll the first of ``nodes`` that is in the page's tab into view; if none is, show the tab of one."""
        self.send({"show": list(nodes)})

    def show_overlay(self, title: str) -> None:
        """Show the overlay with this title; an empty title shows none."""
        self.shown = {**self.shown, "overlay": title}

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

    def _send_graph(self, number: str) -> None:
        """Send the graph that the page asks for, if it is there."""
        with self._lock, self.hold_sync():
            if self._session is not None and number in map(str, range(len(self._session.graphs))):
                self._set_records(int(number), make=True)

    def _show_error(self, error: Exception) -> None:
        self.problem = clean_page(f"{type(error).__name__}: {error}")


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
