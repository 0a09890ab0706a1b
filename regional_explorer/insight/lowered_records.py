"""Converts the graphs that Inductor made of a partition (nodes, inputs, kernel calls) to records of stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from regional_explorer.capture.convert import record_graphs
from regional_explorer.record.graph import GraphKind, Node, Role
from regional_explorer.record.kernels import LoweredGraph
from regional_explorer.torch_api.lower_piece import Lowered

if TYPE_CHECKING:
    from torch import fx


def after_passes(lowered: Lowered, inputs: Sequence[str]) -> LoweredGraph | None:
    """Return the record of the graph after Inductor's passes; ``inputs`` are the names of the partition's inputs."""
    graph = lowered.after_passes
    return None if graph is None else LoweredGraph(_node_records(graph.gm, inputs), graph.sources, graph.inferred)


def output(lowered: Lowered, inputs: Sequence[str]) -> LoweredGraph | None:
    """Return the record of Inductor's output as a graph; the target of a node that calls a kernel is its name."""
    graph = lowered.output
    if graph is None or graph.gm is None:
        return None
    names = {node: lowered.kernels[kernel].name for node, kernel in graph.kernels.items()}
    nodes = _node_records(graph.gm, inputs)
    return LoweredGraph(
        tuple(replace(node, target=names.get(node.name, node.target)) for node in nodes),
        {node: (kernel,) for node, kernel in graph.kernels.items()},
    )


def _node_records(gm: fx.GraphModule, inputs: Sequence[str]) -> tuple[Node, ...]:
    graph, *_ = record_graphs(gm, "lowered", GraphKind.INFERENCE, 0, names={})
    # Dynamic sizes come first, as inputs of their own.
    placeholders = [node.name for node in graph.nodes if node.role not in (Role.OP, Role.OUTPUT, Role.SUBGRAPH)]
    labels = dict(zip(placeholders[len(placeholders) - len(inputs) :], inputs, strict=False)) if inputs else {}
    return tuple(replace(node, label=labels.get(node.name, node.label)) for node in graph.nodes)
