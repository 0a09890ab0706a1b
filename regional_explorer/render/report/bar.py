"""Draws the parts of a total as one horizontal bar."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.figures import significant
from regional_explorer.render.style.palette import paint

WIDTH = 200
HEIGHT = 12


def bar(parts: Sequence[tuple[str, float]]) -> Node:
    """Return a bar of ``parts``, each a name and a length, where 1 is the full width."""
    drawn, left = [], 0.0
    for number, (_, length) in enumerate(parts):
        width = length * WIDTH
        if length > 0:
            drawn.append(
                node("path", d=f"M{left:.1f} 0h{width:.1f}v{HEIGHT}H{left:.1f}z", fill=paint(number).light.stroke)
            )
        left += width
    whole = sum(length for _, length in parts)
    label = ", ".join(f"{name} {significant(100 * length / whole)} %" for name, length in parts if length > 0)
    size = {"width": str(WIDTH), "height": str(HEIGHT), "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    return node("span", node("svg", *drawn, class_="rx-chart", role="img", aria_label=label, **size), title=label)
