"""Diagnostics as a list of HTML elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.figures import count
from regional_explorer.render.style.tones import TONES, toned

FEW = 5
"""A list with more diagnostics than this is folded."""
MOST_LINES = 3

Extra = Callable[[int, Diagnostic], Node | None]
"""Returns what else stands beside a diagnostic, by its number."""


def diagnostics_nodes(found: Sequence[Diagnostic], extra: Extra = lambda _number, _found: None) -> list[Node]:
    """Return the diagnostics as a titled list; many are folded."""
    if not found:
        return []
    title = count(len(found), "diagnostic")
    items = [diagnostic_item(one, extra(number, one)) for number, one in enumerate(found)]
    listed = node("ul", *items, class_="rx-list")
    if len(found) > FEW:
        return [node("details", node("summary", title), listed)]
    return [node("h4", title), listed]


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
