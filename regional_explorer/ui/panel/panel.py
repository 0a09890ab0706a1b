"""The panel widget: shows the elements that ``layout`` makes of the state, and passes input to ``events``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from regional_explorer.record.codec import plan_line
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.record.session import Session
from regional_explorer.render.static import script, style
from regional_explorer.render.viewer.overlay import SHARE, overlays
from regional_explorer.ui.control import Control
from regional_explorer.ui.open_code import ShownCode
from regional_explorer.ui.panel.event import Event
from regional_explorer.ui.panel.events import handle
from regional_explorer.ui.panel.layout import PARTS, Shown, frame
from regional_explorer.ui.panel.mark_preview import previewed_nodes
from regional_explorer.ui.panel.marking import suggestions
from regional_explorer.ui.panel.messages import InOrder
from regional_explorer.ui.state import CODE, SOURCE
from regional_explorer.ui.views.code_view import CodeView
from regional_explorer.ui.views.element_tree import ElementTree
from regional_explorer.ui.views.graph_view import GraphView
from regional_explorer.ui.views.source_view import SourceView


class Panel(ElementTree):
    """The panel. Panels of the same exploration show the same state.

    ``parts`` are the elements of each part, as separate traits, so that only parts that change are sent; ``answered``
    is the number of the last message of each page that was handled; ``views`` are the widgets inside; ``plan`` is what
    a page can still copy when the kernel is gone.
    """

    _esm = script("panel")
    _css = style("panel", common=False)

    views = traitlets.Dict().tag(sync=True)
    answered = traitlets.Dict().tag(sync=True)
    plan = traitlets.Unicode().tag(sync=True)

    def __init__(self, control: Control) -> None:
        self.graph = GraphView(height=380)
        self.source = SourceView()
        self.code = CodeView()
        for view in (self.source, self.code):
            view.link(self.graph)
        child_views = {"graph": self.graph, SOURCE: self.source, CODE: self.code}
        refs = {name: f"anywidget:{view.model_id}" for name, view in child_views.items()}
        self.add_traits(**{_part_trait(name): traitlets.List().tag(sync=True) for name in PARTS})
        super().__init__(
            self._on_event, kind="rx rx-panel", label="Regional explorer", tree=frame(control.state.pane), views=refs
        )
        self.control = control
        self._suggestions = suggestions(control.session)
        self._session: Session | None = None
        self._plan: Plan | None = None
        self._profile = control.session.profile
        self._partition_codes: tuple[PartitionCode, ...] = ()
        self._part_needs: dict[str, dict[str, Any]] = {}
        self._in_order = InOrder(self._on_message_in_order)
        self.graph.observe(self._on_selection, names="selection")
        control.listeners.append(self.show)
        control.heartbeat.pings.append(self.ping)
        self.show(control)

    def part(self, name: str) -> list[Any]:
        """Return the elements of a part."""
        elements: list[Any] = getattr(self, _part_trait(name))
        return elements

    def show(self, control: Control) -> None:
        """Show the state and the session of ``control``."""
        with self.hold_sync():
            session_before, self._session = self._session, control.session
            if session_before is not None and control.session.graphs != session_before.graphs:
                self._suggestions = suggestions(control.session)
            self.tree = frame(control.state.pane)
            if control.state.plan != self._plan:
                self._plan = control.state.plan
                self.plan = plan_line(self._plan)
            key, owner = f"{id(control):x}", control.owner()
            code, unread = (control.code, control.unread) if control.state.pane == CODE else (None, 0)
            shown = Shown(
                key,
                owner,
                control.state,
                control.session,
                control.runs,
                control.summaries,
                self._suggestions,
                code,
                unread,
            )
            for name, part in PARTS.items():
                needs = part.needs(shown)
                # The inputs of a part are compared, not its elements: making them takes time from a running benchmark.
                if self._part_needs.get(name) != needs:
                    self._part_needs[name] = needs
                    setattr(self, _part_trait(name), part.make(**needs))
            # Last: where a view cannot show the session, everything else does.
            self._show_in_views(control, code, is_new=control.session is not session_before)

    def _show_in_views(self, control: Control, code: ShownCode | None, *, is_new: bool) -> None:
        """Show the state in the views, and the session if it ``is_new``."""
        if tuple(self.graph.selection) != control.state.selection:
            self.graph.select(control.state.selection)
        if is_new:
            self.graph.set_session(control.session)
            self.graph.overlays = overlays(control.session)
            if control.session.profile is not None and control.session.profile is not self._profile:
                self.graph.show_overlay(SHARE)
            self._profile = control.session.profile
            self.source.set_session(control.session)
        self.graph.marked = previewed_nodes(control.state.mark)
        if code is not None and code.partitions != self._partition_codes:
            self._partition_codes = code.partitions
            self.code.set_code(code.partitions)

    def ping(self) -> None:
        """Ping the pages; each that shows the panel answers."""
        self.send({"do": "answer"})

    def close(self) -> None:
        """Disconnect the panel from its control, and close its views."""
        if self.show in self.control.listeners:
            self.control.listeners.remove(self.show)
            self.control.heartbeat.pings.remove(self.ping)
        if not self.control.listeners:
            self.control.debounce.cancel()
        for view in (self.source, self.code):
            view.unlink()
        for widget in (self.graph, self.source, self.code, self):
            widget.layout.close()
        for view in (self.graph, self.source, self.code):
            view.close()
        super().close()

    # --------------------------------------------------------------------------------------------------- from the page

    def receive(self, widget: Any, message: Any, buffers: Any) -> None:
        """Handle a message from the page; those of one page are handled in the order of their numbers."""
        match message:
            case {"page": str(page), "number": int(number)}:
                with self.control.lock:
                    self._in_order.receive(page, number, message)
            case _:
                super().receive(widget, message, buffers)

    def _on_message_in_order(self, page: str, number: int, message: Mapping[str, Any]) -> None:
        with self.hold_sync():
            super().receive(self, message, None)
            self.answered = {**self.answered, page: number}

    def _on_event(self, message: Mapping[str, Any]) -> None:
        self.control.heartbeat.on_reply()
        with self.control.showing_errors():
            match message.get("selection"):
                case [*nodes] if all(isinstance(node, str) for node in nodes):
                    self.graph.set_state({"selection": nodes})
            held = {key: bool(message.get(key)) for key in ("shift", "ctrl")}
            shown = handle(self.control, Event(message["do"], message["of"], message.get("value"), **held))
            if shown:
                self._show_nodes(shown)

    def _on_selection(self, _change: Any) -> None:
        nodes = tuple(self.graph.selection)
        if nodes != self.control.state.selection:
            self.control.update(lambda state: state.with_nodes_picked(nodes))

    def _show_nodes(self, nodes: Sequence[str]) -> None:
        """Select nodes, and scroll to them."""
        graphs = {node.partition(":")[0] for node in nodes}
        if graphs and self.graph.tab not in graphs:
            self.graph.tab = min(graphs)
        self.graph.select(nodes)
        self.graph.show_nodes(nodes)


def _part_trait(part: str) -> str:
    return f"part_{part}"
