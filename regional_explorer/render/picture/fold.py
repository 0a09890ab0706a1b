"""Decides which ops share a box: the more ops there are, the more are folded into one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from regional_explorer.record.graph import Graph, Node, Role
from regional_explorer.render.picture.pieces import RegionPiece, connected
from regional_explorer.render.picture.stack import stretches


class Detail(StrEnum):
    """How much is shown; each step folds what the steps before it fold, and more.

    ``OPS`` draws every op, ``RUNS`` folds neighbouring unmarked ops, ``REPEATS`` also every piece that equals one
    shown before, ``STACKS`` also patterns that come again and again, ``PIECES`` every piece.
    """

    OPS = "ops"
    RUNS = "runs"
    REPEATS = "repeats"
    STACKS = "stacks"
    PIECES = "pieces"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The nodes of one box.

    ``place`` is what they have in common, ``like`` the piece that this one equals. In a stack ``times`` counts how
    often the pattern comes, and ``stacked`` are the pieces in it.
    """

    nodes: tuple[str, ...]
    piece: RegionPiece | None = None
    whole: bool = False
    place: str = ""
    like: RegionPiece | None = None
    times: int = 1
    stacked: tuple[RegionPiece, ...] = ()


def drawn(node: Node) -> bool:
    """Tell whether a node gets a place in a box: ``getitem`` is drawn as a part of its producer."""
    return node.role is Role.OP and node.op != "getitem"


def sources(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return for each node the nodes that feed it, where a ``getitem`` stands for its producer."""
    behind: dict[str, str] = {}
    for node in graph.nodes:
        if node.role is Role.OP and not drawn(node) and node.inputs:
            behind[node.name] = behind.get(node.inputs[0], node.inputs[0])
    return {node.name: tuple(behind.get(name, name) for name in node.inputs) for node in graph.nodes}


def bundles(graph: Graph, parts: Sequence[RegionPiece], detail: Detail | None, budget: int) -> list[Bundle]:
    """Return the bundles of ``graph`` with at most ``budget`` boxes, or as few as folding can reach.

    With ``detail`` given that step is taken; else the first step that fits the budget.
    """
    order = [node.name for node in graph.nodes if drawn(node)]
    nodes = graph.by_name()
    inputs = sources(graph)
    places = {name: places_of(nodes[name]) for name in order}
    deepest = max((len(place) for place in places.values()), default=0)
    position = {name: number for number, name in enumerate(order)}
    result: list[Bundle] = []
    for step in [detail] if detail else list(Detail):
        fixed = list(_pieces(parts, nodes, step))
        free = set(order) - {name for bundle in fixed for name in bundle.nodes}
        # A graph without regions is told by its modules as long as it can be: all of it in one box says little.
        least = 0 if parts or detail or step is Detail.PIECES else 1
        for depth in _depths(step, deepest, least):
            loose = (Bundle((name,)) for name in order if name in free)
            runs = loose if depth is None else _runs(order, free, inputs, places, depth)
            result = sorted([*fixed, *runs], key=lambda bundle: position[bundle.nodes[0]])
            if step in {Detail.STACKS, Detail.PIECES}:
                result = list(_stacks(result, nodes))
            if len(result) <= budget:
                return result
    return result
    return result


def _depths(step: Detail, deepest: int, least: int) -> Iterable[int | None]:
    """Return how far down places are told apart, from fine to coarse; None keeps each unmarked op by itself."""
    runs = range(deepest, least - 1, -1)
    return {Detail.OPS: (None,), Detail.STACKS: (None, *runs)}.get(step, runs)


def _pieces(parts: Iterable[RegionPiece], nodes: Mapping[str, Node], detail: Detail) -> Iterator[Bundle]:
    seen: dict[tuple[object, ...], RegionPiece] = {}
    for piece in parts:
        inside = tuple(name for name in piece.nodes if drawn(nodes[name]))
        if not inside:
            continue
        kind = (piece.region, piece.state, piece.note, *(nodes[name].target for name in inside))
        first = seen.setdefault(kind, piece)
        again = first is not piece and len(inside) > 1 and detail not in {Detail.OPS, Detail.RUNS}
        if again or detail is Detail.PIECES:
            yield Bundle(inside, piece, whole=True, like=None if first is piece else first)
        else:
            yield from (Bundle((name,), piece) for name in inside)


def _runs(
    order: Iterable[str],
    free: set[str],
    inputs: Mapping[str, tuple[str, ...]],
    places: Mapping[str, tuple[str, ...]],
    depth: int,
) -> Iterator[Bundle]:
    """Yield connected unmarked ops that follow each other in one place; such a run is never part of a circle."""
    run: list[str] = []
    here: tuple[str, ...] = ()
    for name in (*order, None):
        place = places[name][:depth] if name in free and name is not None else ()
        if run and (name not in free or place != here):
            yield from (Bundle(part, place=here[-1] if here else "") for part in connected(run, inputs))
            run = []
        if name is not None and name in free:
            run.append(name)
            here = place


def _stacks(found: Sequence[Bundle], nodes: Mapping[str, Node]) -> Iterator[Bundle]:
    """Yield the bundles, where those that repeat a pattern shown just before are one."""
    keys = [_kind(bundle, nodes) for bundle in found]
    here = 0
    for stretch in stretches(keys):
        yield from found[here : stretch.start]
        inside = found[stretch.start : stretch.end]
        names = tuple(name for bundle in inside for name in bundle.nodes)
        stacked = tuple(bundle.piece for bundle in inside if bundle.piece)
        yield Bundle(names, times=stretch.times, stacked=stacked, place="stack")
        here = stretch.end
    yield from found[here:]


def _kind(bundle: Bundle, nodes: Mapping[str, Node]) -> Hashable:
    if bundle.piece and not bundle.whole:
        return bundle.nodes  # drawn inside the frame of its piece, where it stays
    piece = (bundle.piece.region, bundle.piece.state, bundle.piece.note) if bundle.piece else None
    return piece, tuple(nodes[name].target for name in bundle.nodes)


def places_of(node: Node) -> tuple[str, ...]:
    """Return where a node belongs, from the outside in: the modules around it, then its line."""
    modules = tuple(f"{call.path}#{call.call}" if call.call else call.path for call in node.modules if call.path)
    return (*modules, str(node.source)) if node.source else modules
