"""The outline of a graph: a tree of folds (modules, functions, lines, pieces of regions, repeats)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count, groupby, islice, pairwise, takewhile
from math import ceil, sqrt

from regional_explorer.errors import sendable
from regional_explorer.record.graph import Graph, Node, SourceLine
from regional_explorer.record.grouping import connected_components, grouped
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session


def producers(graph: Graph) -> dict[str, str]:
    """Return the nodes that pick a result out of an op, each with the op that it is drawn in.

    In Dynamo's graphs a ``getitem`` may also index a tensor: it is an op like others.
    """
    ops: dict[str, Node] = {}
    found: dict[str, str] = {}
    for node in graph.ops:
        producer = ops.get(node.inputs[0]) if node.op == "getitem" and node.inputs else None
        if producer is not None and not _is_index(node, producer):
            found[node.name] = found.get(producer.name, producer.name)
        ops[node.name] = node
    return found


def _is_index(node: Node, source: Node) -> bool:
    """Return whether a ``getitem`` indexes a tensor, rather than a tuple of one tensor."""
    is_single = len(node.values or ()) == len(source.values or ()) == 1
    return is_single and (len(node.inputs) > 1 or node.values != source.values)


def sources(graph: Graph, producer_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the inputs of each node, with the op in place of a node that picks one of its results."""
    return {node.name: tuple(producer_of.get(name, name) for name in node.inputs) for node in graph.nodes}


MOST_LEVELS = 100
"""Modules or functions nested deeper are left out: nobody opens that many folds, and folds are built recursively."""


class FoldKind(StrEnum):
    """The kind of a fold; a ``RUN`` is consecutive ops with nothing else in common."""

    OP = "op"
    MODULE = "module"
    FUNCTION = "function"
    LINE = "line"
    PIECE = "piece"
    REPEAT = "repeat"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope that contains ops: one call of a module or function, a line, or a piece of a region.

    ``name`` is the path of the module, the name of the function, the text of the line, or the id of the piece.
    ``about`` is the module's class, the line that calls the function, or the place of the line. ``run`` counts how
    often the program has come back to the function or line, as in a loop.
    """

    kind: FoldKind
    name: str
    about: str = ""
    run: int = 0


Chain = tuple[Scope, ...]
"""The scopes of an op, outermost first."""


def scopes(graph: Graph) -> dict[str, Chain]:
    """Return the scopes of each op that has its own box, in the order they run.

    A sum of gradients, which AOTAutograd adds without a module, gets the scopes that all its inputs share.
    """
    producer_of = producers(graph)
    node_sources = sources(graph, producer_of)
    ops = [node for node in graph.ops if node.name not in producer_of]
    wrapper_depth = _wrapper_depth([node.stack for node in ops if node.stack])
    chains: dict[str, Chain] = {}
    for node in ops:
        first, *rest = [chains.get(name, ()) for name in node_sources[node.name]] or [()]
        common = first[: min((shared_scopes(first, other) for other in rest), default=len(first))]
        is_sum = node.origin is None and not node.modules
        chains[node.name] = (is_sum and common) or tuple(_node_chain(node, wrapper_depth))
    return _with_runs(chains)


def _wrapper_depth(stacks: Sequence[Sequence[SourceLine]]) -> int:
    """Return how many of the outermost lines are the same in all stacks: wrappers around the whole program."""
    least = min((len(stack) - 1 for stack in stacks), default=0)
    return next((depth for depth in range(least) if len({(s[depth].file, s[depth].line) for s in stacks}) > 1), least)


def _node_chain(node: Node, wrapper_depth: int) -> Iterator[Scope]:
    modules = [call for call in node.modules if call.path][:MOST_LEVELS]
    for call in modules:
        call_number = f" (call {call.call + 1})" if call.call else ""
        yield Scope(FoldKind.MODULE, call.path + call_number, call.class_name)
    if not modules:
        yield from islice(_function_scopes(node.stack[wrapper_depth:]), MOST_LEVELS)
    if (line := node.source) is not None:
        yield Scope(FoldKind.LINE, line.text.strip() or line.numbered, line.numbered)


def _function_scopes(stack: Sequence[SourceLine]) -> Iterator[Scope]:
    """Yield the functions that were called on the way to an op, without the captured function."""
    for caller, line in pairwise(stack):
        # A comprehension has a frame of its own, on the line that contains it.
        if (caller.file, caller.line) != (line.file, line.line):
            yield Scope(FoldKind.FUNCTION, line.scope or line.function, str(caller))


def shared_scopes(chain: Chain, other: Chain) -> int:
    """Return how many outermost scopes two chains share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chain, other, strict=False)))


def _with_runs(chains: Mapping[str, Chain]) -> dict[str, Chain]:
    """Return the chains with ``run`` set for functions and lines; a module call is one scope wherever its ops are."""
    numbered: dict[str, Chain] = {}
    last_chain: Chain = ()
    current: Chain = ()
    runs: Counter[Scope] = Counter()
    for name, chain in chains.items():
        depth = shared_scopes(last_chain, chain)
        current = current[:depth]
        for scope in chain[depth:]:
            runs[scope] += scope.kind is not FoldKind.MODULE
            current = (*current, replace(scope, run=runs[scope]))
        last_chain, numbered[name] = chain, current
    return numbered


LONGEST_PERIOD = 16
"""The maximum number of boxes in a repeated pattern."""
FEWEST_REPEATS = 3
"""The minimum number of repeats of a pattern, after the first occurrence, that are folded into one box."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of ``times`` equal patterns, of ``period`` items each, from ``start`` on."""

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The index after the last item."""
        return self.start + self.period * self.times


def stretches(keys: Sequence[Hashable]) -> list[Stretch]:
    """Return the stretches of ``keys`` in which a pattern repeats, in order."""
    repeats = []
    position = 0
    while position < len(keys):
        best = max((_stretch_from(keys, position, period) for period in range(1, LONGEST_PERIOD + 1)), key=_preference)
        if best.times > FEWEST_REPEATS:
            repeats.append(best)
            position = best.end
        else:
            position += 1
    return repeats


def _stretch_from(keys: Sequence[Hashable], start: int, period: int) -> Stretch:
    times = 1
    while keys[start : start + period] == keys[start + times * period : start + (times + 1) * period]:
        times += 1
    return Stretch(start, period, times)


def _preference(stretch: Stretch) -> tuple[bool, int, int]:
    # If two patterns cover the same items, the shorter is preferred.
    return stretch.times > FEWEST_REPEATS, stretch.end - stretch.start, -stretch.period


@dataclass(frozen=True, slots=True)
class RegionPiece:
    """Connected ops of one region in one graph. ``state`` is None if nothing was cut yet.

    ``instance`` is None for ops that are in no partition.
    """

    id: str
    region: int
    instance: int | None
    nodes: tuple[str, ...]
    state: State | None = None
    note: str = ""
    error: str = ""


def pieces(session: Session, graph: Graph) -> tuple[RegionPiece, ...]:
    """Return the pieces of ``graph`` in the order they run: its partitions, and marked ops outside of partitions."""
    numbers = session.plan.numbers
    ops = {op.name: op for op in graph.ops}
    assigned: set[str] = set()
    result: list[RegionPiece] = []
    for cut in session.partitions:
        nodes = tuple(name for name in cut.nodes if name in ops and name not in assigned)
        if cut.graph != graph.id or cut.region not in numbers or not nodes:
            continue
        assigned.update(nodes)
        result.append(RegionPiece(cut.id, numbers[cut.region], cut.instance, nodes, cut.state, error=cut.error or ""))
    cut_regions = {piece.region for piece in result}
    for name, number in numbers.items():
        marked = session.members.get(name, {}).get(graph.id, ())
        uncut = dict.fromkeys(op for op in marked if op in ops and op not in assigned)
        if not uncut:
            continue
        assigned.update(uncut)
        state, note = (State.EAGER, "left out of the partition") if number in cut_regions else (None, "")
        if not session.plan.regions[number].enabled:
            state, note = State.EAGER, "disabled"
        links = [(op, source) for op in uncut for source in ops[op].inputs]
        for rest, component in enumerate(connected_components(list(uncut), links)):
            result.append(RegionPiece(f"{name}/{graph.id}/rest/{rest}", number, None, tuple(component), state, note))
    positions = {node.name: position for position, node in enumerate(graph.nodes)}
    return tuple(sorted(result, key=lambda piece: min(positions[name] for name in piece.nodes)))


MOST_OWN_OPS = 12
"""The maximum number of own ops that a module or function shows one by one; more ops are folded by line."""
MOST_PARTS = 200
"""The maximum number of parts of a fold; with more, consecutive single ops are folded into runs."""
MOST_SPANS = 3


@dataclass(frozen=True, slots=True)
class Fold:
    """Ops that are shown as one box while the fold is closed, and as its ``parts`` while it is open.

    ``title`` is the path of the module, the name of the function or the text of the line, ``about`` the module's class
    or the place of the line. ``piece`` is the piece of a region that all of the fold belongs to, ``like`` the first
    piece that equals it. ``pieces`` are the pieces inside; ``new`` says whether one of these equals no earlier piece.
    A repeat stands for ``times`` occurrences. A single op has no parts.
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


def without_states(pieces: Iterable[RegionPiece]) -> list[tuple[RegionPiece, int]]:
    """Return what an outline depends on: the pieces, and which are alike, but not in what state they are."""
    alike: dict[Hashable, int] = {}
    return [
        (replace(piece, state=None, error=""), alike.setdefault((piece.region, piece.state, piece.note), len(alike)))
        for piece in pieces
    ]


def outline(graph: Graph, pieces: Sequence[RegionPiece], chains: Mapping[str, Chain] | None = None) -> tuple[Fold, ...]:
    """Return the folds of ``graph`` in the order they run; keys are unique in it and do not depend on what is open.

    A piece of a region is part of the innermost scope that contains all of it. ``chains`` are the scopes of the
    graph, if they are known already.
    """
    chains = dict(chains or scopes(graph))
    for piece in pieces:
        names = [name for name in piece.nodes if name in chains]
        depth = min((shared_scopes(chains[names[0]], chains[name]) for name in names), default=0)
        for name in names:
            chains[name] = (*chains[name][:depth], Scope(FoldKind.PIECE, piece.id), *chains[name][depth:])
    builder = _FoldBuilder(graph.by_name, chains, {piece.id: piece for piece in pieces})
    return builder.stacked(builder.nest(list(chains), 0, None))


class _FoldBuilder:
    """Builds folds from the ``chains`` of scopes."""

    def __init__(
        self, nodes: Mapping[str, Node], chains: Mapping[str, Chain], pieces: Mapping[str, RegionPiece]
    ) -> None:
        self.nodes = nodes
        self.chains = chains
        self.pieces = pieces
        self.first_like: dict[Hashable, RegionPiece] = {}
        self.likeness_numbers: defaultdict[Hashable, int] = defaultdict(count().__next__)

    def nest(self, names: Sequence[str], depth: int, piece: RegionPiece | None) -> list[Fold]:
        """Return the folds of ops that share their scopes down to ``depth``."""
        chains = ((name, self.chains[name]) for name in names)
        groups = grouped((chain[depth] if depth < len(chain) else name, name) for name, chain in chains)
        folds = []
        for scope, members in groups.items():
            if isinstance(scope, str):
                folds.append(self._op_fold(scope, piece))
            elif scope.kind is FoldKind.PIECE:
                folds.append(self._piece_fold(self.pieces[scope.name], members, depth))
            else:
                folds.append(self._scope_fold(scope, members, depth, piece))
        return folds

    def _scope_fold(self, scope: Scope, members: Sequence[str], depth: int, piece: RegionPiece | None) -> Fold:
        parts = self.nest(members, depth + 1, piece)
        if len(parts) == 1 and parts[0].kind in {FoldKind.MODULE, FoldKind.PIECE, FoldKind.FUNCTION}:
            # A single part replaces its fold; a piece without a name takes the fold's name.
            has_title = parts[0].title or scope.kind is FoldKind.LINE
            return parts[0] if has_title else replace(parts[0], title=scope.name, about=scope.about)
        if len(members) == 1 and scope.kind is not FoldKind.MODULE:
            return parts[0]
        if len(parts) == 1 and parts[0].kind is FoldKind.LINE:
            parts = list(parts[0].parts)
        parts = _without_lines(parts)
        return Fold(
            key=_fold_key(scope.name, members[0]),
            nodes=tuple(members),
            kind=scope.kind,
            parts=tuple(parts),
            title=scope.name,
            about=scope.about,
            piece=piece,
            pieces=_pieces_inside(parts),
            new=any(part.new for part in parts),
        )

    def _piece_fold(self, piece: RegionPiece, members: Sequence[str], depth: int) -> Fold:
        parts = _without_lines(self.nest(members, depth + 1, piece))
        likeness = (piece.region, piece.state, piece.note, *self._calls(members))
        first = self.first_like.setdefault(likeness, piece)
        if len(members) == 1:
            return replace(parts[0], new=first is piece)
        content = parts[0] if len(parts) == 1 else Fold("", (), parts=tuple(parts))
        return replace(
            content,
            key=_fold_key("piece", piece.id),
            nodes=tuple(members),
            kind=FoldKind.PIECE,
            piece=piece,
            like=None if first is piece else first,
            pieces=(piece,),
            new=first is piece,
        )

    def _op_fold(self, name: str, piece: RegionPiece | None) -> Fold:
        return Fold(_fold_key(name), (name,), title=self.nodes[name].op, piece=piece, pieces=(piece,) if piece else ())

    def stacked(self, folds: Sequence[Fold]) -> tuple[Fold, ...]:
        """Return the folds with each repeated pattern as one fold, and too many single ops as runs, on all levels."""
        # No ops inside a piece are folded, because a frame is drawn around them.
        inner = [
            replace(fold, parts=self.stacked(fold.parts)) if fold.parts and not fold.piece else fold for fold in folds
        ]
        stacked: list[Fold] = []
        position = 0
        for stretch in stretches([self.likeness_numbers[self._likeness(fold)] for fold in inner]):
            stacked += inner[position : stretch.start]
            stacked.append(_repeat_fold(inner[stretch.start : stretch.end], stretch.period))
            position = stretch.end
        stacked += inner[position:]
        return tuple(_with_op_runs(stacked)) if len(stacked) > MOST_PARTS else tuple(stacked)

    def _likeness(self, fold: Fold) -> Hashable:
        """Return a key that equal folds share."""
        pieces = tuple((piece.region, piece.state, piece.note, len(piece.nodes)) for piece in fold.pieces)
        piece = (fold.piece.region, fold.piece.state, fold.piece.note) if fold.piece else None
        # Equal modules may have different paths; equal lines have the same text.
        name = {FoldKind.MODULE: fold.about, FoldKind.LINE: fold.title, FoldKind.FUNCTION: fold.title}.get(fold.kind)
        return piece, pieces, name, self._calls(fold.nodes)

    def _calls(self, names: Iterable[str]) -> tuple[Hashable, ...]:
        """Return the target of each op, and the types and shapes of its results."""
        return tuple((self.nodes[name].target, _value_types(self.nodes[name])) for name in names)


def _without_lines(parts: Sequence[Fold]) -> list[Fold]:
    """Return the parts of a module, function or piece, with lines replaced by their ops if the ops are few."""
    op_parts = [part for part in parts if part.kind in {FoldKind.OP, FoldKind.LINE}]
    if sum(len(part.nodes) for part in op_parts) > MOST_OWN_OPS:
        return list(parts)
    return [inner for part in parts for inner in (part.parts if part.kind is FoldKind.LINE else (part,))]


def _fold_key(*words: str) -> str:
    """Return a key that can be sent to the page and back unchanged."""
    return sendable(":".join(words))


def _pieces_inside(parts: Sequence[Fold]) -> tuple[RegionPiece, ...]:
    return tuple({piece.id: piece for part in parts for piece in part.pieces}.values())


def _value_types(node: Node) -> Hashable:
    return tuple((getattr(value, "dtype", None), getattr(value, "shape", None)) for value in node.values or ())


def _repeat_fold(folds: Sequence[Fold], period: int) -> Fold:
    """Return one fold for a pattern and its repeats; its parts are the first occurrence and a fold of the repeats."""
    rest = _pattern_fold("rest", folds[period:], period)
    return replace(_pattern_fold("repeat", folds, period), parts=(*folds[:period], rest))


def _pattern_fold(word: str, folds: Sequence[Fold], period: int) -> Fold:
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
        times=len(folds) // period,
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
    """Yield the folds, with consecutive single ops grouped into runs of at most ⌈√n⌉ ops, for n folds."""
    length = ceil(sqrt(len(folds)))
    for single, group in groupby(folds, lambda fold: fold.kind is FoldKind.OP):
        alike = tuple(group)
        step = length if single else 1
        for start in range(0, len(alike), step):
            run = alike[start : start + step]
            nodes = tuple(part.nodes[0] for part in run)
            run_fold = Fold(_fold_key("run", nodes[0]), nodes, FoldKind.RUN, run, f"{nodes[0]} … {nodes[-1]}")
            yield run[0] if len(run) == 1 else replace(run_fold, pieces=_pieces_inside(run))
