"""Freezes pieces as Inductor freezes whole graphs: their weights become constants, which it folds and packs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._functorch.compile_utils import fx_graph_cse
from torch._inductor import freezing, freezing_utils
from torch._inductor.constant_folding import constant_fold, replace_node_with_constant
from torch._inductor.fx_passes.freezing_patterns import freezing_passes
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._subclasses import FakeTensor

from regional_explorer.torch_api.tensors import storage_key

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

    Not one that was made in inference mode: torch does not count what is written to it.
    """
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout is not torch.strided or value.is_inference():
        return False
    return isinstance(value, nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def is_constant(value: Any) -> bool:
    """Return whether the value passed for an input of a piece is a constant, instead of a fake."""
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def storage_of(node: fx.Node) -> int | None:
    """Return a key that nodes of one storage share; None for values that are no tensor."""
    value = node.meta.get("val")
    return storage_key(value) if isinstance(value, torch.Tensor) else None


def without_constants(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a piece with a fake in place of each constant."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [node.meta["val"] if is_constant(value) else value for node, value in zip(placeholders, inputs, strict=True)]


@contextlib.contextmanager
def with_constants(mode: FakeTensorMode) -> Iterator[None]:
    """Context manager: compile a frozen piece in the block."""
    with mock.patch.object(mode, "allow_non_fake_inputs", True), inductor_config.patch(_FREEZES):  # noqa: FBT003
        yield


@dataclass(frozen=True)
class Constants:
    """The constants of frozen code, by their names in it, and the places of the inputs that it takes."""

    values: Mapping[str, Any]
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Frozen:
    """A piece whose weights are constants; ``inputs`` are the places of the inputs that are left.

    ``layout_opt`` is whether it has its convolutions in channels-last layout.
    """

    gm: fx.GraphModule
    inputs: tuple[int, ...]
    layout_opt: bool


def freeze(gm: fx.GraphModule, inputs: Sequence[Any]) -> Frozen:
    """Return a piece with the constants among its ``inputs`` folded, as ``fw_compiler_freezing`` does (torch 2.13).

    That one finds weights in the tracing context of a whole model. A weight that a result is a view of stays an input.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    fakes = [node.meta["val"] for node in placeholders]
    shown = {storage_of(node) for node in gm.graph.output_node().all_input_nodes}
    with freezing_utils.enter_freezing(), inductor_config.patch(_FREEZES):
        layout_opt = GraphLowering.decide_layout_opt(gm, is_inference=True)
        if layout_opt:
            freezing.convert_conv_weights_to_channels_last(gm)
        view_to_reshape(gm)
        left = []
        for place, (node, value) in enumerate(zip(placeholders, inputs, strict=True)):
            if is_constant(value) and storage_of(node) not in shown:
                # A copy: code is kept by the content of its constants, which the user may write to.
                replace_node_with_constant(gm, node, value.detach().clone())
            else:
                left.append(place)
        gm.graph = fx_graph_cse(gm.graph)
        freezing_passes(gm, [fakes[place] for place in left])
        constant_fold(gm)
        freezing_utils.record_has_frozen_params(gm)
    return Frozen(gm, tuple(left), layout_opt)
