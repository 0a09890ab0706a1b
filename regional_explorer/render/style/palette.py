"""The colours of regions, which colour-blind people can distinguish: hue, paint in two tones, and contrast.

The eight hues are those of Okabe and Ito. Colour is never the only sign: a region also has a letter, and from the
ninth region on another stroke.
"""

from __future__ import annotations

import functools
import math
import string
from dataclasses import dataclass

_HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#606060")
_STROKES = ("solid", "dashed", "dotted")


@dataclass(frozen=True, slots=True)
class Tone:
    """The three colours of a region on one background."""

    fill: str
    stroke: str
    text: str


@dataclass(frozen=True, slots=True)
class Paint:
    """How one region is drawn. ``hue`` is the number of its colour, ``letter`` stands for a name that does not fit."""

    hue: int
    letter: str
    line: str
    light: Tone
    dark: Tone


@dataclass(frozen=True, slots=True)
class Ground:
    """The colours of everything except regions, on one background."""

    paper: str
    ink: str
    quiet: str
    edge: str
    box: str
    bad: str


LIGHT = Ground(paper="#ffffff", ink="#1f2328", quiet="#5f6872", edge="#a3abb4", box="#f4f5f7", bad="#b3261e")
DARK = Ground(paper="#15181c", ink="#e3e6ea", quiet="#9aa4af", edge="#5b6570", box="#24292f", bad="#ff8a80")


@functools.cache
def paint(index: int) -> Paint:
    """Return how the region at ``index`` of the plan is drawn."""
    cycle, hue = divmod(index, len(_HUES))
    turn, letter = divmod(index, len(string.ascii_uppercase))
    return Paint(
        hue=hue,
        letter=string.ascii_uppercase[letter] + (str(turn + 1) if turn else ""),
        line=_STROKES[cycle % len(_STROKES)],
        light=Tone(mix(_HUES[hue], "#ffffff", 0.84), mix(_HUES[hue], "#000000", 0.12), mix(_HUES[hue], "#000000", 0.5)),
        dark=Tone(mix(_HUES[hue], DARK.paper, 0.78), mix(_HUES[hue], "#ffffff", 0.10), mix(_HUES[hue], "#ffffff", 0.6)),
    )


def mix(colour: str, other: str, share: float) -> str:
    """Return ``colour`` with ``share`` of ``other`` in it; both are written ``#rrggbb``."""
    channels = ((int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(first * (1 - share) + second * share):02x}" for first, second in channels)


def contrast(colour: str, other: str) -> float:
    """Return roughly the contrast ratio of WCAG 2, from 1 to 21; text needs 4.5."""
    dark, light = sorted(map(_luminance, (colour, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (math.pow(int(colour[i : i + 2], 16) / 255, 2.2) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
