"""The evidence for the checks: requests and results, indexes of nodes, users and claims, paths between nodes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from regional_explorer.record.graph import FailedOp, Graph, GraphBreak, GraphKind, MarkedBlock, Node, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import Plan
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.order import recorded_dependencies
from regional_explorer.regions.select import Assignment, annotation_key
from regional_explorer.torch_api.dynamo import FoldedOp


@dataclass(frozen=True)
class Evidence:
    """The requested regions, the partitions made of them, and the recorded graphs.

    ``cyclic`` are the sets of regions that feed each other in a cycle, each with its graph. ``blocks`` are the marked
    blocks around each origin, outermost first. ``folded`` are the ops that equal ops replaced. ``min_cut`` says whether
    that partitioner was requested. ``not_restored`` names Python state that the call assigned and that was not
    restored; ``reassigned`` names what each call assigns and ``failed_guard`` reads. ``outdated`` are the lines of
    functions whose file was edited after it was loaded. ``failed_ops`` are the ops of captured graphs that raised when
    the graphs first ran. ``pending`` are the backwards that no call has run yet, ``late_graphs`` the ids of the graphs
    of later calls.
    """

    graphs: Sequence[Graph]
    plan: Plan
    assignment: Assignment
    partitions: Sequence[Partition] = ()
    cyclic: Sequence[tuple[str, frozenset[str]]] = ()
    breaks: Sequence[GraphBreak] = ()
    blocks: Mapping[int, tuple[MarkedBlock, ...]] = field(default_factory=dict)
    folded: Sequence[FoldedOp] = ()
    min_cut: bool = False
    not_restored: Sequence[str] = ()
    reassigned: Sequence[str] = ()
    failed_guard: str = ""
    outdated: Sequence[SourceLine] = ()
    failed_ops: Sequence[FailedOp] = ()
    pending: Sequence[Graph] = ()
    late_graphs: frozenset[str] = frozenset()

    @cached_property
    def nodes(self) -> dict[str, Mapping[str, Node]]:
        """The nodes by graph and name."""
        return {graph.id: graph.by_name for graph in self.graphs}

    @cached_property
    def by_id(self) -> dict[str, Graph]:
        """The graphs by id."""
        return {graph.id: graph for graph in self.graphs}

    @cached_property
    def claims(self) -> dict[str, Mapping[str, Claim]]:
        """The claims on nodes, for every graph that AOTAutograd runs."""
        return {
            graph.id: self.assignment.claims.get(graph.id, {})
            for graph in self.graphs
            if graph.kind is not GraphKind.DYNAMO
        }

    @cached_property
    def ops_left_to_eager(self) -> dict[str, list[Node]]:
        """The ops that a region claims and no partition has, by graph, without the ops of bodies."""
        inside = {(part.graph, name) for part in self.partitions for name in part.nodes}
        return {
            graph: [
                node
                for node in self.by_id[graph].ops
                if node.values and node.name in claims and (graph, node.name) not in inside
            ]
            for graph, claims in self.claims.items()
            if self.by_id[graph].parent is None
        }

    @cached_property
    def origins(self) -> dict[int, Node]:
        """The Dynamo node of each origin."""
        dynamo = self.of_kind(GraphKind.DYNAMO)
        return {node.origin: node for graph in dynamo for node in graph.nodes if node.origin is not None}

    def dynamo_nodes(self, origins: Iterable[int | None]) -> list[Node]:
        """Return the Dynamo nodes of ``origins``; an origin without a node is skipped."""
        return [self.origins[origin] for origin in origins if origin is not None and origin in self.origins]

    @cached_property
    def instances(self) -> dict[tuple[str, int, str], list[Partition]]:
        """The partitions of each instance in each graph, keyed by region, instance and graph, in the order they run."""
        return grouped(((part.region, part.instance, part.graph), part) for part in self.partitions)

    def users(self, graph_id: str, *, random: bool = False) -> Mapping[str, Sequence[str]]:
        """Return the users of each node; with ``random``, each random op also feeds the next random op."""
        graph = self.by_id[graph_id]
        if not random:
            return graph.users
        if graph_id not in self._users_in_order:
            sources = recorded_dependencies(graph)
            self._users_in_order[graph_id] = grouped((source, name) for name in sources for source in sources[name])
        return self._users_in_order[graph_id]

    @cached_property
    def _users_in_order(self) -> dict[str, dict[str, list[str]]]:
        return {}

    def region_of_mark(self, annotation: Any) -> str | None:
        """Return the name of the plan's region that a mark in the source makes; None if the plan has no such region."""
        return self.assignment.by_annotation.get(annotation_key(annotation))

    def of_kind(self, kind: GraphKind) -> Iterator[Graph]:
        """Yield the graphs of this kind."""
        return (graph for graph in self.graphs if graph.kind is kind)


def lines(nodes: Iterable[Node]) -> tuple[SourceLine, ...]:
    """Return the lines of the user's program that ``nodes`` come from, each once."""
    return tuple(dict.fromkeys(node.source for node in nodes if node.source is not None))


def paths_from(
    users: Mapping[str, Sequence[str]], start: Iterable[str], goal: Container[str], barred: Container[str] = ()
) -> Iterator[list[str]]:
    """Yield paths from ``start`` to nodes of ``goal`` that avoid ``barred``: both ends included, shortest first."""
    came_from: dict[str, str] = {}
    queue = list(dict.fromkeys(start))
    starts = set(queue)
    for name in queue:
        for user in users.get(name, ()):
            if user in goal:
                path = [user, name]
                while path[-1] in came_from:
                    path.append(came_from[path[-1]])
                yield path[::-1]
            elif user not in came_from and user not in starts and user not in barred:
                came_from[user] = name
                queue.append(user)


def nodes_between(
    users: Mapping[str, Sequence[str]], start: Iterable[str], goal: Container[str], barred: Container[str] = ()
) -> list[str]:
    """Return the nodes of a shortest path from ``start`` to ``goal`` that avoids ``barred``; empty if there is none."""
    paths = paths_from(users, start, goal, barred)
    return next((path[1:-1] for path in paths if len(path) > 2), [])  # noqa: PLR2004 - more than a direct edge
