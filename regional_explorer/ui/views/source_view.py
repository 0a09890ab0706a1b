"""The source view: the user's functions, each line coloured by its regions and linked to its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import traitlets

from regional_explorer.record.session import Session
from regional_explorer.render.report.source_listing import Function, Line, listing
from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.figures import count
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import SHORT, clean, sendable
from regional_explorer.ui.static import style
from regional_explorer.ui.views.element_tree import Sheet, Tree, node

if TYPE_CHECKING:
    from regional_explorer.ui.views.graph_view import GraphView

MOST_HOVERED = 400
"""A line that more nodes pass through lights none of them when it is pointed at."""

STATUS = node("div", role="status", class_="rxs-live")
"""Where a screen reader is told what was selected."""

Names = Mapping[str, tuple[int, str]]
"""For a node, as ``graph:name``, number and name of its region."""


class SourceView(Sheet):
    """Shows the functions that the nodes of a session come from.

    Attributes:
        selection: selected nodes as ``graph:name``, of any graph; a click on a line selects the nodes that pass it,
            with Shift those of all lines from the last one on, with Ctrl it adds or drops them.
        hover: nodes under the pointer, here or in a view that is linked.
        height: in pixels, at most, of the next session that is shown; the lower edge can be dragged.
    """

    _css = style("source")

    selection = traitlets.List(traitlets.Unicode())
    hover = traitlets.List(traitlets.Unicode())
    height = traitlets.Int(360)

    def __init__(self, session: Session | None = None, **traits: Any) -> None:
        super().__init__(self._hear, kind="rxs", **traits)
        self.tree = [STATUS]
        self._lines: dict[str, tuple[Function, Line]] = {}
        self._own: dict[str, list[str]] = {}
        self._passing: dict[str, list[str]] = {}
        self._order: dict[str, int] = {}
        self._anchor = ""
        self._choose: Callable[[Iterable[str]], None] = self.select
        self._links: tuple[traitlets.link | traitlets.directional_link, ...] = ()
        self.observe(lambda _: self._light(), ("selection", "hover"))
        if session is not None:
            self.set_session(session)

    def set_session(self, session: Session) -> None:
        """Show the source of ``session``."""
        functions = listing(session)
        lines = [(one, line) for one in functions for line in one.lines if line.passing]
        self._lines = {str(number): line for number, line in enumerate(lines)}
        self._own, self._passing = {}, {}
        for key, (_, line) in self._lines.items():
            for name in line.own:
                self._own.setdefault(name, []).append(key)
            for name in line.passing:
                self._passing.setdefault(name, []).append(key)
        self._order = {name: place for place, name in enumerate(_nodes(session))}
        self._anchor = ""
        with self.hold_sync():
            self.tree = source_tree(functions, session, self.height)
            self._light()

    def select(self, nodes: Iterable[str]) -> None:
        """Select nodes, given as ``graph:name``, and nothing else."""
        self.selection = list(nodes)

    def link(self, view: GraphView) -> None:
        """Share selection and hover with a graph view, until ``unlink``."""
        self.unlink()
        self._choose = view.choose
        self._links = (
            traitlets.dlink((view, "selection"), (self, "selection")),
            traitlets.link((view, "hover"), (self, "hover")),
        )

    def unlink(self) -> None:
        """Share nothing any longer."""
        for link in self._links:
            link.unlink()
        self._links = ()
        self._choose = self.select

    def _hear(self, message: Mapping[str, Any]) -> None:
        key = message["of"]
        match message["do"]:
            case "point":
                passing = self._lines[key][1].passing if key in self._lines else ()
                self.hover = list(passing) if len(passing) <= MOST_HOVERED else []
            case "pick" if key in self._lines:
                nodes = self._picked(key, shift=bool(message.get("shift")), ctrl=bool(message.get("ctrl")))
                self._choose(sorted(nodes, key=lambda name: self._order.get(name, len(self._order))))
                self._light(f"{count(len(nodes), 'node')} selected")
            case "clear":
                self._choose([])

    def _picked(self, key: str, *, shift: bool, ctrl: bool) -> set[str]:
        """Return what is selected once the line ``key`` is pressed."""
        anchor = self._anchor if shift and self._anchor else key
        if self._lines[anchor][0] is not self._lines[key][0]:
            anchor = key
        if not shift:
            self._anchor = key
        first, last = sorted((int(anchor), int(key)))
        found = {name for number in range(first, last + 1) for name in self._lines[str(number)][1].passing}
        if not ctrl:
            return found
        now = set(self.selection)
        return now - found if found <= now else now | found

    def _light(self, say: str = "") -> None:
        """Tell the page which lines are selected and pointed at: by nodes of their own, or of what they call."""
        rows: dict[str, dict[str, None]] = {}
        for word, nodes, lines in (
            ("selected", self.selection, self._passing),
            ("chosen", self.selection, self._own),
            ("hovered", self.hover, self._own),
            ("above", self.hover, self._passing),
        ):
            for name in nodes:
                for key in lines.get(name, ()):
                    rows.setdefault(key, {})[word] = None
        self.lit = {"rows": {key: " ".join(words) for key, words in rows.items()}, "say": say}


def source_tree(functions: Sequence[Function], session: Session, height: int) -> list[Tree]:
    """Return the functions as a list of lines to choose from; library code is folded."""
    regions = {
        sendable(f"{graph}:{name}"): (number, region.name)
        for number, region in enumerate(session.plan.regions)
        for graph, names in session.members.get(region.name, {}).items()
        for name in names
    }
    if not functions:
        return [node("div", "No node says which line it comes from.", class_="rxs-empty"), STATUS]
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
    return [listed, STATUS]


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
