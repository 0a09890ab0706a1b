"""The source view: the user's functions, each line coloured by its regions and tied to the nodes that come from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import traitlets

from regional_explorer.record.session import Session
from regional_explorer.render.figures import count
from regional_explorer.render.listing import Function, Line, listing
from regional_explorer.render.palette import paint
from regional_explorer.render.style import page_css
from regional_explorer.render.untrusted import SHORT, clean, sendable
from regional_explorer.ui.sheet import Sheet, Tree, node
from regional_explorer.ui.static import style

MOST_HOVERED = 400
"""A line that more nodes pass through lights none of them when it is pointed at."""

Names = Mapping[str, tuple[int, str]]
"""For a node, as ``graph:name``, number and name of its region."""


class SourceView(Sheet):
    """Shows the functions that the nodes of a session come from.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph; a click on a line selects the nodes that pass it,
            with Shift those of all lines from the last one on, with Ctrl it adds or drops them.
        hover: nodes under the pointer, here or in a view that is linked.
        height: in pixels, at most; the lower edge can be dragged.
    """

    _css = style("source")

    selection = traitlets.List(traitlets.Unicode())
    hover = traitlets.List(traitlets.Unicode())
    height = traitlets.Int(360)

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        super().__init__(self._hear, kind="rxs", **traits)
        self.tree = [node("div", role="status")]
        self._functions: tuple[Function, ...] = ()
        self._lines: list[tuple[Function, Line]] = []
        self._order: dict[str, int] = {}
        self._anchor = -1
        self.observe(lambda _: self._light(), ("selection", "hover"))
        if session is not None:
            self.set_session(session)

    def set_session(self, session: Session) -> None:
        """Show the source of ``session``."""
        self._functions = listing(session)
        self._lines = [(one, line) for one in self._functions for line in one.lines if line.passing]
        self._order = {name: place for place, name in enumerate(_nodes(session))}
        self._anchor = -1
        with self.hold_sync():
            self.tree = source_tree(self._functions, session, self.height)
            self._light()

    def select(self, nodes: Iterable[str]) -> None:
        """Select nodes, given as ``graph:name``, and nothing else."""
        self.selection = list(nodes)

    def link(self, view: Any) -> tuple[traitlets.link, ...]:
        """Share selection and hover with a graph view.

        Returns:
            The two links; ``unlink()`` ends one.
        """
        return tuple(traitlets.link((view, trait), (self, trait)) for trait in ("selection", "hover"))

    def _hear(self, message: Mapping[str, Any]) -> None:
        known = {str(number): number for number in range(len(self._lines))}
        place = known.get(message["of"])
        match message["do"]:
            case "point":
                nodes = () if place is None else self._lines[place][1].passing
                self.hover = list(nodes) if len(nodes) <= MOST_HOVERED else []
            case "pick" if place is not None:
                self._pick(place, shift=bool(message.get("shift")), ctrl=bool(message.get("ctrl")))
            case "clear":
                self.selection = []

    def _pick(self, place: int, *, shift: bool, ctrl: bool) -> None:
        function, _ = self._lines[place]
        start = self._anchor if shift and self._anchor >= 0 and self._lines[self._anchor][0] is function else place
        if not shift:
            self._anchor = place
        first, last = sorted((start, place))
        found = {name for _, line in self._lines[first : last + 1] for name in line.passing}
        if ctrl:
            now = set(self.selection)
            found = now - found if found <= now else now | found
        self.selection = sorted(found, key=lambda name: self._order.get(name, len(self._order)))

    def _light(self) -> None:
        """Tell the page which lines are selected and pointed at: by nodes of their own, or of what they call."""
        selected, hovered = set(self.selection), set(self.hover)
        rows = {}
        for number, (_, line) in enumerate(self._lines):
            words = [
                word
                for word, wanted, nodes in (
                    ("selected", selected, line.passing),
                    ("chosen", selected, line.own),
                    ("hovered", hovered, line.own),
                    ("above", hovered, line.passing),
                )
                if not wanted.isdisjoint(nodes)
            ]
            if words:
                rows[str(number)] = " ".join(words)
        self.lit = {"rows": rows, "say": f"{count(len(selected), 'node')} selected" if selected else ""}


def source_tree(functions: Sequence[Function], session: Session, height: int) -> list[Tree]:
    """Return the functions as a list of lines to choose from; library code is folded."""
    regions = {
        sendable(f"{graph}:{name}"): (number, region.name)
        for number, region in enumerate(session.plan.regions)
        for graph, names in session.members.get(region.name, {}).items()
        for name in names
    }
    if not functions:
        return [node("div", "No node says which line it comes from.", class_="rxs-empty"), node("div", role="status")]
    colours = ["style", {}, page_css([paint(number) for number in range(len(session.plan.regions))])]
    numbers = iter(range(sum(len(one.lines) for one in functions)))
    blocks = [
        node(
            "details",
            node("summary", node("b", one.name), node("span", f"{one.file}:{one.lines[0].number}")),
            *(_row(line, regions, next(numbers) if line.passing else None) for line in one.lines),
            open=not one.library,
            role="group",
            aria_label=f"{one.name} in {one.file}",
        )
        for one in functions
    ]
    listed = node("div", colours, *blocks, class_="rx rxs-list", style=f"max-height:{height}px", role="listbox")
    listed[1] |= {"aria-multiselectable": "true", "aria-label": "Source lines"}
    return [listed, node("div", role="status", class_="rxs-live")]


def _row(line: Line, regions: Names, number: int | None) -> Tree:
    chips, tint = _chips(line, regions)
    told = f"{count(len(line.own), 'node')} from here, {len(line.passing)} with those of what it calls"
    row = node(
        "div",
        node("span", str(line.number), class_="rxs-number"),
        node("span", *chips, class_="rxs-marks"),
        ["code", {}, line.text or " "],
        node("span", str(len(line.passing) or ""), class_="rxs-count", title=told),
        class_="rxs-line",
        role="presentation" if number is None else "option",
        style=tint,
    )
    if number is not None:
        row[1] |= {"data-do": "pick", "data-of": str(number), "tabindex": "-1"}
    return row


def _chips(line: Line, regions: Names) -> tuple[list[Tree], str | None]:
    """Return a chip for each region of a line, and its tint where it is all in one region.

    A chip is filled where the line itself is in the region, an outline where it calls into it.
    """
    inside = {regions[name] for name in line.own if name in regions}
    through = dict.fromkeys(regions[name] for name in line.passing if name in regions)
    chips = [
        node(
            "span",
            paint(number).letter,
            class_=f"rx-chip rx-r{number}",
            title=clean(name, SHORT),
            style=None if (number, name) in inside else "background:none",
        )
        for number, name in through
    ]
    return chips, f"--tint:var(--rx-f{next(iter(inside))[0]})" if len(inside) == 1 else None


def _nodes(session: Session) -> Iterable[str]:
    return (sendable(f"{graph.id}:{one.name}") for graph in session.graphs for one in graph.nodes)
