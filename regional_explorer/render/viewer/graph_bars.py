"""The controls around a drawn graph as an element tree: tabs, search, tools, legend, list of keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regional_explorer.render.picture.scene import Entry
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.palette import paint
from regional_explorer.render.viewer.overlay import Overlay, scale

FIND_BUTTONS = (
    ("previous", "↑", "Previous match (Shift+Enter)"),
    ("next", "↓", "Next match (Enter)"),
    ("matched", "Select", "Select all matches (s)"),
)
TOOL_BUTTONS = (
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
        ("open all", "Expand all", "Expand all modules, repeats and groups of ops (e)"),
        ("close all", "Collapse all", "Collapse all modules, groups of ops and regions (c)"),
    ),
)
"""The command, text and title of each button, in groups."""
OVERLAY_TITLE = "Next overlay, or none (o)"
SWITCH_TOOLS = {"lasso", "help"}
KEY_HELP = (
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
SEARCH_HINT = "Words, name: op: shape: dtype: module: line: region: state: or /a regular expression/ (key /)"


def graph_bars(
    tabs: Sequence[Sequence[str]],
    tab: str,
    crumbs: Sequence[tuple[str, str]],
    legend: Sequence[Entry | str],
    *,
    figures: bool = False,
    overlay: Overlay | None = None,
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
        title=SEARCH_HINT,
        spellcheck="false",
        autocomplete="off",
    )
    count = _div("count", aria_live="polite")
    keys = (element for key, text in KEY_HELP for element in (node("dt", key), node("dd", text)))
    stage = node(
        "div",
        node("canvas", class_="rxg-canvas", aria_hidden="true"),
        _div("empty"),
        node("canvas", class_="rxg-map", aria_hidden="true", hidden=True),
        _div("tip", role="tooltip", hidden=True),
        node("dl", *keys, class_="rxg-help", hidden=True),
        class_="rxg-stage",
        tabindex="0",
        role="application",
        aria_roledescription="graph",
        aria_description="N and P move between boxes, ? lists the keys.",
    )
    tools = [_button_group(group) for group in TOOL_BUTTONS]
    label = f"Overlay: {overlay.title}" if overlay else "Overlay"
    tools[-1].append(_tool_button("overlay", label, OVERLAY_TITLE, pressed=overlay is not None, disabled=not figures))
    tools.append(_button_group([("help", "?", "Keys (?)")]))
    return [
        _div("bar", _tab_buttons(tabs, tab), _div("find", field, count, _button_group(FIND_BUTTONS))),
        _div("bar", *tools, role="toolbar", aria_label="Graph tools"),
        _crumb_buttons(next((title for tab_id, title in tabs if tab_id == tab), "graph"), crumbs),
        _div("problem", problem, role="alert", hidden=not problem),
        stage,
        _div("status", _div("selected"), _div("trail"), _div("wait", "arranging…" if arranging else "")),
        _div("legend", *_legend_nodes(legend, overlay), role="group", aria_label="Legend"),
        _div("live", aria_live="polite", role="status"),
    ]


def _div(name: str, /, *children: Node | str, **attributes: Any) -> Node:
    return node("div", *children, class_=f"rxg-{name}", **attributes)


def _tab_buttons(tabs: Iterable[Sequence[str]], current: str) -> Node:
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
    return _div("tabs", *buttons, role="tablist", aria_label="Graphs")


def _crumb_buttons(top: str, crumbs: Iterable[tuple[str, str]]) -> Node:
    """Return buttons that lead back to the graph, and to each fold around the one that was opened last."""
    path = [("", top), *crumbs]
    buttons = (
        node(
            "button",
            title,
            type="button",
            title=f"Back to {title}",
            data_do="back",
            data_of=key,
            aria_current="location" if (key, title) == path[-1] else None,
        )
        for key, title in path
    )
    return _div("crumbs", *buttons, role="navigation", aria_label="What is open")


def _button_group(tools: Iterable[tuple[str, str, str]]) -> Node:
    return _div("group", *(_tool_button(*tool, pressed=False if tool[0] in SWITCH_TOOLS else None) for tool in tools))


def _tool_button(do: str, text: str, title: str, *, pressed: bool | None = None, disabled: bool = False) -> Node:
    switch = None if pressed is None else str(pressed).lower()
    label = f"{text}: {title}" if text[0].isalpha() else title  # a label begins with the visible text
    return node(
        "button", text, type="button", data_do=do, title=title, aria_label=label, aria_pressed=switch, disabled=disabled
    )


def _legend_nodes(legend: Iterable[Entry | str], overlay: Overlay | None) -> Iterable[Node]:
    """Yield a button for each region, the meanings of signs, and the scale of the overlay."""
    for entry in legend:
        yield node("span", entry) if isinstance(entry, str) else _legend_button(entry)
    if overlay and (overlay_scale := scale(overlay)):
        low, high, bars = overlay_scale
        yield node("span", f"{overlay.title} {low}", node("i", style=_css_variables(bars)), high, class_="rxg-key")


def _legend_button(entry: Entry) -> Node:
    look = paint(entry.region)
    colours = {
        "light": look.light.fill,
        "light-ink": look.light.text,
        "dark": look.dark.fill,
        "dark-ink": look.dark.text,
    }
    return node(
        "button",
        node("span", look.letter, class_="rxg-chip", style=f"{_css_variables(colours)};border-style:{look.line}"),
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
