"""The undo log: copies the storage of each tensor before an op writes to it in place, and restores it afterwards."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from regional_explorer.torch_api import set_versions


class UndoLog(TorchDispatchMode):
    """Watches one call and copies every storage of the user's just before it is first written to.

    A tensor is the user's if the call did not make it. ``restore()`` copies the saved content back into the storages
    and resets the version counters, so that ``backward`` of a loss that the user computed before still works.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let functions the user compiled run as they are inside the call, flex_attention among them."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Weak references keep the address of a freed storage from being reused.
        self._made_storages: dict[int, StorageWeakRef] = {}
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._versions: dict[int, tuple[torch.Tensor, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func``, first copying what it is about to write to."""
        keywords = dict(kwargs or {})
        for index, name in _written_arguments(func):
            argument = args[index] if index < len(args) else keywords.get(name)
            for tensor in argument if isinstance(argument, (list, tuple)) else (argument,):
                self._save_storage(tensor)
        result = func(*args, **keywords)
        self._note_made(result, args)
        return result

    def _save_storage(self, tensor: Any) -> None:
        storage = _storage_of(tensor)
        if storage is None or storage._cdata in self._made_storages:
            return
        if not tensor.is_inference():
            self._versions.setdefault(id(tensor), (tensor, tensor._version))
        if storage._cdata not in self._copies:
            self._copies[storage._cdata] = (storage, storage.clone())

    def _note_made(self, result: Any, args: Sequence[Any]) -> None:
        argument_ids = {storage._cdata for storage in map(_storage_of, args) if storage is not None}
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            storage = _storage_of(tensor)
            if storage is not None and storage._cdata not in argument_ids and storage._cdata not in self._copies:
                self._made_storages[storage._cdata] = StorageWeakRef(storage)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._made_storages.clear()

    @property
    def wrote(self) -> bool:
        """Whether the call changed a tensor of the user's in place."""
        return bool(self._copies)

    def as_now(self, tensors: Iterable[torch.Tensor] = ()) -> UndoLog:
        """Return a log with copies of the same storages, as they are now, and of those of ``tensors``."""
        log = UndoLog()
        log._copies = {key: (storage, storage.clone()) for key, (storage, _) in self._copies.items()}
        log._versions = {key: (tensor, tensor._version) for key, (tensor, _) in self._versions.items()}
        for tensor in tensors:
            log._save_storage(tensor)
        return log

    def restore(self) -> None:
        """Restore the storages to their content before the call."""
        for storage, copy in self._copies.values():
            if storage.nbytes() != copy.nbytes():
                storage.resize_(copy.nbytes())
            storage.copy_(copy)
        set_versions(self._versions.values())


@functools.lru_cache(maxsize=2048)
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator writes to."""
    schema = getattr(func, "_schema", None)
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(schema.arguments if schema is not None else ())
        # Batch norm writes its running statistics, but its schema does not say so (native_batch_norm, torch 2.13).
        if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name.startswith("running_")
    )


def _storage_of(tensor: Any) -> torch.UntypedStorage | None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # wrapper subclasses have none
        return None
