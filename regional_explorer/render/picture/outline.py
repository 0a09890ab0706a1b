"""Builds the outline of a graph, a tree of folds: modules, functions, lines, pieces of regions, repeats."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, sqrt

from regional_explorer.record.graph import Graph, Node
from regional_explorer.render.picture.pieces import RegionPiece
from regional_explorer.render.picture.repeats import Stretch, stretches
from regional_explorer.render.picture.scopes import Chain, Scope, ScopeKind, scopes, shared
from regional_explorer.render.style.untrusted import sendable

FEW_OPS = 12
"""A module or function shows up to this many ops of its own one by one; more are folded by line."""
MOST_PARTS = 200
"""In a fold with more parts, consecutive single ops are folded into runs."""
MOST_NAMED = 3


class FoldKind(StrEnum):
    """What a fold is; a ``RUN`` is consecutive ops with nothing else in common."""

    OP = "op"
    MODULE = "module"
    FUNCTION = "function"
    LINE = "line"
    PIECE = "piece"
    REPEAT = "repeat"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Fold:
    """Ops that are shown as one box while the fold is closed, and as its ``parts`` while it is open.

    ``title`` is the path of the module, the name of the function or the text of the line, ``about`` the module's class
    or where the line is. ``piece`` is the piece of a region that all of it belongs to, ``like`` the first piece that
    equals it, ``pieces`` those inside; ``new`` is True if one of them equals no earlier piece. A repeat comes ``times``
    times. A single op has no parts.
    """

    key: str
    nodes: tuple[str, ...]
    kind: FoldKind = FoldKind.OP
    parts: tuple[Fold, ...] = ()
    title: str = ""
    about: str = ""
    piece: RegionPiece | None = None
    like: RegionPiece | None = None
    pieces: tuple[RegionPiece, ...] = ()
    times: int = 1
    new: bool = False

    @property
    def opens(self) -> bool:
        """Whether the fold can be opened."""
        return len(self.nodes) > 1 and bool(self.parts)


def outline(graph: Graph, pieces: Sequence[RegionPiece], known: Mapping[str, Chain] | None = None) -> tuple[Fold, ...]:
    """Return the folds of ``graph`` in the order they run; keys are unique in it and do not depend on what is open.

    A piece of a region is part of the innermost scope that contains all of it. ``known`` has the scopes of the graph,
    if they were found before.
    """
    chains = dict(known or scopes(graph))
    inside = {piece.id: [name for name in piece.nodes if name in chains] for piece in pieces}
    for piece in pieces:
        _insert(Scope(ScopeKind.PIECE, piece.id), inside[piece.id], chains)
    builder = _Builder(graph.by_name(), chains, {piece.id: piece for piece in pieces if inside[piece.id]})
    return builder.stacked(builder.nest(list(chains), 0, None))


def _insert(piece: Scope, names: Sequence[str], chains: dict[str, Chain]) -> None:
    depth = min((shared(chains[names[0]], chains[name]) for name in names), default=0)
    for name in names:
        chains[name] = (*chains[name][:depth], piece, *chains[name][depth:])


class _Builder:
    """Builds folds from the ``chains`` of scopes."""

    def __init__(
        self, nodes: Mapping[str, Node], chains: Mapping[str, Chain], pieces: Mapping[str, RegionPiece]
    ) -> None:
        self.nodes = nodes
        self.chains = chains
        self.pieces = pieces
        self.first_like: dict[Hashable, RegionPiece] = {}
        self.numbers: dict[Hashable, int] = {}

    def nest(self, names: Sequence[str], depth: int, piece: RegionPiece | None) -> list[Fold]:
        """Return the folds of ops that have the scopes down to ``depth`` in common."""
        groups: dict[Scope | str, list[str]] = {}
        for name in names:
            chain = self.chains[name]
            groups.setdefault(chain[depth] if depth < len(chain) else name, []).append(name)
        found = []
        for scope, inside in groups.items():
            if isinstance(scope, str):
                found.append(self._op(scope, piece))
            elif scope.kind is ScopeKind.PIECE:
                found.append(self._piece(self.pieces[scope.name], inside, depth))
            else:
                found.append(self._fold(scope, inside, depth, piece))
        return found

    def _fold(self, scope: Scope, inside: Sequence[str], depth: int, piece: RegionPiece | None) -> Fold:
        parts = self.nest(inside, depth + 1, piece)
        if len(parts) == 1 and parts[0].kind in {FoldKind.MODULE, FoldKind.PIECE, FoldKind.FUNCTION}:
            # A fold with a single part is replaced by that part; a piece without a name takes that of the fold.
            named = parts[0].title or scope.kind is ScopeKind.LINE
            return parts[0] if named else replace(parts[0], title=scope.name, about=scope.about)
        if len(inside) == 1 and scope.kind is not ScopeKind.MODULE:
            return parts[0]
        if len(parts) == 1 and parts[0].kind is FoldKind.LINE:
            parts = list(parts[0].parts)
        parts = _without_lines(parts)
        return Fold(
            key=_key(scope.name, inside[0]),
            nodes=tuple(inside),
            kind=FoldKind(scope.kind),
            parts=tuple(parts),
            title=scope.name,
            about=scope.about,
            piece=piece,
            pieces=_pieces(parts),
            new=any(part.new for part in parts),
        )

    def _piece(self, piece: RegionPiece, inside: Sequence[str], depth: int) -> Fold:
        parts = _without_lines(self.nest(inside, depth + 1, piece))
        kind = (piece.region, piece.state, piece.note, *(self.nodes[name].target for name in inside))
        first = self.first_like.setdefault(kind, piece)
        if len(inside) == 1:
            return replace(parts[0], new=first is piece)
        single = parts[0] if len(parts) == 1 else None
        return Fold(
            key=_key("piece", piece.id),
            nodes=tuple(inside),
            kind=FoldKind.PIECE,
            parts=single.parts if single else tuple(parts),
            title=single.title if single else "",
            about=single.about if single else "",
            piece=piece,
            like=None if first is piece else first,
            pieces=(piece,),
            new=first is piece,
        )

    def _op(self, name: str, piece: RegionPiece | None) -> Fold:
        return Fold(_key(name), (name,), title=self.nodes[name].op, piece=piece, pieces=(piece,) if piece else ())

    def stacked(self, folds: Sequence[Fold]) -> tuple[Fold, ...]:
        """Return the folds with repeats of a pattern as one fold, and too many single ops as runs, on all levels."""
        inner = [self._with_stacks(fold) for fold in folds]
        found: list[Fold] = []
        here = 0
        for stretch in stretches([self._number(fold) for fold in inner]):
            first = stretch.start - stretch.period
            found += inner[here:first]
            found.append(_repeat(inner[first : stretch.end], stretch))
            here = stretch.end
        found += inner[here:]
        return tuple(_runs(found)) if len(found) > MOST_PARTS else tuple(found)

    def _with_stacks(self, fold: Fold) -> Fold:
        # Nothing is folded inside a piece: a frame is drawn around its ops.
        return replace(fold, parts=self.stacked(fold.parts)) if fold.parts and not fold.piece else fold

    def _number(self, fold: Fold) -> int:
        return self.numbers.setdefault(self._kind(fold), len(self.numbers))

    def _kind(self, fold: Fold) -> Hashable:
        """Return what equal folds have in common."""
        marks = tuple((piece.region, piece.state, piece.note, len(piece.nodes)) for piece in fold.pieces)
        own = (fold.piece.region, fold.piece.state, fold.piece.note) if fold.piece else None
        # Equal modules may have different paths, but equal lines have the same text.
        name = {FoldKind.MODULE: fold.about, FoldKind.LINE: fold.title, FoldKind.FUNCTION: fold.title}.get(fold.kind)
        return own, marks, name, tuple((self.nodes[name].target, _shapes(self.nodes[name])) for name in fold.nodes)


def _without_lines(parts: Sequence[Fold]) -> list[Fold]:
    """Return the parts of a module, function or piece, with lines replaced by their ops if these are few."""
    own = [part for part in parts if part.kind in {FoldKind.OP, FoldKind.LINE}]
    if sum(len(part.nodes) for part in own) > FEW_OPS:
        return list(parts)
    return [inner for part in parts for inner in (part.parts if part.kind is FoldKind.LINE else (part,))]


def _key(*parts: str) -> str:
    """Return a key that can be sent to the page and back unchanged."""
    return sendable(":".join(parts))


def _pieces(parts: Sequence[Fold]) -> tuple[RegionPiece, ...]:
    return tuple({piece.id: piece for part in parts for piece in part.pieces}.values())


def _shapes(node: Node) -> Hashable:
    return tuple(getattr(value, "shape", None) for value in node.values or ())


def _repeat(folds: Sequence[Fold], stretch: Stretch) -> Fold:
    """Return one fold for a pattern and its repeats: its parts are the first occurrence, and a fold of the others."""
    first, others = folds[: stretch.period], folds[stretch.period :]
    rest = _times("rest", others, stretch.period)
    return replace(_times("repeat", folds, stretch.period), parts=(*first, rest))


def _times(word: str, folds: Sequence[Fold], period: int) -> Fold:
    times = len(folds) // period
    spans = [_span(_name(one), _name(folds[n - period])) for n, one in enumerate(folds[:period])]
    named = [span for fold, span in zip(folds, spans, strict=False) if fold.kind is not FoldKind.OP] or spans
    more = ", …" if len(named) > MOST_NAMED else ""
    return Fold(
        key=_key(word, folds[0].key),
        nodes=tuple(name for fold in folds for name in fold.nodes),
        kind=FoldKind.REPEAT,
        parts=tuple(folds),
        title=", ".join(named[:MOST_NAMED]) + more,
        about=folds[0].about if period == 1 else "",
        pieces=_pieces(folds),
        times=times,
        new=any(fold.new for fold in folds),
    )


def _name(fold: Fold) -> str:
    return fold.title or (fold.piece.id if fold.piece else fold.nodes[0])


def _span(first: str, last: str) -> str:
    """Return ``layers.0–5`` for ``layers.0`` and ``layers.5``."""
    one, other = first.split("."), last.split(".")
    differ = [n for n, (left, right) in enumerate(zip(one, other, strict=False)) if left != right]
    if len(one) != len(other) or len(differ) != 1 or not one[differ[0]].isdigit():
        return first
    (at,) = differ
    return ".".join([*one[:at], f"{one[at]}–{other[at]}", *one[at + 1 :]])


def _runs(folds: Sequence[Fold]) -> Iterator[Fold]:
    """Yield the folds, with consecutive single ops in runs of about equal length."""
    length = ceil(sqrt(len(folds)))
    run: list[Fold] = []
    for fold in (*folds, None):
        if run and (fold is None or fold.kind is not FoldKind.OP or len(run) == length):
            nodes = tuple(part.nodes[0] for part in run)
            whole = Fold(_key("run", nodes[0]), nodes, FoldKind.RUN, tuple(run), f"{nodes[0]} … {nodes[-1]}")
            yield from run if len(run) == 1 else (replace(whole, pieces=_pieces(run)),)
            run = []
        if fold is not None and fold.kind is FoldKind.OP:
            run.append(fold)
        elif fold is not None:
            yield fold
