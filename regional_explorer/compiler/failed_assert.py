"""Finds the node and line at which an assert in compiled code failed: a wrong size, or a value that is not finite.

Inductor's asserts have no message: ``assert not buf0.isnan().any().item()``. The partition is run again op by op, on
copies of its inputs, to see which node first returns such a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.artifacts.tensor_layout import Layout, as_recorded
from regional_explorer.errors import RegionAssertionError
from regional_explorer.record.graph import Node
from regional_explorer.regions.cutting.cut import Piece


def failed_assert(
    error: AssertionError, piece: Piece, args: Sequence[Any], inputs: Sequence[Layout], nodes: Mapping[str, Node]
) -> RegionAssertionError:
    """Return the error to raise instead of ``error``; ``args`` are the partition's inputs, ``nodes`` its graph."""
    location = f"Region {piece.claim.region!r}, graph {piece.graph_id}"
    placeholders = [node.name for node in piece.gm.graph.find_nodes(op="placeholder")]
    if text := str(error).strip():
        described = zip(placeholders, args, inputs, strict=False)
        misfits = [name for name, value, layout in described if not _fits_layout(value, layout)]
        where = f" It is about {_node_text(misfits[0], nodes)}." if misfits else ""
        return RegionAssertionError(f"{location}: a size assert failed: {text.splitlines()[0]}.{where}")
    for name, value in zip(placeholders, args, strict=False):
        if what := _not_finite(value):
            return RegionAssertionError(f"{location}: its input {_node_text(name, nodes)} holds {what} already.")
    for node, value in _op_results(piece.gm, args):
        if what := _not_finite(value):
            return RegionAssertionError(f"{location}: {_node_text(node.name, nodes)} gives {what}.")
    return RegionAssertionError(
        f"{location}: an assert failed in the compiled code, which gives NaN or infinity where eager code does not."
    )


def _fits_layout(value: Any, layout: Layout) -> bool:
    return (not isinstance(value, torch.Tensor) or tuple(value.shape) == layout.size) and as_recorded(value, layout)


def _node_text(name: str, nodes: Mapping[str, Node]) -> str:
    node = nodes.get(name)
    if node is None:
        return repr(name)
    line = f", {node.source}" if node.source is not None else ""
    return f"{name!r} ({node.target}{line})"


def _not_finite(value: Any) -> str:
    """Return ``NaN`` or ``infinity`` if a tensor contains it, else an empty text."""
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(_not_finite, value)), "")
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return ""
    if value.isnan().any():
        return "NaN"
    return "infinity" if value.isinf().any() else ""


def _op_results(gm: fx.GraphModule, args: Sequence[Any]) -> Iterator[tuple[fx.Node, Any]]:
    """Run the graph on copies of ``args`` and yield each op with its result; random generators are restored."""
    interpreter = fx.Interpreter(gm)
    inputs = iter([value.clone() if isinstance(value, torch.Tensor) else value for value in args])
    with torch.no_grad(), torch.random.fork_rng():
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                interpreter.env[node] = next(inputs)
            elif node.op != "output":
                interpreter.env[node] = interpreter.run_node(node)
                yield node, interpreter.env[node]
