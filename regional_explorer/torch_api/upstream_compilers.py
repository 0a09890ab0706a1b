"""Compiles annotated ops in upstream's own ways (``regional_inductor``, lite mode), and reports what these do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
import torch._inductor.graph
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import list_mode_options
from torch._inductor.utils import should_fallback_by_default
from torch.fx.passes.regional_inductor import regional_inductor

from regional_explorer.torch_api.graphs import ANNOTATION, FALLBACK, ORIGIN, bodies

HAS_LITE_MODE = "lite" in list_mode_options()
"""Whether this torch has ``torch.compile(mode="lite")``."""


def upstream_backend(on_graph: Callable[[str], None]) -> Any:
    """Return the backend that passes each graph of AOTAutograd to ``regional_inductor``, as in torchtitan.

    ``on_graph`` is called with ``forward`` or ``backward`` before each compile.
    """

    def compiler(direction: str) -> Callable[..., Any]:
        def compile_graph(gm: fx.GraphModule, inputs: Any) -> Any:
            on_graph(direction)
            return regional_inductor(gm, inputs)

        return compile_graph

    return aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))


def lite_backend(*, dynamic: bool | None) -> Any:
    """Return the backend of ``torch.compile(mode="lite")``."""
    return torch._TorchCompileInductorWrapper("lite", None, dynamic)


def mark_node(node: fx.Node, origin: int, annotation: Any, *, carved: bool) -> None:
    """Give a node of Dynamo's graph its origin and a mark, which replaces any mark in the source."""
    custom = {key: value for key, value in (node.meta.get("custom") or {}).items() if key not in (ANNOTATION, FALLBACK)}
    custom[ORIGIN] = origin
    if annotation is not None:
        custom[ANNOTATION] = annotation
    if carved:
        custom[FALLBACK] = True
    node.meta["custom"] = custom


def annotation_of(node: fx.Node) -> Any:
    """Return the ``compile_with_inductor`` annotation of a node in the source, or None."""
    return (node.meta.get("custom") or {}).get(ANNOTATION)


def all_graphs(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """Yield a graph and, after it, the bodies of its higher-order ops, as the record lists them."""
    yield gm
    for _, body in bodies(gm):
        yield from all_graphs(body)


@contextlib.contextmanager
def reporting_pieces(on_piece: Callable[[frozenset[int]], None]) -> Iterator[None]:
    """Context manager: call ``on_piece`` with the origins of each piece that ``regional_inductor`` compiles."""
    original = torch._inductor.standalone_compile

    def compile_piece(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        on_piece(_origins_of(node for node in gm.graph.nodes if node.op != "placeholder"))
        return original(gm, *args, **kwargs)

    with mock.patch.object(torch._inductor, "standalone_compile", compile_piece):
        yield


@contextlib.contextmanager
def reporting_lite_ops(on_op: Callable[[int | None, bool], None]) -> Iterator[None]:
    """Context manager: call ``on_op`` with the origin, or None, of each op in lite mode, and whether it is compiled.

    Caches are off: after a hit nothing is lowered, so there would be nothing to report.
    """
    original = should_fallback_by_default

    def decide(node: fx.Node) -> bool:
        eager = original(node)
        on_op(next(iter(_origins_of([node])), None), not eager)
        return eager

    with (
        inductor_config.patch(force_disable_caches=True),
        mock.patch.object(torch._inductor.graph, "should_fallback_by_default", decide),
    ):
        yield


def _origins_of(nodes: Iterable[fx.Node]) -> frozenset[int]:
    customs = (node.meta.get("custom") or {} for node in nodes)
    return frozenset(custom[ORIGIN] for custom in customs if ORIGIN in custom)
