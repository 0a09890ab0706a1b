"""The CSS of pictures and tables, in a light and a dark version.

Every rule is scoped under one class of ours, and every colour stands on a ground that we set: text stays readable
whatever page it lands on. Dark is taken where the page says so (JupyterLab, VS Code, documentation themes), else where
the reader's system does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from regional_explorer.render.style.palette import DARK, LIGHT, Ground, Paint, Tone

_DARK_PAGE = ':is([data-jp-theme-light="false"],[data-theme="dark"],.vscode-dark)'
_UNDECIDED = ':root:not([data-theme="light"]):not(:has([data-jp-theme-light="true"],.vscode-light))'

PICTURE = "rx-graph"
PAGE = "rx"
"""The classes under which the styles of pictures and of pages are scoped."""

_SHAPES = (
    "text{font:10px Helvetica,Arial,sans-serif;text-anchor:middle}",
    ".v text{font-size:8px}",
    ".d{font-size:8px}",
    ".m{font-size:8px}",
    ".h{font-size:11px;text-anchor:start}",
    ".l{text-anchor:start}",
    ".b rect{stroke-width:.7}",
    ".v rect{stroke-width:.4}",
    ".e{fill:none;stroke-width:.8}",
    ".w rect{stroke-dasharray:3 2}",
    ".n rect{stroke-dasharray:6 3}",
    ".o rect{stroke-dasharray:1.5 2}",
    ".x rect{stroke-width:1.8}",
)


def picture_css(paints: Iterable[Paint]) -> str:
    """Return the style sheet of a picture in which the regions are painted with ``paints``."""
    tones = {paint.hue: paint for paint in paints}
    scope = f".{PICTURE}"
    light = f"{scope}{{background:{LIGHT.paper}}}" + "".join(
        f"{scope} {rule}" for rule in (*_SHAPES, *_colours(LIGHT, {h: p.light for h, p in tones.items()}))
    )
    dark = "".join(_colours(DARK, {h: p.dark for h, p in tones.items()}))
    # A picture that is a document of its own is its root, and lies below nothing.
    return light + themed(
        f"{{background:{DARK.paper};{dark}}}", f"{_UNDECIDED} {scope},{_UNDECIDED}{scope}", f"{_DARK_PAGE} {scope}"
    )


def themed(dark: str, undecided: str, page: str) -> str:
    """Return the block ``dark`` for where only the reader's system says dark, and for where the page does."""
    return f"@media(prefers-color-scheme:dark){{{undecided}{dark}}}{page}{dark}"


def _colours(ground: Ground, tones: Mapping[int, Tone]) -> Iterator[str]:
    # Not `text` alone: a rule inside another may not begin with an element's name in every browser.
    yield f":is(text){{fill:{ground.ink}}}"
    for quiet in (".d", ".m", ".h", ".i text"):
        yield f"{quiet}{{fill:{ground.quiet}}}"
    yield f".b rect{{fill:{ground.box};stroke:{ground.edge}}}"
    yield ".b.i rect{fill:none;stroke:none}"
    yield f".e{{stroke:{ground.edge}}}"
    yield f".a{{fill:{ground.edge}}}"
    for hue, tone in tones.items():
        yield f".r{hue} rect{{fill:{ground.paper};stroke:{tone.stroke}}}"
        yield f".r{hue}.f rect{{fill:{tone.fill}}}"
        yield f".r{hue} text{{fill:{tone.text}}}"
    yield f".x rect{{stroke:{ground.bad}}}"
    yield f".x text{{fill:{ground.bad}}}"


def page_css(paints: Sequence[Paint]) -> str:
    """Return the style sheet of pages and fragments in which the regions are painted with ``paints``, in order."""
    scope = f".{PAGE}"
    light = f"{scope}{{{_variables(LIGHT, [paint.light for paint in paints], '#1a7f37', '#8a5300')}}}"
    dark = f"{{{_variables(DARK, [paint.dark for paint in paints], '#56d364', '#f0b72f')}}}"
    chips = "".join(_chip(scope, number, paint.line) for number, paint in enumerate(paints))
    page = _PAGE.replace("%", scope * 2)
    return light + themed(dark, f"{_UNDECIDED} {scope}", f"{_DARK_PAGE} {scope}") + page + chips


def _variables(ground: Ground, tones: Sequence[Tone], good: str, warn: str) -> str:
    named = {"paper": ground.paper, "ink": ground.ink, "quiet": ground.quiet, "line": ground.edge, "box": ground.box}
    named |= {"bad": ground.bad, "good": good, "warn": warn}
    for number, tone in enumerate(tones):
        named |= {f"f{number}": tone.fill, f"s{number}": tone.stroke, f"t{number}": tone.text}
    return ";".join(f"--rx-{name}:{colour}" for name, colour in named.items())


def _chip(scope: str, number: int, line: str) -> str:
    border = f"1px {line} var(--rx-s{number})"
    return f"{scope} .rx-r{number}{{background:var(--rx-f{number});color:var(--rx-t{number});border:{border}}}"


# The scope is doubled: the styles of notebook pages for tables and lists would win over a single one.
# JupyterLab's own ground and ink are taken where it names them; they change with its theme as ours do.
_PAGE = (
    "%{background:var(--jp-layout-color0,var(--rx-paper));color:var(--jp-content-font-color1,var(--rx-ink));"
    "font:13px/1.45 var(--jp-ui-font-family,system-ui,Helvetica,Arial,sans-serif);padding:4px 12px 12px}"
    "% h3{font-size:15px;margin:6px 0;overflow-wrap:anywhere}"
    "% h4,% summary{font-size:13px;font-weight:600;margin:14px 0 4px}"
    "% summary{cursor:pointer}"
    "% dl{display:grid;grid-template-columns:max-content 1fr;gap:0 14px;margin:0}"
    "% dt{color:var(--rx-quiet);font-weight:400;float:none;width:auto;margin:0;white-space:nowrap}"
    "% dd{margin:0;overflow-wrap:anywhere}"
    "% .rx-wide{overflow-x:auto}"
    "% .rx-scroll{margin-top:10px;background:var(--rx-paper);border:1px solid var(--rx-box);border-radius:6px}"
    "% table{border-collapse:collapse;font-size:12px;margin:0;border:0}"
    "% th,% td{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border:0;max-width:26em;"
    "overflow-wrap:break-word;background:none}"
    "% th{color:var(--rx-quiet);font-weight:500;white-space:nowrap;border-bottom:1px solid var(--rx-line)}"
    "% td{border-bottom:1px solid var(--rx-box)}"
    "% th.rx-figure,% td.rx-figure{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "% .rx-chip{display:inline-block;min-width:1.2em;padding:0 2px;border-radius:3px;text-align:center;font-size:11px}"
    "% .rx-quiet,% .rx-note,% .rx-empty{color:var(--rx-quiet)}"
    "% .rx-note,% .rx-empty{margin:4px 0;font-size:12px}"
    "% .rx-good{color:var(--rx-good)}"
    "% .rx-bad{color:var(--rx-bad)}"
    "% .rx-warn{color:var(--rx-warn)}"
    "% .rx-even{color:var(--rx-quiet)}"
    "% .rx-list{margin:0;padding-left:1.2em}"
    "% .rx-list li{margin:4px 0;overflow-wrap:anywhere}"
    "% .rx-chart{display:block}"
)
