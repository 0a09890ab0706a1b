"""Diagnostics as a list of HTML elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.tones import TONES, toned

MOST_PLACES = 3

Extra = Callable[[int, Diagnostic], Node | None]
"""Returns an element to show beside a diagnostic, given its number and itself."""


def diagnostics_nodes(diagnostics: Sequence[Diagnostic], extra: Extra = lambda _n, _diagnostic: None) -> list[Node]:
    """Return warnings and errors as a titled list, and infos as a folded one."""
    items = [(finding.severity, diagnostic_item(finding, extra(n, finding))) for n, finding in enumerate(diagnostics)]
    severe = [item for severity, item in items if severity is not Severity.INFO]
    infos = [item for severity, item in items if severity is Severity.INFO]
    return [
        *([node("h4", count(len(severe), "diagnostic")), node("ul", *severe, class_="rx-list")] if severe else []),
        *(
            [node("details", node("summary", count(len(infos), "info")), node("ul", *infos, class_="rx-list"))]
            if infos
            else []
        ),
    ]


def diagnostic_item(diagnostic: Diagnostic, extra: Node | None = None, *, short: bool = False) -> Node:
    """Return one diagnostic as a list item; ``short`` leaves out its lines and the upstream issue."""
    facts = (
        ("At ", "" if short else ", ".join(str(place) for place in diagnostic.where[:MOST_PLACES])),
        ("Upstream torch: ", "" if short else diagnostic.upstream),
        ("What to do: ", diagnostic.remedy),
    )
    details = (node("div", f"{label}{text}", class_="rx-quiet") for label, text in facts if text)
    head = toned(diagnostic.severity, TONES[diagnostic.severity])
    return node("li", head, " ", node("code", diagnostic.code), " ", node("span", diagnostic.message), extra, *details)
