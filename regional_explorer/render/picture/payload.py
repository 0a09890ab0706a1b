"""Builds the payload of one tab of the page: texts once, arrays, facts of nodes and pieces, legend, crumbs.

Every text that is shown is cleaned here, and the page only ever shows it as text. Nodes are named ``graph:name``,
which is what a selection holds and what ``Exploration.mark(nodes=...)`` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from regional_explorer.errors.texts import count
from regional_explorer.record.graph import Graph, Role
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.region import Direction, config_of
from regional_explorer.record.region_summary import region_summaries
from regional_explorer.record.region_timing import RegionTiming, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Verdict
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
from regional_explorer.render.picture.scene import Badge, Entry, Scene
from regional_explorer.render.picture.strokes import stroke_arrays
from regional_explorer.render.picture.tooltip import tooltip_arrays
from regional_explorer.render.style.formats import STATE_GLYPHS, bounds, config_text, duration, ratio
from regional_explorer.render.style.palette import paint
from regional_explorer.render.style.untrusted import SHORT, clean, sendable

PARTITIONS = "partitions"
"""The tab of the partitions, with all graphs side by side."""
DRAWN = {State.STALE: " (hatched): to be compiled", State.EAGER: " (dotted)", State.FAILED: " (crossed)"}
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
                for one in read:
                    following[one].append(node)
        waiting = [node for node in nodes if node in following]
        found = set(waiting)
        while waiting:
            new = set(following[waiting.pop()]) - found
            found |= new
            waiting.extend(new)
        return [node for node in self.reads if node in found]


def tabs(session: Session) -> tuple[tuple[str, str], ...]:
    """Return id and title of each tab: one per graph, and one for the partitions if there is a region."""
    frames = {graph.frame for graph in session.graphs}
    found = []
    for graph in session.graphs:
        words = [clean(graph.kind, SHORT)]
        if graph.parent:
            words.append(f"in {clean(graph.parent[1], SHORT)}")
        if len(frames) > 1:
            words.append(f"of frame {graph.frame}")
        found.append((sendable(graph.id), " ".join(words)))
    return (*found, (PARTITIONS, PARTITIONS)) if session.plan.regions else tuple(found)


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
    wanted = tab_opening(tab, opening or Opening())

    def open_in(scope: str, folds: Sequence[Fold]) -> list[ShownFold]:
        chosen = {key.removeprefix(scope): on for key, on in wanted.chosen.items() if key.startswith(scope)}
        return shown(folds, replace(wanted, chosen=chosen))

    parts = parts_of(session, tab, open_in, outlines or Outlines(session))
    scene = scene_of(session, [part.section for part in parts])
    texts = Texts()
    facts = facts_of(session, parts, texts)
    states = {piece.state for part in parts for piece in part.pieces}
    used = {mark for part in parts for box in part.section.boxes for mark in box.marks}
    legend: tuple[Entry | str, ...] = (
        *scene.entries,
        *(f"{glyph} {state}{DRAWN.get(state, '')}" for state, glyph in STATE_GLYPHS.items() if state in states),
        *(f"{mark} {mark.meaning}" for mark in Badge if mark in used),
    )
    crumbs = {key: chain for part in parts for key, chain in _crumbs(part, part.folds)}
    return Picture(scene, {**facts, "texts": texts.all}, _reads(parts), legend, crumbs)


def tab_opening(tab: str, wanted: Opening) -> Opening:
    """Return ``wanted`` adapted to ``tab``: the tab of the partitions opens the folds around them by default."""
    modules = wanted.detail is Detail.MODULES
    return replace(wanted, detail=Detail.PIECES) if modules and tab == PARTITIONS else wanted


def parts_of(
    session: Session, tab: str, leaves: Callable[[str, Sequence[Fold]], Sequence[ShownFold]], outlines: Outlines
) -> list[TabGraph]:
    """Return the graphs of ``tab``; ``leaves(scope, outline)`` returns the folds of a graph that are shown as boxes."""
    graphs: Sequence[Graph] = [graph for graph in session.graphs if sendable(graph.id) == tab]
    parts: list[TabGraph] = []
    for graph in shown_graphs(session) if tab == PARTITIONS else graphs:
        parts.append(_part(graph, leaves, parts, outlines))
    return parts


def facts_of(session: Session, parts: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return what the page needs of ``parts`` besides their places; ``texts`` collects the texts."""
    entries = region_summaries(session)
    regions = whole_region_timings(session)
    return {
        "graphs": [_graph_facts(part) for part in parts],
        "regions": [{"name": clean(one.region.name, SHORT), "letter": paint(one.number).letter} for one in entries],
        "pieces": [_piece_facts(session, piece, part, regions) for part in parts for piece in part.pieces],
        **stroke_arrays(parts, len(entries)),
        **box_arrays(parts, texts),
        **node_arrays(parts, texts),
        **tooltip_arrays(parts, texts),
        "edges": edge_array(parts),
    }


def _crumbs(
    part: TabGraph, folds: Iterable[Fold], around: tuple[tuple[str, str], ...] = ()
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    for fold in folds:
        if fold.opens:
            here = (*around, (part.scope + fold.key, clean(fold.title or part.named(fold), SHORT)))
            yield here[-1][0], here
            yield from _crumbs(part, fold.parts, here)


def _reads(parts: Sequence[TabGraph]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in parts:
        names = {node.name: sendable(f"{part.graph.id}:{node.name}") for node in part.nodes}
        for node in part.nodes:
            found[names[node.name]] = [names[name] for name in node.inputs if name in names]
    return found


def _part(
    graph: Graph,
    leaves_of: Callable[[str, Sequence[Fold]], Sequence[ShownFold]],
    before: Sequence[TabGraph],
    outlines: Outlines,
) -> TabGraph:
    name = f"s{len(before)}"
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
    last = before[-1] if before else None
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
        first_node=last.first_node + len(last.nodes) if last else 0,
        first_box=last.first_box + len(last.section.boxes) if last else 0,
        first_piece=last.first_piece + len(last.pieces) if last else 0,
    )


def _graph_facts(part: TabGraph) -> Payload:
    first, number = part.first_node, len(part.nodes)
    return {"id": sendable(part.graph.id), "title": part.section.title, "first": first, "count": number}


def _piece_facts(session: Session, piece: RegionPiece, part: TabGraph, regions: Mapping[str, RegionTiming]) -> Payload:
    """Return what the page shows of a piece; its title has the speedup of the whole region, as the region's row has."""
    cut = next((cut for cut in session.partitions if cut.id == piece.id), None)
    applied = cut.config_applied if cut else None
    region = regions.get(cut.region) if cut else None
    name = part.piece_names[part.pieces.index(piece)]
    ops, state = count(len(piece.nodes), "op"), str(piece.state or "")
    requested = config_text(
        cut.config_requested
        if cut
        else config_of(session.plan.regions[piece.region], Direction.of_graph(part.graph.id))
    )
    done = requested if applied is None else config_text(applied)
    sign = f"{STATE_GLYPHS[piece.state]} " if piece.state else ""
    facts = {
        "region": " · ".join(filter(None, (name, ops, state, piece.note))),
        "requested": requested,
        "applied": "" if done == requested else done,
        "error": clean(piece.error),
        "time": _times(session, cut),
    }
    return {
        "id": sendable(piece.id),
        "region": piece.region,
        "state": state,
        "words": [" · ".join(filter(None, (sign + name, state or ops, piece.note))), sign + name, name],
        "speedup": _speedup(region) if region and region.speedup is not None else "",
        "facts": [[word, text] for word, text in facts.items() if text],
    }


def _speedup(region: RegionTiming) -> str:
    figure = ratio(region.speedup, region.numerics)
    return f"{figure} {region.verdict}" if region.verdict is Verdict.INCONCLUSIVE else figure


def _times(session: Session, cut: Partition | None) -> str:
    """Return the times of a partition alone; empty if its current artifact was not measured."""
    for timing in session.partition_timings if cut else ():
        if cut and timing.partition == cut.id and timing.artifact == cut.artifact:
            speedup = f", {ratio(timing.speedup, timing.numerics)}" if timing.speedup is not None else ""
            found = bounds(timing.speedup_low, timing.speedup_high)
            between = f" ({found})" if found else ""
            compiled = f", {duration(timing.compiled_s)} compiled" if timing.compiled_s is not None else ""
            return f"{duration(timing.eager_s)} eager{compiled}{speedup}{between}"
    return ""
