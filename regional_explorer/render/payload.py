"""What the page draws of one tab: texts once each, all else as flat arrays that travel as binary buffers.

Every text to be shown was cleaned here; the page shows it as text and nothing else. Nodes are named ``graph:name``,
which is what a selection holds and what ``Exploration.mark(nodes=...)`` takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from regional_explorer.record.graph import Graph, Role
from regional_explorer.record.region import Partition, State
from regional_explorer.record.session import Session
from regional_explorer.render.arrays import (
    CARVED,
    RANDOM,
    RECOMPUTE,
    Part,
    Payload,
    Texts,
    box_arrays,
    edge_arrays,
    node_arrays,
)
from regional_explorer.render.compose import SectionBuilder, scene_of, shown_graphs
from regional_explorer.render.figures import count, duration
from regional_explorer.render.outline import Opening, outline, shown
from regional_explorer.render.palette import DARK, LIGHT, paint
from regional_explorer.render.pieces import Piece
from regional_explorer.render.scene import Look, Mark, Scene
from regional_explorer.render.tables import config_text
from regional_explorer.render.untrusted import SHORT, clean, sendable

PARTITIONS = "partitions"
"""The tab of what was cut out, all graphs side by side."""
UNLIMITED = 1_000_000
"""A budget of boxes that nothing exceeds."""

SIGNS = {
    State.FRESH: ("✓ ", "✓ compiled"),
    State.STALE: ("◌ ", "◌ hatched: to be compiled"),
    State.EAGER: ("○ ", "○ dotted: runs eagerly"),
    State.FAILED: ("✕ ", "✕ crossed: failed"),
}
"""What stands before the name of a piece, and what the legend says to it."""
NOTES = (
    (RECOMPUTE, "recomputed in the backward"),
    (RANDOM, "random"),
    (CARVED, "taken out of its region: runs eagerly"),
)
"""What is told of nodes with a flag."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One tab: its scene, which has to be given places, and all else that the page needs."""

    scene: Scene
    facts: Payload


def tabs(session: Session) -> tuple[tuple[str, str], ...]:
    """Return id and title of each tab: one per graph, and one for the partitions where there is a region."""
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
    """Return the tab to begin with: the first graph that runs."""
    running = shown_graphs(session)
    return sendable(running[0].id) if running else ""


def picture(session: Session, tab: str, opening: Opening | None = None) -> Picture:
    """Return what ``tab`` shows of ``session``; an unknown tab shows nothing.

    Args:
        session: The record.
        tab: An id as ``tabs`` gives it.
        opening: Which folds are open, by the keys of the payload; by default as many as can be taken in.
    """
    wanted = opening or Opening()
    graphs: Sequence[Graph] = [graph for graph in session.graphs if sendable(graph.id) == tab]
    if tab == PARTITIONS:
        graphs, wanted = shown_graphs(session), replace(wanted, overview=wanted.budget < UNLIMITED)
    parts: list[Part] = []
    for graph in graphs:
        parts.append(_part(session, graph, wanted, parts))
    scene = scene_of(session, [part.section for part in parts])
    texts = Texts()
    states = {piece.state for part in parts for piece in part.pieces}
    facts: Payload = {
        "title": scene.title,
        "graphs": [_graph_facts(part) for part in parts],
        "regions": list(_regions(session, scene)),
        "pieces": [_piece_facts(session, piece, part) for part in parts for piece in part.pieces],
        "marks": [[str(mark), mark.meaning] for mark in Mark],
        "states": [text for state, (_, text) in SIGNS.items() if state in states],
        "notes": [list(note) for note in NOTES],
        "looks": [str(look) for look in Look],
        "grounds": {"light": asdict(LIGHT), "dark": asdict(DARK)},
        **box_arrays(parts, texts),
        **node_arrays(parts, texts),
        **edge_arrays(parts),
    }
    return Picture(scene, {**facts, "texts": texts.all})


def _part(session: Session, graph: Graph, opening: Opening, before: Sequence[Part]) -> Part:
    name = f"s{len(before)}"
    builder = SectionBuilder(session, graph, name)
    scope = f"{name}/"
    chosen = {key.removeprefix(scope): on for key, on in opening.chosen.items() if key.startswith(scope)}
    leaves = shown(outline(graph, builder.pieces), replace(opening, chosen=chosen))
    section = builder.build([leaf.fold.bundle for leaf in leaves])
    home = {name: number for number, box in enumerate(section.boxes) for name in box.nodes}
    piece_of = {name: number for number, piece in enumerate(builder.pieces) for name in piece.nodes}
    for node in graph.nodes:
        if node.role is Role.OP and node.name not in home and node.inputs and node.inputs[0] in home:
            # What picks one result of an op out lies in the box of that op, and in its region.
            home[node.name] = home[node.inputs[0]]
            if node.inputs[0] in piece_of:
                piece_of.setdefault(node.name, piece_of[node.inputs[0]])
    last = before[-1] if before else None
    return Part(
        graph=graph,
        section=section,
        scope=scope,
        leaves=(*[None] * (len(section.boxes) - len(leaves)), *leaves),
        pieces=builder.pieces,
        piece_names=tuple(builder.piece_name(piece) for piece in builder.pieces),
        home=home,
        piece_of=piece_of,
        first_node=last.first_node + len(last.nodes) if last else 0,
        first_box=last.first_box + len(last.section.boxes) if last else 0,
        first_piece=last.first_piece + len(last.pieces) if last else 0,
    )


def _graph_facts(part: Part) -> Payload:
    first, number = part.first_node, len(part.nodes)
    return {"id": sendable(part.graph.id), "title": part.section.title, "first": first, "count": number}


def _piece_facts(session: Session, piece: Piece, part: Part) -> Payload:
    cut = next((cut for cut in session.partitions if cut.id == piece.id), None)
    applied = cut.config_applied if cut else None
    speedup, times = _measured(session, cut)
    return {
        "id": sendable(piece.id),
        "region": piece.region,
        "name": part.piece_names[part.pieces.index(piece)],
        "ops": count(len(piece.nodes), "op"),
        "state": str(piece.state or ""),
        "sign": SIGNS[piece.state][0] if piece.state else "",
        "note": piece.note,
        "asked": config_text(cut.config_asked if cut else session.plan.regions[piece.region].config),
        "applied": "" if applied is None else config_text(applied),
        "error": clean(piece.error),
        "speedup": speedup,
        "times": times,
    }


def _measured(session: Session, cut: Partition | None) -> tuple[str, str]:
    """Return speedup and times of a partition as they are written; nothing where it was not measured as it stands."""
    for timing in session.partition_timings if cut else ():
        if cut and timing.partition == cut.id and timing.artifact == cut.artifact:
            speedup = "" if timing.speedup is None else f"{timing.speedup:.2f}×"
            bounds = f" ({timing.speedup_low:.2f}–{timing.speedup_high:.2f})" if timing.speedup_low else ""
            compiled = f", {duration(timing.compiled_s)} compiled" if timing.compiled_s is not None else ""
            return speedup, f"{duration(timing.eager_s)} eager{compiled}{', ' if speedup else ''}{speedup}{bounds}"
    return "", ""


def _regions(session: Session, scene: Scene) -> Iterator[dict[str, Any]]:
    for number, (region, entry) in enumerate(zip(session.plan.regions, scene.entries, strict=True)):
        states = {cut.state for cut in session.partitions if cut.region == region.name}
        worst = next((one for one in (State.FAILED, State.STALE, State.EAGER, State.FRESH) if one in states), "")
        colours = paint(number)
        yield {
            "name": entry.title,
            "detail": entry.detail,
            "state": str(worst) if region.enabled else "disabled",
            "letter": colours.letter,
            "line": colours.line,
            "light": asdict(colours.light),
            "dark": asdict(colours.dark),
        }
