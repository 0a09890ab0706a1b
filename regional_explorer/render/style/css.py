"""The CSS of pictures, tables and pages: rules and colours of regions, in a light and a dark version.

Every rule is scoped under one class of ours, and every text colour has a background that we set too: text stays
readable on any page. The dark version applies if the page says so (JupyterLab, VS Code, documentation themes), or else
if the reader's system does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from regional_explorer.render.style.palette import DARK, LIGHT, Ground, Paint, Tone, paint

_DARK_PAGE = ':is([data-jp-theme-light="false"],[data-theme="dark"],.vscode-dark)'
_UNDECIDED = ':root:not([data-theme="light"]):not(:has([data-jp-theme-light="true"],.vscode-light))'

PICTURE = "rx-graph"
PAGE = "rx"
"""The classes under which the styles of pictures and of pages are scoped."""

_CSS_FOLDER = Path(__file__).resolve().parent


@functools.cache
def _rules(name: str) -> str:
    """Return the rules of ``name.css``, without comments and spaces that a browser does not need."""
    text = re.sub(r"/\*.*?\*/", "", (_CSS_FOLDER / f"{name}.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s*([{};])\s*|(?<=[:,])\s+", r"\1", text).replace(";}", "}").strip()


def picture_css(paints: Iterable[Paint]) -> str:
    """Return the style sheet of a picture in which the regions are painted with ``paints``."""
    paints_by_hue = {paint.hue: paint for paint in paints}
    scope = f".{PICTURE}"
    light_colours = _picture_colours(LIGHT, {hue: paint.light for hue, paint in paints_by_hue.items()})
    colours = (f"{scope} {selector}{{{colour}}}" for selector, colour in light_colours.items())
    light = f"{scope}{{background:{LIGHT.paper}}}{_rules('picture')}{''.join(colours)}"
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
    """Return the style sheet of pages and fragments that show this many regions."""
    paints = [paint(number) for number in range(regions)]
    light_tones, dark_tones = [one.light for one in paints], [one.dark for one in paints]
    scope = f".{PAGE}"
    light = f"{scope}{{{_theme_variables(LIGHT, light_tones, '#1a7f37', '#8a5300')}}}"
    dark = f"{{{_theme_variables(DARK, dark_tones, '#56d364', '#f0b72f')}}}"
    chips = "".join(_chip_rule(scope, number, one.line) for number, one in enumerate(paints))
    return light + themed(dark, f"{_UNDECIDED} {scope}", f"{_DARK_PAGE} {scope}") + _rules("page") + chips


def saved_css() -> str:
    """Return the rules that a saved page needs besides those of the panel, with those for printing."""
    return _rules("saved")


def _theme_variables(ground: Ground, tones: Sequence[Tone], good: str, warn: str) -> str:
    colours = {"paper": ground.paper, "ink": ground.ink, "quiet": ground.quiet, "line": ground.edge, "box": ground.box}
    colours |= {"bad": ground.bad, "good": good, "warn": warn}
    for number, tone in enumerate(tones):
        colours |= {f"f{number}": tone.fill, f"s{number}": tone.stroke, f"t{number}": tone.text}
    return ";".join(f"--rx-{name}:{colour}" for name, colour in colours.items())


def _chip_rule(scope: str, number: int, line: str) -> str:
    border = f"1px {line} var(--rx-s{number})"
    return f"{scope} .rx-r{number}{{background:var(--rx-f{number});color:var(--rx-t{number});border:{border}}}"
