"""Charts inside tables: a speedup with its confidence interval on a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log

from regional_explorer.record.benchmark import Timing
from regional_explorer.style.css import LIGHT, TONES
from regional_explorer.style.element import Node, node
from regional_explorer.style.formats import interval, is_withheld, speedup

CHART_WIDTH = 130
CHART_HEIGHT = 14
CHART_MARGIN = 4


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
        ends = [end for t in timings if t.speedup and not is_withheld(t) for end in t.speedup.bounds or ()]
        low, high = min([1.0, *ends]), max([1.0, *ends])
        margin = max((high / low) ** 0.06, 1.02)
        return cls(low / margin, high * margin)

    def at(self, ratio: float) -> float:
        """Return the position of ``ratio``, in pixels from the left."""
        return CHART_MARGIN + log(ratio / self.low) / log(self.high / self.low) * (CHART_WIDTH - 2 * CHART_MARGIN)


def whiskers(timings: Sequence[Timing]) -> Callable[[Timing], Node | None]:
    """Return the function that draws one of ``timings``, all on the same scale."""
    scale = Scale.of(timings)
    return lambda timing: whisker(timing, scale)


def whisker(timing: Timing, scale: Scale) -> Node | None:
    """Return the chart of one timing as SVG; None if it may show no speedup, or the speedup has no interval."""
    if timing.speedup is None or timing.speedup.bounds is None or is_withheld(timing):
        return None
    middle, (low, high) = timing.speedup.value, timing.speedup.bounds
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
        aria_label=f"{speedup(timing)}, CI {interval(timing.speedup)}",
    )
