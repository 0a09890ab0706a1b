"""The widget that shows a session: its graphs, the source, and code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anywidget
import traitlets

from regional_explorer.page.code import code_pane
from regional_explorer.page.graph import PALETTE, graph_bars, graph_traits
from regional_explorer.page.panes import (
    Function,
    LineNodes,
    Rows,
    graph_host,
    line_nodes,
    line_rows,
    row_links,
    source_listing,
    source_pane,
)
from regional_explorer.page.static import script, style
from regional_explorer.picture.page_records import Records
from regional_explorer.record.graph import Graph
from regional_explorer.record.grouping import Kept
from regional_explorer.record.region_code import PartitionCode, qualified_names
from regional_explorer.record.session import Session
from regional_explorer.style.css import page_css
from regional_explorer.style.element import Node, clean_page, node, style_sheet

MAX_WAITING = 1000
"""The maximum number of a page's messages that wait for a missing message; then it counts as lost."""


class OrderedMessages:
    """Passes the messages of each page on in the order of their numbers.

    ipykernel 7 handles messages of a widget on several threads: on the subshell that JupyterLab sends them to, or on
    the main thread after a cell changed the widget. So they may arrive out of order.
    """

    def __init__(self, handle: Callable[[str, int, Mapping[str, Any]], None]) -> None:
        self._handle = handle
        self._next_numbers: dict[str, int] = {}
        self._waiting: dict[str, dict[int, Mapping[str, Any]]] = {}

    def receive(self, page: str, number: int, message: Mapping[str, Any]) -> None:
        """Handle ``message`` and those waiting for it, or keep it for its turn; a page's first message has number 1."""
        waiting = self._waiting.setdefault(page, {})
        waiting[number] = message
        next_number = self._next_numbers.get(page, 1)
        if len(waiting) > MAX_WAITING:
            next_number = min(waiting)
        while next_number in waiting:
            self._next_numbers[page] = next_number + 1
            self._handle(page, next_number, waiting.pop(next_number))
            next_number = self._next_numbers[page]


class SessionView(anywidget.AnyWidget):
    """Widget that shows a session. The page draws its graphs, opens folds, finds nodes, and highlights their rows.

    The kernel sends traits; a page sends messages, which are handled in the order of their numbers. A page's own state
    is not sent back to it: it could replace a newer state there.

    Attributes:
        tree: the elements of the widget; those with ``data-part`` hold the elements of the trait ``part_…``.
        answered: by page, the number of the last message that was handled.
        graphs, tabs, first, look, overlays: see ``page.graph.graph_traits``.
        links: by pane, the rows that are highlighted with each node.
        selection: selected nodes as ``graph:name``, of any graph.
        marked: nodes that a pattern would mark; highlighted like search results.
        shown: the page's ``tab``, its ``overlay``, and by tab the ``folds`` that were opened and closed.
        problem: the last error message, shown above the drawing.

    ``facts0``, ``folds0`` and so on are the records of each graph. They are empty until the page shows the graph and
    asks for them.
    """

    _esm = script("view")
    _css = style("view")

    kind = traitlets.Unicode("rx-view").tag(sync=True)
    label = traitlets.Unicode("Session").tag(sync=True)
    tree: Any = traitlets.List().tag(sync=True)
    bars: Any = traitlets.List().tag(sync=True)
    part_style: Any = traitlets.List().tag(sync=True)
    part_source: Any = traitlets.List().tag(sync=True)
    part_listing: Any = traitlets.List().tag(sync=True)
    answered: Any = traitlets.Dict().tag(sync=True)
    graphs: Any = traitlets.List().tag(sync=True)
    tabs: Any = traitlets.List().tag(sync=True)
    first = traitlets.Unicode().tag(sync=True)
    look: Any = traitlets.Dict({"regions": [], "pieces": [], "legend": []}).tag(sync=True)
    overlays: Any = traitlets.List().tag(sync=True)
    palette: Any = traitlets.Dict(PALETTE).tag(sync=True)
    links: Any = traitlets.Dict().tag(sync=True)
    selection: Any = traitlets.List(traitlets.Unicode()).tag(sync=True, echo_update=False)
    marked: Any = traitlets.List(traitlets.Unicode()).tag(sync=True)
    shown: Any = traitlets.Dict().tag(sync=True, echo_update=False)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: Session | None = None, height: int = 520, **traits: Any) -> None:
        super().__init__(**{"tree": _frame(), "bars": graph_bars(height), **traits})
        self._session: Session | None = None
        self._records = Records()
        self._functions: tuple[Function, ...] = ()
        self._rows: dict[str, Rows] = {}
        self._lines = Kept[LineNodes]()
        self._source = Kept[list[Node]]()
        self._sheet = Kept[list[Node]]()
        self._partitions: Sequence[PartitionCode] = ()
        self._lock = threading.RLock()
        self._in_order = OrderedMessages(self._handle_in_order)
        self.on_msg(self.receive)
        if session is not None:
            self.set_session(session)

    def part(self, name: str) -> list[Any]:
        """Return the elements of a part."""
        elements: list[Any] = getattr(self, f"part_{name}")
        return elements

    # ------------------------------------------------------------------------------------------------- from the kernel

    def set_session(self, session: Session) -> None:
        """Show ``session``; the page keeps its tab, folds and selection if ``session`` has them."""
        with self._lock, self.hold_sync():
            graphs = () if self._session is None else self._session.graphs
            self._session = session
            try:
                for name, value in graph_traits(session, self._records).items():
                    setattr(self, name, value)
                for number in range(len(session.graphs)):
                    self._set_records(number, make=number in self._tab_graphs)
                self._set_source(session, graphs)
                self.problem = ""
            except Exception as error:  # noqa: BLE001 - ipywidgets would hide it; the page shows it
                self._show_error(error)
            if self.selection:
                node_names = set(qualified_names(session.graphs))
                self.selection = [name for name in self.selection if name in node_names]

    @property
    def _tab_graphs(self) -> Sequence[int]:
        """The numbers of the graphs in the tab that the page shows."""
        by_id = {tab["id"]: tab["graphs"] for tab in self.tabs}
        return by_id.get(self.shown.get("tab"), by_id.get(self.first, ()))

    def _set_records(self, number: int, *, make: bool) -> None:
        """Send the facts and folds of a graph; with ``make=False``, only those that exist already."""
        assert self._session is not None  # noqa: S101 - it was set before
        known = self._records.of(self._session, self._session.graphs[number])
        facts, folds = (known.facts, known.folds) if make else known.made_so_far
        for name, value in {f"facts{number}": facts, f"folds{number}": folds}.items():
            if not self.has_trait(name):
                self.add_traits(**{name: traitlets.Dict().tag(sync=True)})
            setattr(self, name, value)

    def _set_source(self, session: Session, graphs: Sequence[Graph]) -> None:
        if session.graphs != graphs:  # an edit of the plan changes no graph, unless it carves
            self._functions = source_listing(session)
            self._rows["source"] = line_rows(self._functions)
            self._set_links()
        of_lines = session.graphs, session.plan.numbers, session.members, session.profile
        lines = self._lines.of(of_lines, lambda: line_nodes(self._functions, session))
        shown = lines, session.diagnostics
        self.part_source = self._source.of(shown, lambda: source_pane(self._functions, lines, session))
        self.part_style = self._sheet.of(
            len(session.plan.regions), lambda: [style_sheet(page_css(len(session.plan.regions)))]
        )

    def set_code(self, partitions: Sequence[PartitionCode]) -> None:
        """Show the code of a region's partitions, unless it is shown already."""
        if partitions != self._partitions:
            self._partitions = partitions
            with self.hold_sync():
                self.part_listing, self._rows["listing"] = code_pane(partitions)
                self._set_links()

    def _set_links(self) -> None:
        names = [f"{graph['id']}:{name}" for graph in self.graphs for name in graph["names"]]
        self.links = {pane: row_links(rows, names) for pane, rows in self._rows.items()}

    def select(self, nodes: Iterable[str]) -> None:
        """Select nodes, given as ``graph:name``, and nothing else."""
        self.selection = list(nodes)

    def scroll_to_nodes(self, nodes: Sequence[str]) -> None:
        """Scroll the first of ``nodes`` in the page's tab into view; if the tab has none, open the first node's tab."""
        self.send({"show": list(nodes)})

    def show_overlay(self, title: str) -> None:
        """Show the overlay with this title; an empty title shows none."""
        self.shown = {**self.shown, "overlay": title}

    # --------------------------------------------------------------------------------------------------- from the page

    def receive(self, widget: Any, message: Any, buffers: Any) -> None:  # noqa: ARG002 - as ipywidgets calls it
        """Handle a message of a page once the page's earlier messages are handled."""
        match message:
            case {"page": str(page), "number": int(number), "do": str(), "of": str()}:
                with self._lock:
                    self._in_order.receive(page, number, message)

    def press(self, do: str, of: str = "", **more: Any) -> None:
        """Simulate pressing an element on the page."""
        self.handle({"do": do, "of": of, "value": None, "shift": False, "ctrl": False, **more})

    def _handle_in_order(self, page: str, number: int, message: Mapping[str, Any]) -> None:
        with self.hold_sync():
            self.handle(message)
            self.answered = {**self.answered, page: number}

    def handle(self, message: Mapping[str, Any]) -> None:
        """Handle a message: store the state of the page, or send the graph that the page asks for."""
        try:
            match message:
                case {"do": "select", "value": [*nodes]} if all(isinstance(name, str) for name in nodes):
                    self.set_state({"selection": nodes})
                case {"do": "shown", "value": {**shown}} if isinstance(shown.get("tab", ""), str):
                    self.set_state({"shown": shown})
                case {"do": "graph", "of": str(number)} if self._session is not None:
                    with self._lock, self.hold_sync():
                        if number in map(str, range(len(self._session.graphs))):
                            self._set_records(int(number), make=True)
        except Exception as error:  # noqa: BLE001 - ipywidgets would hide it; the page shows it
            self._show_error(error)

    def _show_error(self, error: Exception) -> None:
        self.problem = clean_page(f"{type(error).__name__}: {error}")

    def send_state(self, key: Any = None) -> None:
        """Send traits as they are; ipywidgets 8 would look for buffers in each of their thousands of elements."""
        if state := self.get_state(key=key):
            self._property_lock.update((name, state[name]) for name in self._property_lock.keys() & state.keys())
            self._send({"method": "update", "state": state, "buffer_paths": []})

    def close(self) -> None:
        """Close the widget and its layout."""
        self.layout.close()
        super().close()


def _frame() -> list[Node]:
    hidden = node("div", hidden=True, data_part="style")
    return [hidden, graph_host(), node("div", class_="rxs", data_part="source")]
