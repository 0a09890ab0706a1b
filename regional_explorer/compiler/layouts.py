"""The layouts of a partition's input and output tensors, recorded in an eager run or taken from the trace.

The fakes of the trace do not always have the right strides (a backward input may arrive in another layout), and
a compiled piece may return other strides than the eager one, which its compiled consumer would reject. The same holds
for dtypes: trace and Inductor expect the statistics of a layer norm of bfloat16 to be bfloat16, but the kernel returns
float32, and code compiled for the one reads the other as noise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from regional_explorer.torch_api.graphs import is_effect_token, size_hint


@dataclass(frozen=True, slots=True)
class Layout:
    """One input or output of a piece.

    For a tensor: ``dtype``, ``size``, ``stride`` and ``device``, whether its data is 16-byte aligned, its storage
    offset, and ``storage``, equal for tensors that share one. For a plain number ``value``.
    """

    dtype: str
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    device: str = ""
    aligned: bool = True
    offset: int = 0
    storage: int = -1
    value: Any = None


TOKEN = Layout(dtype="token")
"""The layout of an effect token, whatever is passed for it: None, or the empty tensor that an eager op returns."""


def layouts_of(values: Sequence[Any], tokens: Collection[int] = ()) -> tuple[Layout, ...]:
    """Return the layouts of ``values``, storages numbered in order of appearance; ``tokens`` are the effect tokens."""
    storages: dict[int, int] = {}
    return tuple(TOKEN if index in tokens else _layout_of(value, storages) for index, value in enumerate(values))


def traced_layouts(nodes: Sequence[fx.Node]) -> tuple[Layout, ...] | None:
    """Return the layouts that ``nodes`` have in the trace, or None if it left a value or a size unknown."""
    storages: dict[int, int] = {}
    try:
        return tuple(
            TOKEN if is_effect_token(node) else _layout_of(node.meta["val"], storages, traced=True) for node in nodes
        )
    except (KeyError, ValueError):
        return None


def _layout_of(value: Any, storages: dict[int, int], *, traced: bool = False) -> Layout:
    if not isinstance(value, torch.Tensor):
        number = size_hint(value) if isinstance(value, torch.SymInt) else value
        return Layout(dtype=type(number).__name__, value=number)
    size = tuple(map(size_hint, value.shape))
    if value.layout is not torch.strided:
        return Layout(dtype=str(value.dtype), size=size, device=str(value.device), value=str(value.layout))
    storage = storages.setdefault(value.untyped_storage()._cdata, len(storages))
    return Layout(
        dtype=str(value.dtype),
        size=size,
        stride=tuple(map(size_hint, value.stride())),
        device=str(value.device),
        aligned=traced or value.data_ptr() % 16 == 0,
        offset=size_hint(value.storage_offset()),
        storage=storage,
    )


def fitting(layouts: Sequence[Layout]) -> Callable[[Sequence[Any]], bool]:
    """Return a fast function that checks whether values have the sizes and strides of ``layouts``."""
    expected = [(index, layout.size, layout.stride) for index, layout in enumerate(layouts) if layout.stride]

    def fits(values: Sequence[Any]) -> bool:
        for index, size, stride in expected:
            value = values[index]
            if value.shape != size or value.stride() != stride:
                return False
        return True

    return fits


def as_recorded(value: Any, layout: Layout) -> bool:
    """Return whether ``value`` has the dtype and the strides of ``layout``."""
    return same_dtype(value, layout) and same_strides(value, layout)


def same_dtype(value: Any, layout: Layout) -> bool:
    """Return whether ``value`` has the dtype of ``layout``; True for what is not a tensor."""
    return not isinstance(value, torch.Tensor) or layout == TOKEN or str(value.dtype) == layout.dtype


def misread(values: Sequence[Any], layouts: Sequence[Layout]) -> str:
    """Return why compiled code, which checks only sizes and strides, would misread ``values``, or an empty text."""
    pairs = zip(values, layouts, strict=False)
    if other_dtypes := [str(value.dtype) for value, layout in pairs if not same_dtype(value, layout)]:
        return f"it was compiled for other dtypes than {', '.join(other_dtypes)}"
    # z.conj().imag is a view with the negative bit set, which Inductor ignores. Complex numbers, whose conjugation is a
    # bit too, it leaves to the eager kernels, which respect it (torch 2.13).
    if any(value.is_neg() for value in values if isinstance(value, torch.Tensor)):
        return "it would read a negated view without its sign"
    return ""


def same_strides(value: Any, layout: Layout) -> bool:
    """Return whether ``value`` has the strides of ``layout``, as far as a difference could be observed.

    For a value of another size, which dynamic sizes allow, only the order of its dimensions is compared.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.numel() == 0:
        return True
    wide_dims = [dim for dim, size in enumerate(value.shape) if size > 1]
    if tuple(value.shape) == layout.size:
        return all(value.stride(dim) == layout.stride[dim] for dim in wide_dims)
    strides = [value.stride(dim) for dim in sorted(wide_dims, key=lambda dim: layout.stride[dim], reverse=True)]
    return strides == sorted(strides, reverse=True)


def laid_out(value: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return a copy of ``value`` with the dtype and strides of ``layout``, including gaps: it may be a slice.

    For a value of another size, which dynamic sizes allow, only the order of the dimensions is the same.
    """
    if not same_dtype(value, layout):
        value = value.to(getattr(torch, layout.dtype.removeprefix("torch.")))
    if tuple(value.shape) != layout.size:
        return _in_stride_order(value, layout.stride)
    repeated = [step == 0 and size > 1 for size, step in zip(layout.size, layout.stride, strict=True)]
    unrepeated = value[tuple(slice(0, 1) if is_repeated else slice(None) for is_repeated in repeated)]
    if _has_overlaps(unrepeated.shape, layout.stride):
        return _in_stride_order(value, layout.stride)
    return unrepeated.new_empty_strided(unrepeated.shape, layout.stride).copy_(unrepeated).expand(value.shape)


def _has_overlaps(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether elements of such a tensor overlap in memory, as after ``unfold``."""
    extent = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size > 1 and step < extent:
            return True
        extent += step * (size - 1)
    return False


def _in_stride_order(value: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    order = sorted(range(value.dim()), key=lambda dim: stride[dim], reverse=True)
    copy = value.new_empty([value.shape[dim] for dim in order])
    inverse = [order.index(dim) for dim in range(value.dim())]
    return copy.permute(inverse).copy_(value)
