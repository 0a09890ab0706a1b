"""Colours, tones and style sheets."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from regional_explorer.record.benchmark import NumericsVerdict, Verdict
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.partition import State
from regional_explorer.style.element import Node, node
from regional_explorer.style.formats import STATE_GLYPHS, word

_HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#606060")
HUES = len(_HUES)
"""The number of colours of regions."""
_STROKES = ("solid", "dashed", "dotted")


@dataclass(frozen=True, slots=True)
class Tone:
    """The three colours of a region on one background."""

    fill: str
    stroke: str
    text: str


@dataclass(frozen=True, slots=True)
class Paint:
    """The look of one region. ``hue`` is the number of its colour, ``letter`` replaces a name that does not fit."""

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
    good: str
    warn: str


LIGHT = Ground("#ffffff", "#1f2328", "#5f6872", "#a3abb4", "#f4f5f7", "#b3261e", "#1a7f37", "#8a5300")
DARK = Ground("#15181c", "#e3e6ea", "#9aa4af", "#5b6570", "#24292f", "#ff8a80", "#56d364", "#f0b72f")


@functools.cache
def paint(index: int) -> Paint:
    """Return the look of the region at ``index`` of the plan."""
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


_DARK_PAGE = ':is([data-jp-theme-light="false"],[data-theme="dark"],.vscode-dark)'
_UNDECIDED = ':root:not([data-theme="light"]):not(:has([data-jp-theme-light="true"],.vscode-light))'

PICTURE = "rx-graph"
PAGE = "rx"
"""The classes that scope the styles of pictures and of pages."""

_CSS_FOLDER = Path(__file__).resolve().parent


@functools.cache
def rules(name: str) -> str:
    """Return the rules of ``name.css``, without comments and spaces that a browser does not need."""
    text = re.sub(r"/\*.*?\*/", "", (_CSS_FOLDER / f"{name}.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s*([{};])\s*|(?<=[:,])\s+", r"\1", text).replace(";}", "}").strip()


def picture_css(paints: Iterable[Paint]) -> str:
    """Return the style sheet of a picture in which the regions are painted with ``paints``."""
    paints_by_hue = {paint.hue: paint for paint in paints}
    scope = f".{PICTURE}"
    light_colours = _picture_colours(LIGHT, {hue: paint.light for hue, paint in paints_by_hue.items()})
    colours = (f"{scope} {selector}{{{colour}}}" for selector, colour in light_colours.items())
    light = f"{scope}{{background:{LIGHT.paper}}}{rules('picture')}{''.join(colours)}"
    dark_colours = _picture_colours(DARK, {hue: paint.dark for hue, paint in paints_by_hue.items()})
    dark = "".join(f"{selector}{{{colour}}}" for selector, colour in dark_colours.items())
    # In a standalone SVG file the picture is the root element, without a page around it.
    return light + themed(
        f"{{background:{DARK.paper};{dark}}}", f"{_UNDECIDED} {scope},{_UNDECIDED}{scope}", f"{_DARK_PAGE} {scope}"
    )


def themed(dark: str, undecided: str, page: str) -> str:
    """Return the block ``dark`` for pages that leave the theme to the system, and for pages that are dark."""
    return f"@media(prefers-color-scheme:dark){{{undecided}{dark}}}{page}{dark}"


def _picture_colours(ground: Ground, tones: Mapping[int, Tone]) -> dict[str, str]:
    """Return the colours of pictures by selector."""
    # Not plain `text`: some browsers do not allow a nested rule to begin with an element name.
    colours = {":is(text)": f"fill:{ground.ink}"}
    colours |= dict.fromkeys((".d", ".m", ".h", ".i text"), f"fill:{ground.quiet}")
    colours |= {".b rect": f"fill:{ground.box};stroke:{ground.edge}", ".b.i rect": "fill:none;stroke:none"}
    colours |= {".e": f"stroke:{ground.edge}", ".a": f"fill:{ground.edge}"}
    for hue, tone in tones.items():
        colours |= {
            f".r{hue} rect": f"fill:{ground.paper};stroke:{tone.stroke}",
            f".r{hue}.f rect": f"fill:{tone.fill}",
            f".r{hue} text": f"fill:{tone.text}",
            f".s.r{hue} rect": f"fill:{tone.stroke};stroke:none",
        }
    return colours | {".x rect": f"stroke:{ground.bad}", ".x text": f"fill:{ground.bad}"}


def page_css(regions: int = 0) -> str:
    """Return the style sheet of pages and fragments that show ``regions`` regions."""
    paints = [paint(number) for number in range(regions)]
    scope = f".{PAGE}"
    light = f"{scope}{{{_theme_variables(LIGHT, [one.light for one in paints])}}}"
    dark = f"{{{_theme_variables(DARK, [one.dark for one in paints])}}}"
    chips = "".join(
        f"{scope} .rx-r{number}{{background:var(--rx-f{number});color:var(--rx-t{number});"
        f"border:1px {one.line} var(--rx-s{number})}}"
        for number, one in enumerate(paints)
    )
    return light + themed(dark, f"{_UNDECIDED} {scope}", f"{_DARK_PAGE} {scope}") + rules("page") + chips


def _theme_variables(ground: Ground, tones: Sequence[Tone]) -> str:
    colours = {"line" if name == "edge" else name: colour for name, colour in asdict(ground).items()}
    for number, tone in enumerate(tones):
        colours |= {f"f{number}": tone.fill, f"s{number}": tone.stroke, f"t{number}": tone.text}
    return ";".join(f"--rx-{name}:{colour}" for name, colour in colours.items())


TONES: dict[str, str] = {
    State.FAILED: "bad",
    State.STALE: "warn",
    State.EMPTY: "warn",
    State.EAGER: "quiet",
    Verdict.FASTER: "good",
    Verdict.SLOWER: "bad",
    Verdict.WITHHELD: "bad",
    NumericsVerdict.FAILED: "bad",
    NumericsVerdict.CHAOTIC: "bad",
    NumericsVerdict.NOT_COMPARABLE: "warn",
    NumericsVerdict.NOT_COMPARED: "warn",
    NumericsVerdict.OK: "good",
    Severity.ERROR: "bad",
    Severity.WARNING: "warn",
    Severity.INFO: "quiet",
}
"""The tone of states, verdicts and severities: good, bad, warn or quiet. The words always say the same."""

SIGNS = {"good": "✓ ", "bad": "✗ ", "warn": "! "}
"""The sign before a word, by its tone."""
TRENDS = {"good": "▲ ", "bad": "▼ "}
"""The sign before a speedup, by its tone."""


def toned(text: object, tone: str, signs: dict[str, str] = SIGNS, **attributes: object) -> Node:
    """Return ``text`` in a tone, after a sign: a state's own sign, else the tone's."""
    sign = f"{STATE_GLYPHS[text]} " if isinstance(text, State) else signs.get(tone, "")
    if isinstance(text, State) and word(text) != text:
        attributes = {"title": text, **attributes}
    return node(
        "span",
        f"{sign}{word(text) if isinstance(text, State) else text}",
        class_=f"rx-{tone}" if tone else None,
        **attributes,
    )
