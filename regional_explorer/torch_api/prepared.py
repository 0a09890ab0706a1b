"""Lowers pieces that their trace has prepared for Inductor, as torch.compile lowers its graphs.

A decomposed piece needs no AOTAutograd of its own, which would trace it again: that runs passes twice, and loses the
ops that its kernels are named by. Weights that are constants are folded and packed, as Inductor does for whole graphs.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.compile_utils import fx_graph_cse
from torch._inductor import compile_fx, freezing, freezing_utils
from torch._inductor.codecache import FxGraphCache
from torch._inductor.constant_folding import constant_fold, replace_node_with_constant
from torch._inductor.fx_passes.freezing_patterns import freezing_passes
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstants, CompiledFxGraphConstantsWithGm
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensor
from torch.compiler._cache import CacheArtifactManager

from regional_explorer.record.graph import GraphKind
from regional_explorer.record.plan import Preparation
from regional_explorer.torch_api.cheap_calls import picker, settled_call
from regional_explorer.torch_api.dynamo import after_joint_passes
from regional_explorer.torch_api.graphs import BoxedCall, runs_random_op
from regional_explorer.torch_api.hidden_state import storage_id, storage_key

if TYPE_CHECKING:
    from torch._subclasses import FakeTensorMode


_FREEZES = {"freezing": True, "fx_graph_cache": False}
"""The config under which a frozen piece is compiled.

The key of Inductor's cache leaves out what frozen weights hold, but code depends on it: numbers are written into it,
and C++ templates pack weights of their own (torch 2.13, docs/upstream.md).
"""


UNCACHED = "weights are constants, and the key of the cache leaves out what they hold"


def is_weight(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a parameter, or a tensor that Dynamo found in a module: a buffer.

    A tensor that was made in inference mode does not count: torch does not count writes to it.
    """
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout is not torch.strided or value.is_inference():
        return False
    return isinstance(value, nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def is_constant(value: Any) -> bool:
    """Return whether the value passed for an input of a piece is a constant, instead of a fake."""
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def without_constants(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a piece with a fake in place of each constant."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [node.meta["val"] if is_constant(value) else value for node, value in zip(placeholders, inputs, strict=True)]


@contextlib.contextmanager
def compiling_frozen(mode: FakeTensorMode) -> Iterator[None]:
    """Context manager: compile a frozen piece in the block."""
    with mock.patch.object(mode, "allow_non_fake_inputs", True), inductor_config.patch(_FREEZES):  # noqa: FBT003
        yield


@dataclass(frozen=True)
class Constants:
    """The constants of frozen code, by their names in it, and the places of the inputs that it takes."""

    values: Mapping[str, Any]
    inputs: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes that they take; for constants that a library has packed, the bytes that torch reports."""
        tensors = [value for value in self.values.values() if isinstance(value, torch.Tensor)]
        packed: int = sum(torch.ops.mkldnn._nbytes(tensor) for tensor in tensors if tensor.is_mkldnn)
        storages = {storage_key(tensor): tensor.untyped_storage() for tensor in tensors if not tensor.is_mkldnn}
        return packed + sum(storage.nbytes() for storage in storages.values())


@dataclass(frozen=True)
class FrozenPiece:
    """A piece whose weights are constants; ``inputs`` are the places of the inputs that are left.

    ``layout_opt`` says whether its convolutions are in channels-last layout.
    """

    gm: fx.GraphModule
    inputs: tuple[int, ...]
    layout_opt: bool


def freeze(gm: fx.GraphModule, inputs: Sequence[Any]) -> FrozenPiece:
    """Return a piece with the constants among its ``inputs`` folded, as ``fw_compiler_freezing`` does (torch 2.13).

    That function finds weights in the tracing context of a whole model. A weight stays an input if a result is a view
    of it.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    fakes = [node.meta["val"] for node in placeholders]
    shown = {storage_id(node) for node in gm.graph.output_node().all_input_nodes}
    with freezing_utils.enter_freezing(), inductor_config.patch(_FREEZES):
        layout_opt = GraphLowering.decide_layout_opt(gm, is_inference=True)
        if layout_opt:
            freezing.convert_conv_weights_to_channels_last(gm)
        view_to_reshape(gm)
        left = []
        for place, (node, value) in enumerate(zip(placeholders, inputs, strict=True)):
            if is_constant(value) and storage_id(node) not in shown:
                # Constants are copied: code is kept by their content, and the user may write to the weights.
                replace_node_with_constant(gm, node, value.detach().clone())
            else:
                left.append(place)
        gm.graph = fx_graph_cse(gm.graph)
        freezing_passes(gm, [fakes[place] for place in left])
        constant_fold(gm)
        freezing_utils.record_has_frozen_params(gm)
    return FrozenPiece(gm, tuple(left), layout_opt)


# ------------------------------------------------------------------------------------------------------------ lowering


_EARLIER_PASSES = {"pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass"}
"""Config keys of passes that run before those that a prepared piece still needs."""


def is_lowered_as_it_is(gm: fx.GraphModule, config: Mapping[str, Any]) -> bool:
    """Return whether Inductor can lower a decomposed piece as it is, without AOTAutograd, under ``config``."""
    with inductor_config.patch(dict(config)):
        if _EARLIER_PASSES & config.keys() or inductor_config.triton.cudagraphs:
            return False
    return not any(ops_not_plain(gm))


def ops_not_plain(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the ops that prevent a piece from being lowered as it is.

    Every trace leaves random ops undecomposed, so that they draw what eager draws. A higher-order op has bodies, and an
    op of a library may need AOTAutograd's notes about it.
    """
    return (node for node in gm.graph.nodes if node.op == "call_function" and not _is_plain(node))


def _is_plain(node: fx.Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        shows_other_values = node.target in _OTHER_VALUES
        return node.target.namespace in ("aten", "prims") and not shows_other_values and not runs_random_op(node)
    return not isinstance(node.target, torch._ops.HigherOrderOperator)


_aten = torch.ops.aten
_OTHER_VALUES = {
    *(_aten.view_as_real.default, _aten.view_as_complex.default, _aten.view.dtype),
    *(_aten._conj.default, _aten._neg_view.default),
}
"""Views whose values differ from the memory, so that ``as_strided`` cannot make them."""


@dataclass(frozen=True)
class Alias:
    """A result that shares its memory with the input or earlier result numbered ``source``."""

    result: int
    source: int
    of_input: bool


@dataclass(frozen=True, eq=False)
class _CallReturningViews:
    """Calls a graph, and turns results that share memory into views.

    Generated code returns a view without telling autograd, which would not notice a later write to the viewed tensor.
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
        """Return this call without the work around the first call, and without views that nobody can write to."""
        needed = tuple(
            alias for alias in self.aliases if alias.of_input or not {alias.source, alias.result} <= {*unseen}
        )
        graph = settled_call(self.graph, unseen)
        return _CallReturningViews(graph, needed) if needed else graph


@dataclass(frozen=True, eq=False)
class _CallWithoutConstantInputs:
    """Calls a graph without the inputs that it holds as constants; ``take`` picks the inputs that it needs."""

    graph: BoxedCall
    take: Callable[[Sequence[Any]], Sequence[Any]]

    def __call__(self, args: list[Any]) -> Any:
        inputs = list(self.take(args))
        args.clear()
        return self.graph(inputs)

    def settled(self, unseen: Collection[int]) -> BoxedCall:
        """Return this call without the work around the first call."""
        return _CallWithoutConstantInputs(settled_call(self.graph, unseen), self.take)


@dataclass(frozen=True, eq=False)
class InductorGraph:
    """Inductor's compiled graph of a piece, and which results share memory; ``frozen`` if it has constant weights."""

    graph: CompiledFxGraph
    aliases: tuple[Alias, ...]
    frozen: FrozenPiece | None = None

    @property
    def call(self) -> BoxedCall:
        """The function that runs the piece."""
        call = _CallReturningViews(self.graph, self.aliases) if self.aliases else self.graph
        return call if self.frozen is None else _CallWithoutConstantInputs(call, picker(self.frozen.inputs))

    @property
    def constants(self) -> Constants | None:
        """The constants of its code; None if it was not frozen."""
        if self.frozen is None:
            return None
        return Constants(CompiledFxGraphConstantsWithGm(self.frozen.gm).unwrap(self.graph), self.frozen.inputs)

    def serialize(self) -> bytes:
        """Return the graph as bytes, without the libraries that it calls and the weights that are constants."""
        graph = copy.copy(self.graph)
        graph.prepare_for_serialization()
        return _HEADER + pickle.dumps((graph, self.aliases))

    @classmethod
    def deserialize(cls, content: bytes, frozen: FrozenPiece | None) -> InductorGraph | None:
        """Return the graph that ``serialize`` wrote; None for other content. This runs the code.

        ``frozen`` is the piece with its constants, if it was frozen.
        """
        if not content.startswith(_HEADER):
            return None
        graph, aliases = pickle.loads(content[len(_HEADER) :])  # noqa: S301 - artifacts are code
        constants = CompiledFxGraphConstants() if frozen is None else CompiledFxGraphConstantsWithGm(frozen.gm)
        loaded, _ = FxGraphCache.cache_hit_post_compile(graph, {}, constants)
        if loaded is None:
            raise OSError("its code cannot be written to Inductor's cache")
        loaded.post_compile((), constants, {**loaded.fx_kwargs, "cudagraphs": BoxedBool(False)})  # noqa: FBT003
        return cls(loaded, aliases, frozen)


_HEADER = b"regional_explorer graph\n"


def lower_as_it_is(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, prepared: Preparation
) -> InductorGraph:
    """Return Inductor's compiled graph of a piece for fakes; the piece's graph is changed.

    A tensor in the place of a fake becomes a constant.
    """
    fakes = without_constants(gm, inputs)
    with _running_passes(mode), _wrapper_options(fakes) as options:
        gm, frozen = _prepared_piece(gm, inputs, fakes, prepared)
        if frozen is not None:
            fakes = [fakes[place] for place in frozen.inputs]
            options["layout_opt"] = frozen.layout_opt
        outputs = gm.graph.output_node()
        results: Any = outputs.args[0]
        aliases = tuple(_aliases(gm.graph.find_nodes(op="placeholder"), results))
        # Other code, made for these strides, reads every result of a piece.
        outputs.meta["user_visible_output_idxs"] = list(range(len(results)))
        with contextlib.nullcontext() if frozen is None else compiling_frozen(mode):
            graph: Any = compile_fx.compile_fx_inner(
                gm,
                fakes,
                is_inference=prepared.kind is GraphKind.INFERENCE,
                is_backward=prepared.kind is GraphKind.BACKWARD,
                cudagraphs=BoxedBool(False),  # noqa: FBT003 - torch's signature
                **options,
            )
    return InductorGraph(graph, aliases, frozen)


def frozen_as_it_is(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, prepared: Preparation
) -> FrozenPiece | None:
    """Return the piece with its constants as it is lowered; None without constants."""
    with _running_passes(mode):
        return _prepared_piece(gm, inputs, without_constants(gm, inputs), prepared)[1]


@contextlib.contextmanager
def _running_passes(mode: FakeTensorMode) -> Iterator[None]:
    """Context manager: run Inductor's passes on a piece in the block."""
    with (
        V.set_fake_mode(mode),
        CacheArtifactManager.with_fresh_cache(),  # kept out of the artifacts that the user saves
        enable_python_dispatcher(),
    ):
        yield


def _prepared_piece(
    gm: fx.GraphModule, inputs: Sequence[Any], fakes: Sequence[Any], prepared: Preparation
) -> tuple[fx.GraphModule, FrozenPiece | None]:
    """Return a piece after the passes that its trace has not run, and its frozen form if it has constants."""
    compile_fx.fake_tensor_prop(gm, fakes)
    if not prepared.joint_passes:
        gm = after_joint_passes(gm, in_bodies=True)
    if not any(map(is_constant, inputs)):
        return gm, None
    frozen = freeze(gm, inputs)
    return frozen.gm, frozen


@contextlib.contextmanager
def _wrapper_options(inputs: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Context manager: provide what a C++ wrapper needs; yield the options that request it from Inductor."""
    if not inductor_config.cpp_wrapper:
        yield {}
        return
    with inductor_config.patch(compile_fx.get_cpp_wrapper_config()), V.set_real_inputs(list(inputs)):
        yield {"cpp_wrapper": True}


def _aliases(placeholders: Sequence[fx.Node], results: Sequence[fx.Node]) -> Iterator[Alias]:
    sources: dict[int, tuple[int, bool]] = {}
    for number, node in enumerate(placeholders):
        if (storage := storage_id(node)) is not None:
            sources.setdefault(storage, (number, True))
    for number, node in enumerate(results):
        storage = storage_id(node)
        if storage in sources:
            yield Alias(number, *sources[storage])
        elif storage is not None:
            sources[storage] = number, False
