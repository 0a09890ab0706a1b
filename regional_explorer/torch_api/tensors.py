"""What torch keeps of a tensor, a module and an autograd node without a public way to read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch._functorch._aot_autograd import runtime_wrappers
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from torch.autograd.graph import Node

MODULE_STORES = ("_parameters", "_buffers", "_modules")
"""The attributes in which a module keeps its parameters, buffers and submodules."""


def has_buffers(module: torch.nn.Module) -> bool:
    """Return whether a module has a place for buffers; a module traced by torch.jit has none."""
    return "_buffers" in vars(module)


def storage_key(of: torch.Tensor | torch.UntypedStorage) -> int:
    """Return a number that identifies a storage while it is alive: tensors that share memory have the same one."""
    return int((of.untyped_storage() if isinstance(of, torch.Tensor) else of)._cdata)


def storage_reference(storage: torch.UntypedStorage) -> object:
    """Return a weak reference to a storage: while it exists, no other storage gets the same key."""
    return StorageWeakRef(storage)


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the base of a view; any other tensor itself."""
    return tensor if tensor._base is None else tensor._base


def is_view(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a view of another tensor for autograd."""
    return tensor._is_view()


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to, as autograd counts it."""
    return tensor._version


def set_versions(versions: Iterable[tuple[torch.Tensor, int]]) -> None:
    """Restore the version counters of tensors whose content was restored."""
    if versions := list(versions):
        torch._C._autograd._unsafe_set_version_counter(*zip(*versions, strict=True))


def sequence_number(node: Node) -> int:
    """Return the number of an autograd node; each thread counts its own."""
    return int(node._sequence_nr())


# Torch 2.11 writes into the attribute of torch._dynamo.maybe_mark_dynamic.
_HAS_OWN_MARK = hasattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices")
_DYNAMIC_MARK = "_dynamo_propagated_dynamic_indices" if _HAS_OWN_MARK else "_dynamo_weak_dynamic_indices"


def is_marked_dynamic(tensor: torch.Tensor) -> bool:
    """Return whether compiled code has marked sizes of a tensor as dynamic, for the next graph that takes it."""
    return hasattr(tensor, _DYNAMIC_MARK)


def unmark_dynamic(tensors: Iterable[torch.Tensor]) -> None:
    """Remove the marks of dynamic sizes that AOTAutograd leaves on inputs saved for the backward: docs/upstream.md."""
    for tensor in tensors:
        if hasattr(tensor, _DYNAMIC_MARK):
            delattr(tensor, _DYNAMIC_MARK)
