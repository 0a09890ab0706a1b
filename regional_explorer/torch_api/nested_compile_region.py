"""Detects calls of ``nested_compile_region`` bodies, and reads the options they were given."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from regional_explorer.record.graph import SubgraphOptions

if TYPE_CHECKING:
    from torch import fx

_DEFAULT_PATCHES = {"triton.autotune_at_compile_time": True}
"""What torch 2.13 sets if no config is given."""
_DEFAULT_PARTITIONER = "min_cut_rematerialization_partition"


def calls_subgraph(node: fx.Node) -> bool:
    """Return whether a node runs the body of a ``nested_compile_region``."""
    return node.op == "call_function" and str(node.target) == "invoke_subgraph"


def subgraph_options(node: fx.Node) -> SubgraphOptions | None:
    """Return the options of the body that ``node`` runs, or None if it has none.

    Dynamo keeps them with the call (torch 2.13 and newer). A config is an argument of the compiler in 2.13, and an
    option of its own since 2.15, one each for forward and backward.
    """
    options = (node.meta.get("custom") or {}).get("nested_region_config")
    if options is None:
        return None
    config = _config_patches(options, "fw_compiler", "inductor_config_patches") or {}
    backward = _config_patches(options, "bw_compiler", "bw_inductor_config_patches")
    return SubgraphOptions(
        config=config,
        backward_config=None if backward is None or backward == config else backward,
        followed=tuple(_tracing_options(options)),
        ignored=tuple(_other_compilers(options)),
    )


def _config_patches(options: Any, compiler: str, option: str) -> dict[str, Any] | None:
    compiler_fn = getattr(options, compiler, None)
    inductor = compiler_fn if isinstance(compiler_fn, functools.partial) and _is_inductor(compiler_fn) else None
    patches = getattr(options, option, None) if inductor is None else inductor.keywords.get("inductor_config_patches")
    if not isinstance(patches, Mapping):
        return None
    return {} if dict(patches) == _DEFAULT_PATCHES else dict(patches)


def _is_inductor(compiler: Any) -> bool:
    """Return whether a compiler is the one of torch's own options, which is Inductor under some configs."""
    # A plain import would get the operator of the same name from the package.
    module = importlib.import_module("torch._higher_order_ops.invoke_subgraph")
    inductor_compile = getattr(module, "invoke_subgraph_inductor_compile", None)
    return isinstance(compiler, functools.partial) and compiler.func is inductor_compile


def _other_compilers(options: Any) -> Iterator[str]:
    compilers = {name: getattr(options, name, None) for name in ("fw_compiler", "bw_compiler")}
    if any(compiler is not None for compiler in compilers.values()):
        for name, compiler in compilers.items():
            if not _is_inductor(compiler):  # None leaves this direction to eager
                yield f"{name}={_qualified_name(compiler)} (it is compiled by Inductor here)"


def _tracing_options(options: Any) -> Iterator[str]:
    """Yield the options that AOTAutograd applies while it traces, whichever compiler runs afterwards."""
    if (partitioner := getattr(options, "partitioner", None)) not in (None, _DEFAULT_PARTITIONER):
        yield f"partitioner={_qualified_name(partitioner)}"
    if (decompositions := getattr(options, "decompositions", None)) is not None:
        yield f"decompositions of {', '.join(sorted(map(str, decompositions))) or 'nothing'}"


def _qualified_name(option: Any) -> str:
    return str(getattr(option, "__qualname__", None) or repr(option))
