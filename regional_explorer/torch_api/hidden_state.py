"""Reads what torch keeps about tensors, modules and autograd nodes without a public way: storages, writes, hooks."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch._C import _autograd
from torch._functorch._aot_autograd import runtime_wrappers
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from regional_explorer.torch_api.dynamo import code_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node


MODULE_STORES = ("_parameters", "_buffers", "_modules")
"""The attributes in which a module keeps its parameters, buffers and submodules."""


def has_buffers(module: torch.nn.Module) -> bool:
    """Return whether a module has a place for buffers; a module traced by torch.jit has none."""
    return "_buffers" in vars(module)


def storage_key(holder: torch.Tensor | torch.UntypedStorage) -> int:
    """Return a number that identifies a storage while it is alive: tensors that share memory have the same number."""
    return int((holder.untyped_storage() if isinstance(holder, torch.Tensor) else holder)._cdata)


def storage_id(node: fx.Node) -> int | None:
    """Return a number that nodes with the same storage share; None if the node gives no strided tensor."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return storage_key(value)
    return None


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


# --------------------------------------------------------------------------------------------------------------- hooks


ALL_MODULES = torch.nn.modules.module
"""The owner of the hooks that run for every module."""

SHARED_FLAGS = ("_global_is_full_backward_hook",)
"""The flags that the first backward hook of ``ALL_MODULES`` sets for later hooks."""

_TENSOR_STORES = ["_backward_hooks", "_post_accumulate_grad_hooks"]  # a tensor has no dict before its first hook
_MODULE_STORES = [name for name in vars(nn.Module()) if "_hooks" in name]
_SHARED_STORES = [name for name in vars(ALL_MODULES) if name.startswith("_global_") and "_hooks" in name]


def hook_stores(owner: torch.Tensor | nn.Module | ModuleType) -> dict[str, dict[int, Any]]:
    """Return the dicts that hold the hooks of a tensor, of a module or of ``ALL_MODULES``, by their names there.

    Some of them hold facts about a hook, under its key: whether it takes keyword arguments, for example.
    """
    match owner:
        case torch.Tensor():
            names = _TENSOR_STORES
        case nn.Module():
            names = _MODULE_STORES
        case _:
            names = _SHARED_STORES
    return {name: store for name in names if (store := getattr(owner, name, None)) is not None}


def hook_functions(value: object) -> tuple[Callable[..., Any], ...]:
    """Return the user's functions inside torch's wrappers of hooks (saved tensors, state dicts); else nothing."""
    match value:
        case ALL_MODULES._WrappedHook():  # it wraps hooks that run before a state dict is loaded
            return (value.hook,)
        case saved_tensors_hooks():
            return value.pack_hook, value.unpack_hook
        case _:
            return ()


_KINDS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "full backward pre-hook",
    "_backward_hooks": "backward hook",
}
"""The names of a module's hooks, by the attribute of the module that holds them."""


@dataclass(frozen=True)
class Hook:
    """A hook: its ``kind``, its module (None for a hook of all modules), and its code (None if not in Python)."""

    kind: str
    module: nn.Module | None
    code: types.CodeType | None

    @property
    def is_backward(self) -> bool:
        """Whether it runs in the backward; Dynamo traces no module with such a hook."""
        return "backward" in self.kind


def called_module(frame: types.FrameType) -> nn.Module | None:
    """Return the module that a Python frame calls, its hooks included; None for other frames."""
    return frame.f_locals["self"] if frame.f_code is nn.Module._call_impl.__code__ else None


def hooks_of(modules: Iterable[nn.Module]) -> Iterator[Hook]:
    """Yield the hooks of ``modules``, and the hooks of all modules."""
    shared = hook_stores(ALL_MODULES)
    for store, kind in _KINDS.items():
        for hook in shared.get(f"_global{store}", {}).values():
            yield Hook(f"global {kind}", None, _code_behind(hook))
    for module in modules:
        stores = hook_stores(module)
        for store, kind in _KINDS.items():
            for hook in stores.get(store, {}).values():
                yield Hook(kind, module, _code_behind(hook))


def _code_behind(hook: Callable[..., Any]) -> types.CodeType | None:
    """Return the code of a hook: of the function in a partial, or of the method that calls an object."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return code_of(hook) or code_of(type(hook).__call__)


SavedTensorsHooks = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]
"""The pair of functions of ``torch.autograd.graph.saved_tensors_hooks``: pack and unpack a saved tensor."""


def current_saved_tensors_hooks() -> SavedTensorsHooks | None:
    """Return the pair of hooks that is in force in this thread."""
    pair: SavedTensorsHooks | None = _autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003 - also in a trace
    return pair


@contextlib.contextmanager
def saving_tensors_with(pair: SavedTensorsHooks | None) -> Iterator[None]:
    """Context manager: replace all pairs of hooks that are in force in this thread by ``pair``, or by none."""
    others: list[SavedTensorsHooks] = []
    while (other := current_saved_tensors_hooks()) is not None:
        others.append(other)
        _autograd._pop_saved_tensors_default_hooks()
    try:
        with contextlib.nullcontext() if pair is None else saved_tensors_hooks(*pair):
            yield
    finally:
        for other in reversed(others):
            _autograd._push_saved_tensors_default_hooks(*other)
