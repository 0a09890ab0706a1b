"""The records that the page draws graphs from: facts of a trace, folds of a plan, names of regions and pieces."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from regional_explorer.errors import count, sendable
from regional_explorer.picture.folds import Chain, Fold, RegionPiece, outline, pieces, scopes, without_states
from regional_explorer.picture.layout import Box
from regional_explorer.picture.open_folds import SectionBuilder, initially_open, piece_names, shown_graphs
from regional_explorer.record.benchmark import PartitionTiming
from regional_explorer.record.graph import Graph, Node, Role, layer_glob
from regional_explorer.record.grouping import Kept
from regional_explorer.record.plan import Direction, config_of
from regional_explorer.record.regions import RegionTiming, region_timings_of_whole_call
from regional_explorer.record.session import Session
from regional_explorer.style.element import LONG, SHORT, clean
from regional_explorer.style.formats import STATE_GLYPHS, config_text, duration, interval_note, percent, speedup, word

Payload = dict[str, Any]
UNSET = -1
PARTITIONS = "partitions"
"""The tab of the partitions, with all graphs that run side by side."""
MOST_VALUES = 4
"""The maximum number of listed results of a node."""
MOST_READS = 4
"""The maximum number of listed tensors that a node reads from outside the boxes."""
FLAGS = ("recompute", "random", "carved")
"""The flags of nodes that tooltips mention; a flag's position is its bit in ``flags``."""


def graph_tabs(session: Session) -> list[Payload]:
    """Return the tabs: one per graph, and one for the partitions if there is a region.

    ``graphs`` are the numbers of the graphs in the tab; with ``pieces``, folds that hold pieces are open.
    """
    frames = {graph.frame for graph in session.graphs}
    listed: list[Payload] = []
    for number, graph in enumerate(session.graphs):
        words = [clean(graph.kind, SHORT)]
        if graph.parent:
            words.append(f"in {clean(graph.parent[1], SHORT)}")
        if len(frames) > 1:
            words.append(f"of frame {graph.frame}")
        listed.append({"id": sendable(graph.id), "title": " ".join(words), "graphs": [number], "pieces": False})
    if session.plan.regions:
        running = [session.graphs.index(graph) for graph in shown_graphs(session)]
        listed.append({"id": PARTITIONS, "title": PARTITIONS, "graphs": running, "pieces": True})
    return listed


def first_tab(session: Session) -> str:
    """Return the id of the tab that is shown first: the first graph that runs."""
    running = shown_graphs(session)
    return sendable(running[0].id) if running else ""


class Records:
    """The records of graphs, kept from session to session; unchanged records are the same objects.

    ``of_trace`` has the parts of the page's data that follow from the graphs.
    """

    def __init__(self) -> None:
        self._graphs: dict[str, GraphRecords] = {}
        self.of_trace = Kept[Payload]()

    def of(self, session: Session, graph: Graph) -> GraphRecords:
        """Return the records of a graph of ``session``."""
        records = self._graphs.get(graph.id)
        if records is None or records.graph is not graph:
            records = self._graphs[graph.id] = GraphRecords(session, graph)
        records.follow(session)
        return records


def groups_by_size(graphs: Iterable[Graph]) -> Mapping[str, Sequence[str]]:
    """Return the groups of the nodes of all graphs by title, the largest first."""
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for groups in (groups_of(op) for graph in graphs for op in graph.ops):
        for title, group in groups.items():
            counted[title][clean(group, SHORT)] += bool(group)
    return {title: [group for group, ops in of.most_common() if ops] for title, of in counted.items()}


class GraphRecords:
    """The records of one graph.

    ``names`` are the nodes that boxes show: ops, the nodes that pick their results, and inputs if they are few.
    """

    def __init__(self, session: Session, graph: Graph) -> None:
        self.graph = graph
        self.session = session
        self.pieces = pieces(session, graph)
        inputs = SectionBuilder(session, graph, ()).inputs
        self.shown = [node for node in graph.nodes if node.role is Role.OP or node.name in inputs]
        self.names = [sendable(node.name) for node in self.shown]
        self._outline = Kept[Sequence[Fold]]()
        self._facts, self._folds = Kept[Payload](), Kept[Payload]()

    def follow(self, session: Session) -> None:
        """Follow ``session``, which has the same graph."""
        if session is not self.session:
            self.session, self.pieces = session, pieces(session, self.graph)

    @property
    def _folded(self) -> object:
        """What the folds are made of: a title names the frame if there are several graphs; signs, what is saved."""
        return self.session.graphs, self.pieces, list(self.session.plan.numbers), self.session.profile

    @property
    def made_so_far(self) -> tuple[Payload, Payload]:
        """The facts and the folds, each empty if not made yet."""
        return self._facts.known(self.session.graphs) or {}, self._folds.known(self._folded) or {}

    @property
    def facts(self) -> Payload:
        """The facts of the trace about the graph; the same object under every plan that changes no graph."""
        session, graph = self.session, self.graph
        return self._facts.of(session.graphs, lambda: graph_facts(SectionBuilder(session, graph, ()), self.shown))

    @property
    def folds(self) -> Payload:
        """The folds of the graph under the plan; the same object while its pieces and the profile are the same."""
        return self._folds.of(self._folded, self._new_folds)

    def _new_folds(self) -> Payload:
        builder = SectionBuilder(self.session, self.graph, self.pieces)
        folds = self._outline.of(without_states(self.pieces), lambda: outline(self.graph, self.pieces, self._scopes))
        return graph_folds(builder, folds, self.shown)

    @cached_property
    def _scopes(self) -> Mapping[str, Chain]:
        return scopes(self.graph)


def _text_numbers() -> defaultdict[str, int]:
    """Return a dict that numbers texts: each is sent once and referred to by its number; the empty text is 0."""
    return defaultdict(itertools.count(1).__next__, {"": 0})


def graph_facts(builder: SectionBuilder, shown: Sequence[Node]) -> Payload:
    """Return the facts of the nodes ``shown`` of a graph, as columns; texts are numbers of ``texts``.

    ``ops`` has the number of the op that a node belongs to, ``reads`` the numbers of the nodes that it reads,
    ``outside`` its inputs outside of the boxes, ``flags`` a bit for each of ``FLAGS``, ``groups`` a column by title.
    """
    texts = _text_numbers()
    numbers = {node.name: number for number, node in enumerate(shown)}
    boxes = [_node_box(builder, node) for node in shown]
    return {
        "title": builder.title,
        "ops": _op_numbers(builder, shown),
        "looks": [texts[box.look] if box else 0 for box in boxes],
        "titles": [texts[box.title] if box else 0 for box in boxes],
        "signs": [texts["".join(box.marks)] if box else 0 for box in boxes],
        **{name: [texts[_fact(fact, node)] for node in shown] for name, fact in NODE_FACTS.items()},
        "outside": [texts[_outside_inputs(builder, node, numbers)] for node in shown],
        "flags": [sum(bool(getattr(node, flag)) << bit for bit, flag in enumerate(FLAGS)) for node in shown],
        "reads": [[numbers[name] for name in node.inputs if name in numbers] for node in shown],
        "groups": {
            title: [texts[clean(groups.get(title, ""), SHORT)] for groups in map(groups_of, shown)]
            for title in group_titles(shown)
        },
        "texts": list(texts),
    }


def groups_of(node: Node) -> Mapping[str, str]:
    """Return the groups of a node that can give it a colour, by title; regions and figures are not among them."""
    parts = layer_glob(node.module_path or "").split(".")
    of_layer = parts[: parts.index("*") + 2] if "*" in parts else parts[:1]
    return {
        "dtype": _fact(lambda node: node.values[0].dtype if node.values else "", node),
        "module": ".".join(of_layer),
        **{f"annotation {key}": value for key, value in node.annotations.items()},
    }


def group_titles(nodes: Iterable[Node]) -> list[str]:
    """Return the titles of all groups of nodes."""
    return list(dict.fromkeys(title for node in nodes for title in groups_of(node)))


def _op_numbers(builder: SectionBuilder, shown: Sequence[Node]) -> list[int]:
    """Return for each node the number of the node in whose box it is: itself, or the producer whose result it picks."""
    numbers = {node.name: number for number, node in enumerate(shown)}
    return [numbers[builder.producers.get(node.name, node.name)] for node in shown]


def _node_box(builder: SectionBuilder, node: Node) -> Box | None:
    """Return the box of a node; None for a node that is in its producer's box."""
    if node.name in builder.inputs:
        return builder.input_box(node.name)
    return None if node.name in builder.producers else builder.box(Fold(node.name, (node.name,)))


def _node_source(node: Node) -> str:
    line = node.source
    return ": ".join(filter(None, (line.numbered, line.text.strip()))) if line else ""


NODE_FACTS: Mapping[str, Callable[[Node], object]] = {
    "names": lambda node: node.name,
    "targets": lambda node: node.target,
    "values": lambda node: ", ".join(map(str, node.values[:MOST_VALUES])),
    "modules": lambda node: node.module_path or "",
    "sources": _node_source,
}
"""The columns of node facts that are shown and can be searched; a fact is ``?`` if the node is malformed."""


def _fact(fact: Callable[[Node], object], node: Node) -> str:
    try:
        return clean(fact(node), LONG)
    except Exception:  # noqa: BLE001 - the other facts and nodes are shown
        return "?"


def _outside_inputs(builder: SectionBuilder, node: Node, numbers: Mapping[str, int]) -> str:
    """Return the inputs of ``node`` that are in no box, as text."""
    outside = [builder.nodes[name] for name in node.inputs if name in builder.nodes and name not in numbers]
    return clean(", ".join(f"{read.role} {read.name}" for read in outside[:MOST_READS]))


def graph_folds(builder: SectionBuilder, folds: Sequence[Fold], shown: Sequence[Node]) -> Payload:
    """Return the folds of a graph that have parts, as columns, each before its parts; texts are numbers of ``texts``.

    ``parents`` has the number of the fold around each fold, ``kinds`` its kind, ``open`` whether it is open until the
    user chooses, ``pieces`` the piece that all of it belongs to. For each node, ``homes`` has the innermost fold and
    ``node_pieces`` the piece. ``times`` has the times of folds and nodes if the call was profiled. -1 means none.
    """
    texts = _text_numbers()
    open_keys = initially_open(folds)
    piece_numbers = {piece.id: number for number, piece in enumerate(builder.pieces)}
    piece_of = {name: number for number, piece in enumerate(builder.pieces) for name in piece.nodes}
    home_of: dict[str, int] = {}
    names = ("parents", "looks", "titles", "details", "signs", "crumbs", "kinds", "open", "pieces")
    columns: Payload = {name: [] for name in names}
    for fold, parent in _with_parts(folds):
        number = len(columns["parents"])
        box = builder.box(fold)
        piece = UNSET if fold.piece is None else piece_numbers[fold.piece.id]
        crumb = fold.title or (builder.piece_names[fold.piece.id] if fold.piece else fold.nodes[0])
        words = (box.look, box.title, box.detail, "".join(box.marks), clean(crumb, SHORT), str(fold.kind))
        row = (parent, *map(texts.__getitem__, words), int(fold.key in open_keys), piece)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        home_of.update(dict.fromkeys(fold.nodes, number))
    node_pieces: dict[str, int] = {}
    for node in shown:
        of_op = node_pieces.get(builder.producers.get(node.name, ""), UNSET)
        node_pieces[node.name] = piece_of.get(node.name, of_op)
    homes = [home_of.get(node.name, UNSET) for node in shown]
    return {
        **columns,
        "homes": homes,
        "node_pieces": list(node_pieces.values()),
        "times": _times(builder, shown, columns["parents"], homes),
        "texts": list(texts),
    }


def _with_parts(folds: Sequence[Fold]) -> Iterator[tuple[Fold, int]]:
    """Yield the folds that have parts, outer folds first, with the number of the fold around each."""
    stack = [(fold, UNSET) for fold in reversed(folds)]
    number = 0
    while stack:
        fold, around = stack.pop()
        if fold.parts:
            yield fold, around
            stack += [(part, number) for part in reversed(fold.parts)]
            number += 1


def _times(
    builder: SectionBuilder, shown: Sequence[Node], parents: Sequence[int], homes: Sequence[int]
) -> Payload | None:
    """Return the time of each fold and node, with its share of the call and a text for the tooltip.

    The time of an op includes the nodes that pick its results, and in other graphs than the backward also its backward.
    """
    shares = builder.session.time_shares
    if shares is None or shares.profile.noise.is_too_much:
        return None  # colours would look certain, but the times are not
    backward = Direction.of_graph(builder.graph.id) is Direction.BACKWARD
    seconds_of = shares.own_seconds if backward else shares.seconds
    note = " in the backward" if backward else ""
    whole_s = shares.profile.whole_s or 1.0
    node_s = [0.0] * len(shown)
    fold_s = [0.0] * len(parents)
    for node, number in zip(shown, _op_numbers(builder, shown), strict=True):
        seconds = seconds_of(f"{builder.graph.id}:{node.name}")
        node_s[number] += seconds
        fold = homes[number]
        while fold != UNSET:
            fold_s[fold] += seconds
            fold = parents[fold]

    def described(seconds: float) -> list[Any]:
        share = percent(seconds / whole_s)
        return [float(f"{seconds:.3g}"), share, f"{share} of the call, {duration(seconds)}{note}"]

    return {"folds": list(map(described, fold_s)), "nodes": list(map(described, node_s))}


def piece_rows(session: Session, graph: Graph, graph_pieces: Sequence[RegionPiece]) -> list[Payload]:
    """Return the page's row for each piece of a graph: its name, state, config, error and figures.

    The title has the speedup of the whole region, as in the region's row, but only with an interval: a title cannot
    mark a figure as unsure.
    """
    names = piece_names(session, graph_pieces)
    timings = region_timings_of_whole_call(session)
    alone = {timing.partition: timing for timing in session.partition_timings}
    partitions = {partition.id: partition for partition in session.partitions}
    rows: list[Payload] = []
    for piece in graph_pieces:
        partition, region, name = partitions.get(piece.id), session.plan.regions[piece.region], names[piece.id]
        ops, state = count(len(piece.nodes), "op"), piece.state or ""
        planned = config_of(region, Direction.of_graph(graph.id))
        requested = config_text(partition.config_requested if partition else planned)
        artifact = session.artifact_of(partition) if partition else None
        applied = requested if artifact is None or artifact.config is None else config_text(artifact.config)
        timing = timings.get(region.name) if partition else None
        glyph = f"{STATE_GLYPHS[piece.state]} " if piece.state else ""
        facts = {
            "region": " · ".join(filter(None, (name, ops, word(state), piece.note))),
            "requested": requested,
            "applied": "" if applied == requested else applied,
            "error": clean(piece.error),
            "time": _partition_times(alone[piece.id]) if piece.id in alone else "",
        }
        rows.append(
            {
                "id": sendable(piece.id),
                "region": piece.region,
                "state": state,
                "words": [" · ".join(filter(None, (glyph + name, word(state) or ops, piece.note))), glyph + name, name],
                "speedup": _region_speedup(timing) if timing and timing.speedup and timing.speedup.bounds else "",
                "facts": [[word, text] for word, text in facts.items() if text],
            }
        )
    return rows


def _region_speedup(timing: RegionTiming) -> str:
    return f"{speedup(timing)} {timing.verdict}" if timing.verdict.is_unsure else speedup(timing)


def _partition_times(timing: PartitionTiming) -> str:
    eager, compiled = f"{duration(timing.eager.median_s.value)} eager", timing.compiled
    if compiled is None:
        return eager
    ratio = f", {speedup(compiled)}{interval_note(compiled.speedup)}" if compiled.speedup is not None else ""
    return f"{eager}, {duration(compiled.median_s.value)} compiled{ratio}"
