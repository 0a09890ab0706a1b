"""The folds of a picture that are open at first, and the scene made of them."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from regional_explorer.errors import count, listing
from regional_explorer.picture.folds import Fold, FoldKind, RegionPiece, outline, pieces, producers, sources
from regional_explorer.picture.layout import Badge, Box, BoxGroup, BoxLook, LegendEntry, Scene, Section
from regional_explorer.record.graph import Graph, GraphKind, Role
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import State
from regional_explorer.record.regions import RegionSummary, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.stages import NONCOMPUTING_OPS
from regional_explorer.style.css import paint
from regional_explorer.style.element import SHORT, clean
from regional_explorer.style.formats import region_config_text, word

BOX_BUDGET = 60
"""Folds are opened automatically up to this many boxes, which a person takes in at first sight."""
SMALL_GRAPH_OPS = 40
"""A graph with at most this many ops is shown op by op."""


class OpeningPriority(IntEnum):
    """The priority with which a fold is opened automatically, lower numbers first."""

    HOLDS_MOST = 0
    NEW = 1
    FIRST_PIECE = 2
    SMALL_GRAPH = 3
    NEVER = 9


def shown_folds(folds: Iterable[Fold], *, everything: bool = False) -> list[Fold]:
    """Return the folds that are shown as boxes, in the order they run, by default the parts of open folds."""
    folds = tuple(folds)
    open_keys = initially_open(folds)

    def leaves(folds: Iterable[Fold]) -> Iterator[Fold]:
        for fold in folds:
            if fold.parts and (everything or fold.key in open_keys):
                yield from leaves(fold.parts)
            else:
                yield fold

    return list(leaves(folds))


def initially_open(folds: Sequence[Fold]) -> set[str]:
    """Return the keys of the folds that are open until the user chooses.

    These folds hold most of the graph, or are around the first of equal pieces of regions. Folds are opened as long as
    no more than ``BOX_BUDGET`` boxes are shown.
    """
    op_count = sum(len(fold.nodes) for fold in folds)
    queue: list[tuple[OpeningPriority, int, int, Fold]] = []
    open_keys: set[str] = set()
    box_count, tickets = len(folds), itertools.count()

    def offer(parts: Iterable[Fold], depth: int) -> None:
        for part in parts:
            priority = _opening_priority(part, op_count)
            if priority is not OpeningPriority.NEVER:
                heapq.heappush(queue, (priority, depth, next(tickets), part))

    offer(folds, 0)
    while queue:
        _, depth, _, fold = heapq.heappop(queue)
        if box_count + len(fold.parts) - 1 <= BOX_BUDGET:
            open_keys.add(fold.key)
            box_count += len(fold.parts) - 1
            offer(fold.parts, depth + 1)
    return open_keys


def _opening_priority(fold: Fold, op_count: int) -> OpeningPriority:
    """Return the priority with which a fold is opened automatically, given the number of ops in its graph."""
    if not fold.parts:
        return OpeningPriority.NEVER
    first_piece = fold.kind is FoldKind.PIECE and not fold.like
    holds_most = fold.kind is not FoldKind.REPEAT and len(fold.nodes) * 2 > op_count
    priorities = (
        (holds_most, OpeningPriority.HOLDS_MOST),
        (fold.new and not fold.piece, OpeningPriority.NEW),
        (first_piece, OpeningPriority.FIRST_PIECE),
        (op_count <= SMALL_GRAPH_OPS, OpeningPriority.SMALL_GRAPH),
    )
    return next((priority for applies, priority in priorities if applies), OpeningPriority.NEVER)


LONGEST_PATH = 32
"""The maximum characters of a module's path in a box; the tooltip has the whole path."""
FEW_INPUTS = 6
FEW_USERS = 3
"""With more inputs, or more users of an input, signs on boxes replace edges, which would fill the picture."""

VIEW_OPS = NONCOMPUTING_OPS | {"clone"}
"""Ops that move or rename data and compute nothing: drawn smaller."""

_INPUT_BADGES = {
    Role.PARAMETER: Badge.PARAMETER,
    Role.BUFFER: Badge.PARAMETER,
    Role.CONSTANT: Badge.PARAMETER,
    Role.SAVED: Badge.READS_SAVED,
    Role.INPUT: Badge.INPUT,
    Role.TANGENT: Badge.INPUT,
}


def shown_graphs(session: Session, graph_id: str | None = None) -> tuple[Graph, ...]:
    """Return the graph with the id ``graph_id``, by default all graphs that run: forward, backward and inference.

    Raises:
        KeyError: the session has no graph of this id.
    """
    if graph_id is not None:
        return (session.graph(graph_id),)
    top_graphs = tuple(graph for graph in session.graphs if graph.parent is None)
    return tuple(graph for graph in top_graphs if graph.kind is not GraphKind.DYNAMO) or top_graphs


def compose(session: Session, graph_id: str | None = None, *, everything: bool = False) -> Scene:
    """Return the scene of ``session``: the graph with the id ``graph_id``, by default all graphs that run.

    With ``everything`` each op has a box of its own.
    """
    sections = []
    for number, graph in enumerate(shown_graphs(session, graph_id)):
        builder = SectionBuilder(session, graph, pieces(session, graph))
        folds = outline(graph, builder.pieces)
        sections.append(builder.section(f"s{number}", shown_folds(folds, everything=everything)))
    return scene_of(session, sections)


def scene_of(session: Session, sections: Sequence[Section]) -> Scene:
    """Return the scene of ``sections``, with the legend that they need."""
    used_badges = {badge for section in sections for box in section.boxes for badge in box.marks}
    return Scene(
        title=clean(session.title, 2 * SHORT),
        sections=tuple(sections),
        entries=tuple(map(legend_entry, region_summaries(session))),
        marks=tuple(badge for badge in Badge if badge in used_badges),
    )


class SectionBuilder:
    """Builds the boxes of one graph; ``pieces`` are its pieces of regions, ``inputs`` the inputs that have boxes.

    Folds of an earlier plan may have other states of the same pieces.
    """

    def __init__(self, session: Session, graph: Graph, pieces: Sequence[RegionPiece]) -> None:
        self.session = session
        self.graph = graph
        self.pieces = pieces
        self.pieces_now = {piece.id: piece for piece in pieces}
        self.piece_names = piece_names(session, pieces)
        self.nodes = graph.by_name
        self.producers = producers(graph)
        self.picks = Counter(self.producers.values())
        self.sources = sources(graph, self.producers)
        users = Counter(source for node in graph.nodes for source in set(self.sources[node.name]))
        inputs = [node for node in graph.nodes if node.role in {Role.INPUT, Role.TANGENT} and users[node.name]]
        few = len(inputs) <= FEW_INPUTS
        self.inputs = tuple(node.name for node in inputs if few and users[node.name] <= FEW_USERS)
        self.saved = {
            node.name
            for other in session.graphs
            if other.frame == graph.frame and other.kind is GraphKind.BACKWARD and graph.kind is GraphKind.FORWARD
            for node in other.nodes
            if node.role is Role.SAVED
        }
        self.results = grouped(
            (source, result)
            for node in graph.nodes
            if node.role is Role.OUTPUT
            for result, source in zip(node.inputs, self.sources[node.name], strict=True)
        )

    @property
    def title(self) -> str:
        """The kind of the graph, and its number of ops."""
        ops = count(len(self.graph.ops), "op")
        frame = f" of frame {self.graph.frame}" if len({graph.frame for graph in self.session.graphs}) > 1 else ""
        return f"{clean(self.graph.kind, SHORT)}{frame} · {ops}"

    def section(self, section_id: str, folds: Sequence[Fold]) -> Section:
        """Return the section with a box for each fold, after the boxes of its inputs if they are few."""
        boxes = [
            *(replace(self.input_box(node), id=f"{section_id}i{number}") for number, node in enumerate(self.inputs)),
            *(replace(self.box(fold), id=f"{section_id}b{number}") for number, fold in enumerate(folds)),
        ]
        box_of_node = {node: box.id for box in boxes for node in box.nodes}
        boxes_of_piece = grouped(
            (fold.piece.id, f"{section_id}b{number}")
            for number, fold in enumerate(folds)
            if fold.piece and fold.kind is not FoldKind.PIECE
        )
        edges = {
            (box_of_node[source], box_of_node[name]): None
            for name, node_sources in self.sources.items()
            for source in node_sources
            if name in box_of_node and source in box_of_node and box_of_node[source] != box_of_node[name]
        }
        groups = tuple(
            BoxGroup(
                f"{section_id}g{number}",
                self._piece_title(piece),
                piece.region,
                tuple(boxes_of_piece[piece.id]),
                clean(piece.error, 160),
                failed=piece.state is State.FAILED,
            )
            for number, piece in enumerate(self.pieces)
            if piece.id in boxes_of_piece
        )
        return Section(section_id, self.title, tuple(boxes), groups, tuple(edges))

    def box(self, fold: Fold) -> Box:
        """Return the box of a fold, without an id."""
        try:
            return self._fold_box(fold)
        except Exception as error:  # noqa: BLE001 - one bad node must not prevent drawing the others
            region = fold.piece.region if fold.piece else None
            return Box("", BoxLook.BAD, "?", fold.nodes, tooltip=f"cannot be drawn: {clean(error)}", region=region)

    def _fold_box(self, fold: Fold) -> Box:
        op_counts = Counter(self.nodes[name].op for name in fold.nodes)
        op_texts = [f"{op} ×{times}" if times > 1 else op for op, times in op_counts.most_common()]
        look, title, detail = self._look_and_texts(fold, op_texts)
        return Box(
            id="",
            look=look,
            title=title or "?",
            nodes=fold.nodes,
            detail=detail,
            marks=tuple(self._badges(fold.nodes)),
            tooltip=self._box_tooltip(fold, op_texts),
            region=fold.piece.region if fold.piece else None,
            failed=any(self.pieces_now[piece.id].state is State.FAILED for piece in fold.pieces),
            shares=() if fold.piece else self._region_shares(fold),
            opens=fold.opens,
        )

    def _look_and_texts(self, fold: Fold, op_texts: Sequence[str]) -> tuple[BoxLook, str, str]:
        """Return the look, the title and the second line of the box of a fold."""
        ops = count(len(fold.nodes) + sum(self.picks[name] for name in fold.nodes), "op")  # as pieces and graphs count
        letters = "" if fold.piece else " ".join(paint(region).letter for region, _ in self._region_shares(fold))
        match fold.kind:
            case FoldKind.OP:
                op = self.nodes[fold.nodes[0]].op
                return BoxLook.VIEW if op in VIEW_OPS else BoxLook.OP, clean(op, SHORT), ""
            case FoldKind.PIECE if fold.piece:
                like = f"equals {self.piece_names[fold.like.id]}" if fold.like else ""
                detail = " · ".join(filter(None, (path_ending(fold.title), like)))
                return BoxLook.PIECE, self._piece_title(fold.piece), detail or clean(listing(op_texts), SHORT)
            case FoldKind.REPEAT:
                details = (clean(fold.about, SHORT), ops, letters)
                several = ", " in fold.title
                title = clean(fold.title, SHORT) if several else path_ending(fold.title)
                return BoxLook.STACK, f"{title} × {fold.times}", " · ".join(filter(None, details))
            case FoldKind.MODULE | FoldKind.FUNCTION:
                about = clean(fold.about, SHORT)
                content = clean(op_texts[0], SHORT) if len(fold.nodes) == 1 else ops
                title = path_ending(fold.title) if fold.kind is FoldKind.MODULE else clean(fold.title, SHORT)
                return BoxLook.MODULE, title, " · ".join(filter(None, (about, content, letters)))
            case _:
                where = clean(fold.about, SHORT) or clean(listing(op_texts), SHORT)
                return BoxLook.RUN, clean(fold.title, SHORT), " · ".join(filter(None, (where, ops, letters)))

    def _region_shares(self, fold: Fold) -> tuple[tuple[int, int], ...]:
        fold_nodes = set(fold.nodes)
        shares = Counter(piece.region for piece in fold.pieces for name in piece.nodes if name in fold_nodes)
        return tuple(sorted(shares.items()))

    def _badges(self, names: Sequence[str]) -> Iterator[Badge]:
        """Yield the signs of nodes; inputs that have boxes need no sign."""
        sources = {source for name in names for source in self.sources[name]}
        roles = {self.nodes[source].role for source in sources if source in self.nodes and source not in self.inputs}
        results = {result for name in names for result in self.results.get(name, ())}
        badges = {
            *(_INPUT_BADGES[role] for role in roles if role in _INPUT_BADGES),
            *(Badge.SAVED if result in self.saved else Badge.OUTPUT for result in results),
            *(Badge.RECOMPUTE for name in names if self.nodes[name].recompute),
            *(Badge.RANDOM for name in names if self.nodes[name].random),
        }
        return (badge for badge in Badge if badge in badges)

    def _box_tooltip(self, fold: Fold, op_texts: list[str]) -> str:
        first = self.nodes[fold.nodes[0]]
        if len(fold.nodes) > 1:
            lines = [clean(fold.title, 120), clean(", ".join(op_texts), 120), clean(first.source or "", 120)]
        else:
            values = ", ".join(map(str, first.values[:3]))
            code = f"{first.source}: {first.source.text}" if first.source and first.source.text else first.source or ""
            lines = [f"{clean(first.name, 60)} = {clean(first.target, 60)}", clean(values, 120), clean(code, 80)]
        if fold.piece and (error := self.pieces_now[fold.piece.id].error):
            lines.append(clean(error, 160))
        return "\n".join(line for line in lines if line)

    def input_box(self, name: str) -> Box:
        """Return the box of an input, without an id."""
        node = self.nodes[name]
        values = clean(", ".join(map(str, node.values[:1])), 120)
        return Box("", BoxLook.INPUT, clean(node.label or node.name, SHORT) or "?", (node.name,), tooltip=values)

    def _piece_title(self, piece: RegionPiece) -> str:
        piece = self.pieces_now[piece.id]
        ops = count(len(piece.nodes), "op")
        words = [self.piece_names[piece.id], ops]
        if piece.state in {State.FAILED, State.STALE, State.EAGER}:
            words.append(f"{word(piece.state)}{f': {piece.note}' if piece.note else ''}")
        return " · ".join(words)


def piece_names(session: Session, graph_pieces: Sequence[RegionPiece]) -> dict[str, str]:
    """Return the name of each piece of a graph by id: its region, with instance and part if there are several."""
    twins = grouped(((piece.region, piece.instance), piece.id) for piece in graph_pieces)
    instances = Counter(region for region, _ in twins)
    names: dict[str, str] = {}
    for (region, instance), ids in twins.items():
        name = clean(session.plan.regions[region].name, SHORT)
        if instance is not None and instances[region] > 1:
            name += f"[{instance}]"
        names |= {one: f"{name} part {number}" if len(ids) > 1 else name for number, one in enumerate(ids, 1)}
    return names


def path_ending(path: str) -> str:
    """Return the end of a module path, cleaned and short enough for a box, because modules differ in the end."""
    if len(path) <= LONGEST_PATH:
        return clean(path, LONGEST_PATH)
    tail = path[-LONGEST_PATH:]
    return clean(f"…{tail[tail.find('.') + 1 :]}", LONGEST_PATH + 1)


def legend_entry(summary: RegionSummary) -> LegendEntry:
    """Return the line of the legend about a region."""
    config = clean(region_config_text(summary.region), 2 * SHORT)
    return LegendEntry(summary.number, clean(summary.region.name, SHORT), config, summary.state)
