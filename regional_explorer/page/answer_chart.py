"""The chart of an answer as a table: a bar with whiskers for each plan, its time, and how fast it is against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.record.answer import interval_ends
from regional_explorer.record.bars import Bar
from regional_explorer.record.figure import Figure
from regional_explorer.record.statistics import CONFIDENCE
from regional_explorer.record.tuning import EAGER
from regional_explorer.style.css import TONES, TRENDS, toned
from regional_explorer.style.element import Node, node
from regional_explorer.style.formats import duration, interval, times, with_interval

Press = Callable[[Bar], Node | None]
"""Returns the button of a bar, which takes the bar's plan, or measures a plan that has no bar yet."""


def chart_nodes(bars: Sequence[Bar], press: Press = lambda _: None) -> list[Node]:
    """Return the chart of ``bars``; empty without bars."""
    if not bars:
        return []
    longest_s = max((max(interval_ends(bar.drawn_s)) for bar in bars if bar.drawn_s is not None), default=0.0)
    rows = [_row(bar, longest_s, press(bar)) for bar in bars]
    apart = [bar.word for bar in bars if bar.apart]
    note = f"×: eager ÷ this, of the same rounds. Bars and whiskers draw it with its {100 * CONFIDENCE:.0f} % interval."
    about = f" {apart[0].capitalize()}: of the search's own rounds." if apart else ""
    table = node("table", node("tbody", *rows), aria_label="Time of a call", class_="rx-times")
    return [node("div", table, node("p", f"{note}{about}", class_="rx-quiet"))]


def _row(bar: Bar, longest_s: float, button: Node | None) -> Node:
    seconds = bar.seconds
    return node(
        "tr",
        node("td", bar.word),
        node("td", _drawn(bar, seconds, longest_s), aria_hidden="true") if seconds else node("td", button),
        node("td", duration(seconds.value), title=interval(seconds, duration), class_="rx-figure")
        if seconds
        else node("td"),
        node("td", *_ratio(bar), class_="rx-figure"),
        node("td", button) if button and seconds else None,
    )


def _drawn(bar: Bar, seconds: Figure, longest_s: float) -> Node:
    low, value, high = (100.0 * end / longest_s for end in interval_ends(bar.drawn_s or seconds))
    tone = TONES.get(bar.verdict, "quiet")
    return node(
        "div",
        node("i", style=f"width:{value:.1f}%", class_=f"rx-{tone}"),
        node("span", style=f"left:{low:.1f}%;width:{max(0.0, high - low):.1f}%"),
        title=f"{bar.word}: {with_interval(seconds, duration)}",
    )


def _ratio(bar: Bar) -> list[Node | str]:
    if bar.speed is None:
        return ["1.00×"]
    if bar.speed.speedup is None:
        return [node("span", bar.verdict, class_="rx-quiet")]
    title = f"{bar.verdict}{f': {bar.speed.why}' if bar.speed.why else ''}"
    ratio = toned(times(bar.speed.speedup.value), TONES.get(bar.verdict, "quiet"), TRENDS, title=title)
    against = "" if bar.speed.against == EAGER else f" of {bar.speed.against}"
    return [ratio, " ", node("small", f"{interval(bar.speed.speedup).removesuffix('×')}{against}")]
