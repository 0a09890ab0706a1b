"""Which folds of an outline are open: few enough to be taken in, with the regions in sight."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from regional_explorer.render.picture.outline import Fold, FoldKind

BUDGET = 60
"""Folds are opened by themselves up to this many boxes: what a person takes in at first sight."""
FEW_OPS = 40
"""A graph with so few ops is shown op by op."""


class Detail(StrEnum):
    """How much of a graph is open by itself.

    ``MODULES`` opens what wraps most of the graph, and whatever leads to the first of equal regions; ``OPS`` opens
    everything, ``PIECES`` what leads to the pieces of regions, which stay closed, and ``NOTHING`` nothing.
    """

    MODULES = "modules"
    OPS = "ops"
    PIECES = "pieces"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Opening:
    """Which folds are open: those that ``chosen`` says by key, and by themselves those of ``detail``.

    With ``MODULES`` no fold is opened by itself beyond ``budget`` boxes.
    """

    detail: Detail = Detail.MODULES
    budget: int = BUDGET
    chosen: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShownFold:
    """A fold that is one box now, and the open ones around it, from the outside in."""

    fold: Fold
    inside: tuple[Fold, ...] = ()


def shown(folds: Iterable[Fold], opening: Opening) -> list[ShownFold]:
    """Return what is a box now, in the order it runs."""
    folds = tuple(folds)
    ops = sum(len(fold.nodes) for fold in folds)
    waiting: list[tuple[int, int, int, Fold]] = []
    opened: set[str] = set()
    boxes, ticket = len(folds), count()

    def offer(parts: Iterable[Fold], depth: int) -> None:
        for part in parts:
            turn = turn_of(part, opening, ops) if part.parts else None
            if turn is not None:
                heapq.heappush(waiting, (turn, depth, next(ticket), part))

    offer(folds, 0)
    while waiting:
        turn, depth, _, fold = heapq.heappop(waiting)
        if turn < 0 or boxes + len(fold.parts) - 1 <= opening.budget:
            opened.add(fold.key)
            boxes += len(fold.parts) - 1
            offer(fold.parts, depth + 1)
    return list(_leaves(folds, opened, ()))


def turn_of(fold: Fold, opening: Opening, ops: int) -> int | None:
    """Return when a fold is opened: below 0 whatever it costs, None never."""
    chosen = opening.chosen.get(fold.key)
    if chosen is not None:
        return -1 if chosen else None
    if opening.detail is not Detail.MODULES:
        leads = bool(fold.pieces) and not fold.piece
        wanted = {Detail.OPS: True, Detail.PIECES: leads, Detail.NOTHING: False}
        return -1 if wanted[opening.detail] else None
    whole = fold.kind is FoldKind.PIECE and not fold.like
    wraps = fold.kind is not FoldKind.REPEAT and len(fold.nodes) * 2 > ops
    turns = ((wraps, 0), (fold.new and not fold.piece, 1), (whole, 2), (ops <= FEW_OPS, 3))
    return next((turn for holds, turn in turns if holds), None)


def _leaves(folds: Iterable[Fold], opened: set[str], inside: tuple[Fold, ...]) -> Iterator[ShownFold]:
    for fold in folds:
        if fold.key in opened:
            yield from _leaves(fold.parts, opened, (*inside, fold))
        else:
            yield ShownFold(fold, inside)


def all_folds(folds: Iterable[Fold], inside: tuple[Fold, ...] = ()) -> Iterator[ShownFold]:
    """Yield every fold, open or not, before its parts."""
    for fold in folds:
        yield ShownFold(fold, inside)
        yield from all_folds(fold.parts, (*inside, fold))
