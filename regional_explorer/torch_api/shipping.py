"""Sends pieces and compiled code to other processes."""

from __future__ import annotations

import functools
import hashlib
import operator
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import CppCodeCache, PyCodeCache
from torch._inductor.standalone_compile import AOTCompiledArtifact
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx._graph_pickler import GraphPickler, Options

from regional_explorer.torch_api.prepared import FrozenPiece, InductorGraph
from regional_explorer.torch_api.torch_config import defaults_of_changed_config


class ShipmentError(Exception):
    """A piece or compiled code cannot be packed, or cannot be loaded."""


@dataclass(frozen=True)
class PackedCode:
    """The compiled code of one partition: torch's own pickle, and the shared objects by a hash of their source.

    ``sizes`` are the dynamic sizes as ``compiler.artifact`` packs them.
    """

    code: bytes
    libraries: Mapping[str, bytes]
    sizes: bytes = b""


def pack_artifact(artifact: Any, settings: Mapping[str, Any]) -> PackedCode:
    """Pack an artifact that was compiled under these ``settings``; its libraries are found by loading it once more.

    Raises:
        ShipmentError: torch cannot serialize it, or it has parts that are not packed.
    """
    loaders: dict[str, Callable[[], Any]] = {}
    load_async = CppCodeCache.load_async.__func__  # type: ignore[attr-defined]  # a class method

    def recording_load(cls: Any, main_code: str, *args: Any, **kwargs: Any) -> Any:
        loader = load_async(cls, main_code, *args, **kwargs)
        loaders[_source_key(cls, main_code, *args, **kwargs)] = loader
        return loader

    try:
        code = artifact.serialize()
        with (
            inductor_config.patch({**defaults_of_changed_config(), **settings}),
            mock.patch.object(CppCodeCache, "load_async", classmethod(recording_load)),
            # Otherwise loaded modules are not loaded again, and nothing is recorded.
            mock.patch.object(PyCodeCache, "modules_no_attr", {}),
        ):
            _load_artifact(code, artifact.frozen if isinstance(artifact, InductorGraph) else None)
        return PackedCode(code, {key: _shared_object_path(loader()).read_bytes() for key, loader in loaders.items()})
    except Exception as error:
        raise ShipmentError(f"{type(error).__name__}: {error}") from error


def unpack(code: bytes, libraries: Mapping[str, Path], frozen: FrozenPiece | None) -> Any:
    """Return a packed artifact, whose ``libraries`` are at the given paths. This runs the code.

    ``frozen`` is the piece with its constants, if it was frozen.

    Raises:
        ShipmentError: it cannot be loaded.
    """

    def load_shipped(cls: Any, main_code: str, *args: Any, **kwargs: Any) -> Any:
        path = libraries.get(_source_key(cls, main_code, *args, **kwargs))
        if path is None:
            raise ShipmentError("a shared object is missing")
        return functools.partial(cls._load_library, str(path), path.stem)

    try:
        with mock.patch.object(CppCodeCache, "load_async", classmethod(load_shipped)):
            return _load_artifact(code, frozen)
    except ShipmentError:
        raise
    except Exception as error:
        raise ShipmentError(f"{type(error).__name__}: {error}") from error


def _load_artifact(code: bytes, frozen: FrozenPiece | None) -> Any:
    """Load an artifact; raise ShipmentError if it has code for compilers other than the C++ compiler and Triton."""

    def refuse_kernel(*_args: Any, **_kwargs: Any) -> Any:
        raise ShipmentError("it has kernels that are neither C++ nor Triton")

    languages = ("cutlass", "cuda", "xpu", "rocm", "halide", "metal")
    refusals: dict[str, Any] = {name: refuse_kernel for name in languages if hasattr(AsyncCompile, name)}
    with mock.patch.multiple(AsyncCompile, **refusals):
        return InductorGraph.deserialize(code, frozen) or AOTCompiledArtifact.deserialize(code)


def _source_key(cls: Any, main_code: str, device_type: str = "cpu", *_args: Any, **kwargs: Any) -> str:
    """Return a hash that identifies a shared object: its source and device type, without the command line."""
    parts = (cls.__name__, device_type, main_code, str(kwargs.get("optimized_code") or ""))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _shared_object_path(loaded: Any) -> Path:
    return Path(getattr(loaded, "__file__", None) or loaded._name)


BUILTIN_NAMESPACES = ("aten", "prims")
"""The namespaces of operators that every process registers by itself."""


_UNSENDABLE = (pickle.PicklingError, AttributeError, TypeError, AssertionError, NotImplementedError)
"""The exceptions that pickling raises for objects that it cannot serialize."""


def dump_piece(gm: fx.GraphModule, inputs: Sequence[Any]) -> bytes:
    """Return a piece and the fakes for its inputs as bytes.

    Raises:
        ShipmentError: the piece has parts that may differ in another process: dynamic sizes, other devices than the
            CPU, constants, bodies of higher-order ops, or operators of other libraries.
    """
    for why in (*map(_input_problem, inputs), *map(_node_problem, gm.graph.nodes)):
        if why:
            raise ShipmentError(why)
    try:
        return GraphPickler.dumps((gm, list(inputs)), Options(ops_filter=None))
    except _UNSENDABLE as error:
        raise ShipmentError(f"torch cannot serialize it ({type(error).__name__}: {error})") from error


def dump(value: Any) -> bytes:
    """Return configs or settings as bytes.

    Raises:
        ShipmentError: they contain a value that cannot be sent, such as a pass of the user's.
    """
    try:
        return pickle.dumps(value)
    except _UNSENDABLE as error:
        problem = "a setting of Inductor's in this process, such as a pass of yours, cannot be sent"
        raise ShipmentError(f"{problem} ({type(error).__name__}: {error})") from error


def load_piece(dumped: bytes, mode: FakeTensorMode) -> tuple[fx.GraphModule, list[Any]]:
    """Return the piece and inputs that ``dump_piece`` serialized, with the fakes in ``mode``."""
    loaded: Any = GraphPickler.loads(dumped, mode)
    gm, inputs = loaded
    return gm, inputs


def _input_problem(value: Any) -> str:
    """Return why another process cannot load an input; empty if it can."""
    is_plain = isinstance(value, FakeTensor) and value.layout is torch.strided
    sizes = (*value.shape, *value.stride(), value.storage_offset()) if is_plain else (value,)
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return "it has dynamic sizes"
    if not is_plain:
        return "it takes something other than plain tensors"
    return "" if value.device.type == "cpu" else f"it runs on {value.device.type}"


def _node_problem(node: fx.Node) -> str:
    """Return why another process cannot load a node; empty if it can."""
    if node.op in ("placeholder", "output") or node.target is operator.getitem:
        return ""
    if node.op != "call_function":
        return "it has constants or the bodies of a higher-order op"
    if not isinstance(node.target, torch._ops.OpOverload):
        return f"it calls {getattr(node.target, '__name__', node.target)}, which is no operator of torch"
    return "" if node.target.namespace in BUILTIN_NAMESPACES else f"it calls {node.target}, an operator of a library"
