"""How far apart two correct results may be because of rounding: eps, lengths of sums, dtypes.

``docs/numerics.md`` states the rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from regional_explorer.torch_api import bodies, size_hint

SLACK = 4.0
"""How many times farther from float64 than eager a variant may be."""

FEW_ELEMENTS = 32
"""With fewer elements, eager's own distance from float64 may be small by luck."""

_UNITS_OF_DTYPE, _UNITS_OF_SUM = 10.0, 64.0
"""Rounding units that eager may be off: of its dtype, and of the dtype of sums times the root of their terms."""

_CHUNK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Arithmetic:
    """How the graphs of a call compute.

    ``reduction`` is how many terms the largest reduction sums, at the sizes of the trace; ``eps`` the precision of the
    narrowest dtype that they compute in: under autocast, a float32 result was rounded to bfloat16 on the way.
    """

    reduction: int = 1
    eps: float = 0.0


@dataclass(frozen=True)
class Limit:
    """How far an element may be off: ``relative`` × (its size + the tensor's RMS) + ``absolute``."""

    relative: float
    absolute: float

    def rms(self, tensor_rms: float) -> float:
        """Return how far a tensor may be off as a whole; ``tensor_rms`` is its RMS."""
        return self.relative * tensor_rms + self.absolute


@dataclass(frozen=True)
class Gap:
    """How far one tensor is from another.

    ``rms`` and ``largest`` are absolute differences; ``share`` is the largest fraction of its limit that an element
    uses.
    """

    rms: float
    largest: float
    share: float


def unit(dtype: torch.dtype, scale: float) -> Limit:
    """Return the error of rounding a result once; ``scale`` is the RMS of the largest output, or gradient."""
    return Limit(eps_of(dtype), eps_of_sums(dtype) * scale)


def units_of_a_sum(tensor: torch.Tensor, arithmetic: Arithmetic) -> float:
    """Return by how many units a correct result may be off, however near to float64 eager is.

    Eager sums pairwise; Inductor adds one term after the other, and each addition rounds: by √n units of the dtype that
    kernels sum in, and by twice that if the terms repeat (the gradient of a mean). Few elements may be near by luck.
    """
    sum_units = math.sqrt(arithmetic.reduction)
    if tensor.numel() < FEW_ELEMENTS:
        return sum_units * max(1.0, arithmetic.eps / eps_of(tensor.dtype))
    return max(1.0, sum_units * eps_of_sums(tensor.dtype) / eps_of(tensor.dtype))


def far(dtype: torch.dtype, arithmetic: Arithmetic, scale: float, noise: float = 0.0) -> Limit:
    """Return how far eager may be off by rounding alone; a larger difference has another cause.

    Args:
        dtype: that of the result.
        arithmetic: how the graphs compute.
        scale: the RMS of the largest output, or gradient: a gradient that is truly zero is noise at that scale.
        noise: by how much the result is seen to move with rounding, if it was looked at: what is left of a long sum
            whose terms cancel may be off by more, but by no more than the sum at that scale.
    """
    eps = max(eps_of(dtype), arithmetic.eps)
    relative = _UNITS_OF_DTYPE * eps + _UNITS_OF_SUM * eps_of_sums(dtype) * math.sqrt(arithmetic.reduction)
    return Limit(relative, max(_UNITS_OF_DTYPE * eps * scale, min(noise, relative * scale)))


def gap(left: torch.Tensor, right: torch.Tensor, limit: Limit | None = None) -> Gap:
    """Return how far ``left`` is from ``right``; equal infinities and NaNs differ by nothing, others by infinity."""
    square_sum, largest, share, right_rms = 0.0, 0.0, 0.0, rms(right)
    for chunk, other in _chunks(left, right):
        equal = (chunk == other) | ((chunk != chunk) & (other != other))  # noqa: PLR0124 - NaN is not itself
        diff = torch.where(equal, 0.0, (chunk - other).abs()).nan_to_num(nan=math.inf, posinf=math.inf)
        square_sum += float(diff.square().sum())
        largest = max(largest, float(diff.max()))
        if limit is not None:
            allowed = limit.relative * (other.abs() + right_rms) + limit.absolute
            share = max(share, float(torch.where(diff == 0.0, 0.0, (diff / allowed).nan_to_num(nan=math.inf)).max()))
    return Gap(math.sqrt(square_sum / max(left.numel(), 1)), largest, share)


def rms(tensor: torch.Tensor | None) -> float:
    """Return the root mean square of the finite elements of a floating tensor; 0 for other tensors."""
    if tensor is None or not is_floating(tensor):
        return 0.0
    square_sum, count = 0.0, 0
    for (chunk,) in _chunks(tensor):
        finite = chunk.abs()[torch.isfinite(chunk)]
        square_sum, count = square_sum + float(finite.square().sum()), count + finite.numel()
    return math.sqrt(square_sum / count) if count else 0.0


def is_floating(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds floating or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def holds_exact_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds no results of arithmetic that rounds: integers, booleans, or 8-bit numbers.

    Eight bits are for storage: a value is rounded to them on purpose, and differs by a whole step or not at all.
    """
    return not is_floating(tensor) or tensor.dtype.itemsize == 1


def _chunks(*tensors: torch.Tensor) -> Iterable[tuple[torch.Tensor, ...]]:
    """Yield tensors in chunks in the widest dtype of their kind: whole copies would take several times the memory."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _CHUNK_ELEMENTS):
        yield tuple(
            piece[start : start + _CHUNK_ELEMENTS].to(torch.complex128 if piece.is_complex() else torch.float64)
            for piece in flat
        )


def eps_of(dtype: torch.dtype) -> float:
    """Return the precision of a floating dtype: the distance from 1 to the next larger number."""
    return float(torch.finfo(dtype).eps)


def eps_of_sums(dtype: torch.dtype) -> float:
    """Return the precision in which kernels sum: float32 for all narrower dtypes."""
    return min(eps_of(dtype), eps_of(torch.float32))


# --------------------------------------------------------------------------------------------------- how graphs compute


def arithmetic_of(graphs: Iterable[fx.GraphModule]) -> Arithmetic:
    """Return how graphs compute."""
    nodes = [node for gm in graphs for node in _op_nodes(gm)]
    dtypes = {tensor.dtype for node in nodes for tensor in _result_tensors(node) if is_floating(tensor)}
    return Arithmetic(
        max(map(_summed_terms, nodes), default=1),
        # Eight bits are for storage: those values were rounded on purpose, and are rounded in the float64 run too.
        max((eps_of(dtype) for dtype in dtypes if dtype.itemsize > 1), default=0.0),
    )


def _op_nodes(gm: fx.GraphModule) -> Iterable[fx.Node]:
    yield from (node for node in gm.graph.nodes if node.op == "call_function")
    for _, body in bodies(gm):
        yield from _op_nodes(body)


_MATMUL_OPS = frozenset(("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_int_mm"))
_PICKING_PREFIXES = (
    *("index", "select", "gather", "embedding", "slice", "split", "take", "sort", "topk"),
    *("arg", "amax", "amin", "max", "min", "any", "all"),
)
"""Prefixes of the names of operators that pick elements and sum none."""

_ALONG_DIMS = frozenset(("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "cumsum"))


def _summed_terms(node: fx.Node) -> int:
    target = node.target
    if getattr(target, "is_view", True):  # a higher-order op has no such attribute
        return 1
    name = target.overloadpacket.__name__  # type: ignore[union-attr]  # it is an operator, since it has is_view
    inputs = [shape for source in node.all_input_nodes for shape in _known_shapes(source)]
    outputs = [shape for shape in _known_shapes(node) if math.prod(shape)]
    if not inputs or not outputs:
        return 1
    if name in _MATMUL_OPS:
        return max(1, inputs[-2 if len(inputs) > 1 else -1][-1])
    if name == "convolution":
        return max(1, math.prod(inputs[1][1:]))
    if name == "convolution_backward":  # each gradient sums over what the other two share
        gradient, _, weight = inputs[:3]
        return max(1, math.prod(gradient) // max(gradient[1], 1), math.prod(weight) // max(weight[1], 1))
    if name in _ALONG_DIMS:
        return max(1, *inputs[0])
    if name.startswith(_PICKING_PREFIXES):
        return 1
    return max(1, max(map(math.prod, inputs)) // min(map(math.prod, outputs)))


def _known_shapes(node: fx.Node) -> list[tuple[int, ...]]:
    return [shape for tensor in _result_tensors(node) if (shape := _known_shape(tensor)) is not None]


def _result_tensors(node: fx.Node) -> list[torch.Tensor]:
    value: Any = node.meta.get("val")
    return [
        item for item in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(item, torch.Tensor)
    ]


def _known_shape(tensor: torch.Tensor) -> tuple[int, ...] | None:
    try:
        return tuple(size_hint(size) for size in tensor.shape)
    except ValueError:  # a size that is known only at run time
        return None
