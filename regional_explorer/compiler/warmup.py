"""Compiles a tiny graph once, so that the toolchain's start is not part of any region's compile time."""

from __future__ import annotations

import functools

import torch
from torch import fx

from regional_explorer.record.timing import CompileCost
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import compile_piece


@functools.cache
def warm_toolchain(device_type: str) -> CompileCost:
    """Compile one tiny graph, so that the next compile is timed without the toolchain's start; return what it cost.

    The first C++ compile of a machine probes the instruction set and builds a precompiled header, the first of a
    process imports Inductor. Done once per process and device type.

    Raises:
        NoCompilerError: there is no working C++ compiler.
    """
    graph = fx.Graph()
    value = graph.placeholder("value")
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (value, 1)),))
    mode = fake_mode_with_symbols()
    with mode:
        fake = torch.empty(8, device=device_type)
    compiled = compile_piece(fx.GraphModule({}, graph), [fake], mode, {})
    return CompileCost("toolchain (once per process)", compiled.made.seconds, compiled.made.cache)
