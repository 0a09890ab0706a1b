"""Builds the payload of one tab of the page: texts once, arrays, facts of nodes and pieces, legend, crumbs.

Every text that is shown is cleaned here, and the page only ever shows it as text. Nodes are named ``graph:name``,
which is what a selection holds and what ``Exploration.mark(nodes=...)`` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from regional_explorer.errors.texts import count, sendable
from regional_explorer.record.graph import Graph, Role
from regional_explorer.record.partition import State
from regional_explorer.record.region import Direction, config_of
from regional_explorer.record.region_summary import region_summaries
from regional_explorer.record.region_timing import RegionTiming, current_timings, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import PartitionTiming, Verdict
from regional_explorer.render.picture.arrays import (
    Payload,
    TabGraph,
    Texts,
    box_arrays,
    edge_array,
    node_arrays,
)
from regional_explorer.render.picture.compose import scene_of, shown_graphs
from regional_explorer.render.picture.opening import Detail, Opening, ShownFold, shown
from regional_explorer.render.picture.outline import Fold
from regional_explorer.render.picture.outlines import Outlines
from regional_explorer.render.picture.pieces import RegionPiece
from regional_explorer.render.picture.scene import Entry, Scene
from regional_explorer.render.picture.strokes import stroke_arrays
from regional_explorer.render.picture.tooltip import tooltip_arrays
from regional_explorer.render.style.formats import STATE_GLYPHS, bounds, config_text, duration, ratio
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import SHORT, clean

PARTITIONS = "partitions"
"""The tab of the partitions, with all graphs side by side."""
HULL_WORDS = {State.STALE: " (hatched): to be compiled", State.EAGER: " (dotted)", State.FAILED: " (crossed)"}
"""How the hull of a piece is drawn by its state, in the words of the legend."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One tab: its scene, still without a layout, and all else that the page needs.

    ``reads`` maps each node, as ``graph:name`` and in order, to the nodes of the tab that it reads; ``legend`` has the
    regions and the signs that are used; ``crumbs`` maps the key of each fold to key and title of the folds around it
    and of itself, outermost first.
    """

    scene: Scene
    facts: Payload
    reads: Mapping[str, Sequence[str]]
    legend: Sequence[Entry | str]
    crumbs: Mapping[str, Sequence[tuple[str, str]]]

    def reach(self, nodes: Iterable[str], *, upstream: bool) -> list[str]:
        """Return ``nodes`` with their ancestors (``upstream``) or descendants in the picture."""
        following: dict[str, list[str]] = {node: list(read) if upstream else [] for node, read in self.reads.items()}
        if not upstream:
            for node, read in self.reads.items():
                for source in read:
                    following[source].append(node)
        queue = [node for node in nodes if node in following]
        reached = set(queue)
        while queue:
            new = set(following[queue.pop()]) - reached
            reached |= new
            queue.extend(new)
        return [node for node in self.reads if node in reached]


def tabs(session: Session) -> tuple[tuple[str, str], ...]:
    """Return id and title of each tab: one per graph, and one for the partitions if there is a region."""
    frames = {graph.frame for graph in session.graphs}
    graph_tabs = []
    for graph in session.graphs:
        title_words = [clean(graph.kind, SHORT)]
        if graph.parent:
            title_words.append(f"in {clean(graph.parent[1], SHORT)}")
        if len(frames) > 1:
            title_words.append(f"of frame {graph.frame}")
        graph_tabs.append((sendable(graph.id), " ".join(title_words)))
    return (*graph_tabs, (PARTITIONS, PARTITIONS)) if session.plan.regions else tuple(graph_tabs)


def first_tab(session: Session) -> str:
    """Return the id of the tab that is shown first: the first graph that runs."""
    running = shown_graphs(session)
    return sendable(running[0].id) if running else ""


def picture(session: Session, tab: str, opening: Opening | None = None, *, outlines: Outlines | None = None) -> Picture:
    """Return the picture of ``tab``; an unknown tab is empty.

    Args:
        session: The record.
        tab: An id as ``tabs`` gives it.
        opening: Which folds are open, by the keys of the payload; by default as many as the budget allows.
        outlines: The cached outlines of the session, if it is drawn more than once.
    """
    adapted = tab_opening(tab, opening or Opening())

    def open_in(scope: str, folds: Sequence[Fold]) -> list[ShownFold]:
        chosen = {key.removeprefix(scope): opened for key, opened in adapted.chosen.items() if key.startswith(scope)}
        return shown(folds, replace(adapted, chosen=chosen))

    tab_graphs = parts_of(session, tab, open_in, outlines or Outlines(session))
    scene = scene_of(session, [tab_graph.section for tab_graph in tab_graphs])
    texts = Texts()
    facts = facts_of(session, tab_graphs, texts)
    states = {piece.state for tab_graph in tab_graphs for piece in tab_graph.pieces}
    legend: tuple[Entry | str, ...] = (
        *scene.entries,
        *(f"{glyph} {state}{HULL_WORDS.get(state, '')}" for state, glyph in STATE_GLYPHS.items() if state in states),
        *(f"{badge} {badge.meaning}" for badge in scene.marks),
    )
    crumbs = {key: chain for tab_graph in tab_graphs for key, chain in _crumbs_by_key(tab_graph, tab_graph.folds)}
    return Picture(scene, {**facts, "texts": texts.all}, _node_reads(tab_graphs), legend, crumbs)


def tab_opening(tab: str, opening: Opening) -> Opening:
    """Return ``opening`` adapted to ``tab``: the tab of the partitions opens the folds around them by default."""
    by_modules = opening.detail is Detail.MODULES
    return replace(opening, detail=Detail.PIECES) if by_modules and tab == PARTITIONS else opening


def parts_of(
    session: Session, tab: str, leaves_of: Callable[[str, Sequence[Fold]], Sequence[ShownFold]], outlines: Outlines
) -> list[TabGraph]:
    """Return the graphs of ``tab``; ``leaves_of(scope, outline)`` gives the folds of a graph shown as boxes."""
    graphs: Sequence[Graph] = [graph for graph in session.graphs if sendable(graph.id) == tab]
    tab_graphs: list[TabGraph] = []
    for graph in shown_graphs(session) if tab == PARTITIONS else graphs:
        tab_graphs.append(_tab_graph(graph, leaves_of, tab_graphs, outlines))
    return tab_graphs


def facts_of(session: Session, tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return what the page needs of ``tab_graphs`` besides their places; ``texts`` collects the texts."""
    summaries = region_summaries(session)
    timings = whole_region_timings(session)
    alone = {timing.partition: timing for timing in current_timings(session)}
    return {
        "graphs": [_graph_facts(tab_graph) for tab_graph in tab_graphs],
        "regions": [
            {"name": clean(summary.region.name, SHORT), "letter": paint(summary.number).letter} for summary in summaries
        ],
        "pieces": [
            _piece_facts(session, piece, tab_graph, timings, alone.get(piece.id))
            for tab_graph in tab_graphs
            for piece in tab_graph.pieces
        ],
        **stroke_arrays(tab_graphs, len(summaries)),
        **box_arrays(tab_graphs, texts),
        **node_arrays(tab_graphs, texts),
        **tooltip_arrays(tab_graphs, texts),
        "edges": edge_array(tab_graphs),
    }


def _crumbs_by_key(
    tab_graph: TabGraph, folds: Iterable[Fold], around: tuple[tuple[str, str], ...] = ()
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    for fold in folds:
        if fold.opens:
            path = (*around, (tab_graph.scope + fold.key, tab_graph.crumb(fold)))
            yield path[-1][0], path
            yield from _crumbs_by_key(tab_graph, fold.parts, path)


def _node_reads(tab_graphs: Sequence[TabGraph]) -> dict[str, list[str]]:
    reads: dict[str, list[str]] = {}
    for tab_graph in tab_graphs:
        names = {node.name: sendable(f"{tab_graph.graph.id}:{node.name}") for node in tab_graph.nodes}
        for node in tab_graph.nodes:
            reads[names[node.name]] = [names[name] for name in node.inputs if name in names]
    return reads


def _tab_graph(
    graph: Graph,
    leaves_of: Callable[[str, Sequence[Fold]], Sequence[ShownFold]],
    earlier: Sequence[TabGraph],
    outlines: Outlines,
) -> TabGraph:
    name = f"s{len(earlier)}"
    builder, folds = outlines.of(graph, name)
    scope = f"{name}/"
    leaves = leaves_of(scope, folds)
    section = builder.build(leaf.fold for leaf in leaves)
    home = {name: number for number, box in enumerate(section.boxes) for name in box.nodes}
    piece_of = {name: number for number, piece in enumerate(builder.pieces) for name in piece.nodes}
    for node in graph.nodes:
        if node.role is Role.OP and node.name not in home and node.inputs and node.inputs[0] in home:
            # A getitem belongs to the box and the region of the op whose result it takes.
            home[node.name] = home[node.inputs[0]]
            if node.inputs[0] in piece_of:
                piece_of.setdefault(node.name, piece_of[node.inputs[0]])
    previous = earlier[-1] if earlier else None
    return TabGraph(
        graph=graph,
        section=section,
        scope=scope,
        folds=folds,
        leaves=(*[None] * (len(section.boxes) - len(leaves)), *leaves),
        pieces=builder.pieces,
        piece_names=tuple(builder.piece_name(piece) for piece in builder.pieces),
        home=home,
        piece_of=piece_of,
        facts=outlines.facts[graph.id].nodes,
        first_node=previous.first_node + len(previous.nodes) if previous else 0,
        first_box=previous.first_box + len(previous.section.boxes) if previous else 0,
        first_piece=previous.first_piece + len(previous.pieces) if previous else 0,
    )


def _graph_facts(tab_graph: TabGraph) -> Payload:
    first, number = tab_graph.first_node, len(tab_graph.nodes)
    return {"id": sendable(tab_graph.graph.id), "title": tab_graph.section.title, "first": first, "count": number}


def _piece_facts(
    session: Session,
    piece: RegionPiece,
    tab_graph: TabGraph,
    timings: Mapping[str, RegionTiming],
    alone: PartitionTiming | None,
) -> Payload:
    """Return what the page shows of a piece; ``alone`` is its own timing.

    Its title has the speedup of the whole region, as the region's row has.
    """
    partition = next((partition for partition in session.partitions if partition.id == piece.id), None)
    applied = partition.config_applied if partition else None
    timing = timings.get(partition.region) if partition else None
    name = tab_graph.piece_names[tab_graph.pieces.index(piece)]
    ops, state = count(len(piece.nodes), "op"), str(piece.state or "")
    requested = config_text(
        partition.config_requested
        if partition
        else config_of(session.plan.regions[piece.region], Direction.of_graph(tab_graph.graph.id))
    )
    applied_text = requested if applied is None else config_text(applied)
    glyph = f"{STATE_GLYPHS[piece.state]} " if piece.state else ""
    facts = {
        "region": " · ".join(filter(None, (name, ops, state, piece.note))),
        "requested": requested,
        "applied": "" if applied_text == requested else applied_text,
        "error": clean(piece.error),
        "time": _partition_times(alone) if alone else "",
    }
    return {
        "id": sendable(piece.id),
        "region": piece.region,
        "state": state,
        "words": [" · ".join(filter(None, (glyph + name, state or ops, piece.note))), glyph + name, name],
        "speedup": _region_speedup(timing) if timing and timing.speedup is not None else "",
        "facts": [[word, text] for word, text in facts.items() if text],
    }


def _region_speedup(timing: RegionTiming) -> str:
    speedup = ratio(timing.speedup, timing.numerics)
    return f"{speedup} {timing.verdict}" if timing.verdict is Verdict.INCONCLUSIVE else speedup


def _partition_times(timing: PartitionTiming) -> str:
    speedup = f", {ratio(timing.speedup, timing.numerics)}" if timing.speedup is not None else ""
    limits = bounds(timing.speedup_low, timing.speedup_high)
    interval = f" ({limits})" if limits else ""
    compiled = f", {duration(timing.compiled_s)} compiled" if timing.compiled_s is not None else ""
    return f"{duration(timing.eager_s)} eager{compiled}{speedup}{interval}"
