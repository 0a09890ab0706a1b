"""What the page draws from: boxes, folds and strokes as records."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from regional_explorer.errors import count, sendable
from regional_explorer.picture.compose import (
    Detail,
    Opening,
    SectionBuilder,
    ShownFold,
    Turn,
    all_folds,
    scene_of,
    shown,
    shown_graphs,
    turn_of,
)
from regional_explorer.picture.outline import Chain, Fold, FoldKind, RegionPiece, outline, scopes
from regional_explorer.picture.scene import Badge, Box, Entry, Look, Scene, Section
from regional_explorer.record.graph import Graph, Node, Role
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Direction, config_of
from regional_explorer.record.regions import RegionTiming, current_timings, region_summaries, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import PartitionTiming, Verdict
from regional_explorer.style.css import DARK, LIGHT, Ground, Tone, paint
from regional_explorer.style.element import LONG, SHORT, clean
from regional_explorer.style.formats import STATE_GLYPHS, bounds, config_text, duration, speedup

Payload = dict[str, Any]
UNSET = -1
MOST_VALUES = 4
"""How many results of a node are listed at most."""


@dataclass(frozen=True)
class TabGraph:
    """One graph of a tab.

    ``folds`` are its outline; ``leaves`` has the fold of each box of ``section``, None for an input. ``home`` and
    ``piece_of`` map a node to the number of its box and of its piece in this graph, ``facts`` to its ``NODE_FACTS``;
    ``first_node``, ``first_box`` and ``first_piece`` are the numbers at which those of this graph begin in the tab.
    """

    graph: Graph
    section: Section
    scope: str
    folds: tuple[Fold, ...]
    leaves: tuple[ShownFold | None, ...]
    pieces: tuple[RegionPiece, ...]
    piece_names: tuple[str, ...]
    home: Mapping[str, int]
    piece_of: Mapping[str, int]
    facts: Mapping[str, Mapping[str, str]]
    first_node: int
    first_box: int
    first_piece: int

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are in a box, in the order they run."""
        return tuple(node for node in self.graph.nodes if node.name in self.home)

    def crumb(self, fold: Fold) -> str:
        """Return what an open fold is called: its title, or the name of its piece or its first op."""
        name = self.piece_names[self.pieces.index(fold.piece)] if fold.piece else fold.nodes[0]
        return clean(fold.title or name, SHORT)


class Texts:
    """Collects texts, so that each is cleaned and sent once and referred to by its number; the empty text is 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}
        self._raw_numbers: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)

    def number(self, text: str) -> int:
        """Return the number of a text to be shown."""
        if text not in self._raw_numbers:
            self._raw_numbers[text] = self.exact(clean(text, LONG))
        return self._raw_numbers[text]

    def exact(self, text: str) -> int:
        """Return the number of a text that is sent unchanged: a clean one, or a key that the page only sends back."""
        return self._numbers.setdefault(text, len(self._numbers))


def box_arrays(tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the arrays of boxes; ``box_texts`` has five texts of each.

    They are title, detail, signs, the key of the fold that the box opens, and that of the open fold around it.
    ``box_shares`` has pairs of a region and the number of its ops in the box.
    """
    box_texts, box_pieces, group_pieces, box_shares, ends = array("I"), array("i"), array("I"), array("I"), array("I")
    box_groups = array("i")
    for tab_graph in tab_graphs:
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            around_key = tab_graph.scope + leaf.inside[-1].key if leaf and leaf.inside else ""
            opens_key = tab_graph.scope + leaf.fold.key if leaf and leaf.fold.opens else ""
            signs = "".join(badge for badge in Badge if badge in box.marks)
            box_texts.extend((texts.number(box.title), texts.number(box.detail), texts.number(signs)))
            box_texts.extend((texts.exact(opens_key), texts.exact(around_key)))
            box_shares.extend(number for share in box.shares for number in share)
            ends.append(len(box_shares))
        piece_numbers = {piece.id: tab_graph.first_piece + number for number, piece in enumerate(tab_graph.pieces)}
        piece_of_box: dict[str, int] = {}
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            if leaf and leaf.fold.piece:
                piece_of_box[box.id] = piece_numbers[leaf.fold.piece.id]
            box_pieces.append(UNSET if box.region is None else piece_of_box[box.id])
        group_of = {
            box: number
            for number, group in enumerate(tab_graph.section.groups, len(group_pieces))
            for box in group.boxes
        }
        box_groups.extend(group_of.get(box.id, UNSET) for box in tab_graph.section.boxes)
        group_pieces.extend(piece_of_box[group.boxes[0]] for group in tab_graph.section.groups)
    return {
        "box_texts": box_texts.tobytes(),
        "box_pieces": box_pieces.tobytes(),
        "group_pieces": group_pieces.tobytes(),
        "box_groups": box_groups.tobytes(),
        "box_shares": box_shares.tobytes(),
        "box_share_ends": ends.tobytes(),
    }


def node_arrays(tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the arrays of nodes; ``node_facts`` has five texts of each, in the order of ``NODE_FACTS``."""
    node_facts, node_boxes, node_pieces = array("I"), array("I"), array("i")
    node_names: list[str] = []
    for tab_graph in tab_graphs:
        for node in tab_graph.nodes:
            node_facts.extend(map(texts.exact, tab_graph.facts[node.name].values()))
            node_boxes.append(tab_graph.first_box + tab_graph.home[node.name])
            piece = tab_graph.piece_of.get(node.name)
            node_pieces.append(UNSET if piece is None else tab_graph.first_piece + piece)
            node_names.append(sendable(node.name))
    return {
        "node_names": node_names,
        "node_facts": node_facts.tobytes(),
        "node_boxes": node_boxes.tobytes(),
        "node_pieces": node_pieces.tobytes(),
    }


def facts_of_nodes(graph: Graph) -> dict[str, dict[str, str]]:
    """Return the ``NODE_FACTS`` of each node by its name, cleaned."""
    return {node.name: {fact: _node_fact(node, fact) for fact in NODE_FACTS} for node in graph.nodes}


def _node_fact(node: Node, fact: str) -> str:
    try:
        return clean(NODE_FACTS[fact](node), LONG)
    except Exception:  # noqa: BLE001 - the other facts and nodes stand
        return "?"


def _node_source(node: Node) -> str:
    line = node.source
    return ": ".join(filter(None, (line.numbered, line.text.strip()))) if line else ""


NODE_FACTS: Mapping[str, Callable[[Node], object]] = {
    "name": lambda node: node.name,
    "target": lambda node: node.target,
    "value": lambda node: ", ".join(map(str, node.values[:MOST_VALUES])),
    "module": lambda node: node.module_path or "",
    "source": _node_source,
}
"""The facts of a node that are shown and can be searched; each is ``?`` if the node is malformed."""


def edge_array(tab_graphs: Sequence[TabGraph]) -> bytes:
    """Return the edges between boxes, in the order of the scene, as pairs of numbers."""
    edges = array("I")
    for tab_graph in tab_graphs:
        box_numbers = {box.id: tab_graph.first_box + number for number, box in enumerate(tab_graph.section.boxes)}
        edges.extend(box_numbers[end] for edge in tab_graph.section.edges for end in edge)
    return edges.tobytes()


MOST_READS = 4
"""How many tensors that a node reads are listed at most; none for a box with this many nodes."""
MOST_HALF = 110
"""Characters kept of a node's name, and of its target, where both are shown."""
FLAG_NOTES: Mapping[str, str] = {
    "recompute": "recomputed in the backward",
    "random": "random",
    "carved": "taken out of its region: runs eagerly",
}
"""The note in the tooltip of a box that has a node with this flag."""


def tooltip_arrays(tab_graphs: Sequence[TabGraph], texts: Texts) -> Payload:
    """Return the tooltip rows of all boxes as one array of text numbers, and the index where each box ends in it."""
    rows, ends = array("I"), array("I")
    for tab_graph in tab_graphs:
        nodes_of_op = _nodes_of_ops(tab_graph)
        outside = {node.name: node for node in tab_graph.graph.nodes if node.name not in tab_graph.home}
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            opens = leaf is not None and leaf.fold.opens
            nodes = [node for name in box.nodes for node in nodes_of_op[name]]
            for word, text in _tooltip_rows(box, nodes, tab_graph.facts, outside, opens=opens):
                if text:
                    rows.extend((texts.exact(word), texts.exact(text)))
            ends.append(len(rows))
    return {"box_tooltips": rows.tobytes(), "box_tooltip_ends": ends.tobytes()}


def _nodes_of_ops(tab_graph: TabGraph) -> dict[str, list[Node]]:
    """Return the nodes of each op that boxes name: the op itself, then the nodes that belong to its box, as getitem."""
    op_names = {name for box in tab_graph.section.boxes for name in box.nodes}
    op_of_node: dict[str, str] = {}
    nodes_of_op: dict[str, list[Node]] = {name: [] for name in op_names}
    for node in tab_graph.nodes:
        op_of_node[node.name] = node.name if node.name in op_names else op_of_node[node.inputs[0]]
        nodes_of_op[op_of_node[node.name]].append(node)
    return nodes_of_op


def _tooltip_rows(
    box: Box, nodes: Sequence[Node], facts: Mapping[str, Mapping[str, str]], outside: Mapping[str, Node], *, opens: bool
) -> Iterator[tuple[str, str]]:
    """Yield words and texts, all of them clean, as the facts of nodes are."""
    first = facts[nodes[0].name] if nodes else {}
    if first and not opens:
        yield "node", f"{_half_line(first['name'])} = {_half_line(first['target'])}"
        yield "gives", first["value"]
    else:
        yield "", clean(box.detail)
        yield "holds", f"{count(len(nodes), 'node')} · + or double-click opens it"
    if first:
        yield "module", first["module"]
        yield "line", first["source"]
    if 0 < len(nodes) < MOST_READS:
        outside_reads = [outside[name] for name in nodes[0].inputs if name in outside]
        yield "reads", clean(", ".join(f"{node.role} {node.name}" for node in outside_reads[:MOST_READS]))
    for flag, note in FLAG_NOTES.items():
        if any(getattr(node, flag) for node in nodes):
            yield "note", note


def _half_line(text: str) -> str:
    return text if len(text) <= MOST_HALF else clean(text, MOST_HALF)


THEMES: Mapping[str, Ground] = {"light": LIGHT, "dark": DARK}
LINE_DASHES: Mapping[str, Sequence[float]] = {"solid": (), "dashed": (6, 3), "dotted": (1.5, 2.5)}
FOLD_DASH = (3, 2)
"""The dashes of a box with several ops."""

BoxStyle = tuple[Look, int | None, bool]
"""Look, region, and whether it failed."""
HullStyle = tuple[int, State | None]
"""Region, and the state of its piece."""


def stroke_arrays(tab_graphs: Sequence[TabGraph], regions: int) -> Payload:
    """Return the style number of each box and piece, and the styles of boxes, pieces and ``regions`` in each theme.

    An empty ``fill`` is transparent; the fill ``"paper"`` is the background of the page.
    """
    box_styles: dict[BoxStyle, int] = {}
    hull_styles: dict[HullStyle, int] = {}
    style_of_box, style_of_piece = array("I"), array("I")
    for tab_graph in tab_graphs:
        for box, leaf in zip(tab_graph.section.boxes, tab_graph.leaves, strict=True):
            failed = box.look is Look.BAD or (box.failed and leaf is not None and leaf.fold.opens)
            style_of_box.append(box_styles.setdefault((box.look, box.region, failed), len(box_styles)))
        for piece in tab_graph.pieces:
            style_of_piece.append(hull_styles.setdefault((piece.region, piece.state), len(hull_styles)))
    styles = {
        theme: {
            "ground": asdict(ground),
            "boxes": [_box_stroke(style, ground, _region_tone(style[1], theme)) for style in box_styles],
            "hulls": [_hull_stroke(style, ground, _region_tone(style[0], theme)) for style in hull_styles],
            "regions": [getattr(paint(region), theme).stroke for region in range(regions)],
        }
        for theme, ground in THEMES.items()
    }
    return {"styles": styles, "box_styles": style_of_box.tobytes(), "piece_styles": style_of_piece.tobytes()}


def _region_tone(region: int | None, theme: str) -> Tone | None:
    return None if region is None else getattr(paint(region), theme)


def _box_stroke(style: BoxStyle, ground: Ground, tone: Tone | None) -> dict[str, Any]:
    look, region, failed = style
    stroke: dict[str, Any] = {
        "look": str(look),
        "fill": ground.box,
        "stroke": ground.edge,
        "text": ground.ink,
        "quiet": ground.quiet,
        "line": 0.8,
        "dash": [],
        "size": 10,
    }
    if tone is not None:
        stroke |= {"fill": "paper", "stroke": tone.stroke, "text": tone.text}
    match look:
        case Look.PIECE if tone is not None and region is not None:
            stroke |= {"fill": tone.fill, "dash": list(LINE_DASHES[paint(region).line])}
        case Look.RUN | Look.STACK:
            stroke |= {"dash": list(FOLD_DASH), "deep": look is Look.STACK}
        case Look.MODULE:
            stroke |= {"line": 1.2}
        case Look.VIEW:
            stroke |= {"line": 0.5, "size": 8}
        case Look.INPUT:
            stroke |= {"fill": "", "stroke": "", "text": ground.quiet}
    if failed:
        stroke |= {"stroke": ground.bad, "text": ground.bad, "line": 1.6}
    return stroke


def _hull_stroke(style: HullStyle, ground: Ground, tone: Tone | None) -> dict[str, Any]:
    region, state = style
    assert tone is not None  # noqa: S101 - every hull belongs to a region
    eager, failed = state is State.EAGER, state is State.FAILED
    return {
        "fill": "paper" if eager else tone.fill,
        "ground": tone.fill,
        "stroke": ground.bad if failed else tone.stroke,
        "text": ground.bad if failed else tone.text,
        "line": 1.8 if failed else 1.1,
        "dash": list(LINE_DASHES["dotted" if eager else paint(region).line]),
        "hatch": {State.FAILED: 8, State.STALE: 10}.get(state) if state else None,
        "crossed": failed,
    }


class GraphFacts:
    """What pictures show of a graph under every plan: the scopes of its ops, and the facts of its nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def scopes(self) -> Mapping[str, Chain]:
        """The scopes of each op."""
        return scopes(self.graph)

    @cached_property
    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        """The facts of each node."""
        return facts_of_nodes(self.graph)


class Outlines:
    """The outlines of a session's graphs, and their ``facts`` by graph id, which do not depend on what is open.

    Of ``before``, the outlines of an earlier session, the facts of graphs that both have are used again.
    """

    def __init__(self, session: Session, before: Outlines | None = None) -> None:
        self._session = session
        self._built: dict[tuple[str, str], tuple[SectionBuilder, tuple[Fold, ...]]] = {}
        facts = before.facts if before else {}
        self.facts: Mapping[str, GraphFacts] = {
            graph.id: facts[graph.id] if graph.id in facts and facts[graph.id].graph is graph else GraphFacts(graph)
            for graph in session.graphs
        }

    def of(self, graph: Graph, name: str) -> tuple[SectionBuilder, tuple[Fold, ...]]:
        """Return the builder of the section called ``name``, and the outline of its graph."""
        if (graph.id, name) not in self._built:
            builder = SectionBuilder(self._session, graph, name)
            folds = outline(graph, builder.pieces, self.facts[graph.id].scopes)
            self._built[graph.id, name] = builder, folds
        return self._built[graph.id, name]


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
    return {
        "id": sendable(tab_graph.graph.id),
        "title": tab_graph.section.title,
        "first": first,
        "count": number,
        "boxes": len(tab_graph.section.boxes),
    }


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
    return f"{speedup(timing)} {timing.verdict}" if timing.verdict is Verdict.INCONCLUSIVE else speedup(timing)


def _partition_times(timing: PartitionTiming) -> str:
    ratio = f", {speedup(timing)}" if timing.speedup is not None else ""
    limits = bounds(timing.speedup_low, timing.speedup_high)
    interval = f" ({limits})" if limits else ""
    compiled = f", {duration(timing.compiled_s)} compiled" if timing.compiled_s is not None else ""
    return f"{duration(timing.eager_s)} eager{compiled}{ratio}{interval}"


Record = dict[str, Any]
Edge = tuple[int, int]


def folded(session: Session, tab: str, outlines: Outlines) -> tuple[Payload, Picture]:
    """Return ``tab`` with a record for each fold, parents before their parts, and the picture that is shown first.

    A record has the number of its parent, its parts, its key, its turn, its crumb if it can be opened, how its box is
    drawn, and ``hull`` if there is one around its parts. ``nodes`` and ``edges`` refer to innermost folds.
    """
    opening = tab_opening(tab, Opening())
    texts = Texts()
    tab_graphs = parts_of(session, tab, lambda _scope, folds: list(all_folds(folds)), outlines)
    facts = facts_of(session, tab_graphs, texts)
    looks = _box_looks(facts)
    records: list[Record] = []
    record_of_box: list[int] = []
    spans = [_add_graph(tab_graph, opening, looks, records, record_of_box) for tab_graph in tab_graphs]
    edge_ends = [record_of_box[box] for box in _unpacked(facts["edges"])]
    edges = list(zip(edge_ends[::2], edge_ends[1::2], strict=True))
    for number, record in enumerate(records):
        if record["parent"] != UNSET:
            records[record["parent"]]["parts"].append(number)
    first_picture = picture(session, tab, outlines=outlines)
    node_numbers = {name: number for number, name in enumerate(first_picture.reads)}
    payload: Payload = {
        **{array_name: facts[array_name] for array_name in ("regions", "pieces", "styles", "node_names")},
        **{array_name: _unpacked(facts[array_name]) for array_name in ("piece_styles", "node_facts")},
        "node_pieces": _unpacked(facts["node_pieces"], "i"),
        "graphs": [{**graph, **_tops(records, span)} for graph, span in zip(facts["graphs"], spans, strict=True)],
        "tab": tab,
        "texts": texts.all,
        "folds": records,
        "nodes": [record_of_box[box] for box in _unpacked(facts["node_boxes"])],
        "edges": edges,
        "reads": [[node_numbers[name] for name in inputs] for inputs in first_picture.reads.values()],
        "budget": opening.budget,
        "chosen": {},
    }
    return payload, first_picture


def _box_looks(facts: Payload) -> list[Record]:
    """Return how each box is drawn: its texts, style, piece, tooltip and shares of regions."""
    texts, tooltips, shares = (_unpacked(facts[name]) for name in ("box_texts", "box_tooltips", "box_shares"))
    ends = ([0, *_unpacked(facts[name])] for name in ("box_tooltip_ends", "box_share_ends"))
    boxes = zip(_unpacked(facts["box_styles"]), _unpacked(facts["box_pieces"], "i"), *map(pairwise, ends), strict=True)
    return [
        {
            "texts": texts[5 * box : 5 * box + 5],
            "style": style,
            "piece": piece,
            "tooltip": tooltips[slice(*tooltip_span)],
            "shares": shares[slice(*share_span)],
        }
        for box, (style, piece, tooltip_span, share_span) in enumerate(boxes)
    ]


def _add_graph(
    tab_graph: TabGraph, opening: Opening, looks: Sequence[Record], records: list[Record], record_of_box: list[int]
) -> range:
    """Add the records of one graph and return their numbers; add that of each box's record to ``record_of_box``."""
    start = len(records)
    ops = sum(len(fold.nodes) for fold in tab_graph.folds)
    record_of_fold: dict[str, int] = {}
    for leaf in tab_graph.leaves:
        look = looks[len(record_of_box)]
        record: Record = {
            "parent": UNSET,
            "parts": [],
            "key": "",
            "turn": Turn.NEVER,
            **look,
        }
        if leaf:
            fold, piece = leaf.fold, leaf.fold.piece
            record["key"] = tab_graph.scope + fold.key
            record["turn"] = turn_of(fold, opening.detail, ops)
            record["parent"] = record_of_fold[leaf.inside[-1].key] if leaf.inside else UNSET
            if fold.opens:
                record["crumb"] = tab_graph.crumb(fold)
            if piece and fold.kind is FoldKind.PIECE:
                record["hull"] = True
            elif piece and not any(outer.piece for outer in leaf.inside):
                hull = {"turn": Turn.FIXED, "hull": True, "piece": look["piece"], "key": ""}
                records.append({"parent": record["parent"], "parts": [], **hull})
                record["parent"] = len(records) - 1
            record_of_fold[fold.key] = len(records)
        record_of_box.append(len(records))
        records.append(record)
    return range(start, len(records))


def record_and_outer(records: Sequence[Record], number: int) -> Iterator[int]:
    """Yield a record and those around it, from the inside out."""
    while number != UNSET:
        yield number
        number = records[number]["parent"]


def _tops(records: Sequence[Record], span: range) -> Payload:
    """Return the top-level folds of a graph, and the number behind that of its last record."""
    tops = [number for number in span if records[number]["parent"] == UNSET]
    return {"tops": [number for number in tops if records[number]["parts"] or records[number]["key"]], "end": span.stop}


def _unpacked(packed: bytes, typecode: str = "I") -> list[int]:
    numbers: array[int] = array(typecode)
    numbers.frombytes(packed)
    return numbers.tolist()
