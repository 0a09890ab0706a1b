"""Compiles a piece by another backend than Inductor: one that torch knows by name, or a function of the user's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._dynamo import list_backends, lookup_backend
from torch._subclasses import FakeTensorMode

from regional_explorer.errors import RegionCompileError
from regional_explorer.record.artifact import ArtifactCompile, CacheResult
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import BoxedCall
from regional_explorer.torch_api.inductor import Builds, CompileOutput, compile_context
from regional_explorer.torch_api.shipping import PackedCode
from regional_explorer.torch_api.torch_config import read_config

_NOTHING = partial(PackedCode, b"", {})  # what another backend compiles is not kept

OWN = "regional_explorer"
"""The name of our own backend, which cannot compile a piece of itself."""


registered_backend: Callable[[str], Callable[..., Any]] = lookup_backend
"""Returns the backend with a name, as it is registered now."""


def registered_backends() -> list[str]:
    """Return the names of the backends that can compile a piece."""
    return [name for name in list_backends(exclude_tags=()) if name != OWN]


def compile_by(
    name: str,
    backend: Callable[..., Any],
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    config: Mapping[str, Any],
    *,
    dynamic: bool,
) -> CompileOutput:
    """Return what ``backend``, called ``name``, compiles ``gm`` into for these fakes, with ``config`` in force.

    ``dynamic`` says that some of their sizes are symbols.

    Raises:
        RegionCompileError: it raised, or returned nothing that can be called.
    """
    examples = list(inputs)
    if not dynamic:
        # Dynamo gives tensors, too: some backends run or trace the graph. Sizes stay fixed for backends that fake them.
        examples, mode = [_example(value) for value in inputs], FakeTensorMode()
        for node in gm.graph.find_nodes(op="placeholder"):
            node.meta.pop("val", None)
    applied: dict[str, Any] = {}
    began = time.perf_counter()
    try:
        with compile_lock(), compile_context(config, mode, lambda _code: applied.update(read_config(config))):
            call = backend(gm, examples)
    except Exception as error:
        raise RegionCompileError(f"The backend {name!r} raised {type(error).__name__}: {error}") from error
    if not callable(call):
        raise RegionCompileError(f"The backend {name!r} returned {type(call).__name__}, which cannot be called.")
    ended = time.perf_counter()
    made = ArtifactCompile(ended - began, CacheResult.OFF, f"compiled by the backend {name!r}")
    outputs: Any = gm.graph.output_node().args[0]
    return CompileOutput(_boxed(name, call, len(outputs)), "", applied, made, _NOTHING, Builds({}, (began, ended)))


def _boxed(name: str, call: Callable[..., Any], outputs: int) -> BoxedCall:
    """Return a compiled function as one of an argument list, which it empties."""

    def run(args: list[Any]) -> Any:
        arguments = tuple(args)
        args.clear()
        results = call(*arguments)
        if not isinstance(results, (tuple, list)) or len(results) != outputs:
            raise TypeError(f"what the backend {name!r} compiled returned no tuple of {outputs}")
        return results

    return run


def _example(value: Any) -> Any:
    """Return a tensor in the layout of a fake: of ones, or of zeros if it may be an index."""
    if not isinstance(value, torch.Tensor):
        return value
    example = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return example.fill_(1 if value.is_floating_point() or value.is_complex() else 0)
