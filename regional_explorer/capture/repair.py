"""Repairs captured graphs that fail when they run because an input has other strides than when traced: it is copied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from regional_explorer.capture.source_lines import at_line
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.graph import FailedOp, Graph
from regional_explorer.torch_api import size_hint

_VIEW_OPS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)  # noqa: SLF001 - an operator's name

_CONTIGUOUS: dict[str, Any] = {"memory_format": torch.contiguous_format}

_SILENTLY_WRONG = {
    torch.ops.aten.native_group_norm.default: torch.ops.aten.native_group_norm_backward.default,
}
"""Operators that refuse an input's strides, each with one that instead reads it in the wrong order (torch 2.13)."""


class RepairRun(fx.Interpreter):
    """Runs a graph op by op; an op that fails on the strides of an input gets a copy of that input.

    AOTAutograd decides by the strides of fake tensors whether ``reshape`` is a ``view``, and in which order group norm
    reads its input; some kernels return other strides: ``native_dropout_backward``, for example (torch 2.13,
    ``docs/upstream.md``). A view becomes a ``reshape``, which copies if it must; any other op that reads an input with
    other strides than in the trace gets contiguous inputs, as in eager. ``targets`` are the operators that failed.

    Raises:
        CaptureError: an op fails for another reason.
    """

    def __init__(self, gm: fx.GraphModule, record: Graph) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.failed: list[FailedOp] = []
        self.targets: set[Any] = set()
        self._record = record.by_name()
        self._graph_id = record.id

    def run_node(self, n: fx.Node) -> Any:
        """Run one op, and repair it if it fails on the strides of its input."""
        try:
            return self._run_or_repair(n)
        except Exception as error:
            message = (str(error).splitlines() or [""])[0]
            where = at_line(self._record[n.name].source)
            raise CaptureError(
                RefusalCode.GRAPH_FAILED,
                f"torch traced the call, but the graph it made fails when it runs: {n.name} ({n.target}) raises "
                f"{type(error).__name__}{where}: {message} Eager runs the same call. Explore the part of the call "
                "that does not need this line.",
            ) from error

    def _run_or_repair(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except RuntimeError as error:
            target = n.target
            if not self._repair(n):
                raise
            self.failed.append(FailedOp(self._graph_id, n.name, str(target), (str(error).splitlines() or [""])[0]))
            self.targets.add(target)
        return super().run_node(n)

    def _repair(self, n: fx.Node) -> bool:
        """Copy the inputs whose strides differ from the trace; return whether there are any."""
        if n.target in _VIEW_OPS:
            n.target = torch.ops.aten.reshape.default
            return True
        if all(_strides(self.env[source]) == _strides(source.meta.get("val")) for source in n.all_input_nodes):
            return False
        for copy in _copies_for(n):
            self.env[copy] = super().run_node(copy)
            self.user_to_last_uses.setdefault(n, []).append(copy)
        return True


def repair_alike(gm: fx.GraphModule, targets: Collection[Any]) -> None:
    """Repair ops like those that failed in another graph or another run, whose operators are ``targets``."""
    to_repair = {*targets, *(_SILENTLY_WRONG[target] for target in targets if target in _SILENTLY_WRONG)}
    for node in list(gm.graph.nodes):
        if node.target in to_repair and node.target in _VIEW_OPS:
            node.target = torch.ops.aten.reshape.default
        elif node.target in to_repair:
            _copies_for(node)


def _strides(value: Any) -> tuple[int, ...]:
    """Return the strides of a tensor (of a fake one, as traced), or nothing for other values."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return tuple(map(size_hint, value.stride())) if strided else ()


def _copies_for(node: fx.Node) -> list[fx.Node]:
    """Make ``node`` read contiguous copies of its inputs, and return the new nodes, which get its metadata."""
    copies = []
    for source in node.all_input_nodes:
        if len(_strides(source.meta.get("val"))) <= 1 or source.kwargs == _CONTIGUOUS:
            continue
        with node.graph.inserting_before(node):
            copies.append(node.graph.call_function(torch.ops.aten.clone.default, (source,), _CONTIGUOUS))
        copies[-1].meta = {**node.meta, "val": source.meta["val"].clone(**_CONTIGUOUS)}
        node.replace_input_with(source, copies[-1])
    return copies
