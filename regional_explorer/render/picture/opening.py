"""Decides which folds of an outline are open: the regions are visible, and the boxes few enough to read."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from regional_explorer.render.picture.outline import Fold, FoldKind

BOX_BUDGET = 60
"""Folds are opened automatically up to this many boxes: what a person takes in at first sight."""
SMALL_GRAPH_OPS = 40
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
    budget: int = BOX_BUDGET
    chosen: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShownFold:
    """A fold that is shown as one box, and the open folds around it, outermost first."""

    fold: Fold
    inside: tuple[Fold, ...] = ()


def shown(folds: Iterable[Fold], opening: Opening) -> list[ShownFold]:
    """Return the folds that are shown as boxes, in the order they run."""
    folds = tuple(folds)
    op_count = sum(len(fold.nodes) for fold in folds)
    queue: list[tuple[int, int, int, Fold]] = []
    open_keys: set[str] = set()
    box_count, tickets = len(folds), count()

    def offer(parts: Iterable[Fold], depth: int) -> None:
        for part in parts:
            turn = turn_of(part, opening, op_count) if part.parts else None
            if turn is not None:
                heapq.heappush(queue, (turn, depth, next(tickets), part))

    offer(folds, 0)
    while queue:
        turn, depth, _, fold = heapq.heappop(queue)
        if turn < 0 or box_count + len(fold.parts) - 1 <= opening.budget:
            open_keys.add(fold.key)
            box_count += len(fold.parts) - 1
            offer(fold.parts, depth + 1)
    return list(_shown_folds(folds, open_keys, ()))


def turn_of(fold: Fold, opening: Opening, op_count: int) -> int | None:
    """Return when a fold is opened, lower numbers first: below 0 regardless of the budget, None never."""
    chosen = opening.chosen.get(fold.key)
    if chosen is not None:
        return -1 if chosen else None
    if opening.detail is not Detail.MODULES:
        has_pieces = bool(fold.pieces) and not fold.piece
        opened = {Detail.OPS: True, Detail.PIECES: has_pieces, Detail.NOTHING: False}
        return -1 if opened[opening.detail] else None
    first_piece = fold.kind is FoldKind.PIECE and not fold.like
    wraps_most = fold.kind is not FoldKind.REPEAT and len(fold.nodes) * 2 > op_count
    turns = ((wraps_most, 0), (fold.new and not fold.piece, 1), (first_piece, 2), (op_count <= SMALL_GRAPH_OPS, 3))
    return next((turn for applies, turn in turns if applies), None)


def _shown_folds(folds: Iterable[Fold], open_keys: set[str], around: tuple[Fold, ...]) -> Iterator[ShownFold]:
    for fold in folds:
        if fold.key in open_keys:
            yield from _shown_folds(fold.parts, open_keys, (*around, fold))
        else:
            yield ShownFold(fold, around)


def all_folds(folds: Iterable[Fold], around: tuple[Fold, ...] = ()) -> Iterator[ShownFold]:
    """Yield every fold, open or not, before its parts."""
    for fold in folds:
        yield ShownFold(fold, around)
        yield from all_folds(fold.parts, (*around, fold))
