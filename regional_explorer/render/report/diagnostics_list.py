"""Diagnostics as a list of HTML elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.tones import TONES, toned

MOST_LINES = 3

Extra = Callable[[int, Diagnostic], Node | None]
"""Returns an element to show beside a diagnostic, given its number and itself."""


def diagnostics_nodes(found: Sequence[Diagnostic], extra: Extra = lambda _number, _found: None) -> list[Node]:
    """Return warnings and errors as a titled list, and infos as a folded one."""
    items = [(one.severity, diagnostic_item(one, extra(number, one))) for number, one in enumerate(found)]
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


def diagnostic_item(found: Diagnostic, extra: Node | None = None, *, short: bool = False) -> Node:
    """Return one diagnostic as a list item; ``short`` leaves out its lines and the upstream issue."""
    facts = (
        ("At ", "" if short else ", ".join(str(line) for line in found.where[:MOST_LINES])),
        ("Upstream torch: ", "" if short else found.upstream),
        ("What to do: ", found.remedy),
    )
    rest = (node("div", f"{label}{text}", class_="rx-quiet") for label, text in facts if text)
    head = toned(found.severity, TONES[found.severity])
    return node("li", head, " ", node("code", found.code), " ", node("span", found.message), extra, *rest)
