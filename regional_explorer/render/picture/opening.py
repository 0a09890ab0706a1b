"""Decides which folds of an outline are open: the regions are visible, and the boxes few enough to read."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from regional_explorer.render.picture.outline import Fold, FoldKind

BOX_BUDGET = 60
"""Folds are opened automatically up to this many boxes: what a person takes in at first sight."""
SMALL_GRAPH_OPS = 40
"""A graph with so few ops is shown op by op."""


class Turn(IntEnum):
    """When a fold is opened automatically, lower numbers first; ``folds.js`` does the same in a saved page.

    ``FIXED`` is the hull around the single op of a piece, which cannot be closed; ``AT_ONCE`` is opened regardless of
    the budget, ``NEVER`` by the user only.
    """

    FIXED = -2
    AT_ONCE = -1
    HOLDS_MOST = 0
    NEW = 1
    FIRST_PIECE = 2
    SMALL_GRAPH = 3
    NEVER = 9


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

    With ``MODULES`` no fold is opened automatically beyond ``budget`` boxes, whatever was chosen for others.
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
    automatic = _opened_automatically(folds, opening)
    return list(_shown_folds(folds, automatic, opening.chosen, ()))


def _opened_automatically(folds: Sequence[Fold], opening: Opening) -> set[str]:
    """Return the keys of the folds that are opened where the user chooses nothing."""
    op_count = sum(len(fold.nodes) for fold in folds)
    queue: list[tuple[Turn, int, int, Fold]] = []
    open_keys: set[str] = set()
    box_count, tickets = len(folds), itertools.count()

    def offer(parts: Iterable[Fold], depth: int) -> None:
        for part in parts:
            turn = turn_of(part, opening.detail, op_count) if part.parts else Turn.NEVER
            if turn is not Turn.NEVER:
                heapq.heappush(queue, (turn, depth, next(tickets), part))

    offer(folds, 0)
    while queue:
        turn, depth, _, fold = heapq.heappop(queue)
        if turn is Turn.AT_ONCE or box_count + len(fold.parts) - 1 <= opening.budget:
            open_keys.add(fold.key)
            box_count += len(fold.parts) - 1
            offer(fold.parts, depth + 1)
    return open_keys


def turn_of(fold: Fold, detail: Detail, op_count: int) -> Turn:
    """Return when a fold of a graph with so many ops is opened automatically."""
    if detail is not Detail.MODULES:
        has_pieces = bool(fold.pieces) and not fold.piece
        opened = {Detail.OPS: True, Detail.PIECES: has_pieces, Detail.NOTHING: False}[detail]
        return Turn.AT_ONCE if opened else Turn.NEVER
    first_piece = fold.kind is FoldKind.PIECE and not fold.like
    holds_most = fold.kind is not FoldKind.REPEAT and len(fold.nodes) * 2 > op_count
    turns = (
        (holds_most, Turn.HOLDS_MOST),
        (fold.new and not fold.piece, Turn.NEW),
        (first_piece, Turn.FIRST_PIECE),
        (op_count <= SMALL_GRAPH_OPS, Turn.SMALL_GRAPH),
    )
    return next((turn for applies, turn in turns if applies), Turn.NEVER)


def _shown_folds(
    folds: Iterable[Fold], automatic: set[str], chosen: Mapping[str, bool], around: tuple[Fold, ...]
) -> Iterator[ShownFold]:
    for fold in folds:
        if fold.parts and chosen.get(fold.key, fold.key in automatic):
            yield from _shown_folds(fold.parts, automatic, chosen, (*around, fold))
        else:
            yield ShownFold(fold, around)


def all_folds(folds: Iterable[Fold], around: tuple[Fold, ...] = ()) -> Iterator[ShownFold]:
    """Yield every fold, open or not, before its parts."""
    for fold in folds:
        yield ShownFold(fold, around)
        yield from all_folds(fold.parts, (*around, fold))
