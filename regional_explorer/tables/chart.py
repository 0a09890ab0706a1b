"""Charts inside tables: a speedup with its confidence interval on a line, and the parts of a total as a bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

from regional_explorer.record.timing import Timing
from regional_explorer.style.css import LIGHT, TONES, paint
from regional_explorer.style.element import Node, node
from regional_explorer.style.formats import failed_numerics, interval, percent, speedup

CHART_WIDTH = 130
CHART_HEIGHT = 14
CHART_MARGIN = 4
BAR_WIDTH = 200
BAR_HEIGHT = 12


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of speedups that a column of charts shows, on a log axis: 2× is as far from 1 as 0.5×.

    It always includes 1, where a variant equals eager.
    """

    low: float
    high: float

    @classmethod
    def of(cls, timings: Iterable[Timing]) -> Scale:
        """Return a scale that includes all ``timings``."""
        charted = [timing for timing in timings if not failed_numerics(timing)]
        ends = [end for t in charted for end in (t.speedup, t.speedup_low, t.speedup_high) if end is not None]
        low, high = min([1.0, *ends]), max([1.0, *ends])
        margin = max((high / low) ** 0.06, 1.02)
        return cls(low / margin, high * margin)

    def at(self, ratio: float) -> float:
        """Return where ``ratio`` lies, in pixels from the left."""
        return CHART_MARGIN + log(ratio / self.low) / log(self.high / self.low) * (CHART_WIDTH - 2 * CHART_MARGIN)


def whisker(timing: Timing, scale: Scale) -> Node | None:
    """Return the chart of one timing as SVG; None if no speedup may be shown."""
    middle, low, high = timing.speedup, timing.speedup_low, timing.speedup_high
    if middle is None or failed_numerics(timing):
        return None
    low, high = middle if low is None else low, middle if high is None else high
    half = CHART_HEIGHT / 2
    ends = f"M{scale.at(low):.1f} {half}H{scale.at(high):.1f}M{scale.at(low):.1f} 4v6M{scale.at(high):.1f} 4v6"
    return node(
        "svg",
        node("path", d=f"M{scale.at(1):.1f} 0V{CHART_HEIGHT}", stroke=LIGHT.edge, stroke_dasharray="2 2"),
        node("path", d=ends, stroke="currentColor", stroke_width="1.5"),
        node("circle", cx=f"{scale.at(middle):.1f}", cy=str(half), r="3", fill="currentColor"),
        class_=f"rx-chart rx-{TONES.get(timing.verdict, 'even')}",
        width=str(CHART_WIDTH),
        height=str(CHART_HEIGHT),
        viewBox=f"0 0 {CHART_WIDTH} {CHART_HEIGHT}",
        role="img",
        aria_label=f"{speedup(timing)}, CI {interval(timing)}",
    )


def bar(segments: Sequence[tuple[str, float]]) -> Node:
    """Return a bar of ``segments``, each a name and a length, where 1 is the full width."""
    paths, left = [], 0.0
    for number, (_, length) in enumerate(segments):
        width = length * BAR_WIDTH
        if length > 0:
            paths.append(
                node("path", d=f"M{left:.1f} 0h{width:.1f}v{BAR_HEIGHT}H{left:.1f}z", fill=paint(number).light.stroke)
            )
        left += width
    total = sum(length for _, length in segments)
    label = ", ".join(f"{name} {percent(length / total)}" for name, length in segments if length > 0)
    size = {"width": str(BAR_WIDTH), "height": str(BAR_HEIGHT), "viewBox": f"0 0 {BAR_WIDTH} {BAR_HEIGHT}"}
    return node("span", node("svg", *paths, class_="rx-chart", role="img", aria_label=label, **size), title=label)
