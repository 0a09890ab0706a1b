"""Formats values for people: durations, sizes, shares, speedups with their CI, configs; words and signs of states."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import isfinite
from typing import Any

from regional_explorer.errors import listing
from regional_explorer.record.benchmark import Comparison, NumericsVerdict, Timing, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Region, config_texts
from regional_explorer.record.regions import RegionTiming
from regional_explorer.record.speeds import WORDS
from regional_explorer.style.element import SHORT, clean

NONE = "–"
"""The text in place of a missing figure."""

STATE_GLYPHS = {
    State.FAILED: "✗",
    State.STALE: "◌",
    State.EAGER: "○",
    State.COMPILED: "◇",
    State.MEASURED: "✓",
    State.EMPTY: "∅",
}
"""The sign of each state of a region or partition; shown beside the word."""

_WORDS: Mapping[str, str] = {**WORDS, State.STALE: "not compiled"}


def word(name: StrEnum | str) -> str:
    """Return the word that people read for a variant or a state."""
    return _WORDS.get(name, name)


def pattern_text(name: str) -> str:
    """Return ``attention pattern 5`` for ``_sfdp_pattern_5``; other patterns of Inductor's have names of their own."""
    return re.sub(r"^_sfdp_pattern_(\d+)$", r"attention pattern \1", name)


MOST_ENTRIES = 8
"""The maximum number of entries shown of a list."""

_TIME_UNITS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))


def duration(seconds: float | None) -> str:
    """Return ``seconds`` with three significant digits in µs, ms or s: ``12.3 µs``."""
    if seconds is None:
        return NONE
    for below, factor, unit in _TIME_UNITS:
        # Round first: 999.9996 µs is 1.00 ms, not 1000 µs.
        if float(f"{abs(seconds):.3g}") < below:
            return f"{significant(seconds * factor)} {unit}"
    return NONE


def signed(seconds: float | None) -> str:
    """Return ``seconds`` as a difference: ``+12.3 µs`` or ``−12.3 µs``."""
    if seconds is None:
        return NONE
    return f"{'−' if seconds < 0 else '+'}{duration(abs(seconds))}"


def percent(share: float) -> str:
    """Return a fraction in per cent with three significant digits, ``12.3 %``, and at most one decimal."""
    if 0 < abs(share) < 1e-3:  # noqa: PLR2004 - a tenth of a per cent
        return "< 0.1 %" if share > 0 else "> -0.1 %"
    return f"{significant(100 * share)} %"


def size(number: int) -> str:
    """Return a number of bytes; from 1 KiB on with three significant digits in KiB, MiB or GiB."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        # Round first: one byte less than 1 MiB is 1.00 MiB, not 1,020 KiB.
        if float(f"{number / (1 << shift):.3g}") >= 1:
            return f"{significant(number / (1 << shift))} {unit}"
    return f"{number} B"


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a DataFrame's column: the end of its name, and the factor from seconds or bytes.

    ``text`` writes a value in a unit that fits, for views without the column's name. ``whole`` numbers have no
    fractions.
    """

    ending: str
    factor: float
    text: Callable[[Any], str]
    whole: bool = False


UNITS = (
    Unit("_us", 1e6, duration),
    Unit("_s", 1, duration),
    Unit("_bytes", 1, lambda number: size(int(number)), whole=True),
)


@cache
def unit_of(column: str) -> Unit | None:
    """Return the unit at the end of a column's name; None without one."""
    return next((unit for unit in UNITS if column.endswith(unit.ending)), None)


def significant(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits and no exponent where it is readable without one."""
    if value == 0 or not isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.{digits}g}")
    integer_digits = len(str(int(abs(rounded)))) if abs(rounded) >= 1 else 0
    if integer_digits > 6 or abs(rounded) < 1e-3:  # noqa: PLR2004 - beyond these an exponent reads better
        return f"{value:.{digits - 1}e}"
    if integer_digits:
        return f"{rounded:,.{max(digits - integer_digits, 0)}f}"
    leading_zeros = len(f"{abs(rounded):.10f}"[2:]) - len(f"{abs(rounded):.10f}"[2:].lstrip("0"))
    return f"{rounded:.{leading_zeros + digits}f}"


def times(ratio: float) -> str:
    """Return a ratio as ``1.24×``."""
    return f"{ratio:.2f}×"


def between(figure: Figure, text: Callable[[float], str] = times) -> str:
    """Return the bounds of a figure's CI, formatted by ``text``: ``1.21–1.27``, ``12 µs to 13 µs``; empty if none."""
    if figure.bounds is None:
        return ""
    low, high = figure.bounds
    return f"{low:.2f}–{high:.2f}" if text is times else f"{text(low)} to {text(high)}"


def interval(figure: Figure) -> str:
    """Return the bounds of a ratio's CI as ``1.21–1.27×``; empty if none."""
    return f"{between(figure)}×" if figure.bounds is not None else ""


def interval_note(figure: Figure, text: Callable[[float], str] = times) -> str:
    """Return the note after a figure: the bounds of its CI, `` (1.21–1.27)``, or why it has none."""
    note = between(figure, text) or figure.why
    return f" ({note})" if note else ""


def with_interval(figure: Figure, text: Callable[[float], str] = times) -> str:
    """Return a figure with the bounds of its CI, ``1.24× (1.21–1.27)``, or with the reason for no CI."""
    return f"{text(figure.value)}{interval_note(figure, text)}"


Compared = Timing | RegionTiming
"""A record with a speedup over eager and the verdict of a numerics check."""


def speedup(timing: Compared | None) -> str:
    """Return ``1.24×``, with a note if it is over the trace; a dash if the numerics check failed.

    A second note says ``not comparable`` if that is the check's verdict.
    """
    if timing is None or timing.speedup is None or is_withheld(timing):
        return NONE
    note = " over the trace" if isinstance(timing, RegionTiming) and timing.over_trace else ""
    note += f" {timing.numerics}" if timing.numerics is NumericsVerdict.NOT_COMPARABLE else ""
    return f"{times(timing.speedup.value)}{note}"


def against_trace(comparison: Comparison | None) -> str:
    """Return the speedup over the captured graphs with its CI, ``1.24× (1.21–1.27)``; empty for the graphs."""
    if comparison is None or comparison.verdict is Verdict.BASELINE:
        return ""
    note = f" {comparison.numerics}" if comparison.numerics is NumericsVerdict.NOT_COMPARABLE else ""
    return f"{with_interval(comparison.speedup)}{note}"


def is_withheld(timing: Compared) -> bool:
    """Return whether the numerics check withholds the speedup: it failed, or rounding decides it."""
    return bool(timing.numerics and timing.numerics.withholds_speedup)


def config_text(config: Mapping[str, Any]) -> str:
    """Return the first entries of a config as ``key=value`` pairs."""
    return listing([clean(text, 2 * SHORT) for text in config_texts(config)], MOST_ENTRIES)


def region_config_text(region: Region) -> str:
    """Return the requested config of a region as text; both configs if forward and backward differ."""
    if region.backward_config is None:
        return config_text(region.config)
    return "; ".join(f"{direction} {config_text(config) or 'default'}" for direction, config in region.configs)
