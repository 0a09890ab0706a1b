"""Leaving everything the user owns as it was: an undo log of in-place writes, and the states of random generators."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from regional_explorer.torch_api import set_versions


class UndoLog(TorchDispatchMode):
    """Watches one call and copies every storage of the user's just before it is first written to.

    A tensor is the user's if the call did not make it. ``restore()`` writes the copies back through the storages and
    sets the version counters back: a loss the user made before and has not yet backwarded can still be backwarded.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let functions the user compiled run as they are inside the call, flex_attention among them."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Weak references keep the address of a freed storage from coming back as somebody else's.
        self._made: dict[int, StorageWeakRef] = {}
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._versions: dict[int, tuple[torch.Tensor, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func``, first copying what it is about to write to."""
        keywords = dict(kwargs or {})
        for index, name in _written(func):
            value = args[index] if index < len(args) else keywords.get(name)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                self._keep(tensor)
        result = func(*args, **keywords)
        self._note_made(result, args)
        return result

    def _keep(self, tensor: Any) -> None:
        storage = _storage(tensor)
        if storage is None or storage._cdata in self._made:
            return
        if not tensor.is_inference():
            self._versions.setdefault(id(tensor), (tensor, tensor._version))
        if storage._cdata not in self._copies:
            self._copies[storage._cdata] = (storage, storage.clone())

    def _note_made(self, result: Any, args: Sequence[Any]) -> None:
        given = {storage._cdata for storage in map(_storage, args) if storage is not None}
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            storage = _storage(tensor)
            if storage is not None and storage._cdata not in given and storage._cdata not in self._copies:
                self._made[storage._cdata] = StorageWeakRef(storage)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._made.clear()

    @property
    def wrote(self) -> bool:
        """Whether the call changed anything of the user's in place."""
        return bool(self._copies)

    def as_now(self, others: Iterable[torch.Tensor] = ()) -> UndoLog:
        """Return a log of the same storages, as they are now, and of those of ``others``."""
        log = UndoLog()
        log._copies = {key: (storage, storage.clone()) for key, (storage, _) in self._copies.items()}
        log._versions = {key: (tensor, tensor._version) for key, (tensor, _) in self._versions.items()}
        for tensor in others:
            log._keep(tensor)
        return log

    def restore(self) -> None:
        """Write everything back as it was before the call."""
        for storage, copy in self._copies.values():
            if storage.nbytes() != copy.nbytes():
                storage.resize_(copy.nbytes())
            storage.copy_(copy)
        set_versions(self._versions.values())


@functools.lru_cache(maxsize=2048)
def _written(func: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of the arguments that an operator writes to."""
    schema = getattr(func, "_schema", None)
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(schema.arguments if schema is not None else ())
        # Batch norm writes its running statistics, but its schema does not say so (native_batch_norm, torch 2.13).
        if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name.startswith("running_")
    )


def _storage(tensor: Any) -> torch.UntypedStorage | None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # wrapper subclasses have none
        return None


Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
"""A random generator that a program may own."""


class RandomState:
    """The states of torch's generators (CPU and every CUDA device in use), NumPy's, Python's, and of the user's own."""

    def __init__(self, own: Sequence[Generator] = ()) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._numpy = np.random.get_state()  # noqa: NPY002 - the user's code may draw from it
        self._python = random.getstate()
        self._own = [(generator, _state_of(generator)) for generator in own]

    def holds(self) -> bool:
        """Tell whether all generators still stand as they were kept."""
        return (
            torch.equal(self._torch, torch.get_rng_state())
            and all(map(torch.equal, self._cuda, torch.cuda.get_rng_state_all() if self._cuda else ()))
            and self._python == random.getstate()
            and repr(self._numpy) == repr(np.random.get_state())  # noqa: NPY002
            and all(_equal(state, _state_of(generator)) for generator, state in self._own)
        )

    def restore(self) -> None:
        """Set all generators to the states kept."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        np.random.set_state(self._numpy)  # noqa: NPY002
        random.setstate(self._python)
        for generator, state in self._own:
            _set_state(generator, state)

    def __enter__(self) -> Self:
        """Enter a block after which the generators stand as they did at construction."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Restore."""
        self.restore()


def _state_of(generator: Generator) -> Any:
    match generator:
        case random.Random():
            return generator.getstate()
        case np.random.Generator():
            return generator.bit_generator.state
        case _:
            return generator.get_state()


def _set_state(generator: Generator, state: Any) -> None:
    match generator:
        case random.Random():
            generator.setstate(state)
        case np.random.Generator():
            generator.bit_generator.state = state
        case _:
            generator.set_state(state)


def _equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else repr(one) == repr(other)
