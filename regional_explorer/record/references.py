"""Checks that a loaded session is consistent: every node, kernel, graph and artifact that it refers to exists."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from regional_explorer.record.decode import MalformedError, shown
from regional_explorer.record.graph import Graph, Node
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.record.session import Session

NodeNames = Mapping[str, Collection[str]]
"""The names of the nodes of each graph."""


def check_references(session: Session) -> None:
    """Raise MalformedError for references and figures that would break the display of the session.

    Raises:
        MalformedError: a name occurs twice or refers to nothing, or a figure is impossible.
    """
    nodes = _check_graphs(session.graphs)
    regions = {region.name for region in session.plan.regions}
    _check_unique("partitions", (part.id for part in session.partitions))
    for index, part in enumerate(session.partitions):
        place = f"partitions[{index}]"
        _check_known(f"{place}.region", "region", [part.region], regions)
        _check_nodes(place, nodes, part.graph, part.nodes)
    for region, nodes_by_graph in session.members.items():
        _check_known("members", "region", [region], regions)
        for graph, names in nodes_by_graph.items():
            _check_nodes(f"members[{shown(region)}]", nodes, graph, names)
    for index, diagnostic in enumerate(session.diagnostics):
        if diagnostic.graph is not None:
            _check_nodes(f"diagnostics[{index}]", nodes, diagnostic.graph, diagnostic.nodes)
    _check_codes(session)
    _check_kernel_times(session)
    _check_unique("compiles", (entry.artifact for entry in session.compiles))
    for place, name, value in _figures(session):
        if not _is_possible(name, value):
            raise MalformedError(f"{place}.{name}", f"{shown(value)} is impossible")


def _check_graphs(graphs: Iterable[Graph]) -> NodeNames:
    nodes: dict[str, set[str]] = {}
    for index, graph in enumerate(graphs):
        place = f"graphs[{index}]"
        if graph.id in nodes:
            raise MalformedError(place, f"a second graph is called {shown(graph.id)}")
        if graph.parent is not None:
            _check_nodes(f"{place}.parent", nodes, graph.parent[0], [graph.parent[1]])
        nodes[graph.id] = _check_order(place, graph.nodes)
    return nodes


def _check_order(place: str, nodes: Iterable[Node]) -> set[str]:
    """Check that names are unique, and that inputs come before their readers, so that there is no cycle."""
    seen: set[str] = set()
    for number, node in enumerate(nodes):
        if node.name in seen:
            raise MalformedError(f"{place}.nodes[{number}]", f"a second node is called {shown(node.name)}")
        _check_known(f"{place}.nodes[{number}].inputs", "node before it", node.inputs, seen)
        seen.add(node.name)
    return seen


def _check_codes(session: Session) -> None:
    sizes: dict[str | None, int] = defaultdict(lambda: 1 << 62)
    for part in session.partitions:
        sizes[part.artifact] = min(sizes[part.artifact], len(part.nodes))
    _check_unique("codes", (code.artifact for code in session.codes))
    for index, code in enumerate(session.codes):
        for number, kernel in enumerate(code.kernels):
            _check_positions(
                f"codes[{index}].kernels[{number}]", (*kernel.nodes, *kernel.inferred), sizes[code.artifact]
            )
        _check_positions(f"codes[{index}].views", code.views, sizes[code.artifact])
        _check_lowered(f"codes[{index}]", code, sizes[code.artifact])
        for number, refused in enumerate(code.refused):
            _check_positions(f"codes[{index}].refused[{number}]", (refused.first, refused.second), len(code.kernels))


def _check_lowered(place: str, code: ArtifactCode, size: int) -> None:
    """Check the graphs that Inductor made of a partition of ``size`` nodes."""
    for name, graph, limit in (("after_passes", code.after_passes, size), ("output", code.output, len(code.kernels))):
        if graph is None:
            continue
        names = _check_order(f"{place}.{name}", graph.nodes)
        for sources in (graph.sources, graph.inferred):
            _check_known(f"{place}.{name}", "node", sources, names)
            for positions in sources.values():
                _check_positions(f"{place}.{name}", positions, limit)
    for number, kernel in enumerate(code.kernels):
        _check_positions(f"{place}.kernels[{number}].reads_from", kernel.reads_from, number)


def _check_kernel_times(session: Session) -> None:
    kernels = {code.artifact: len(code.kernels) for code in session.codes}
    _check_unique("kernel_times", (times.artifact for times in session.kernel_times))
    for index, times in enumerate(session.kernel_times):
        _check_known(f"kernel_times[{index}].artifact", "code of an artifact", [times.artifact], kernels)
        if times.kernels and len(times.kernels) != kernels[times.artifact]:
            raise MalformedError(f"kernel_times[{index}]", f"expected {kernels[times.artifact]} kernels")


def _check_positions(place: str, positions: Iterable[int], size: int) -> None:
    for position in positions:
        if not 0 <= position < size:
            raise MalformedError(place, f"there is nothing at position {position}")


def _check_unique(place: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise MalformedError(f"{place}[{index}]", f"a second one is called {shown(name)}")
        seen.add(name)


def _check_known(place: str, what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise MalformedError(place, f"there is no {what} called {shown(name)}")


def _check_nodes(place: str, nodes: NodeNames, graph: str, names: Iterable[str]) -> None:
    _check_known(place, "graph", [graph], nodes)
    _check_known(place, f"node of {shown(graph)}", names, nodes[graph])


def _figures(session: Session) -> Iterator[tuple[str, str, float]]:
    """Yield place, name and value of every figure that was measured."""
    for field in (
        "timings",
        "partition_timings",
        "reconciliation",
        "compile_costs",
        "memory",
        "partitions",
        "compiles",
        "kernel_times",
        "conditions",
        "profile",
    ):
        yield from _numbers_in("", field, getattr(session, field))
    for index, entry in enumerate(session.compiles):
        yield from ((f"compiles[{index}].phases", phase, seconds) for phase, seconds in entry.phases.items())


def _numbers_in(place: str, name: str, value: Any) -> Iterator[tuple[str, str, float]]:
    """Yield place, name and value of every number in the field ``name`` of what is at ``place``."""
    if is_dataclass(value):
        inside = f"{place}.{name}".lstrip(".")
        for field in fields(value):
            yield from _numbers_in(inside, field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _numbers_in(place, f"{name}[{index}]" if is_dataclass(item) else name, item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place, name, value


_SIGNED = frozenset({"seconds", "low_s", "high_s"})
"""Differences between times, which may be negative."""


def _is_possible(name: str, value: float) -> bool:
    return math.isfinite(value) and (value >= 0 or name in _SIGNED) and (value > 0 or not name.startswith("speedup"))
