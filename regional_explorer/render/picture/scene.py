"""The scene, a picture before layout: boxes, groups of boxes, edges, legend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from regional_explorer.record.partition import State


class Look(StrEnum):
    """How a box is drawn.

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

    INPUT = "▷"
    PARAMETER = "◆"
    READS_SAVED = "▲"
    SAVED = "▼"
    OUTPUT = "●"
    RECOMPUTE = "↻"
    RANDOM = "~"

    @property
    def meaning(self) -> str:
        """The meaning of the sign, for the legend."""
        return _BADGE_MEANINGS[self]


_BADGE_MEANINGS = {
    Badge.INPUT: "reads an input",
    Badge.PARAMETER: "reads a parameter",
    Badge.READS_SAVED: "reads a saved tensor",
    Badge.SAVED: "saved for the backward",
    Badge.OUTPUT: "output",
    Badge.RECOMPUTE: "recomputed",
    Badge.RANDOM: "random",
}


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
class Entry:
    """One line of the legend about a region: its name, config and state; other sets of nodes have no state."""

    region: int
    title: str
    detail: str
    state: State | None

    @property
    def text(self) -> str:
        """The whole line."""
        return " · ".join(filter(None, (self.title, self.detail, self.state)))


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole picture; boxes, groups and sections have ids that are unique in it."""

    title: str
    sections: tuple[Section, ...]
    entries: tuple[Entry, ...] = ()
    marks: tuple[Badge, ...] = ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The boxes of all sections."""
        return tuple(box for section in self.sections for box in section.boxes)
