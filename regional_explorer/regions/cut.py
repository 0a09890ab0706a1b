"""Cuts graphs into partitions, each convex, within one instance, and free of dependency cycles; makes them pieces."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import fx

from regional_explorer.record.graph import Node
from regional_explorer.record.grouping import connected_components, grouped
from regional_explorer.record.plan import CutRule, Preparation
from regional_explorer.regions.instances import Claim, Instance
from regional_explorer.regions.order import (
    Edges,
    convex_parts,
    cycles,
    dependencies,
    schedule,
    split_by_level,
    written_inputs,
)
from regional_explorer.regions.select import Assignment
from regional_explorer.torch_api.cheap_calls import picker
from regional_explorer.torch_api.graphs import (
    FALLBACK,
    BoxedCall,
    bodies,
    boxed,
    inductor_honours_fallback,
    is_only_kept,
    propose_partitions,
    resolve,
    runs_random_op,
)
from regional_explorer.torch_api.hidden_state import storage_id
from regional_explorer.torch_api.prepared import ops_not_plain

_SYMBOLIC_SCALARS = (torch.SymFloat, torch.SymBool)

CUTTABLE_BODIES = ("invoke_subgraph", "cond", "while_loop")
"""Higher-order ops whose bodies run op by op; flex_attention and scan run theirs under vmap or trace them again."""

ClaimOf = Callable[[fx.Node], Claim | None]
"""Returns the claim on a node, or None for ops that stay eager."""


class ClaimedNodes(NamedTuple):
    """The nodes of one partition, or of one instance in one graph, in the order they run."""

    claim: Claim
    nodes: list[fx.Node]


@dataclass
class CutGraph:
    """A graph with its partitions, and the bodies of higher-order ops that stay in it, each cut as well.

    ``units`` are the partitions and single ops, in an order in which they can run; ``parts`` are the partitions in this
    order. ``cyclic`` are the sets of regions that fed each other in a cycle. ``carved`` are the nodes that run eagerly
    inside their partition: upstream leaves them there, and Inductor calls the eager kernel. If this torch's Inductor
    cannot do so, there are none. ``bodies`` come with the ``get_attr`` nodes that name them.
    """

    id: str
    gm: fx.GraphModule
    parts: list[ClaimedNodes]
    units: list[list[fx.Node]]
    cyclic: list[frozenset[str]]
    carved: frozenset[fx.Node]
    bodies: list[tuple[list[fx.Node], CutGraph]]

    def graphs(self) -> Iterator[CutGraph]:
        """Yield this graph, then its bodies, each followed by its own."""
        yield self
        for _, body in self.bodies:
            yield from body.graphs()


def cut_graph(
    gm: fx.GraphModule,
    graph_id: str,
    records: Mapping[str, Mapping[str, Node]],
    assignment: Assignment,
    order: Sequence[str],
    how: CutRule = CutRule.INSTANCES,
) -> CutGraph:
    """Return the partitions of ``gm``, which is not changed: one per convex piece of an instance, or upstream's cut.

    ``records`` are the recorded nodes by graph id and name, bodies of higher-order ops included. ``order`` has the
    names of the regions as in the plan: if regions feed each other both ways, the regions named first stay whole.
    """
    nodes = records[graph_id]
    upstream = how is CutRule.UPSTREAM
    with_carved = upstream and inductor_honours_fallback()

    def claim_of(node: fx.Node) -> Claim | None:
        return assignment.claim(graph_id, node.name, with_carved=with_carved)

    parts, before, cyclic = (_upstream_cut if upstream else _convex_cut)(gm, claim_of, order)
    units = schedule(before, [part.nodes for part in parts])
    part_of = {id(part.nodes): part for part in parts}
    ordered_parts = [part_of[id(unit)] for unit in units if id(unit) in part_of]
    inside = {node for part in parts for node in part.nodes}
    carved = frozenset(node for node in inside if assignment.is_carved(nodes[node.name]))
    cut = CutGraph(graph_id, gm, ordered_parts, units, cyclic, carved, [])
    for node, body in bodies(gm):
        holders = [holder for holder in gm.graph.find_nodes(op="get_attr") if resolve(gm, holder) is body]
        users = {user for holder in holders for user in holder.users}  # several calls may share a body
        if any(str(user.target).rsplit(".", 1)[-1] in CUTTABLE_BODIES for user in users - inside):
            cut.bodies.append((holders, cut_graph(body, f"{graph_id}/{node.target}", records, assignment, order, how)))
    return cut


Parts = tuple[list[ClaimedNodes], Edges[fx.Node], list[frozenset[str]]]
"""The partitions of a graph, the nodes that must run before each node, and the sets of regions in a cycle."""


def _convex_cut(gm: fx.GraphModule, claim_of: ClaimOf, order: Sequence[str]) -> Parts:
    """Return one partition per convex piece of an instance."""
    before = dependencies(gm.graph)
    instances = [part for group in _claimed_nodes(gm.graph, claim_of, order) for part in _connected_parts(group)]
    parts = [ClaimedNodes(claim, nodes) for claim, nodes in convex_parts(instances, before)]
    cyclic = cycles(before, parts)
    if not cyclic:
        return parts, before, []
    settled: list[ClaimedNodes] = []
    for instance in instances:
        finished = [part.nodes for part in settled]
        order_of_nodes = [node for unit in schedule(before, finished) for node in unit]
        split_parts = split_by_level(instance.nodes, order_of_nodes, before, finished)
        settled += [ClaimedNodes(instance.claim, part) for part in split_parts]
    return settled, before, [frozenset(claim.region for claim in cycle) for cycle in cyclic]


def _upstream_cut(gm: fx.GraphModule, claim_of: ClaimOf, order: Sequence[str]) -> Parts:
    """Return the partitions that upstream's regional_inductor would cut, one partitioner per region."""

    def region_of(node: fx.Node) -> Claim | None:
        claim = claim_of(node)
        return None if claim is None else Claim(claim.region)

    groups = _claimed_nodes(gm.graph, region_of, order)
    parts = [ClaimedNodes(group.claim, nodes) for group in groups for nodes in propose_partitions(gm, group.nodes)]
    before = {node: list(node.all_input_nodes) for node in gm.graph.nodes}
    if cycles(before, parts):
        return _convex_cut(gm, claim_of, order)
    return parts, before, []


def _claimed_nodes(graph: fx.Graph, claim_of: ClaimOf, order: Sequence[str]) -> list[ClaimedNodes]:
    """Return the nodes of each claim that can be part of a partition, in the order of the regions."""
    claims: dict[fx.Node, Claim] = {}
    for node in graph.nodes:
        claim = claims.get(node.args[0]) if _is_getitem(node) else claim_of(node) if _can_move(node) else None
        if claim is not None:
            claims[node] = claim
    groups = grouped((claim, node) for node, claim in claims.items())
    return sorted(map(ClaimedNodes._make, groups.items()), key=lambda group: order.index(group.claim.region))


def _is_getitem(node: fx.Node) -> bool:
    """Return whether a node only picks one of an op's results; it stays with the op, marked or not."""
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node)


def _can_move(node: fx.Node) -> bool:
    """Return whether an op can move into a call that takes and returns only tensors and sizes."""
    if node.op != "call_function" or isinstance(node.meta.get("val"), _SYMBOLIC_SCALARS):
        return False
    if written_inputs(node) or _addresses_storage(node):
        return False
    if isinstance(node.meta.get("val"), (list, tuple)) and not all(_is_getitem(user) for user in node.users):
        return False
    passable = (torch.Tensor, torch.SymInt, int, float, list, tuple)
    return all(
        source.op == "get_attr" or isinstance(source.meta.get("val"), passable) or is_computed_from_sizes(source)
        for source in node.all_input_nodes
    )


def _addresses_storage(node: fx.Node) -> bool:
    """Return whether an op addresses the storage of a tensor that may not start where the storage starts.

    Inductor compiles a piece for inputs that start there (torch 2.13: the offset is not part of its cache's key
    either). An input of the graph may start elsewhere in another call: Dynamo does not guard on it (docs/upstream.md).
    """
    if "as_strided" not in str(node.target):
        return False
    inputs = {storage_id(source) for source in node.graph.find_nodes(op="placeholder")}
    sources = [source for source in node.all_input_nodes if storage_id(source) is not None]
    offsets = [source.meta["val"].storage_offset() for source in sources]
    return any(isinstance(offset, torch.SymInt) or offset for offset in offsets) or any(
        storage_id(source) in inputs for source in sources
    )


def is_computed_from_sizes(node: fx.Node) -> bool:
    """Return whether a node is a symbolic float or bool that follows from sizes, as in ``x / math.sqrt(x.shape[0])``.

    Inductor takes and returns no symbolic floats or bools, so every partition that uses one computes it from the sizes.
    """
    if node.op != "call_function" or not isinstance(node.meta.get("val"), _SYMBOLIC_SCALARS):
        return False
    sources = node.all_input_nodes
    return all(isinstance(source.meta.get("val"), torch.SymInt) or is_computed_from_sizes(source) for source in sources)


def _connected_parts(group: ClaimedNodes) -> list[ClaimedNodes]:
    """Split a group whose instances are unknown into its connected components."""
    if group.claim.instance is not None:
        return [group]
    links = [(node, source) for node in group.nodes for source in node.all_input_nodes]
    return [ClaimedNodes(group.claim, nodes) for nodes in connected_components(group.nodes, links)]


# ---------------------------------------------------------------------------------------------------------- the pieces

PieceContent = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The graph, the nodes, and the carved nodes of a piece."""


@dataclass(eq=False)
class Piece:
    """One live partition: its own graph module, and where it came from.

    ``nodes``, ``inputs``, ``outputs`` and ``carved`` name nodes of the graph that it was cut from: its own nodes, those
    that feed it, those that it returns as a tuple, and those that run eagerly inside it. ``prepared`` is what the trace
    has done for Inductor. ``unseen`` are the places of results that only the backward gets: no code of the user can
    write to them. ``unwritten`` are the inputs of the call among ``inputs`` that no op of its graph writes to: the
    weights among them become constants. It is empty if no weights are to be constants.
    """

    claim: Claim
    graph_id: str
    gm: fx.GraphModule
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    carved: tuple[str, ...] = ()
    prepared: Preparation | None = None
    unseen: frozenset[int] = frozenset()
    unwritten: frozenset[str] = frozenset()

    @cached_property
    def eager(self) -> BoxedCall:
        """The piece as a function of one argument list, which it empties."""
        return boxed(self.gm)

    @property
    def input_nodes(self) -> Sequence[fx.Node]:
        """The placeholders of its graph."""
        return self.gm.graph.find_nodes(op="placeholder")

    @property
    def output_nodes(self) -> Sequence[fx.Node]:
        """The nodes of its graph that it returns."""
        return self.gm.graph.output_node().all_input_nodes

    @cached_property
    def is_random(self) -> bool:
        """Whether the piece draws random numbers."""
        return any(map(runs_random_op, self.gm.graph.nodes))

    @property
    def content(self) -> PieceContent:
        """The content of the piece, without its region; pieces of equal content have the same code and inputs."""
        return self.graph_id, self.nodes, self.carved


def pieces_of(
    cut: CutGraph, known_pieces: Mapping[PieceContent, Piece] | None = None, prepared: Preparation | None = None
) -> list[Piece]:
    """Return the partitions in the order they run, each as a piece; partitions of bodies come last.

    ``known_pieces`` has pieces of earlier cuts of the same graph, by content; they are used again. ``prepared`` is what
    the trace has done for Inductor with the graph.
    """
    pieces = []
    unwritten = _unwritten_inputs(cut.gm) if prepared is not None and prepared.frozen else frozenset()
    for graph in cut.graphs():
        for part in graph.parts:
            carved = [node for node in part.nodes if node in graph.carved]
            known_piece = (known_pieces or {}).get((graph.id, _names_of(part.nodes), _names_of(carved)))
            pieces.append(
                _new_piece(graph, part, carved, prepared, unwritten if graph is cut else frozenset())
                if known_piece is None
                else copy.copy(known_piece)
            )
            pieces[-1].claim = part.claim
    return pieces


def _unwritten_inputs(gm: fx.GraphModule) -> frozenset[str]:
    written = {storage_id(source) for node in gm.graph.nodes for source in written_inputs(node)}
    return frozenset(node.name for node in gm.graph.find_nodes(op="placeholder") if storage_id(node) not in written)


def built(cut: CutGraph, calls: Mapping[Piece, BoxedCall]) -> BoxedCall:
    """Return the cut graph, ``with_calls``, as a function of one argument list, which it empties."""
    return _direct_call(cut, calls) or boxed(with_calls(cut, calls))


def _direct_call(cut: CutGraph, calls: Mapping[Piece, BoxedCall]) -> BoxedCall | None:
    """Return a function that calls the piece of a graph directly; None unless the graph is this one piece."""
    nodes = cut.gm.graph.nodes
    outputs = cut.gm.graph.output_node().args[0]
    piece = next((piece for piece in calls if piece.graph_id == cut.id), None)
    is_whole = piece is not None and all(
        node.op in ("placeholder", "output") or node.name in piece.nodes for node in nodes
    )
    if piece is None or not is_whole or cut.bodies or not isinstance(outputs, (tuple, list)):
        return None
    call, inputs = calls[piece], [node.name for node in cut.gm.graph.find_nodes(op="placeholder")]
    passed = [node.name for node in outputs if isinstance(node, fx.Node) and node.op == "placeholder"]
    others = [value for value in outputs if not isinstance(value, fx.Node)]
    places = {name: place for place, name in enumerate((*piece.outputs, *passed))}
    after = len(piece.outputs) + len(passed)
    picked = [places[value.name] if isinstance(value, fx.Node) else after + others.index(value) for value in outputs]
    take_inputs, take_passed, pick = (
        picker([inputs.index(name) for name in piece.inputs]),
        picker([inputs.index(name) for name in passed]),
        picker(picked),
    )

    def run(args: list[Any]) -> Any:
        arguments, through = list(take_inputs(args)), take_passed(args)
        args.clear()
        return pick((*call(arguments), *through, *others))

    return run


def with_calls(cut: CutGraph, calls: Mapping[Piece, BoxedCall]) -> fx.GraphModule:
    """Return the graph with each of its pieces replaced by one call of its function in ``calls``.

    The function takes one list of inputs, and empties it.
    """
    # A node is in one partition: its first node names a piece.
    pieces = {piece.nodes[0]: piece for piece in calls if piece.graph_id == cut.id}
    graph = fx.Graph()
    new_nodes: dict[str, fx.Node] = {}
    for unit in cut.units:
        piece = pieces.get(unit[0].name)
        if piece is None:
            new_nodes[unit[0].name] = graph.node_copy(unit[0], lambda node: new_nodes[node.name])
        else:
            # The piece empties the list, so that its inputs can be freed while it runs.
            arguments = graph.call_function(list, ([new_nodes[name] for name in piece.inputs],))
            result = graph.call_function(calls[piece], (arguments,))
            for index, name in enumerate(piece.outputs):
                new_nodes[name] = graph.call_function(operator.getitem, (result, index))
    gm = fx.GraphModule(cut.gm, graph)
    for holders, body in cut.bodies:
        if any(graph.parts for graph in body.graphs()):
            inner = with_calls(body, calls)
            for holder in holders:
                setattr(gm, str(holder.target), inner)
    return gm


def _new_piece(
    cut: CutGraph, part: ClaimedNodes, carved: list[fx.Node], prepared: Preparation | None, unwritten: frozenset[str]
) -> Piece:
    inside = set(part.nodes)
    inputs, copied = _inputs_and_copied(cut.gm, part.nodes)
    outputs = [node for node in part.nodes if any(user not in inside for user in node.users)]
    gm = fx.GraphModule(cut.gm, _piece_graph([*copied, *part.nodes], inputs, outputs, carved), class_name="Piece")
    of_nodes, of_inputs, of_outputs, of_carved = map(_names_of, (part.nodes, inputs, outputs, carved))
    unseen = frozenset(
        place
        for place, node in enumerate(outputs)
        if is_only_kept(node) and all(user in inside or user.op == "output" for user in node.users)
    )
    fixed = unwritten.intersection(of_inputs)
    if fixed and any(ops_not_plain(gm)):
        fixed = frozenset()
    return Piece(part.claim, cut.id, gm, of_nodes, of_inputs, of_outputs, of_carved, prepared, unseen, fixed)


def _names_of(nodes: Sequence[fx.Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _inputs_and_copied(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
    """Return the inputs of a partition, and the nodes that it copies instead: names of bodies, numbers from sizes."""
    inside = set(nodes)
    inputs: dict[fx.Node, None] = {}
    copied: dict[fx.Node, None] = {}

    def add_sources(node: fx.Node) -> None:
        for source in node.all_input_nodes:
            if source in inside or source in copied:
                continue
            names_body = source.op == "get_attr" and isinstance(resolve(gm, source), fx.GraphModule)
            if names_body or is_computed_from_sizes(source):
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
        new_nodes[source].meta = {"val": source.meta["val"]} if "val" in source.meta else {}
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

    def restart_graphs(self) -> None:
        """Restart the numbers of partitions for a graph that is cut again; the numbers of instances stay."""
        self._unnamed.clear()
        self._pieces.clear()

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
