"""Lowers pieces that their trace has prepared for Inductor, as torch.compile does its graphs.

What is decomposed needs no AOTAutograd of its own: it would trace the piece again, which loses by what ops its kernels
are called and runs passes twice.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._inductor import compile_fx
from torch._inductor.codecache import FxGraphCache
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstants
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
from torch.compiler._cache import CacheArtifactManager

from regional_explorer.record.graph import GraphKind
from regional_explorer.record.tracing import Prepared
from regional_explorer.torch_api.cheap_calls import settled_call
from regional_explorer.torch_api.dynamo import after_joint_passes
from regional_explorer.torch_api.graphs import BoxedCall, runs_random
from regional_explorer.torch_api.tensors import storage_key

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


_EARLIER_PASSES = {"pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass"}
"""Config keys of passes that run before those that a prepared piece still needs."""


def is_lowered_as_it_is(gm: fx.GraphModule, config: Mapping[str, Any]) -> bool:
    """Return whether Inductor takes a piece that is decomposed as it is, under ``config``.

    Random ops are left by every trace, so that they draw what eager draws; a higher-order op has bodies, and an op of a
    library may need what AOTAutograd notes about it.
    """
    with inductor_config.patch(dict(config)):
        if _EARLIER_PASSES & config.keys() or inductor_config.triton.cudagraphs:
            return False
    return all(node.op != "call_function" or _is_plain(node) for node in gm.graph.nodes)


def _is_plain(node: fx.Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        shows_other_values = node.target in _OTHER_VALUES
        return node.target.namespace in ("aten", "prims") and not shows_other_values and not runs_random(node)
    return not isinstance(node.target, torch._ops.HigherOrderOperator)


_aten = torch.ops.aten
_OTHER_VALUES = {
    *(_aten.view_as_real.default, _aten.view_as_complex.default, _aten.view.dtype),
    *(_aten._conj.default, _aten._neg_view.default),
}
"""Views of other values than those in memory: they are not had by ``as_strided``."""


@dataclass(frozen=True)
class Alias:
    """A result that shares its memory with an input, or with an earlier result, of this number."""

    result: int
    source: int
    of_input: bool


@dataclass(frozen=True, eq=False)
class _WithViews:
    """Runs a graph, and makes views of those results that show memory of others.

    Generated code returns a view without telling autograd: a later write to what it shows would not be noticed.
    """

    graph: BoxedCall
    aliases: tuple[Alias, ...]

    def __call__(self, args: list[Any]) -> Any:
        inputs = {alias.source: args[alias.source] for alias in self.aliases if alias.of_input}
        results = list(self.graph(args))
        for alias in self.aliases:
            source = inputs[alias.source] if alias.of_input else results[alias.source]
            shown = results[alias.result]
            if torch._C._is_alias_of(source, shown):  # type: ignore[attr-defined]  # not in its stubs
                results[alias.result] = source.as_strided(shown.shape, shown.stride(), shown.storage_offset())
        return results

    def settled(self, unseen: Collection[int]) -> BoxedCall:
        """Return the same without what is done around the first call, and for results that nobody can write to."""
        needed = tuple(
            alias for alias in self.aliases if alias.of_input or not {alias.source, alias.result} <= {*unseen}
        )
        graph = settled_call(self.graph, unseen)
        return _WithViews(graph, needed) if needed else graph


@dataclass(frozen=True, eq=False)
class InductorGraph:
    """What Inductor made of a piece, and which of its results share memory."""

    graph: CompiledFxGraph
    aliases: tuple[Alias, ...]

    @property
    def call(self) -> BoxedCall:
        """What runs it."""
        return _WithViews(self.graph, self.aliases) if self.aliases else self.graph

    def serialize(self) -> bytes:
        """Return it as bytes, without the libraries that it calls."""
        graph = copy.copy(self.graph)
        graph.prepare_for_serialization()
        return _HEADER + pickle.dumps((graph, self.aliases))

    @classmethod
    def deserialized(cls, content: bytes) -> InductorGraph | None:
        """Return what ``serialize`` wrote, None if it did not write this. This runs the code."""
        if not content.startswith(_HEADER):
            return None
        graph, aliases = pickle.loads(content[len(_HEADER) :])  # noqa: S301 - artifacts are code
        constants = CompiledFxGraphConstants()
        loaded, _ = FxGraphCache.cache_hit_post_compile(graph, {}, constants)
        if loaded is None:
            raise OSError("its code cannot be written to Inductor's cache")
        loaded.post_compile((), constants, {**loaded.fx_kwargs, "cudagraphs": BoxedBool(False)})  # noqa: FBT003
        return cls(loaded, aliases)


_HEADER = b"regional_explorer graph\n"


def lower_as_it_is(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, prepared: Prepared
) -> InductorGraph:
    """Return what Inductor makes of a piece for these fakes; the graph is changed."""
    with (
        V.set_fake_mode(mode),
        CacheArtifactManager.with_fresh_cache(),  # not among those that the user saves
        enable_python_dispatcher(),
        _wrapper_options(inputs) as options,
    ):
        compile_fx.fake_tensor_prop(gm, inputs)
        if not prepared.joint_passes:
            gm = after_joint_passes(gm, in_bodies=True)
        outputs = gm.graph.output_node()
        results: Any = outputs.args[0]
        aliases = tuple(_aliases(gm.graph.find_nodes(op="placeholder"), results))
        # Every result of a piece is read by other code, which was made for these strides.
        outputs.meta["user_visible_output_idxs"] = list(range(len(results)))
        graph: Any = compile_fx.compile_fx_inner(
            gm,
            list(inputs),
            is_inference=prepared.kind is GraphKind.INFERENCE,
            is_backward=prepared.kind is GraphKind.BACKWARD,
            cudagraphs=BoxedBool(False),  # noqa: FBT003 - torch's signature
            **options,
        )
    return InductorGraph(graph, aliases)


@contextlib.contextmanager
def _wrapper_options(inputs: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """A block with what a wrapper in another language than Python needs, and how Inductor is asked for it."""
    if not inductor_config.cpp_wrapper:
        yield {}
        return
    with inductor_config.patch(compile_fx.get_cpp_wrapper_config()), V.set_real_inputs(list(inputs)):
        yield {"cpp_wrapper": True}


def _aliases(placeholders: Sequence[fx.Node], results: Sequence[fx.Node]) -> Iterator[Alias]:
    sources: dict[int, tuple[int, bool]] = {}
    for number, node in enumerate(placeholders):
        if (storage := _storage(node)) is not None:
            sources.setdefault(storage, (number, True))
    for number, node in enumerate(results):
        storage = _storage(node)
        if storage in sources:
            yield Alias(number, *sources[storage])
        elif storage is not None:
            sources[storage] = number, False


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, torch.Tensor) else None
