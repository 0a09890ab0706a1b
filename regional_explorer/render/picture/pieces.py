"""Finds the pieces of regions in one graph: partitions with their state, and connected nodes that were not cut."""

from __future__ import annotations

from dataclasses import dataclass

from regional_explorer.record.graph import Graph, Role
from regional_explorer.record.grouping import connected
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session


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
    """Return the pieces of ``graph`` in the order they run: its partitions, and marked ops that are in none."""
    numbers = session.plan.numbers
    ops = {node.name: node for node in graph.nodes if node.role is Role.OP}
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
        assigned.update(uncut)
        state, note = _uncut_state(number in cut_regions, enabled=session.plan.regions[number].enabled)
        links = [(op, source) for op in uncut for source in ops[op].inputs if source in uncut]
        for count, component in enumerate(connected(list(uncut), links)):
            result.append(RegionPiece(f"{name}/{graph.id}/rest/{count}", number, None, tuple(component), state, note))
    positions = {node.name: position for position, node in enumerate(graph.nodes)}
    return tuple(sorted(result, key=lambda piece: min(positions[name] for name in piece.nodes)))


def _uncut_state(was_cut: bool, *, enabled: bool) -> tuple[State | None, str]:  # noqa: FBT001 - private, one caller
    if not enabled:
        return State.EAGER, "disabled"
    return (State.EAGER, "left out of the partition") if was_cut else (None, "")
