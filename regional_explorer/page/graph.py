"""The page's data of graphs (tabs, names of regions and pieces, overlays), and the elements around a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from regional_explorer.errors import listing, sendable
from regional_explorer.picture.layout import Badge, LegendEntry
from regional_explorer.picture.open_folds import legend_entry
from regional_explorer.picture.page_records import (
    Payload,
    Records,
    first_tab,
    graph_tabs,
    groups_by_size,
    piece_rows,
)
from regional_explorer.record.benchmark import NumericsVerdict, PartitionTiming, Timing
from regional_explorer.record.figure import Figure
from regional_explorer.record.partition import State
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.style.css import DARK, HUES, LIGHT, Paint, mix, paint
from regional_explorer.style.element import SHORT, Node, clean, node
from regional_explorer.style.formats import STATE_GLYPHS, duration, times, word

SHARE = "share of the time"
"""The title of the overlay that shows a profile."""
_SCALE_COLOURS = {"light": ("#f3f6fa", "#08306b"), "dark": ("#22303f", "#9ecbff")}
"""The end colours of the scale of overlays, by theme; they differ in lightness, for colour-blind people."""
SCALE = {theme: (cold, mix(cold, warm, 0.8)) for theme, (cold, warm) in _SCALE_COLOURS.items()}
"""The colours of the lowest and the highest value of an overlay, by theme."""
PALETTE = {
    theme: {
        "ground": asdict(ground),
        "tones": [asdict(getattr(paint(hue), theme)) for hue in range(HUES)],
        "scale": list(SCALE[theme]),
    }
    for theme, ground in {"light": LIGHT, "dark": DARK}.items()
}
"""The colours of pictures by theme: the ground, the regions by hue, and the ends of the scale of overlays."""
HULL_WORDS = {State.STALE: " (hatched): to be compiled", State.EAGER: " (dotted)", State.FAILED: " (crossed)"}
"""The legend's words for the hull of a piece, by the piece's state."""


def graph_traits(session: Session, records: Records) -> Payload:
    """Return the page's data of ``session``, without the facts and folds of its graphs.

    ``graphs`` has the names of all nodes that can be shown; ``look`` has the names and states of regions and pieces.
    """
    graphs = [records.of(session, graph) for graph in session.graphs]
    entries = [legend_entry(summary) for summary in region_summaries(session)]
    of_trace = records.of_trace.of(
        (session.graphs, bool(session.plan.regions)),
        lambda: {
            "graphs": [{"id": sendable(known.graph.id), "names": known.names} for known in graphs],
            "tabs": graph_tabs(session),
            "first": first_tab(session),
            "overlays": list(_group_overlays(groups_by_size(session.graphs))),
        },
    )
    return {
        **of_trace,
        "overlays": [*of_trace["overlays"], *overlays(session)],
        "look": {
            "regions": [_region(entry) for entry in entries],
            "pieces": [piece_rows(session, known.graph, known.pieces) for known in graphs],
            "legend": list(_legend(entries)),
        },
    }


def _group_overlays(groups: Mapping[str, Sequence[str]]) -> Iterable[Payload]:
    """Yield an overlay for each title with several groups of nodes; the largest groups have a colour each."""
    for title, names in groups.items():
        shown = [clean(name, SHORT) for name in names[:HUES]]
        if len(names) > 1:
            chips = (
                node("span", node("span", " ", class_="rxg-chip", style=_chip_colours(paint(number))), f" {name}")
                for number, name in enumerate(shown)
            )
            more = f"{len(names) - HUES} more without a colour" if len(names) > HUES else ""
            yield {
                "title": clean(title, SHORT),
                "groups": shown,
                "scale": node("span", f"{clean(title, SHORT)}: ", *chips, more, class_="rxg-key"),
            }


def _region(entry: LegendEntry) -> Payload:
    look = paint(entry.region)
    return {"name": entry.title, "letter": look.letter, "hue": look.hue, "line": look.line}


def _legend(entries: Iterable[LegendEntry]) -> Iterable[tuple[str, Node]]:
    """Yield the elements of the legend, each with the state or sign that must occur for the element to be shown."""
    for entry in entries:
        yield "", _legend_button(entry)
    for state, glyph in STATE_GLYPHS.items():
        yield state, node("span", f"{glyph} {word(state)}{HULL_WORDS.get(state, '')}")
    for badge in Badge:
        yield badge, node("span", f"{badge} {badge.meaning}")


_PARTITION_FIGURES: tuple[tuple[str, Callable[[float], str], Callable[[PartitionTiming], Figure | None]], ...] = (
    ("compiled time", duration, lambda timing: timing.compiled and timing.compiled.median_s * timing.runs),
    ("eager time", duration, lambda timing: timing.eager.median_s * timing.runs),
    ("speedup", times, lambda timing: timing.compiled and _comparable(timing.compiled)),
)


def _comparable(timing: Timing) -> Figure | None:
    return None if timing.numerics is NumericsVerdict.NOT_COMPARABLE else timing.speedup


def overlays(session: Session) -> list[Payload]:
    """Return the available overlays; empty before regions were measured and the call was profiled."""
    available = []
    for title, text, figure in _PARTITION_FIGURES:
        figures = {
            timing.partition: value for timing in session.partition_timings if (value := figure(timing)) is not None
        }
        if figures:
            available.append(overlay(title, text, figures))
    if session.profile is not None:
        busy = session.profile.noise.is_too_much
        scale = _not_painted(SHARE, "the machine was too busy") if busy else _scale(SHARE, "none", "most")
        available.append({"title": SHARE, "scale": scale, "values": {} if busy else None})
    return available


def overlay(title: str, text: Callable[[float], str], figures: Mapping[str, Figure]) -> Payload:
    """Return the overlay of figures of partitions, which ``text`` formats; figures that are not finite are left out.

    A figure without an interval is not painted, because a colour would look certain; the legend says why. ``values``
    has each partition's position on the scale, and its label.
    """
    sure = {sendable(name): figure.value for name, figure in figures.items() if figure.bounds is not None}
    finite = {name: value for name, value in sure.items() if math.isfinite(value)}
    unsure = listing(list(dict.fromkeys(figure.why for figure in figures.values() if figure.bounds is None)))
    low, high = min(finite.values(), default=0.0), max(finite.values(), default=0.0)
    places = {name: (value - low) / (high - low) if high > low else 0.5 for name, value in finite.items()}
    others = f"; others not painted: {unsure}" if unsure else ""
    unpainted = _not_painted(title, unsure) if unsure else None
    scale = _scale(title, text(low), text(high), others) if finite else unpainted
    return {
        "title": title,
        "scale": scale,
        "values": {name: [place, text(finite[name])] for name, place in places.items()},
    }


def _not_painted(title: str, why: str) -> Node:
    return node("span", f"{title} not painted: {why}", class_="rxg-key")


def _scale(title: str, low: str, high: str, others: str = "") -> Node:
    bars = {theme: f"linear-gradient(90deg, {cold}, {warm})" for theme, (cold, warm) in SCALE.items()}
    return node("span", f"{title} {low}", node("i", style=_css_variables(bars)), f"{high}{others}", class_="rxg-key")


FIND_BUTTONS = (
    ("previous", "↑", "Previous match (Shift+Enter)", None),
    ("next", "↓", "Next match (Enter)", None),
    ("matched", "Select", "Select all matches (s)", "s"),
)
TOOL_BUTTONS = (
    (
        ("fit", "Fit", "Fit the graph to the view (f)", "f"),
        ("out", "−", "Zoom out (−)", "-"),
        ("in", "+", "Zoom in (+)", "+="),
    ),
    (
        ("lasso", "Lasso", "Draw around boxes to select them (l, or drag with Alt)", "l"),
        ("upstream", "Upstream", "Also select everything the selection depends on (u)", "u"),
        ("downstream", "Downstream", "Also select everything that depends on the selection (d)", "d"),
    ),
    (
        ("open all", "Expand all", "Expand all modules, repeats and groups of ops (e)", "e"),
        ("close all", "Collapse all", "Collapse all modules, groups of ops and regions (c)", "c"),
    ),
    (("full", "⤢", "Full screen, and back", None), ("help", "?", "Keys (?)", "?")),
)
"""The command, text, title and keys of each button, in groups."""
KEY_HELP = (
    ("Drag, arrows", "pan; arrows with Shift faster"),
    ("Ctrl+wheel, + −", "zoom; ⌘+wheel on a Mac"),
    ("N P, Home End", "move between boxes; with Shift select"),
    ("Click, Space", "select; with Ctrl add or remove, with Shift a range"),
    ("Alt+drag, L", "lasso; with Ctrl add"),
    ("Click on +, double-click, Enter", "expand a box, or collapse the box around it"),
    ("F, E, C", "fit to view, expand all, collapse all"),
    ("U, D, S", "select upstream, downstream, the matches"),
    ("Ctrl+A, Esc", "select all, none"),
    ("/", "search"),
    ("G, T", "next graph, previous graph"),
    ("O, M", "next colours; minimap on or off"),
)
SEARCH_HINT = "Words, name: op: shape: dtype: module: line: region: state: or /a regular expression/ (key /)"


def graph_bars(height: int) -> list[Node]:
    """Return the elements of the graph view, from toolbar to legend; the page fills those that are empty.

    ``height`` is the drawing's, in pixels; its lower edge can be dragged.
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
    count = _div("count", aria_live="polite", data_bar="count")
    about = "The meaning of the graph's colours (o: next)"
    menu = node("select", data_do="overlay", data_key="o", data_bar="overlay", title=about, aria_label="Colour")
    colour = node("label", "Colour ", menu)
    *groups, last = map(_button_group, TOOL_BUTTONS)
    keys = (element for key, text in KEY_HELP for element in (node("dt", key), node("dd", text)))
    stage = node(
        "div",
        node("canvas", class_="rxg-canvas", aria_hidden="true"),
        _div("empty", data_bar="empty"),
        node("canvas", class_="rxg-map", aria_hidden="true", hidden=True),
        _div("tip", role="tooltip", hidden=True),
        node("dl", *keys, class_="rxg-help", hidden=True),
        class_="rxg-stage",
        style=f"height:{height}px",
        tabindex="0",
        role="application",
        aria_roledescription="graph",
        aria_description="N and P move between boxes, ? lists the keys.",
    )
    tabs = _div("tabs", role="tablist", aria_label="Graphs", data_bar="tabs")
    return [
        _div(
            "bar",
            tabs,
            _div("find", field, count, _button_group(FIND_BUTTONS)),
            _div("tools", *groups, colour, last, role="toolbar", aria_label="Graph tools"),
        ),
        _div("crumbs", role="navigation", aria_label="What is open", data_bar="crumbs"),
        _div("problem", role="alert", data_bar="problem"),
        stage,
        _div("status", _div("selected", data_bar="selected"), _div("trail", data_bar="trail")),
        _div("legend", role="group", aria_label="Legend", data_bar="legend"),
        _div("live", aria_live="polite", role="status"),
    ]


def _div(name: str, /, *children: Node | str, **attributes: Any) -> Node:
    return node("div", *children, class_=f"rxg-{name}", **attributes)


def _button_group(tools: Iterable[tuple[str, str, str, str | None]]) -> Node:
    return _div("group", *(_tool_button(*tool) for tool in tools))


def _tool_button(do: str, text: str, title: str, key: str | None) -> Node:
    label = f"{text}: {title}" if text[0].isalpha() else title  # accessible labels begin with the visible text
    return node("button", text, type="button", data_do=do, data_key=key, title=title, aria_label=label)


def _chip_colours(look: Paint) -> str:
    colours = {
        "light": look.light.fill,
        "light-ink": look.light.text,
        "dark": look.dark.fill,
        "dark-ink": look.dark.text,
    }
    return _css_variables(colours)


def _legend_button(entry: LegendEntry) -> Node:
    look = paint(entry.region)
    return node(
        "button",
        node("span", look.letter, class_="rxg-chip", style=f"{_chip_colours(look)};border-style:{look.line}"),
        node("b", entry.title),
        node("span", word(entry.state or "")),
        type="button",
        title=f"Select the nodes of {entry.text}",
        data_do="region",
        data_of=str(entry.region),
    )


def _css_variables(colours: Mapping[str, str]) -> str:
    """Return CSS variables with the colours of both themes; the style sheet picks the colours of the page's theme."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())
