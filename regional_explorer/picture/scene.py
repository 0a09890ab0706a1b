"""Boxes, groups, edges and legend of a picture before its layout."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Self

from regional_explorer.record.partition import State
from regional_explorer.style.formats import word


class Look(StrEnum):
    """The look of a box.

    An op, an op that only changes a view, a module or function, other ops in one box, a repeated pattern, a piece of a
    region, an input, or a malformed node.
    """

    OP = "op"
    VIEW = "view"
    MODULE = "module"
    RUN = "run"
    STACK = "stack"
    PIECE = "piece"
    INPUT = "input"
    BAD = "bad"


class Badge(StrEnum):
    """A small sign on a box, which replaces an input or output node with long edges."""

    meaning: str

    def __new__(cls, sign: str, meaning: str) -> Self:
        """Return the sign with its ``meaning``, for the legend."""
        member = str.__new__(cls, sign)
        member._value_, member.meaning = sign, meaning
        return member

    INPUT = "▷", "reads an input"
    PARAMETER = "◆", "reads a parameter"
    READS_SAVED = "▲", "reads a saved tensor"
    SAVED = "▼", "saved for the backward"
    OUTPUT = "●", "output"
    RECOMPUTE = "↻", "recomputed"
    RANDOM = "~", "random"


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a picture: ``title`` in its first line, ``detail`` in a second one.

    ``region`` is the index in the plan, None for unmarked ops. ``nodes`` are the nodes in the box, in order; ``shares``
    has pairs of a region and the number of its nodes, if not all belong to one. ``opens`` is True if it can be opened.
    """

    id: str
    look: Look
    title: str
    nodes: tuple[str, ...]
    detail: str = ""
    marks: tuple[Badge, ...] = ()
    tooltip: str = ""
    region: int | None = None
    failed: bool = False
    shares: tuple[tuple[int, int], ...] = ()
    opens: bool = False


@dataclass(frozen=True, slots=True)
class BoxGroup:
    """The boxes of one partition, drawn with a frame and a label."""

    id: str
    title: str
    region: int
    boxes: tuple[str, ...]
    tooltip: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One graph of the session."""

    id: str
    title: str
    boxes: tuple[Box, ...]
    groups: tuple[BoxGroup, ...]
    edges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A line of the legend about a region: its name, config and state; other sets of nodes have no state."""

    region: int
    title: str
    detail: str
    state: State | None

    @property
    def text(self) -> str:
        """The whole line."""
        return " · ".join(filter(None, (self.title, self.detail, word(self.state or ""))))


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole picture; boxes, groups and sections have ids that are unique in it."""

    title: str
    sections: tuple[Section, ...]
    entries: tuple[LegendEntry, ...] = ()
    marks: tuple[Badge, ...] = ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes of all sections."""
        return tuple(box for section in self.sections for box in section.boxes)


TITLE_PT = 10
SMALL_PT = 8
"""The font sizes in points of a title, and of a second line or an op that only changes a view."""

PLUS = 12
"""The room for the sign of a box that can be opened, in points."""

_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/ \"-`")
_WIDE = frozenset("mwMWQOGD@%—…")


@lru_cache(maxsize=20_000)
def text_width(text: str, size: float) -> float:
    """Return the approximate width of ``text`` in a sans-serif font; too wide rather than too narrow."""
    return size * sum(_width_em(character) for character in text)


def box_size(box: Box) -> tuple[float, float]:
    """Return width and height of a box in points."""
    is_view = box.look is Look.VIEW
    signs = f" {' '.join(box.marks)}" if box.marks else ""
    first_line = text_width(box.title, SMALL_PT if is_view else TITLE_PT) + text_width(signs, SMALL_PT)
    width = max(first_line, text_width(box.detail, SMALL_PT)) + (8 if is_view else 12) + (PLUS if box.opens else 0)
    height = 28 if box.detail else 12 if is_view else 17
    return max(width, 22), height


def _width_em(character: str) -> float:
    if character in _NARROW:
        return 0.36
    if character in _WIDE or character.isupper():
        return 0.82
    return 1.05 if unicodedata.east_asian_width(character) in "WF" else 0.6
