"""Cuts the partitions out of a graph: each becomes a graph of its own, and one call in the cut graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from regional_explorer.record.graph import Node
from regional_explorer.record.plan import Cut
from regional_explorer.regions.cutting.dependencies import dependencies
from regional_explorer.regions.cutting.partition import NodeGroup, Proposal, propose, propose_upstream
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.order import schedule
from regional_explorer.regions.select import Assignment
from regional_explorer.torch_api import FALLBACK, BoxedCall, bodies, inductor_knows_fallback, is_carved, resolve

CUTTABLE_BODIES = ("invoke_subgraph", "cond", "while_loop")
"""Higher-order ops whose bodies run op by op; others (flex_attention, scan) run theirs under vmap or trace it again."""


PieceContent = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Graph, nodes, inputs, outputs, and carved nodes."""


@dataclass
class Piece:
    """One live partition: its own graph module, and where it came from.

    ``nodes`` are the names of its nodes in the graph that it was cut from, ``inputs`` the names of the nodes that feed
    it, ``outputs`` those of the nodes that it returns as a tuple.
    """

    claim: Claim
    graph_id: str
    gm: fx.GraphModule
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def content(self) -> PieceContent:
        """The code and inputs of the piece, without its region: pieces with equal content get the same inputs."""
        carved = tuple(node.name for node in self.gm.graph.nodes if is_carved(node))
        return self.graph_id, self.nodes, self.inputs, self.outputs, carved


@dataclass
class CutGraph:
    """A graph with its partitions cut out."""

    gm: fx.GraphModule
    pieces: list[Piece] = field(default_factory=list)


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
    ordered: bool
    bodies: list[tuple[list[fx.Node], Proposed]] = field(default_factory=list)

    def units(self) -> list[list[fx.Node]]:
        """Return partitions and single ops in an order in which they can run."""
        nodes = list(self.gm.graph.nodes)
        before = dependencies(self.gm.graph) if self.ordered else {node: node.all_input_nodes for node in nodes}
        return schedule(nodes, before, [part.nodes for part in self.proposal.parts])

    def groups(self) -> Iterator[tuple[str, NodeGroup]]:
        """Yield the partitions in the order they run, each with its graph; those of bodies come last."""
        parts = {id(part.nodes): part for part in self.proposal.parts}
        yield from ((self.graph_id, parts[id(unit)]) for unit in self.units() if id(unit) in parts)
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
    found = Proposed(graph_id, gm, proposal, carved, ordered=not upstream)
    holders = _holders(gm)
    for node, body in bodies(gm):
        users = {user for holder in holders[body] for user in holder.users}
        if any(_runs_op_by_op(user) for user in users - inside):
            inner = propose_cut(body, f"{graph_id}/{node.target}", records, assignment, order, how)
            found.bodies.append((holders[body], inner))
    return found


def cut_graph(proposed: Proposed, call_for: Callable[[Piece], BoxedCall]) -> CutGraph:
    """Return the graph with each partition replaced by one call of the function that ``call_for`` returns for it.

    That function takes one list of inputs and empties it.
    """
    cut = _rebuild(proposed, call_for)
    for holders, body in proposed.bodies:
        inner = cut_graph(body, call_for)
        for holder in holders if inner.pieces else ():
            setattr(cut.gm, str(holder.target), inner.gm)
        cut.pieces += inner.pieces
    return cut


def _holders(gm: fx.GraphModule) -> dict[fx.GraphModule, list[fx.Node]]:
    """Return the ``get_attr`` nodes that name each body: several calls may share one."""
    found: dict[fx.GraphModule, list[fx.Node]] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        body = resolve(gm, node)
        if isinstance(body, fx.GraphModule):
            found.setdefault(body, []).append(node)
    return found


def _runs_op_by_op(node: fx.Node) -> bool:
    return str(node.target).rsplit(".", 1)[-1] in CUTTABLE_BODIES


def _rebuild(proposed: Proposed, call_for: Callable[[Piece], BoxedCall]) -> CutGraph:
    parts = {id(part.nodes): part for part in proposed.proposal.parts}
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    pieces = []
    for unit in proposed.units():
        part = parts.get(id(unit))
        if part is None:
            new[unit[0]] = graph.node_copy(unit[0], new.__getitem__)
        else:
            piece, inputs, outputs = _extract(proposed, part)
            pieces.append(piece)
            fed = graph.call_function(_feed, tuple(new[node] for node in inputs))
            result = graph.call_function(call_for(piece), (fed,))
            for index, node in enumerate(outputs):
                new[node] = graph.call_function(_take, (result, index))
                new[node].meta = dict(node.meta)
    return CutGraph(fx.GraphModule(proposed.gm, graph), pieces)


def _feed(*values: Any) -> list[Any]:
    """Return the argument list of a piece, which empties it, so that its inputs can be freed while it runs."""
    return list(values)


def _take(values: Sequence[Any], index: int) -> Any:
    """Return one result of a piece: ``getitem`` under another name, so that the code shows where it was cut."""
    return values[index]


def _extract(proposed: Proposed, part: NodeGroup) -> tuple[Piece, list[fx.Node], list[fx.Node]]:
    """Return a partition as a piece, with the nodes of the whole graph that are its inputs and outputs."""
    gm = proposed.gm
    inside = set(part.nodes)
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    inputs = []
    for node in part.nodes:
        for source in node.all_input_nodes:
            if source not in inside and source not in new:
                if source.op == "get_attr" and isinstance(resolve(gm, source), fx.GraphModule):
                    new[source] = None  # type: ignore[assignment]  # the body of a higher-order op is copied below
                else:
                    inputs.append(source)
                    new[source] = graph.placeholder(source.name)
                    new[source].meta = {key: source.meta[key] for key in ("val",) if key in source.meta}
    for source in [source for source, copy in new.items() if copy is None]:
        new[source] = graph.node_copy(source)
    for node in part.nodes:
        new[node] = graph.node_copy(node, new.__getitem__)
        if node in proposed.carved:
            new[node].meta["custom"] = {**(node.meta.get("custom") or {}), FALLBACK: True}
    outputs = [node for node in part.nodes if any(user not in inside for user in node.users)]
    graph.output(tuple(new[node] for node in outputs))
    piece = Piece(
        claim=part.claim,
        graph_id=proposed.graph_id,
        gm=fx.GraphModule(gm, graph, class_name="Piece"),
        nodes=tuple(node.name for node in part.nodes),
        inputs=tuple(node.name for node in inputs),
        outputs=tuple(node.name for node in outputs),
    )
    return piece, inputs, outputs
