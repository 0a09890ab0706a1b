"""Draws a speedup with its confidence interval on a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regional_explorer.record.timing import Timing, Verdict
from regional_explorer.render.style.figures import interval, speedup, wrong
from regional_explorer.render.style.palette import LIGHT

WIDTH = 130
HEIGHT = 14
EDGE = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """The stretch of speedups that a column of charts shows; it always holds 1, where a variant equals eager."""

    low: float
    high: float

    @classmethod
    def of(cls, timings: Iterable[Timing]) -> Scale:
        """Return the scale on which all ``timings`` have room."""
        shown = [timing for timing in timings if not wrong(timing)]
        ends = [end for t in shown for end in (t.speedup, t.speedup_low, t.speedup_high) if end is not None]
        low, high = min([1.0, *ends]), max([1.0, *ends])
        room = max(0.06 * (high - low), 0.02)
        return cls(low - room, high + room)

    def at(self, value: float) -> float:
        """Return where ``value`` lies, in pixels from the left."""
        return EDGE + (value - self.low) / (self.high - self.low) * (WIDTH - 2 * EDGE)


def whisker(timing: Timing, scale: Scale) -> str:
    """Return the chart of one timing as SVG, or an empty string where no speedup may be shown."""
    middle, low, high = timing.speedup, timing.speedup_low, timing.speedup_high
    if middle is None or wrong(timing):
        return ""
    low, high = middle if low is None else low, middle if high is None else high
    tone = {Verdict.FASTER: "rx-good", Verdict.SLOWER: "rx-bad"}.get(timing.verdict, "rx-even")
    half = HEIGHT / 2
    return (
        f'<svg class="rx-chart {tone}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{speedup(timing)}, CI {interval(timing)}">'
        f'<path d="M{scale.at(1):.1f} 0V{HEIGHT}" stroke="{LIGHT.edge}" stroke-dasharray="2 2"/>'
        f'<path d="M{scale.at(low):.1f} {half}H{scale.at(high):.1f}M{scale.at(low):.1f} 4v6M{scale.at(high):.1f} 4v6"'
        f' stroke="currentColor" stroke-width="1.5"/><circle cx="{scale.at(middle):.1f}" cy="{half}" r="3"'
        ' fill="currentColor"/></svg>'
    )
