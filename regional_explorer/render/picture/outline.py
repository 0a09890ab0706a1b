"""The ops of a graph as a tree of folds: modules, lines, pieces of regions, repeats."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby

from regional_explorer.record.graph import Graph, Node
from regional_explorer.render.picture.fold import Bundle, drawn, places_of
from regional_explorer.render.picture.pieces import RegionPiece
from regional_explorer.render.picture.stack import stretches
from regional_explorer.render.style.untrusted import sendable

BUDGET = 120
"""Boxes up to which folds are opened without being asked for: what a person takes in at first sight."""
REPEATED = 2
"""The turn of what repeats something shown before."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Some ops that are one box while it is closed, and its ``parts`` while it is open; a single op has no parts.

    ``piece`` is the piece of a region that all of it belongs to, ``whole`` tells that it is all of that piece, and
    ``like`` names the first piece that equals it. A fold that repeats the pattern before it does so ``times`` times.
    """

    key: str
    nodes: tuple[str, ...]
    parts: tuple[Fold, ...] = ()
    place: str = ""
    piece: RegionPiece | None = None
    whole: bool = False
    like: RegionPiece | None = None
    times: int = 1

    @property
    def turn(self) -> int:
        """How late it is opened by itself: pieces first, as they are what one came for, repeats last."""
        if self.like or self.times > 1:
            return REPEATED
        return 0 if self.whole else 1

    @property
    def bundle(self) -> Bundle:
        """The closed fold, as one box."""
        if self.times > 1:
            return Bundle(self.nodes, times=self.times, stacked=tuple(_pieces(self.parts)), place="stack")
        whole = self.whole and bool(self.parts)
        return Bundle(self.nodes, self.piece, whole=whole, place=self.place, like=self.like if whole else None)


def _pieces(parts: Iterable[Fold]) -> Iterator[RegionPiece]:
    for part in parts:
        if part.whole and part.piece:
            yield part.piece
        else:
            yield from _pieces(part.parts)


@dataclass(frozen=True, slots=True)
class Opening:
    """Which folds are open: those that ``chosen`` says, and as many others as keep within ``budget`` boxes.

    What repeats something shown before is opened by itself only where that leaves nothing closed. With ``overview``
    every piece is one box: repeats are opened, and nothing else by itself.
    """

    budget: int = BUDGET
    chosen: Mapping[str, bool] = field(default_factory=dict)
    overview: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A fold that is one box now, and the open ones around it, from the outside in."""

    fold: Fold
    inside: tuple[Fold, ...] = ()


def outline(graph: Graph, parts: Sequence[RegionPiece]) -> tuple[Fold, ...]:
    """Return the folds of ``graph`` in the order they run; keys are unique in it and do not depend on what is open."""
    nodes = graph.by_name()
    order = [node.name for node in graph.nodes if drawn(node)]
    places = {name: places_of(nodes[name]) for name in order}
    owner = {name: piece for piece in parts for name in piece.nodes if name in places}
    mixed: dict[str, list[Fold]] = {}
    found: list[Fold] = []
    for piece, stretch in groupby(order, key=owner.get):
        folds = _nest(list(stretch), places, 0, piece)
        if piece is None:
            found += folds
        else:
            mixed.setdefault(piece.id, []).extend(folds)
    seen: dict[Hashable, RegionPiece] = {}
    for piece in parts:
        if piece.id in mixed:
            found.append(_whole(piece, mixed[piece.id], seen, nodes))
    position = {name: number for number, name in enumerate(order)}
    found.sort(key=lambda fold: position[fold.nodes[0]])
    return tuple(_stacked(found, nodes))


def _nest(
    names: Sequence[str], places: Mapping[str, tuple[str, ...]], depth: int, piece: RegionPiece | None
) -> list[Fold]:
    """Return the folds of ops that follow each other, told apart by their places from ``depth`` on."""
    found: list[Fold] = []
    for here, stretch in groupby(names, key=lambda name: places[name][depth : depth + 1]):
        inside = tuple(stretch)
        if not here or len(inside) == 1:
            found += [Fold(_key(name), (name,), piece=piece) for name in inside]
            continue
        parts = _nest(inside, places, depth + 1, piece)
        # A module with a single module in it is told by the inner one.
        found += parts if len(parts) == 1 else [Fold(_key(here[0], inside[0]), inside, tuple(parts), here[0], piece)]
    return found


def _key(*parts: str) -> str:
    """Return a key that survives the way to the page and back."""
    return sendable(":".join(parts))


def _whole(
    piece: RegionPiece, parts: Sequence[Fold], seen: dict[Hashable, RegionPiece], nodes: Mapping[str, Node]
) -> Fold:
    inside = tuple(name for part in parts for name in part.nodes)
    kind = (piece.region, piece.state, piece.note, *(nodes[name].target for name in inside))
    first = seen.setdefault(kind, piece)
    single = len(parts) == 1 and parts[0].parts
    return Fold(
        key=_key("piece", piece.id),
        nodes=inside,
        parts=parts[0].parts if single else tuple(parts),
        place=parts[0].place if single else "",
        piece=piece,
        whole=True,
        like=None if first is piece else first,
    )


def _stacked(folds: Sequence[Fold], nodes: Mapping[str, Node]) -> Iterator[Fold]:
    """Yield the folds, where those that repeat a pattern shown just before are one; inside of folds too."""
    inner = [_with_stacks(fold, nodes) for fold in folds]
    numbers: dict[Hashable, int] = {}
    here = 0
    for stretch in stretches([numbers.setdefault(_kind(fold, nodes), len(numbers)) for fold in inner]):
        yield from inner[here : stretch.start]
        parts = tuple(inner[stretch.start : stretch.end])
        names = tuple(name for part in parts for name in part.nodes)
        yield Fold(_key("repeat", parts[0].key), names, parts, piece=None, times=stretch.times)
        here = stretch.end
    yield from inner[here:]


def _with_stacks(fold: Fold, nodes: Mapping[str, Node]) -> Fold:
    # Inside a piece ops stay where they are: its frame is drawn around them.
    if not fold.parts or fold.piece:
        return fold
    parts = tuple(_stacked(fold.parts, nodes))
    return Fold(fold.key, fold.nodes, parts, fold.place) if parts != fold.parts else fold


def _kind(fold: Fold, nodes: Mapping[str, Node]) -> Hashable:
    piece = (fold.piece.region, fold.piece.state, fold.piece.note) if fold.piece else None
    return piece, tuple(nodes[name].target for name in fold.nodes)


def shown(folds: Iterable[Fold], opening: Opening) -> list[Shown]:
    """Return what is a box now, in the order it runs."""
    folds = tuple(folds)
    waiting: list[tuple[int, int, int, Fold]] = []
    opened: set[str] = set()
    total, ticket = len(folds), count()
    roomy = sum(len(fold.nodes) for fold in folds) <= opening.budget

    def offer(parts: Iterable[Fold], depth: int) -> None:
        for part in parts:
            if part.parts and opening.chosen.get(part.key, True):
                late = -1 if part.key in opening.chosen else part.turn
                heapq.heappush(waiting, (late, depth, next(ticket), part))

    offer(folds, 0)
    while waiting:
        late, depth, _, fold = heapq.heappop(waiting)
        fits = total + len(fold.parts) - 1 <= opening.budget and (roomy or late < REPEATED)
        if opening.overview:
            fits = fold.times > 1
        if late < 0 or fits:
            opened.add(fold.key)
            total += len(fold.parts) - 1
            offer(fold.parts, depth + 1)
    return list(_leaves(folds, opened, ()))


def _leaves(folds: Iterable[Fold], opened: set[str], inside: tuple[Fold, ...]) -> Iterator[Shown]:
    for fold in folds:
        if fold.key in opened:
            yield from _leaves(fold.parts, opened, (*inside, fold))
        else:
            yield Shown(fold, inside)
