"""The controls around a drawn graph as an element tree: tabs, search, tools, legend, list of keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regional_explorer.render.picture.scene import Entry
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.palette import paint
from regional_explorer.render.viewer.overlay import scale

FIND = (
    ("previous", "↑", "Previous match (Shift+Enter)"),
    ("next", "↓", "Next match (Enter)"),
    ("matched", "Select", "Select all matches (s)"),
)
TOOLS = (
    (
        ("fit", "Fit", "Fit the graph to the view (f)"),
        ("out", "−", "Zoom out (−)"),
        ("in", "+", "Zoom in (+)"),
    ),
    (
        ("lasso", "Lasso", "Draw around boxes to select them (l, or drag with Alt)"),
        ("upstream", "Upstream", "Also select everything the selection depends on (u)"),
        ("downstream", "Downstream", "Also select everything that depends on the selection (d)"),
    ),
    (
        ("open all", "Expand all", "Open every module, run and repeat (e)"),
        ("close all", "Collapse all", "Close every module, run and region (c)"),
    ),
)
"""The command, text and title of each button, in groups."""
OVERLAY = "Next overlay, or none (o)"
SWITCHES = {"lasso", "help"}
KEYS = (
    ("Drag, arrows", "pan; arrows with Shift faster"),
    ("Ctrl+wheel, + −", "zoom; ⌘+wheel on a Mac"),
    ("N P, Home End", "move between boxes; with Shift select"),
    ("Click, Space", "select; with Ctrl add or remove, with Shift a range"),
    ("Alt+drag, L", "lasso; with Ctrl add"),
    ("Click on +, double-click, Enter", "expand it, or collapse what is around it"),
    ("F, E, C", "fit to view, expand all, collapse all"),
    ("U, D, S", "select upstream, downstream, the matches"),
    ("Ctrl+A, Esc", "select all, none"),
    ("/", "search"),
    ("G, T", "next graph, previous graph"),
    ("O, M", "next overlay; minimap on or off"),
)
HINT = "Words, name: op: shape: dtype: module: line: region: state: or /a regular expression/ (key /)"


def graph_bars(
    tabs: Sequence[Sequence[str]],
    tab: str,
    crumbs: Sequence[tuple[str, str]],
    legend: Sequence[Entry | str],
    *,
    figures: bool = False,
    overlay: Mapping[str, Any] | None = None,
    arranging: bool = False,
    problem: str = "",
) -> list[Node]:
    """Return the elements of the graph view, from toolbar to legend; those that the page fills are empty.

    Args:
        tabs: id and title of each tab.
        tab: id of the current tab.
        crumbs: key and title of the fold that was opened last and of those around it, outermost first.
        legend: the entries of the legend: regions, and the meanings of signs.
        figures: whether any overlay is available.
        overlay: the current overlay, or None.
        arranging: whether a better layout is being computed.
        problem: the last error message.
    """
    field = node(
        "input",
        type="search",
        placeholder="Search   op:gelu  2x128  /regex/",
        aria_label="Search nodes",
        title=HINT,
        spellcheck="false",
        autocomplete="off",
    )
    count = _part("count", aria_live="polite")
    keys = (part for key, text in KEYS for part in (node("dt", key), node("dd", text)))
    stage = node(
        "div",
        node("canvas", class_="rxg-canvas", aria_hidden="true"),
        _part("empty"),
        node("canvas", class_="rxg-map", aria_hidden="true", hidden=True),
        _part("tip", role="tooltip", hidden=True),
        node("dl", *keys, class_="rxg-help", hidden=True),
        class_="rxg-stage",
        tabindex="0",
        role="application",
        aria_roledescription="graph",
        aria_description="N and P move between boxes, ? lists the keys.",
    )
    tools = [_group(group) for group in TOOLS]
    label = f"Overlay: {overlay.get('title', '')}" if overlay else "Overlay"
    tools[-1].append(_button("overlay", label, OVERLAY, pressed=overlay is not None, disabled=not figures))
    tools.append(_group([("help", "?", "Keys (?)")]))
    return [
        _part("bar", _tabs(tabs, tab), _part("find", field, count, _group(FIND))),
        _part("bar", *tools, role="toolbar", aria_label="Graph tools"),
        _crumbs(next((title for known, title in tabs if known == tab), "graph"), crumbs),
        _part("problem", problem, role="alert", hidden=not problem),
        stage,
        _part("status", _part("selected"), _part("trail"), _part("wait", "arranging…" if arranging else "")),
        _part("legend", *_legend(legend, overlay), role="group", aria_label="Legend"),
        _part("live", aria_live="polite", role="status"),
    ]


def _part(name: str, /, *inside: Node | str, **attributes: Any) -> Node:
    return node("div", *inside, class_=f"rxg-{name}", **attributes)


def _tabs(tabs: Iterable[Sequence[str]], current: str) -> Node:
    buttons = (
        node(
            "button",
            title,
            type="button",
            title=title,
            role="tab",
            data_do="tab",
            data_of=tab,
            aria_selected=str(tab == current).lower(),
            tabindex="0" if tab == current else "-1",
        )
        for tab, title in tabs
    )
    return _part("tabs", *buttons, role="tablist", aria_label="Graphs")


def _crumbs(top: str, crumbs: Iterable[tuple[str, str]]) -> Node:
    """Return buttons that lead back to the graph, and to each fold around the one that was opened last."""
    places = [("", top), *crumbs]
    buttons = (
        node(
            "button",
            title,
            type="button",
            title=f"Back to {title}",
            data_do="back",
            data_of=key,
            aria_current="location" if (key, title) == places[-1] else None,
        )
        for key, title in places
    )
    return _part("crumbs", *buttons, role="navigation", aria_label="What is open")


def _group(tools: Iterable[tuple[str, str, str]]) -> Node:
    return _part("group", *(_button(*tool, pressed=False if tool[0] in SWITCHES else None) for tool in tools))


def _button(do: str, text: str, title: str, *, pressed: bool | None = None, disabled: bool = False) -> Node:
    switch = None if pressed is None else str(pressed).lower()
    label = f"{text}: {title}" if text[0].isalpha() else title  # a label begins with the visible text
    return node(
        "button", text, type="button", data_do=do, title=title, aria_label=label, aria_pressed=switch, disabled=disabled
    )


def _legend(legend: Iterable[Entry | str], overlay: Mapping[str, Any] | None) -> Iterable[Node]:
    """Yield a button for each region, the meanings of signs, and the scale of the overlay."""
    for one in legend:
        yield node("span", one) if isinstance(one, str) else _chip(one)
    if overlay and (found := scale(overlay)):
        low, high, bars = found
        yield node(
            "span", f"{overlay.get('title', '')} {low}", node("i", style=_css_variables(bars)), high, class_="rxg-key"
        )


def _chip(entry: Entry) -> Node:
    own = paint(entry.region)
    colours = {
        "light": own.light.fill,
        "light-ink": own.light.text,
        "dark": own.dark.fill,
        "dark-ink": own.dark.text,
    }
    return node(
        "button",
        node("span", own.letter, class_="rxg-chip", style=f"{_css_variables(colours)};border-style:{own.line}"),
        node("b", entry.title),
        node("span", entry.state),
        type="button",
        title=f"Select the nodes of {entry.text}",
        data_do="region",
        data_of=str(entry.region),
    )


def _css_variables(colours: Mapping[str, str]) -> str:
    """Return CSS variables with the colours of both themes; the style sheet uses those of the page's theme."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())
