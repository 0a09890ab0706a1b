"""Finds bodies of ``nested_compile_region`` among the graphs; their names and short names, for subgraph selectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.record.graph import Graph, GraphKind


def subgraphs(graphs: Sequence[Graph]) -> Iterator[Graph]:
    """Yield Dynamo's bodies of ``nested_compile_region``; those of other higher-order ops have no name."""
    return (graph for graph in graphs if graph.kind is GraphKind.DYNAMO and graph.name)


def subgraph_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of a body: ``Block.forward``, ``Block``, ``forward`` and Dynamo's ``subgraph_0``."""
    last_part, dynamo_name = graph.name.rpartition(".")[2], graph.id.rpartition("/")[2]
    return tuple(dict.fromkeys((graph.name, short_name(graph.name), last_part, dynamo_name)))


def short_name(scope: str) -> str:
    """Return ``Block`` for ``Block.forward``, and ``mlp`` for ``step.mlp``."""
    outer, _, last = scope.rpartition(".")
    return outer.rpartition(".")[2] if last == "forward" and outer else last
