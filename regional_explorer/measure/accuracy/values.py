"""The outputs and gradients of one run of a call, and what it wrote, as tensors that can be compared by element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

MOST_DENSE_ELEMENTS = 1 << 28
"""Sparse tensors are compared as dense ones if they have no more elements."""


@dataclass(frozen=True)
class Values:
    """The results of one run: named output tensors, and named gradients (None if an input has none).

    Among the outputs is what the call wrote in place or assigned. ``touched`` are masks, by name, of the elements that
    it wrote in place. ``opaque`` are the paths and types of objects among the outputs that cannot be searched for
    tensors.
    """

    outputs: tuple[tuple[str, torch.Tensor], ...]
    gradients: tuple[tuple[str, torch.Tensor | None], ...]
    opaque: tuple[tuple[str, str], ...] = ()
    touched: Mapping[str, torch.Tensor] = field(default_factory=dict)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a detached tensor, dense if it was sparse and is not too large."""
    tensor = tensor.detach()
    is_sparse = tensor.layout not in (torch.strided, torch.jagged)
    return tensor.to_dense() if is_sparse and tensor.numel() <= MOST_DENSE_ELEMENTS else tensor


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements that can be compared one by one."""
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta


def touched_elements(tensor: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that a call wrote to a tensor, which had the content ``before``.

    If all elements are as before, the call wrote the same again; what it never wrote, such as the rest of a cache, is
    then mostly zero.
    """
    changed = tensor.detach() != before
    return changed if changed.any() else tensor.detach() != 0
