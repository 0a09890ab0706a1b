"""Estimates without a font how large a text is, and a box with its title and signs."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from regional_explorer.render.picture.scene import Box, Look

TITLE_PT = 10
SMALL_PT = 8
"""Font sizes in points: of a title, and of a second line or an op that only changes a view."""

PLUS = 12
"""Room for the sign of a box that can be opened, in points."""

_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/ \"-`")
_WIDE = frozenset("mwMWQOGD@%—…")


@lru_cache(maxsize=20_000)
def text_width(text: str, size: float) -> float:
    """Return the approximate width of ``text`` in a sans-serif font; too wide rather than too narrow."""
    return size * sum(_width_em(character) for character in text)


def box_size(box: Box) -> tuple[float, float]:
    """Return width and height of a box in points."""
    title_size = SMALL_PT if box.look is Look.VIEW else TITLE_PT
    signs = f" {' '.join(box.marks)}" if box.marks else ""
    width = text_width(box.title, title_size) + text_width(signs, SMALL_PT)
    width = (
        max(width, text_width(box.detail, SMALL_PT)) + (8 if box.look is Look.VIEW else 12) + (PLUS if box.opens else 0)
    )
    height = 28 if box.detail else 12 if box.look is Look.VIEW else 17
    return max(width, 22), height


def _width_em(character: str) -> float:
    if character in _NARROW:
        return 0.36
    if character in _WIDE or character.isupper():
        return 0.82
    return 1.05 if unicodedata.east_asian_width(character) in "WF" else 0.6
