"""Cuts partitions out as pieces: the cut graph, and the ids of partitions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import fx

from regional_explorer.record.graph import Node
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Cut
from regional_explorer.regions.instances import Claim, Instance
from regional_explorer.regions.order import schedule
from regional_explorer.regions.partition import NodeGroup, Proposal, computed_from_sizes, propose, propose_upstream
from regional_explorer.regions.select import Assignment
from regional_explorer.torch_api.graphs import FALLBACK, BoxedCall, bodies, boxed, inductor_knows_fallback, resolve

CUTTABLE_BODIES = ("invoke_subgraph", "cond", "while_loop")
"""Higher-order ops whose bodies run op by op; others (flex_attention, scan) run theirs under vmap or trace it again."""


PieceContent = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Graph, nodes, inputs, outputs, and carved nodes."""


@dataclass(eq=False)
class Piece:
    """One live partition: its own graph module, and where it came from.

    ``nodes`` are the names of its nodes in the graph that it was cut from, ``inputs`` the names of the nodes that feed
    it, ``outputs`` those of the nodes that it returns as a tuple, ``carved`` those that run eagerly inside it.
    """

    claim: Claim
    graph_id: str
    gm: fx.GraphModule
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    carved: tuple[str, ...] = ()

    @cached_property
    def eager(self) -> BoxedCall:
        """The piece as a function of one argument list, which it empties."""
        return boxed(self.gm)

    @property
    def content(self) -> PieceContent:
        """The code and inputs of the piece, without its region: pieces with equal content get the same inputs."""
        return self.graph_id, self.nodes, self.inputs, self.outputs, self.carved

    def claimed_by(self, claim: Claim) -> Piece:
        """Return the piece for another claim, with the same graph module and its generated code."""
        piece = copy.copy(self)
        piece.claim = claim
        return piece


@dataclass
class Proposed:
    """The proposed partitions of a graph, and of the bodies of higher-order ops that stay in it.

    ``carved`` are the nodes that run eagerly inside their partition: upstream leaves them there, and Inductor calls the
    eager kernel (if this torch's Inductor cannot, there are none). ``bodies`` come with the ``get_attr`` nodes that
    name them.
    """

    graph_id: str
    gm: fx.GraphModule
    proposal: Proposal
    carved: frozenset[fx.Node]
    bodies: list[tuple[list[fx.Node], Proposed]] = field(default_factory=list)

    @cached_property
    def units(self) -> list[list[fx.Node]]:
        """Partitions and single ops in an order in which they can run."""
        return schedule(list(self.gm.graph.nodes), self.proposal.before, [part.nodes for part in self.proposal.parts])

    def groups(self) -> Iterator[tuple[Proposed, NodeGroup]]:
        """Yield the partitions in the order they run, each with its graph or body; those of bodies come last."""
        parts = {id(part.nodes): part for part in self.proposal.parts}
        yield from ((self, parts[id(unit)]) for unit in self.units if id(unit) in parts)
        for _, body in self.bodies:
            yield from body.groups()

    def cyclic(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the sets of regions that feed each other in a cycle, each with its graph."""
        yield from ((self.graph_id, regions) for regions in self.proposal.cyclic)
        for _, body in self.bodies:
            yield from body.cyclic()


def propose_cut(
    gm: fx.GraphModule,
    graph_id: str,
    records: Mapping[str, Mapping[str, Node]],
    assignment: Assignment,
    order: Sequence[str],
    how: Cut = Cut.INSTANCES,
) -> Proposed:
    """Return the proposed partitions of ``gm``, which is not changed.

    Args:
        gm: the live graph.
        graph_id: its id.
        records: the recorded nodes by graph id and name, bodies of higher-order ops included.
        assignment: the claims on nodes.
        order: names of the regions, in the order of the plan.
        how: one partition per instance, or upstream's cut.
    """
    nodes = records[graph_id]
    upstream = how is Cut.UPSTREAM
    with_carved = upstream and inductor_knows_fallback()

    def claim_of(node: fx.Node) -> Claim | None:
        return assignment.claim(graph_id, nodes[node.name], with_carved=with_carved)

    proposal = propose_upstream(gm, claim_of, order) if upstream else propose(gm.graph, claim_of, order)
    inside = {node for part in proposal.parts for node in part.nodes}
    carved = frozenset(node for node in inside if assignment.is_carved(nodes[node.name]))
    proposed = Proposed(graph_id, gm, proposal, carved)
    holders = _body_holders(gm)
    for node, body in bodies(gm):
        users = {user for holder in holders[body] for user in holder.users}
        if any(_runs_op_by_op(user) for user in users - inside):
            inner = propose_cut(body, f"{graph_id}/{node.target}", records, assignment, order, how)
            proposed.bodies.append((holders[body], inner))
    return proposed


def pieces_of(proposed: Proposed, known_pieces: Mapping[PieceContent, Piece] | None = None) -> list[Piece]:
    """Return the partitions in the order they run, each as a piece; those of bodies come last.

    ``known_pieces`` has pieces of earlier cuts of the same graph, by content; they are used again.
    """
    return [_piece_of_partition(graph, part, known_pieces or {}) for graph, part in proposed.groups()]


def cut_graph(proposed: Proposed, calls: Mapping[Piece, BoxedCall]) -> fx.GraphModule:
    """Return the graph with each of its pieces replaced by one call of a function.

    Args:
        proposed: the graph and its partitions.
        calls: the function to call for each piece; it takes one list of inputs and empties it.
    """
    # A node is in one partition: its first node names a piece.
    pieces = {piece.nodes[0]: piece for piece in calls if piece.graph_id == proposed.graph_id}
    gm = _rebuild(proposed, pieces, calls)
    for holders, body in proposed.bodies:
        if next(body.groups(), None):
            inner = cut_graph(body, calls)
            for holder in holders:
                setattr(gm, str(holder.target), inner)
    return gm


def _body_holders(gm: fx.GraphModule) -> dict[fx.GraphModule, list[fx.Node]]:
    """Return the ``get_attr`` nodes that name each body: several calls may share one."""
    resolved = ((resolve(gm, node), node) for node in gm.graph.find_nodes(op="get_attr"))
    return grouped((body, node) for body, node in resolved if isinstance(body, fx.GraphModule))


def _runs_op_by_op(node: fx.Node) -> bool:
    return str(node.target).rsplit(".", 1)[-1] in CUTTABLE_BODIES


def _rebuild(proposed: Proposed, pieces: Mapping[str, Piece], calls: Mapping[Piece, BoxedCall]) -> fx.GraphModule:
    graph = fx.Graph()
    new_nodes: dict[str, fx.Node] = {}
    for unit in proposed.units:
        piece = pieces.get(unit[0].name)
        if piece is None:
            new_nodes[unit[0].name] = graph.node_copy(unit[0], lambda node: new_nodes[node.name])
        else:
            arguments = graph.call_function(_feed, tuple(new_nodes[name] for name in piece.inputs))
            result = graph.call_function(calls[piece], (arguments,))
            for index, name in enumerate(piece.outputs):
                new_nodes[name] = graph.call_function(_take, (result, index))
    return fx.GraphModule(proposed.gm, graph)


def _feed(*values: Any) -> list[Any]:
    """Return the argument list of a piece, which empties it, so that its inputs can be freed while it runs."""
    return list(values)


def _take(values: Sequence[Any], index: int) -> Any:
    """Return one result of a piece: ``getitem`` under another name, so that the code shows where it was cut."""
    return values[index]


def _piece_of_partition(proposed: Proposed, part: NodeGroup, known_pieces: Mapping[PieceContent, Piece]) -> Piece:
    """Return a partition as a piece: a known one with the same content, or a new one."""
    inside = set(part.nodes)
    inputs, copied = _inputs_and_copied(proposed.gm, part.nodes)
    outputs = [node for node in part.nodes if any(user not in inside for user in node.users)]
    carved = [node for node in part.nodes if node in proposed.carved]
    content = (proposed.graph_id, _names_of(part.nodes), _names_of(inputs), _names_of(outputs), _names_of(carved))
    if content in known_pieces:
        return known_pieces[content].claimed_by(part.claim)
    gm = fx.GraphModule(proposed.gm, _piece_graph([*copied, *part.nodes], inputs, outputs, carved), class_name="Piece")
    return Piece(part.claim, proposed.graph_id, gm, *content[1:])


def _names_of(nodes: Sequence[fx.Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _names_body(gm: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node names the body of a higher-order op, which a piece holds itself."""
    return node.op == "get_attr" and isinstance(resolve(gm, node), fx.GraphModule)


def _inputs_and_copied(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return what a partition takes, and what it has copies of instead: names of bodies, numbers that sizes imply."""
    inside = set(nodes)
    inputs: dict[fx.Node, None] = {}
    copied: dict[fx.Node, None] = {}

    def add_sources(node: fx.Node) -> None:
        for source in node.all_input_nodes:
            if source in inside or source in copied:
                continue
            if _names_body(gm, source) or computed_from_sizes(source):
                add_sources(source)
                copied[source] = None
            else:
                inputs[source] = None

    for node in nodes:
        add_sources(node)
    return list(inputs), list(copied)


def _piece_graph(
    nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], carved: Sequence[fx.Node]
) -> fx.Graph:
    """Return nodes as a graph of their own."""
    graph = fx.Graph()
    new_nodes: dict[fx.Node, fx.Node] = {}
    for source in inputs:
        new_nodes[source] = graph.placeholder(source.name)
        new_nodes[source].meta = {key: source.meta[key] for key in ("val",) if key in source.meta}
    for node in nodes:
        new_nodes[node] = graph.node_copy(node, new_nodes.__getitem__)
    for node in carved:
        new_nodes[node].meta["custom"] = {**(node.meta.get("custom") or {}), FALLBACK: True}
    graph.output(tuple(new_nodes[node] for node in outputs))
    return graph


class PartitionId(NamedTuple):
    """The id of a partition, and the number of its instance within the region."""

    name: str
    instance: int


@dataclass
class PartitionNumbering:
    """Numbers partitions in the order in which they are cut.

    An id consists of region, instance and graph, and a number if the instance was split. Instances that are known by a
    module call are numbered over all graphs, others by their order in their graph.
    """

    _instances: dict[str, dict[Instance, int]] = field(default_factory=dict)
    _unnamed: dict[tuple[Claim, str], int] = field(default_factory=dict)
    _pieces: dict[str, int] = field(default_factory=dict)

    def number(self, claim: Claim, graph_id: str) -> PartitionId:
        """Return the id of the next partition that is cut out of ``graph_id`` for ``claim``."""
        if claim.instance is not None:
            numbers = self._instances.setdefault(claim.region, {})
            instance = numbers.setdefault(claim.instance, len(numbers))
        else:
            instance = self._unnamed[claim, graph_id] = self._unnamed.get((claim, graph_id), -1) + 1
        base = f"{claim.region}.{instance}/{graph_id}"
        count = self._pieces[base] = self._pieces.get(base, -1) + 1
        return PartitionId(base if count == 0 else f"{base}.{count}", instance)
