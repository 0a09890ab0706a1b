"""The graph view: one graph of a session on a canvas, to pan, search, select and fold.

It depends on the frozen record only. The page draws and handles the pointer; folding and layout are done here, in the
kernel, and sent as binary arrays. The toolbar and legend are made here too, and sent as an element tree.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import traitlets

from regional_explorer.errors.texts import sendable
from regional_explorer.record.node_names import qualified_names
from regional_explorer.record.session import Session
from regional_explorer.render.picture.arrays import Payload, places
from regional_explorer.render.picture.opening import Detail, Opening
from regional_explorer.render.picture.outlines import Outlines
from regional_explorer.render.picture.payload import Picture, first_tab, picture, tabs
from regional_explorer.render.picture.placement import Placement, arranged, layers
from regional_explorer.render.picture.scene import Scene
from regional_explorer.render.static import script, style
from regional_explorer.render.style.untrusted import clean_page
from regional_explorer.render.viewer.graph_bars import graph_bars
from regional_explorer.render.viewer.overlay import Overlay, heat, next_title, titled
from regional_explorer.ui.views.background_layout import LAYOUT_TIME_LIMIT_S, BackgroundLayout
from regional_explorer.ui.views.element_tree import ElementTree

MOST_ARRANGED_BOXES = 2500
"""A picture with more boxes keeps its first layout: Graphviz would not finish in time."""

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

    ``payload``, ``places`` and ``heat`` are what the page draws; ``arranging`` is True while a better layout is being
    computed; ``tree`` has the toolbar and legend.
    """

    _esm = script("graph")
    _css = style("graph")

    payload = traitlets.Dict().tag(sync=True)
    places = traitlets.Dict().tag(sync=True)
    arranging = traitlets.Bool(default_value=False)
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

    def __init__(
        self,
        session: Session | None = None,
        *,
        time_limit_s: float = LAYOUT_TIME_LIMIT_S,
        arrange: Callable[..., Placement | None] = arranged,
        **traits: Any,
    ) -> None:
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
        self._background_layout = BackgroundLayout(
            self._lock, self._on_layout, self._on_layout_error, time_limit_s=time_limit_s, arrange=arrange
        )
        self.observe(lambda _: self._draw_or_show_error(), "tab")
        self.observe(lambda _: self._apply_overlay(), "overlays")
        self.observe(lambda _: self._update_bars(), ("arranging", "problem"))
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

    def show_nodes(self, nodes: Iterable[str]) -> None:
        """Scroll the first of ``nodes`` that is in the current tab into view."""
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

    def wait_arranged(self, timeout_s: float | None = None) -> bool:
        """Wait until the layout is final; return whether it is."""
        return self._background_layout.wait(timeout_s)

    def close(self) -> None:
        """Close the view and stop computing its layout."""
        with self._lock:
            self._background_layout.cancel()
        self.wait_arranged()
        super().close()

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
                arranging=self.arranging,
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
            drawing = picture(self._session, self.tab, self._opening, outlines=self._outlines)
            number, scene = next(_picture_numbers), drawing.scene
            first_places = places(scene, layers(scene))
            payload: Payload = {"number": number, "tab": self.tab, **drawing.facts, "places": first_places}
            self._picture, self._picture_number = drawing, number
            improve = 0 < len(scene.boxes) <= MOST_ARRANGED_BOXES and self._background_layout.time_limit_s > 0
            if improve:
                self._background_layout.submit(number, scene)
            else:
                self._background_layout.cancel()
            with self.hold_sync():
                self.problem = ""
                self.arranging = improve
                self.payload = payload
                self._apply_overlay()

    def _on_layout(self, number: int, scene: Scene, placement: Placement | None) -> None:
        """Show a better layout, unless there is a newer picture; called on the layout's thread."""
        if number == self._picture_number:
            with self.hold_sync():
                self.arranging = False
                if placement is not None:
                    self.places = {"of": number, **places(scene, placement)}

    def _on_layout_error(self, number: int, error: Exception) -> None:
        """Show why there is no better layout; called on the layout's thread."""
        if number == self._picture_number:
            self.arranging = False
            self._show_error(error)
