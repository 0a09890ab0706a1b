"""Torch's own scripts for bug reports; ``TORCHDYNAMO_REPRO_AFTER="aot"`` writes the same when a compile fails."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
from torch import fx
from torch._dynamo.repro import after_aot
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._inductor import compile_fx

from regional_explorer.errors import ReproError
from regional_explorer.record.plan import Preparation
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import resolve, runs_random_op
from regional_explorer.torch_api.inductor import run_inductor
from regional_explorer.torch_api.torch_config import Settings, changed_config, under_config

_TORCH_LIBRARIES = ("aten", "prims", "quantized", "inductor", "rngprims", "_c10d_functional")
"""The namespaces of operators that every torch has, without higher-order ops: torch's script lacks their bodies."""

_SETTINGS = {
    "threads": "torch.set_num_threads({})",
    "default dtype": "torch.set_default_dtype({})",
    "float32 precision": "torch.set_float32_matmul_precision({!r})",
    "deterministic": "torch.use_deterministic_algorithms({0[0]}, warn_only={0[1]})",
}
_WITH_OPTIONS = """
import functools
from math import nan
from torch._inductor import compile_fx
compile_fx.compile_fx_inner = functools.partial(compile_fx.compile_fx_inner, **{})
"""


class _GraphIsFoundError(BaseException):
    """Ends a compile once its graph is known. Not an Exception, because AOTAutograd handles those."""


def torch_script(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: Any, config: Mapping[str, Any], prepared: Preparation | None
) -> str:
    """Return torch's script for the graph that Inductor lowers for a piece: decomposed, after the joint passes.

    Unless the graph draws random numbers, the script raises if compiled and eager results differ.

    Raises:
        RegionCompileError: the compile fails before it has that graph.
        ReproError: the script would not do what Inductor does here.
    """
    with compile_lock():
        with (
            functorch_config.patch(enable_autograd_cache=False),
            mock.patch.object(compile_fx, "_compile_fx_inner", side_effect=_GraphIsFoundError) as lowering,
            contextlib.suppress(_GraphIsFoundError),
        ):
            run_inductor(gm, inputs, mode, config, lambda _: None, prepared)
        graph, fakes = lowering.call_args.args[:2]
        file, compares = io.StringIO(), not any(map(runs_random_op, graph.graph.nodes))
        with under_config(config), mock.patch.multiple(kernel_side_table, id_to_kernel={}, constant_args={}):
            for problem in _problems(graph, fakes):
                raise ReproError(problem)
            after_aot.save_graph_repro(file, graph, fakes, "inductor", accuracy=compares)
    # The directories of this machine are left out.
    text = re.sub(r"(?m)^os\.environ\['\w*(DIR|HOME|PATH)'\].*\n", "", file.getvalue())
    definitions, main, run = text.rpartition("if __name__ == '__main__':\n")
    # The comparison only logs an error of the call, so that the script first calls the code alone.
    run = re.sub(r"(?m)^( +run_repro\(.*)accuracy=True(.*)$", r"\1accuracy=False\2\n\g<0>", run)
    knobs = Settings.now().knobs
    # The precision is a tuple if it was set per backend, which has no setter of its own.
    known = [name for name in _SETTINGS if name == "deterministic" or not isinstance(knobs[name], tuple)]
    settings = (_SETTINGS[name].format(knobs[name]) for name in known)
    options = {name: value for name, value in lowering.call_args.kwargs.items() if isinstance(value, bool)}
    return "\n".join((definitions, *settings, _WITH_OPTIONS.format(options), main + run, ""))


def _problems(gm: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[str]:
    """Yield why torch's script would not do what Inductor does with a graph."""
    for node in gm.graph.nodes:
        if getattr(node.target, "namespace", "aten") not in _TORCH_LIBRARIES:
            yield f"it cannot contain the operator {node.target}. Carve it out of the region first, with ex.carve."
        if node.op == "get_attr" and not isinstance(resolve(gm, node), fx.GraphModule):
            yield f"it would not contain the values of the constant {node.target!r}."
    imported = fx.Graph().python_code("self").globals
    yield from (f"it does not import {name}." for name in gm.graph.python_code("self").globals.keys() - imported.keys())
    for value in inputs:
        if not isinstance(value, (torch.Tensor, torch.SymInt, int)):
            yield f"it cannot create an input that is a {type(value).__name__}."
        if isinstance(value, torch.SymInt) and not hasattr(after_aot, "_get_compile_args"):  # as in torch 2.11
            yield "this torch's scripts cannot compile dynamic sizes."
        if isinstance(value, torch.Tensor):
            sizes = (*value.shape, *value.stride(), value.untyped_storage().nbytes())
            yield from (f"the size {size} has no Python literal." for size in sizes if re.search("[A-Z]", str(size)))
    for key, value in changed_config().items():
        if callable(value):
            yield f"the config {key!r} is a {type(value).__name__}, which has no Python literal."
