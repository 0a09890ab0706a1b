"""What stands around a graph: tabs, legend, crumbs, and the overlays that colour it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from regional_explorer.errors import sendable
from regional_explorer.picture.records import Payload, Picture, record_and_outer
from regional_explorer.picture.scene import Entry
from regional_explorer.record.plan import Direction
from regional_explorer.record.regions import current_timings
from regional_explorer.record.session import Session
from regional_explorer.record.time_shares import TimeShares
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming
from regional_explorer.style.css import contrast, mix, paint
from regional_explorer.style.element import Node, node
from regional_explorer.style.formats import duration, percent

SHARE = "share of the time"
"""The title of the overlay of a profile."""
SHADES = 16
"""How many steps of colour shares of the time are rounded to."""


@dataclass(frozen=True)
class Overlay:
    """``values`` by partition, which ``text`` writes; or ``shares`` of the time, in which case there are no values."""

    title: str
    text: Callable[[float], str]
    values: Mapping[str, float] = field(default_factory=dict)
    shares: TimeShares | None = None


_PARTITION_FIGURES: tuple[tuple[str, Callable[[float], str], Callable[[PartitionTiming], float | None]], ...] = (
    ("compiled time", duration, lambda times: None if (call_s := times.compiled_s) is None else call_s * times.runs),
    ("eager time", duration, lambda times: times.eager_s * times.runs),
    (
        "speedup",
        lambda value: f"{value:.2f}×",
        lambda times: None if times.numerics is NumericsVerdict.NOT_COMPARABLE else times.speedup,
    ),
)


def overlays(session: Session) -> list[Overlay]:
    """Return the available overlays; empty before regions were measured and the call was profiled."""
    measured = current_timings(session)
    available = []
    for title, text, figure in _PARTITION_FIGURES:
        values = {sendable(timing.partition): value for timing in measured if (value := figure(timing)) is not None}
        if values:
            available.append(Overlay(title, text, values))
    shares = TimeShares.of(session)
    return [*available, Overlay(SHARE, percent, shares=shares)] if shares else available


def titled(available: Sequence[Overlay], title: str) -> Overlay | None:
    """Return the overlay with this title, or None."""
    return next((overlay for overlay in available if overlay.title == title), None)


def next_title(available: Sequence[Overlay], title: str) -> str:
    """Return the title of the overlay after this one; empty, for no overlay, after the last one."""
    titles = ["", *(overlay.title for overlay in available), ""]
    return titles[titles.index(title) + 1] if title in titles else titles[1]


def heat(overlay: Overlay | None, picture: Picture | None, tab: str, number: int) -> dict[str, Any]:
    """Return the fills and labels of an overlay: by partition, or for the boxes of the picture with this number."""
    if overlay is None:
        return {}
    if overlay.shares is None:
        return partition_heat(overlay)
    return {"of": number, **box_heat(overlay.shares, picture, tab)} if picture else {}


def box_heat(shares: TimeShares, picture: Picture, tab: str) -> dict[str, Any]:
    """Return for each box of a picture its share of the time: the step on the colour scale, a label and a tooltip.

    A box has the time of its ops, forward and backward; in the backward graph, the backward alone.
    """
    boxes: list[list[str]] = [[] for _ in range(len(picture.facts["box_pieces"]) // 4)]
    for name, box in zip(picture.reads, array("I", picture.facts["node_boxes"]), strict=True):
        boxes[box].append(name)
    seconds_of = _seconds_of(shares, tab)
    seconds = [sum(map(seconds_of, nodes)) for nodes in boxes]
    most_s = max(seconds, default=0.0) or 1.0
    return {
        "steps": [round(SHADES * time / most_s) if nodes else -1 for time, nodes in zip(seconds, boxes, strict=True)],
        "labels": [_label(shares, time) for time in seconds],
        "tooltips": [_tooltip(shares, tab, time) for time in seconds],
        **share_fills(),
    }


def fold_times(shares: TimeShares, tab: str, nodes: Iterable[str], payload: Payload) -> Iterator[list[Any] | None]:
    """Yield for each fold of a saved page its time, label and tooltip; None for one without nodes.

    ``nodes`` are those of the tab. The page colours them: the steps depend on which folds are open.
    """
    folds, seconds_of = payload["folds"], _seconds_of(shares, tab)
    seconds: dict[int, float] = {}
    for name, innermost in zip(nodes, payload["nodes"], strict=True):
        for fold in record_and_outer(folds, innermost):
            seconds[fold] = seconds.get(fold, 0.0) + seconds_of(name)
    for time in map(seconds.get, range(len(folds))):
        yield None if time is None else [float(f"{time:.3g}"), _label(shares, time), _tooltip(shares, tab, time)]


def share_fills() -> dict[str, list[dict[str, str]]]:
    """Return the fills of the steps of shares in each theme."""
    return {
        theme: [_readable_fill(mix(cold, warm, _SCALE_REACH * step / SHADES)) for step in range(SHADES + 1)]
        for theme, (cold, warm) in _SCALE_COLOURS.items()
    }


def _seconds_of(shares: TimeShares, tab: str) -> Callable[[str], float]:
    return shares.own_seconds if Direction.of_graph(tab) is Direction.BACKWARD else shares.seconds


def _label(shares: TimeShares, seconds: float) -> str:
    return percent(seconds / (shares.profile.whole_s or 1.0))


def _tooltip(shares: TimeShares, tab: str, seconds: float) -> str:
    where = " in the backward" if Direction.of_graph(tab) is Direction.BACKWARD else ""
    return f"{_label(shares, seconds)} of the call, {duration(seconds)}{where}"


def _readable_fill(fill: str) -> dict[str, str]:
    """Return a fill, and the colour in which text on it is readable."""
    return {"fill": fill, "text": max("#000000", "#ffffff", key=partial(contrast, fill))}


_SCALE_COLOURS = {"light": ("#f3f6fa", "#08306b"), "dark": ("#22303f", "#9ecbff")}
"""The colours of the lowest and the highest value by theme; they differ in lightness, for colour-blind people."""
_SCALE_REACH = 0.8
"""How far towards the second colour the scale goes."""


def partition_heat(overlay: Overlay) -> dict[str, Any]:
    """Return for each partition of ``overlay`` its label, and its colours in each theme."""
    values = _finite_values(overlay)
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    heats: dict[str, Any] = {}
    for partition, value in values.items():
        share = (value - low) / (high - low) if high > low else 0.5
        heats[partition] = {
            theme: {"label": overlay.text(value), **_readable_fill(mix(cold, warm, share * _SCALE_REACH))}
            for theme, (cold, warm) in _SCALE_COLOURS.items()
        }
    return heats


def scale(overlay: Overlay) -> tuple[str, str, dict[str, str]] | None:
    """Return the labels of the lowest and highest value, and a CSS gradient by theme; None without values."""
    values = _finite_values(overlay).values()
    if not values and overlay.shares is None:
        return None
    ends = {theme: (cold, mix(cold, warm, _SCALE_REACH)) for theme, (cold, warm) in _SCALE_COLOURS.items()}
    bars = {theme: f"linear-gradient(90deg, {low}, {high})" for theme, (low, high) in ends.items()}
    if not values:
        return "none", "most", bars
    return overlay.text(min(values)), overlay.text(max(values)), bars


def _finite_values(overlay: Overlay) -> dict[str, float]:
    return {sendable(name): value for name, value in overlay.values.items() if math.isfinite(value)}


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
        _div("status", _div("selected"), _div("trail")),
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
