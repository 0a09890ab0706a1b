"""Decides which folds of an outline are open: the regions are visible, and the boxes few enough to read."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from regional_explorer.render.picture.outline import Fold, FoldKind

BUDGET = 60
"""Folds are opened automatically up to this many boxes: what a person takes in at first sight."""
FEW_OPS = 40
"""A graph with so few ops is shown op by op."""


class Detail(StrEnum):
    """How much of a graph is opened automatically.

    ``MODULES`` opens the folds that hold most of the graph and those around the first of equal pieces of regions;
    ``OPS`` opens everything; ``PIECES`` opens the folds around pieces of regions, but not these; ``NOTHING`` nothing.
    """

    MODULES = "modules"
    OPS = "ops"
    PIECES = "pieces"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Opening:
    """Which folds are open: as ``chosen`` says for their keys, all others as ``detail`` says.

    With ``MODULES`` no fold is opened automatically beyond ``budget`` boxes.
    """

    detail: Detail = Detail.MODULES
    budget: int = BUDGET
    chosen: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShownFold:
    """A fold that is shown as one box, and the open folds around it, outermost first."""

    fold: Fold
    inside: tuple[Fold, ...] = ()


def shown(folds: Iterable[Fold], opening: Opening) -> list[ShownFold]:
    """Return the folds that are shown as boxes, in the order they run."""
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
    """Return when a fold is opened, lower numbers first: below 0 regardless of the budget, None never."""
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
