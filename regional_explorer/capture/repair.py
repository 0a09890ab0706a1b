"""Repairs captured graphs that fail when they run: views whose input has other strides than the trace took it for."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from regional_explorer.errors import CaptureError
from regional_explorer.record.graph import FailedOp, Graph

_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)  # noqa: SLF001 - an operator's name


class RepairRun(fx.Interpreter):
    """Runs a graph op by op; a view that its input's strides do not allow is made a reshape, which copies there.

    AOTAutograd turns ``reshape`` into ``view`` by the strides that fake tensors have, and some kernels give others:
    ``native_dropout_backward``, for example (torch 2.13, ``docs/upstream.md``).

    Raises:
        CaptureError: another op fails.
    """

    def __init__(self, gm: fx.GraphModule, record: Graph) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.failed: list[FailedOp] = []
        self._record = record

    def call_boxed(self, args: list[Any]) -> Any:
        """Run the graph on a list of arguments, which is emptied."""
        given = list(args)
        args.clear()
        return self.run(*given, enable_io_processing=False)

    def run_node(self, n: fx.Node) -> Any:
        """Run one op, and repair it if it is a view that fails."""
        try:
            return super().run_node(n)
        except Exception as error:
            what = (str(error).splitlines() or [""])[0]
            if not isinstance(error, RuntimeError) or n.target not in _VIEWS:
                line = self._record.by_name()[n.name].source
                place = f" at {line}: {line.text}" if line else ""
                raise CaptureError(
                    f"torch traced the call, but the graph it made fails when it runs: {n.name} ({n.target}) raises "
                    f"{type(error).__name__}{place}: {what} Eager runs the same call. Explore the part of the call "
                    "that does without this line."
                ) from error
            self.failed.append(FailedOp(self._record.id, n.name, what))
            n.target = torch.ops.aten.reshape.default
            return super().run_node(n)


def views_to_reshapes(gm: fx.GraphModule) -> None:
    """Make every view of a graph a reshape, which is a view wherever it can be."""
    for node in gm.graph.nodes:
        if node.target in _VIEWS:
            node.target = torch.ops.aten.reshape.default
