"""Assigns ops of backward graphs that have no origin, mostly sums of gradients, to the instances around them.

Autograd adds up the gradients of a value that is used more than once. Such a sum was not traced from an op of the
program, so it carries no mark, and between ops of one instance it would cut that instance in two.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.record.grouping import grouped
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.order import cycles, levels

Claims = dict[str, Claim]
"""The claims on the nodes of one graph, by name."""


def claims_of_sums(graphs: Iterable[Graph], claim_of: Callable[[str, Node], Claim | None]) -> dict[str, Claims]:
    """Return, by graph, the claims on the ops without a forward op; those of no instance are left out.

    Args:
        graphs: the recorded graphs.
        claim_of: returns the claim on a node of a graph.
    """
    found = {}
    for graph in graphs:
        if graph.kind is GraphKind.BACKWARD:
            claims = {node.name: claim for node in graph.ops if (claim := claim_of(graph.id, node)) is not None}
            found[graph.id] = _without_cycles(graph, claims, surrounded(graph, claims))
    return found


def surrounded(graph: Graph, claims: Claims) -> Claims:
    """Return the claims of the instances around ops without a forward op.

    Such an op belongs to the instance that all its inputs come from; inputs of the graph do not count. If the op feeds
    the instance too, its other inputs may be values that the instance depends on anyway: the gradient of a residual
    goes both past the branch and through it. An op that takes only inputs of the graph belongs to the instance that is
    its only user. So no partition depends on more with the op than without it.
    """
    used = {name for node in graph.nodes for name in node.inputs}
    loose = {node.name for node in graph.ops if _has_no_forward_op(node)} & used - claims.keys()
    if not loose:
        return {}
    known = {name: claim for name, claim in claims.items() if claim.instance is not None}
    ancestors = _Ancestors(graph, loose)
    fed = _fed(graph, claims, loose)
    free = loose & ancestors.free
    for node in graph.nodes:
        if node.name in loose and node.name not in free:
            around = _around(node, known, ancestors, fed[node.name])
            if around is not None:
                known[node.name] = around
    users: dict[str, set[Claim | None]] = {}
    for node in reversed(graph.nodes):
        if node.name in free and len(users[node.name]) == 1:
            (alone,) = users[node.name]
            if alone is not None:
                known[node.name] = alone
        for name in node.inputs:
            users.setdefault(name, set()).add(known.get(node.name))
    return {name: claim for name, claim in known.items() if name in loose}


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
            self._above[node.name] = self._union(node.inputs) | sum(self._bit[name] for name in set(node.inputs))
            if node.role is not Role.OP or (node.name in loose and self.free.issuperset(node.inputs)):
                self.free.add(node.name)

    def _union(self, names: Iterable[str]) -> int:
        return functools.reduce(operator.or_, (self._above[name] for name in names), 0)

    def covers(self, names: Iterable[str], others: Iterable[str]) -> bool:
        """Return whether every node that depends on ``names`` depends on ``others`` too."""
        above = self._union(names)
        return all(above & self._bit[name] for name in others)


def _around(node: Node, known: Claims, ancestors: _Ancestors, fed: AbstractSet[Claim]) -> Claim | None:
    """Return the claim of the instance around an op without a forward op, by its inputs and what it feeds."""
    for claim in dict.fromkeys(known[name] for name in node.inputs if name in known):
        own = [name for name in node.inputs if known.get(name) == claim]
        others = [name for name in node.inputs if name not in own and name not in ancestors.free]
        if not others or (claim in fed and ancestors.covers(own, others)):
            return claim
    return None


def _has_no_forward_op(node: Node) -> bool:
    """Return whether a backward node is a plain operator that autograd added.

    Ops that write, draw random numbers or run a body stay where they are.
    """
    if node.origin is not None or node.annotated or node.recompute or node.random or node.op.endswith("_"):
        return False
    return node.target == "getitem" or node.target.count(".") == 2  # noqa: PLR2004 - namespace.name.overload


def _fed(graph: Graph, claims: Claims, loose: AbstractSet[str]) -> dict[str, set[Claim]]:
    """Return the instances that each op without a forward op feeds, directly or through other such ops."""
    found: dict[str, set[Claim]] = {name: set() for name in loose}
    for node in reversed(graph.nodes):
        mine = found[node.name] if node.name in loose else {claims[node.name]} if node.name in claims else set()
        for name in node.inputs:
            if name in loose:
                found[name] |= mine
    return found


# --------------------------------------------------------------------------------------------------------- cycles


def _without_cycles(graph: Graph, claims: Claims, sums: Claims) -> Claims:
    """Return ``sums`` without those of instances that feed each other in a cycle only because of them."""
    if not sums:
        return sums
    before = _dependencies(graph)
    known = _cycles(before, claims)
    while new := [cycle for cycle in _cycles(before, claims | sums) if cycle not in known]:
        kept = {name: claim for name, claim in sums.items() if not any(claim in cycle for cycle in new)}
        if len(kept) == len(sums):
            break
        sums = kept
    return sums


def _dependencies(graph: Graph) -> dict[str, list[str]]:
    """Return the dependencies of each node; ops that draw random numbers keep their order."""
    before: dict[str, list[str]] = {}
    last: str | None = None
    for node in graph.nodes:
        before[node.name] = [*node.inputs, *([last] if node.random and last is not None else [])]
        last = node.name if node.random else last
    return before


def _cycles(before: Mapping[str, list[str]], claims: Claims) -> list[frozenset[Claim]]:
    """Return the sets of instances whose partitions would feed each other in a cycle."""
    nodes = list(before)
    position = {name: index for index, name in enumerate(nodes)}
    held = grouped((claims[name], name) for name in nodes if name in claims)
    parts: list[list[str]] = []
    owners: list[Claim] = []
    for claim, names in held.items():
        span = nodes[position[names[0]] : position[names[-1]] + 1]
        level = levels(span, before, set(names), {})
        for reached in sorted({level[name] for name in names}):
            parts.append([name for name in names if level[name] == reached])
            owners.append(claim)
    return [frozenset(owners[index] for index in cycle) for cycle in cycles(nodes, before, parts)]
