"""Assigns ops of AOTAutograd's graphs that have no origin, mostly sums of gradients, to the instances around them.

Autograd adds up the gradients of a value that is used more than once. Such a sum was not traced from an op of the
program, so it carries no mark, and between ops of one instance it would cut that instance in two. The same holds in the
forward for ``x / math.sqrt(x.shape[-1])`` with a dynamic size: AOTAutograd replaces it by ops on a tensor of the size
(``tensorify_python_scalars``, torch 2.13), and drops its metadata.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.grouping import grouped
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.order import cycles, levels, recorded_dependencies

Claims = dict[str, Claim]
"""The claims on the nodes of one graph, by name."""


def claims_of_sums(graphs: Iterable[Graph], claim_of: Callable[[str, Node], Claim | None]) -> dict[str, Claims]:
    """Return, by graph, the claims on the ops without an origin; those of no instance are left out.

    Args:
        graphs: the recorded graphs.
        claim_of: returns the claim on a node of a graph.
    """
    sums = {}
    for graph in graphs:
        if graph.kind is not GraphKind.DYNAMO:
            claims = {node.name: claim for node in graph.ops if (claim := claim_of(graph.id, node)) is not None}
            sums[graph.id] = _without_cycles(graph, claims, surrounded(graph, claims))
    return sums


def surrounded(graph: Graph, claims: Claims) -> Claims:
    """Return the claims of the instances around ops without an origin.

    Such an op belongs to the instance that all its inputs come from; inputs of the graph do not count. If the op feeds
    the instance too, its other inputs may be values that the instance depends on anyway: the gradient of a residual
    goes both past the branch and through it. An op that takes only inputs of the graph belongs to the instance that is
    its only user. So no partition depends on more with the op than without it.
    """
    used = {name for node in graph.nodes for name in node.inputs}
    loose = {node.name for node in graph.ops if _has_no_origin(node)} & used - claims.keys()
    if not loose:
        return {}
    node_claims = {name: claim for name, claim in claims.items() if claim.instance is not None}
    ancestors = _Ancestors(graph, loose)
    fed = _fed_claims(graph, claims, loose)
    free = loose & ancestors.free
    for node in graph.nodes:
        if node.name in loose and node.name not in free:
            claim = _surrounding_claim(node, node_claims, ancestors, fed[node.name])
            if claim is not None:
                node_claims[node.name] = claim
    user_claims: dict[str, set[Claim | None]] = {}
    for node in reversed(graph.nodes):
        if node.name in free and len(user_claims[node.name]) == 1:
            (claim,) = user_claims[node.name]
            if claim is not None:
                node_claims[node.name] = claim
        for name in node.inputs:
            user_claims.setdefault(name, set()).add(node_claims.get(node.name))
    return {name: claim for name, claim in node_claims.items() if name in loose}


class _Ancestors:
    """All ancestors of each node, as bit sets.

    ``free`` are the nodes that depend on no op of the program: inputs of the graph, and ``loose`` nodes that take
    nothing else.
    """

    def __init__(self, graph: Graph, loose: AbstractSet[str]) -> None:
        self._bit = {node.name: 1 << index for index, node in enumerate(graph.nodes)}
        self._above: dict[str, int] = {}
        self.free: set[str] = set()
        for node in graph.nodes:
            self._above[node.name] = self._all_above(node.inputs) | sum(self._bit[name] for name in set(node.inputs))
            if node.role is not Role.OP or (node.name in loose and self.free.issuperset(node.inputs)):
                self.free.add(node.name)

    def _all_above(self, names: Iterable[str]) -> int:
        return functools.reduce(operator.or_, (self._above[name] for name in names), 0)

    def covers(self, names: Iterable[str], implied: Iterable[str]) -> bool:
        """Return whether every node that depends on ``names`` depends on ``implied`` too."""
        ancestors = self._all_above(names)
        return all(ancestors & self._bit[name] for name in implied)


def _surrounding_claim(node: Node, node_claims: Claims, ancestors: _Ancestors, fed: AbstractSet[Claim]) -> Claim | None:
    """Return the claim of the instance around an op without an origin, by its inputs and what it feeds."""
    for claim in dict.fromkeys(node_claims[name] for name in node.inputs if name in node_claims):
        own_inputs = [name for name in node.inputs if node_claims.get(name) == claim]
        other_inputs = [name for name in node.inputs if name not in own_inputs and name not in ancestors.free]
        if not other_inputs or (claim in fed and ancestors.covers(own_inputs, other_inputs)):
            return claim
    return None


def _has_no_origin(node: Node) -> bool:
    """Return whether a node is a plain operator that autograd or AOTAutograd added.

    Ops that write, draw random numbers or run a body stay where they are.
    """
    if node.origin is not None or node.annotated or node.recompute or node.random or node.op.endswith("_"):
        return False
    return node.target == "getitem" or node.target.count(".") == 2  # noqa: PLR2004 - namespace.name.overload


def _fed_claims(graph: Graph, claims: Claims, loose: AbstractSet[str]) -> dict[str, set[Claim]]:
    """Return the instances that each op without an origin feeds, directly or through other such ops."""
    fed: dict[str, set[Claim]] = {name: set() for name in loose}
    for node in reversed(graph.nodes):
        reached = fed[node.name] if node.name in loose else {claims[node.name]} if node.name in claims else set()
        for name in node.inputs:
            if name in loose:
                fed[name] |= reached
    return fed


# --------------------------------------------------------------------------------------------------------- cycles


def _without_cycles(graph: Graph, claims: Claims, sums: Claims) -> Claims:
    """Return ``sums`` without those of instances that feed each other in a cycle only because of them."""
    if not sums:
        return sums
    dependencies = recorded_dependencies(graph)
    known_cycles = _instance_cycles(dependencies, claims)
    while new_cycles := [cycle for cycle in _instance_cycles(dependencies, claims | sums) if cycle not in known_cycles]:
        remaining = {name: claim for name, claim in sums.items() if not any(claim in cycle for cycle in new_cycles)}
        if len(remaining) == len(sums):
            break
        sums = remaining
    return sums


def _instance_cycles(dependencies: Mapping[str, list[str]], claims: Claims) -> list[frozenset[Claim]]:
    """Return the sets of instances whose partitions would feed each other in a cycle."""
    nodes = list(dependencies)
    position = {name: index for index, name in enumerate(nodes)}
    names_by_claim = grouped((claims[name], name) for name in nodes if name in claims)
    parts: list[list[str]] = []
    part_claims: list[Claim] = []
    for claim, names in names_by_claim.items():
        span = nodes[position[names[0]] : position[names[-1]] + 1]
        level_of = levels(span, dependencies, set(names), {})
        for level in sorted({level_of[name] for name in names}):
            parts.append([name for name in names if level_of[name] == level])
            part_claims.append(claim)
    return [frozenset(part_claims[index] for index in cycle) for cycle in cycles(nodes, dependencies, parts)]
