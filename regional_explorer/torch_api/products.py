"""Products, such as matrix products and convolutions: which ops they are, and every library that can compute one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from regional_explorer.record.floor import ATEN, ONEDNN
from regional_explorer.torch_api.graphs import size_hint

PRODUCTS = (
    *("addmm", "addmv", "baddbmm", "bmm", "convolution", "convolution_backward"),
    *("_grouped_mm", "mm", "mv", "_trilinear", "mkldnn_rnn_layer"),
)
"""Ops that eager and compiled code leave to a library, by their names in ATen; ``ATTENTION`` is a group of them."""
ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")

_IMAGE_SIZES = 4
"""The sizes of a batch of images; only such tensors can have their channels last."""

Way = Callable[[], object]
"""Computes a product once."""


def is_product(op: str) -> bool:
    """Return whether the op with a short name, such as ``mm``, is a product."""
    return op in PRODUCTS or op.startswith(ATTENTION)


def is_product_node(node: fx.Node) -> bool:
    """Return whether a node is a product of ATen."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" and is_product(_name(node))


def _name(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").partition(".")[0]


def product_key(node: fx.Node) -> str:
    """Return the op, shapes, strides, dtypes and options of a product: equal for products that take equally long.

    Raises:
        ValueError: a size is known only in a run.
    """
    return f"{node.target}{_arguments(node, _Described)}"


def _arguments(node: fx.Node, of: Callable[[Any], Any]) -> Any:
    """Return the positional arguments of a node and those by name, with the values of other nodes given by ``of``."""
    return fx.node.map_arg((node.args, dict(node.kwargs)), lambda source: of(source.meta["val"]))


def product_text(node: fx.Node) -> str:
    """Return a product for people: its op and the shapes of its operands, a transposed one with ``ᵀ``."""
    values = [source.meta["val"] for source in node.all_input_nodes]
    tensors = [_Described(value) for value in values if isinstance(value, torch.Tensor)]
    dtypes = ", ".join(dict.fromkeys(tensor.dtype for tensor in tensors))
    return f"{_name(node).strip('_')} {' · '.join(tensor.shape_text for tensor in tensors)} {dtypes}"


class _Described:
    """What the time of a product depends on in one of its arguments."""

    def __init__(self, value: Any) -> None:
        self.is_tensor = isinstance(value, torch.Tensor)
        self.value: Any = size_hint(value) if isinstance(value, torch.SymInt) else value
        if self.is_tensor:
            self.dtype = str(value.dtype).removeprefix("torch.")
            self.shape, self.stride = (tuple(map(size_hint, sizes)) for sizes in (value.shape, value.stride()))

    def __repr__(self) -> str:
        if not self.is_tensor:
            return repr(self.value)
        return f"{self.dtype}{list(self.shape)}{list(self.stride)}{self.value.device}"

    @property
    def shape_text(self) -> str:
        is_transposed = self.stride[-2:-1] == (1,) and self.stride[-1:] != (1,)
        return f"{'×'.join(map(str, self.shape)) or 'scalar'}{'ᵀ' if is_transposed else ''}"

    def example(self) -> Any:
        """Return a random tensor, or a number, that is laid out as in the call."""
        if not self.is_tensor:
            return self.value
        dtype, device = self.value.dtype, self.value.device
        elements = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        memory = torch.zeros(max(elements, 0), dtype=dtype, device=device)
        if dtype.is_floating_point or dtype.is_complex:
            memory.normal_()  # of zeros a processor may be faster, and of denormal numbers slower
        return memory.as_strided(self.shape, self.stride) if math.prod(self.shape) else memory.new_empty(self.shape)


def ways_of(node: fx.Node, *, constant: bool) -> dict[str, Way]:
    """Return what computes a product, on random operands, by library; ``constant`` weights may be packed beforehand."""
    return dict(_ways(node, *_arguments(node, lambda value: _Described(value).example()), constant=constant))


def _ways(node: fx.Node, args: Any, kwargs: Any, *, constant: bool) -> Iterator[tuple[str, Way]]:
    op: Any = node.target
    yield ATEN, functools.partial(op, *args, **kwargs)
    name, tensors = _name(node), [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not tensors or tensors[0].device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return
    if name.startswith("convolution"):
        last = [arg.to(memory_format=torch.channels_last) if _is_image(arg) else arg for arg in args]
        yield f"{ATEN}, channels last", functools.partial(op, *last, **kwargs)
    elif name in {"mm", "addmm"} and not kwargs and (name == "mm" or tensors[0].dim() == 1):
        bias, (rows, weights) = tensors[0] if name == "addmm" else None, tensors[-2:]
        # The ops that Inductor calls for linear layers whose weights are constants (mkldnn_fusion.py, torch 2.13).
        linear: Any = torch.ops.mkldnn._linear_pointwise
        yield ONEDNN, functools.partial(linear, rows, weights.t(), bias, "none", [], "")
        if constant:
            packed = torch.ops.mkldnn._reorder_linear_weight(weights.t().contiguous(), rows.shape[0])
            yield "oneDNN, packed weights", functools.partial(linear, rows, packed, bias, "none", [], "")


def _is_image(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == _IMAGE_SIZES
