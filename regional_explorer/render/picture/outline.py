"""Builds the outline of a graph, a tree of folds: modules, functions, lines, pieces of regions, repeats."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, sqrt

from regional_explorer.errors.texts import sendable
from regional_explorer.record.graph import Graph, Node
from regional_explorer.render.picture.pieces import RegionPiece
from regional_explorer.render.picture.repeats import Stretch, stretches
from regional_explorer.render.picture.scopes import Chain, Scope, ScopeKind, scopes, shared

MOST_OWN_OPS = 12
"""A module or function shows up to this many ops of its own one by one; more are folded by line."""
MOST_PARTS = 200
"""In a fold with more parts, consecutive single ops are folded into runs."""
MOST_SPANS = 3


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
    piece_nodes = {piece.id: [name for name in piece.nodes if name in chains] for piece in pieces}
    for piece in pieces:
        _insert_piece(Scope(ScopeKind.PIECE, piece.id), piece_nodes[piece.id], chains)
    builder = _FoldBuilder(graph.by_name(), chains, {piece.id: piece for piece in pieces if piece_nodes[piece.id]})
    return builder.stacked(builder.nest(list(chains), 0, None))


def _insert_piece(piece: Scope, names: Sequence[str], chains: dict[str, Chain]) -> None:
    depth = min((shared(chains[names[0]], chains[name]) for name in names), default=0)
    for name in names:
        chains[name] = (*chains[name][:depth], piece, *chains[name][depth:])


class _FoldBuilder:
    """Builds folds from the ``chains`` of scopes."""

    def __init__(
        self, nodes: Mapping[str, Node], chains: Mapping[str, Chain], pieces: Mapping[str, RegionPiece]
    ) -> None:
        self.nodes = nodes
        self.chains = chains
        self.pieces = pieces
        self.first_like: dict[Hashable, RegionPiece] = {}
        self.likeness_numbers: dict[Hashable, int] = {}

    def nest(self, names: Sequence[str], depth: int, piece: RegionPiece | None) -> list[Fold]:
        """Return the folds of ops that have the scopes down to ``depth`` in common."""
        groups: dict[Scope | str, list[str]] = {}
        for name in names:
            chain = self.chains[name]
            groups.setdefault(chain[depth] if depth < len(chain) else name, []).append(name)
        folds = []
        for scope, members in groups.items():
            if isinstance(scope, str):
                folds.append(self._op_fold(scope, piece))
            elif scope.kind is ScopeKind.PIECE:
                folds.append(self._piece_fold(self.pieces[scope.name], members, depth))
            else:
                folds.append(self._scope_fold(scope, members, depth, piece))
        return folds

    def _scope_fold(self, scope: Scope, members: Sequence[str], depth: int, piece: RegionPiece | None) -> Fold:
        parts = self.nest(members, depth + 1, piece)
        if len(parts) == 1 and parts[0].kind in {FoldKind.MODULE, FoldKind.PIECE, FoldKind.FUNCTION}:
            # A fold with a single part is replaced by that part; a piece without a name takes that of the fold.
            has_title = parts[0].title or scope.kind is ScopeKind.LINE
            return parts[0] if has_title else replace(parts[0], title=scope.name, about=scope.about)
        if len(members) == 1 and scope.kind is not ScopeKind.MODULE:
            return parts[0]
        if len(parts) == 1 and parts[0].kind is FoldKind.LINE:
            parts = list(parts[0].parts)
        parts = _without_lines(parts)
        return Fold(
            key=_fold_key(scope.name, members[0]),
            nodes=tuple(members),
            kind=FoldKind(scope.kind),
            parts=tuple(parts),
            title=scope.name,
            about=scope.about,
            piece=piece,
            pieces=_pieces_inside(parts),
            new=any(part.new for part in parts),
        )

    def _piece_fold(self, piece: RegionPiece, members: Sequence[str], depth: int) -> Fold:
        parts = _without_lines(self.nest(members, depth + 1, piece))
        likeness = (piece.region, piece.state, piece.note, *(self.nodes[name].target for name in members))
        first = self.first_like.setdefault(likeness, piece)
        if len(members) == 1:
            return replace(parts[0], new=first is piece)
        single = parts[0] if len(parts) == 1 else None
        return Fold(
            key=_fold_key("piece", piece.id),
            nodes=tuple(members),
            kind=FoldKind.PIECE,
            parts=single.parts if single else tuple(parts),
            title=single.title if single else "",
            about=single.about if single else "",
            piece=piece,
            like=None if first is piece else first,
            pieces=(piece,),
            new=first is piece,
        )

    def _op_fold(self, name: str, piece: RegionPiece | None) -> Fold:
        return Fold(_fold_key(name), (name,), title=self.nodes[name].op, piece=piece, pieces=(piece,) if piece else ())

    def stacked(self, folds: Sequence[Fold]) -> tuple[Fold, ...]:
        """Return the folds with repeats of a pattern as one fold, and too many single ops as runs, on all levels."""
        inner = [self._with_stacks(fold) for fold in folds]
        stacked: list[Fold] = []
        position = 0
        for stretch in stretches([self._likeness_number(fold) for fold in inner]):
            start = stretch.start - stretch.period
            stacked += inner[position:start]
            stacked.append(_repeat_fold(inner[start : stretch.end], stretch))
            position = stretch.end
        stacked += inner[position:]
        return tuple(_with_op_runs(stacked)) if len(stacked) > MOST_PARTS else tuple(stacked)

    def _with_stacks(self, fold: Fold) -> Fold:
        # Nothing is folded inside a piece: a frame is drawn around its ops.
        return replace(fold, parts=self.stacked(fold.parts)) if fold.parts and not fold.piece else fold

    def _likeness_number(self, fold: Fold) -> int:
        return self.likeness_numbers.setdefault(self._likeness(fold), len(self.likeness_numbers))

    def _likeness(self, fold: Fold) -> Hashable:
        """Return what equal folds have in common."""
        pieces = tuple((piece.region, piece.state, piece.note, len(piece.nodes)) for piece in fold.pieces)
        piece = (fold.piece.region, fold.piece.state, fold.piece.note) if fold.piece else None
        # Equal modules may have different paths, but equal lines have the same text.
        name = {FoldKind.MODULE: fold.about, FoldKind.LINE: fold.title, FoldKind.FUNCTION: fold.title}.get(fold.kind)
        return piece, pieces, name, tuple((self.nodes[op].target, _node_shapes(self.nodes[op])) for op in fold.nodes)


def _without_lines(parts: Sequence[Fold]) -> list[Fold]:
    """Return the parts of a module, function or piece, with lines replaced by their ops if these are few."""
    op_parts = [part for part in parts if part.kind in {FoldKind.OP, FoldKind.LINE}]
    if sum(len(part.nodes) for part in op_parts) > MOST_OWN_OPS:
        return list(parts)
    return [inner for part in parts for inner in (part.parts if part.kind is FoldKind.LINE else (part,))]


def _fold_key(*words: str) -> str:
    """Return a key that can be sent to the page and back unchanged."""
    return sendable(":".join(words))


def _pieces_inside(parts: Sequence[Fold]) -> tuple[RegionPiece, ...]:
    return tuple({piece.id: piece for part in parts for piece in part.pieces}.values())


def _node_shapes(node: Node) -> Hashable:
    return tuple(getattr(value, "shape", None) for value in node.values or ())


def _repeat_fold(folds: Sequence[Fold], stretch: Stretch) -> Fold:
    """Return one fold for a pattern and its repeats: its parts are the first occurrence, and a fold of the others."""
    first, later = folds[: stretch.period], folds[stretch.period :]
    rest = _pattern_fold("rest", later, stretch.period)
    return replace(_pattern_fold("repeat", folds, stretch.period), parts=(*first, rest))


def _pattern_fold(word: str, folds: Sequence[Fold], period: int) -> Fold:
    times = len(folds) // period
    spans = [_title_span(_fold_title(fold), _fold_title(folds[n - period])) for n, fold in enumerate(folds[:period])]
    titled = [span for fold, span in zip(folds, spans, strict=False) if fold.kind is not FoldKind.OP] or spans
    ellipsis = ", …" if len(titled) > MOST_SPANS else ""
    return Fold(
        key=_fold_key(word, folds[0].key),
        nodes=tuple(name for fold in folds for name in fold.nodes),
        kind=FoldKind.REPEAT,
        parts=tuple(folds),
        title=", ".join(titled[:MOST_SPANS]) + ellipsis,
        about=folds[0].about if period == 1 else "",
        pieces=_pieces_inside(folds),
        times=times,
        new=any(fold.new for fold in folds),
    )


def _fold_title(fold: Fold) -> str:
    return fold.title or (fold.piece.id if fold.piece else fold.nodes[0])


def _title_span(first: str, last: str) -> str:
    """Return ``layers.0–5`` for ``layers.0`` and ``layers.5``."""
    first_words, last_words = first.split("."), last.split(".")
    differing = [n for n, (left, right) in enumerate(zip(first_words, last_words, strict=False)) if left != right]
    if len(first_words) != len(last_words) or len(differing) != 1 or not first_words[differing[0]].isdigit():
        return first
    (at,) = differing
    return ".".join([*first_words[:at], f"{first_words[at]}–{last_words[at]}", *first_words[at + 1 :]])


def _with_op_runs(folds: Sequence[Fold]) -> Iterator[Fold]:
    """Yield the folds, with consecutive single ops in runs of about equal length."""
    length = ceil(sqrt(len(folds)))
    run: list[Fold] = []
    for fold in (*folds, None):
        if run and (fold is None or fold.kind is not FoldKind.OP or len(run) == length):
            nodes = tuple(part.nodes[0] for part in run)
            run_fold = Fold(_fold_key("run", nodes[0]), nodes, FoldKind.RUN, tuple(run), f"{nodes[0]} … {nodes[-1]}")
            yield from run if len(run) == 1 else (replace(run_fold, pieces=_pieces_inside(run)),)
            run = []
        if fold is not None and fold.kind is FoldKind.OP:
            run.append(fold)
        elif fold is not None:
            yield fold
