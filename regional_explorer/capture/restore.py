"""Restores what a call changed: tensors, random generators and variables; mutes its prints."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from regional_explorer.capture.reachable import Generator, Reach
from regional_explorer.capture.tensors import tensors_in
from regional_explorer.capture.user_lines import at_user_line
from regional_explorer.capture.variables import Variables, differing_keys, is_same
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api.graphs import WatchingMode, written_arguments
from regional_explorer.torch_api.hidden_state import base_of, set_versions, storage_key, storage_reference, version_of

_Copy = TypeVar("_Copy")
_StorageCopy = tuple[torch.UntypedStorage, torch.UntypedStorage]
_TensorCopy = tuple[torch.Tensor, torch.Tensor]


class RestoreLog(WatchingMode):
    """Watches one call and copies every storage of the user's just before it is first written to.

    A tensor belongs to the user if the call did not make it. ``restore()`` copies the saved content back into the
    storages and resets the version counters of all ``tensors`` that share the storage, so that ``backward`` of a loss
    that the user computed before still works: a write to ``weight.data`` counts for ``weight`` once the call is traced.
    A write of a value that requires grad attaches the tensor to the call's autograd graph: ``restore()`` detaches it.
    Torch cannot detach views, so the call must not attach a tensor that has views among the user's ``tensors``.
    """

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._made_storages: dict[int, object] = {}
        self._made_tensors: dict[int, weakref.ref[torch.Tensor]] = {}
        self._copies: dict[int, _StorageCopy] = {}
        # Copies of tensors without a storage, such as sparse tensors.
        self._tensor_copies: dict[int, _TensorCopy] = {}
        self._versions: dict[int, tuple[torch.Tensor, int]] = {}
        self._leaves: dict[int, torch.Tensor] = {}
        self._written: set[int] = set()
        """The keys of the storages that the current or last watched block wrote to."""
        tensors = list(tensors)
        self._viewed = {id(base): base for tensor in tensors if (base := base_of(tensor)) is not tensor}
        self._by_storage = grouped(
            (storage_key(storage), tensor)
            for tensor in tensors
            if (storage := _storage_of(tensor)) is not None and not tensor.is_inference()  # these have no version
        )

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func`` after copying the tensors that it is about to write.

        Raises:
            CaptureError: the write would attach a tensor of the user's to an autograd graph, and it cannot be detached.
        """
        keywords = dict(kwargs or {})
        arguments = list(_flat_tensors((*args, *keywords.values())))
        if written := written_arguments(func, args, keywords):
            attaches = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in arguments)
            for tensor in written:
                self._save_storage(tensor, attaches=attaches)
        result = func(*args, **keywords)
        self._record_made(result, arguments)
        return result

    def _save_storage(self, tensor: Any, *, attaches: bool = False) -> None:
        storage = _storage_of(tensor)
        if storage is None:
            made_by_call = self._made_tensors.get(id(tensor))
            if (
                not isinstance(tensor, torch.Tensor)
                or is_lazy(tensor)
                or (made_by_call is not None and made_by_call() is tensor)
            ):
                return
        elif storage_key(storage) in self._made_storages:
            return
        self._written.add(id(tensor) if storage is None else storage_key(storage))
        if not tensor.is_inference():
            base = base_of(tensor)
            if attaches and (tensor.is_floating_point() or tensor.is_complex()):
                self._refuse_if_undetachable(base)
            if base.is_leaf:
                self._leaves[id(base)] = base
            for sharing in (tensor, *(self._by_storage.get(storage_key(storage), ()) if storage is not None else ())):
                self._versions.setdefault(id(sharing), (sharing, version_of(sharing)))
        if storage is None:
            if id(tensor) not in self._tensor_copies:
                self._tensor_copies[id(tensor)] = (tensor, tensor.detach().clone())
        elif storage_key(storage) not in self._copies:
            self._copies[storage_key(storage)] = (storage, storage.clone())

    def _refuse_if_undetachable(self, base: torch.Tensor) -> None:
        if id(base) in self._viewed:
            kind = "that is a view, or has views outside of the call"
        elif not base.is_leaf and id(base) not in self._leaves:
            kind = "that is part of an autograd graph already"
        else:
            return
        where = at_user_line(traceback.extract_stack())
        raise CaptureError(
            RefusalCode.CALL_ATTACHES,
            f"The call writes in place{where} to a tensor {kind}. The write would attach it to the graph of the call, "
            "and that could not be undone. Pass x.detach() for it, which shares its memory, or write under "
            "torch.no_grad().",
        )

    def _record_made(self, result: Any, arguments: Sequence[torch.Tensor]) -> None:
        argument_ids = storages_of(arguments)
        for tensor in _flat_tensors((result,)):
            storage = _storage_of(tensor)
            if storage is None:
                if not any(tensor is argument for argument in arguments):
                    self._made_tensors[id(tensor)] = weakref.ref(tensor)
            elif storage_key(storage) not in argument_ids and storage_key(storage) not in self._copies:
                self._made_storages[storage_key(storage)] = storage_reference(storage)

    def __enter__(self) -> Self:
        """Watch."""
        self._written.clear()
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._made_storages.clear()
        self._made_tensors.clear()

    @property
    def has_written(self) -> bool:
        """Whether the call changed a tensor of the user's in place."""
        return bool(self._copies or self._tensor_copies)

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether the content of a tensor was saved: the call wrote to it, or may write to it."""
        storage = _storage_of(tensor)
        return id(tensor) in self._tensor_copies if storage is None else storage_key(storage) in self._copies

    def content_before(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the content of a tensor before the call; None if it was not saved or its storage was resized."""
        if not self.has(tensor):
            return None
        if id(tensor) in self._tensor_copies:
            return self._tensor_copies[id(tensor)][1]
        storage, copy = self._copies[storage_key(tensor)]
        if storage.nbytes() != copy.nbytes():
            return None
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())

    def contents(self) -> RestoreLog:
        """Return a log with copies of the saved storages as they are now."""
        log = RestoreLog()
        log._copies, log._tensor_copies = self._contents()
        return log

    def _contents(self) -> tuple[dict[int, _StorageCopy], dict[int, _TensorCopy]]:
        storages = {key: (storage, storage.clone()) for key, (storage, _) in self._copies.items()}
        return storages, {key: (tensor, tensor.detach().clone()) for key, (tensor, _) in self._tensor_copies.items()}

    def keep_first(self, after_first: RestoreLog) -> RestoreLog:
        """Let ``restore`` keep the content ``after_first`` where the first watched block wrote and the last did not.

        Return a log that restores the content that they had before the first block.
        """
        before = RestoreLog()
        before._copies = _replace_copies(self._copies, after_first._copies, self._written)
        before._tensor_copies = _replace_copies(self._tensor_copies, after_first._tensor_copies, self._written)
        for key, (tensor, version) in self._versions.items():
            if before.has(tensor):
                before._versions[key] = (tensor, version)
                self._versions[key] = (tensor, version + 1)  # so that a graph of the user's notices the write
        return before

    def as_now(self, tensors: Iterable[torch.Tensor]) -> RestoreLog:
        """Return a log with copies of the saved storages and of the storages of ``tensors``, as they are now.

        Raises:
            CaptureError: a tensor that the call may attach to its autograd graph has become part of another one.
        """
        log = RestoreLog()
        log._copies, log._tensor_copies = self._contents()
        log._versions = {key: (tensor, version_of(tensor)) for key, (tensor, _) in self._versions.items()}
        log._leaves = dict(self._leaves)
        for leaf in log._leaves.values():
            if not leaf.is_leaf:
                raise CaptureError(
                    RefusalCode.CALL_ATTACHES,
                    f"A tensor that the call writes in place, of shape {tuple(leaf.shape)}, has become part of an "
                    "autograd graph since the call was explored, perhaps because the program made the same call. "
                    "Detach it with x.detach_().",
                )
        for tensor in tensors:
            log._save_storage(tensor)
        return log

    def restore(self) -> None:
        """Restore the storages to their content before the call, and detach the tensors that it attached."""
        for storage, copy in self._copies.values():
            if storage.nbytes() != copy.nbytes():
                storage.resize_(copy.nbytes())
            storage.copy_(copy)
        with torch.no_grad():
            for tensor, content in self._tensor_copies.values():
                tensor.copy_(content)
        for leaf in self._leaves.values():
            if not leaf.is_leaf:
                leaf.detach_()
        # The first version of a counter is the right one: a view that is made after a write shares its base's counter.
        set_versions(reversed(self._versions.values()))


def _replace_copies(copies: dict[int, _Copy], others: Mapping[int, _Copy], but: Collection[int]) -> dict[int, _Copy]:
    """Replace the copies whose key is in ``others`` and not in ``but``; return the replaced copies."""
    replaced = {key: copy for key, copy in copies.items() if key in others and key not in but}
    copies |= {key: others[key] for key in replaced}
    return replaced


def storages_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return the addresses of the storages of tensors."""
    return {storage_key(storage) for storage in map(_storage_of, tensors) if storage is not None}


def _flat_tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments or results of an op, also from lists."""
    items = (item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,)))
    return (item for item in items if isinstance(item, torch.Tensor))


def _storage_of(tensor: Any) -> torch.UntypedStorage | None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):  # wrapper subclasses and lazy parameters have none
        return None


_StateAccessors = tuple[Callable[[], Any], Callable[[Any], Any]]


class TorchRandomState:
    """The states of torch's random generators (CPU, and CUDA devices in use); graphs of operators draw only from them.

    As a context manager, it restores them after the block.
    """

    def __init__(self, others: Iterable[_StateAccessors] = ()) -> None:
        accessors: list[_StateAccessors] = [(torch.get_rng_state, torch.set_rng_state), *others]
        if torch.cuda.is_initialized():
            accessors.append((torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all))
        self._states = [(get, put, get()) for get, put in accessors]

    def is_unchanged(self) -> bool:
        """Return whether all generators are still in the saved states."""
        return all(_equal_states(state, get()) for get, _, state in self._states)

    def restore(self) -> None:
        """Set all generators to the saved states."""
        for _, put, state in self._states:
            put(state)

    def __enter__(self) -> Self:
        """Return the saved states."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Restore."""
        self.restore()


class RandomState(TorchRandomState):
    """The states of the random generators of torch, NumPy and Python, and the user's."""

    def __init__(self, generators: Iterable[Generator] = ()) -> None:
        # The operating system's numbers have no state: a call that draws them is not repeatable.
        repeatable = (one for one in generators if not isinstance(one, random.SystemRandom))
        numpy, python = (np.random.get_state, np.random.set_state), (random.getstate, random.setstate)
        super().__init__((numpy, python, *map(_state_accessors, repeatable)))


def _state_accessors(generator: Generator) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the functions that return and set the state of a generator."""
    match generator:
        case random.Random():
            return generator.getstate, generator.setstate
        case np.random.Generator():
            bits = generator.bit_generator
            return lambda: bits.state, lambda state: setattr(bits, "state", state)
        case _:
            return generator.get_state, generator.set_state


def _equal_states(state: Any, other: Any) -> bool:
    if isinstance(state, list):  # the states of several devices
        return all(map(torch.equal, state, other))
    return torch.equal(state, other) if isinstance(state, torch.Tensor) else repr(state) == repr(other)


_IS_MUTED: ContextVar[bool] = ContextVar("muted", default=False)


_STDOUT_LOCK = threading.Lock()
_muted_blocks = 0


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Context manager: drop what the block prints, and what other threads print for it; other cells still print.

    Blocks of several threads overlap in any order: the first one replaces ``sys.stdout``, the last one restores it.
    """
    global _muted_blocks  # noqa: PLW0603 - there is one sys.stdout for all
    token = _IS_MUTED.set(True)
    with _STDOUT_LOCK:
        _muted_blocks += 1
        if not isinstance(sys.stdout, _MutedStream):
            sys.stdout = _MutedStream(sys.stdout)
    try:
        yield
    finally:
        with _STDOUT_LOCK:
            _muted_blocks -= 1
            if _muted_blocks == 0 and isinstance(sys.stdout, _MutedStream):
                sys.stdout = sys.stdout.stream
        _IS_MUTED.reset(token)


@contextlib.contextmanager
def audible() -> Iterator[None]:
    """Context manager: print even inside a muted block."""
    token = _IS_MUTED.set(False)
    try:
        yield
    finally:
        _IS_MUTED.reset(token)


class _MutedStream:
    """A stream that drops what muted blocks write, and passes everything else to the original stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, unless it comes from a muted block."""
        return len(text) if _IS_MUTED.get() else int(self.stream.write(text) or 0)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


ValuesByKey = Mapping[Any, Any]


class AssignedState:
    """The values, before a call, of everything that it can assign.

    A call may assign what it could have written in place: ``self.state = h``, ``cache["k"] = torch.cat(…)``,
    ``weight.data = …``, ``self.steps += 1``. Values that every call assigns are restored before the next call. Values
    that only the first call creates and later calls reuse (a mask, a table, a flag that it exists) stay:
    ``not_restored`` names them. Whether a leaf requires grad, its ``grad``, and the data of tensors are restored, too.
    If any value stays, so do the changes that only the first call made to tensors, ``kept_tensors``: a flag that stays
    says that they were made.
    """

    def __init__(self, reach: Reach) -> None:
        self.not_restored: tuple[str, ...] = ()
        self.kept_tensors: list[torch.Tensor] = []
        self._before: list[tuple[Variables, ValuesByKey]] = [
            (replace(scope), scope.read())  # with the owner's present class
            for scope in reach.variables
        ]
        self._after: list[ValuesByKey] = []
        self._before_first: list[tuple[Variables, ValuesByKey]] = []
        self._tensor_data = [(tensor, data) for tensor in reach.tensors if (data := _data_of(tensor)) is not None]
        self._leaves = [(tensor, tensor.requires_grad, tensor.grad) for tensor in reach.tensors if tensor.is_leaf]
        self._known_tensors = reach.tensors
        self._data_after, self._leaves_after = list(self._tensor_data), list(self._leaves)
        self._restore_kept: Callable[[], object] = lambda: None

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self._before or self._tensor_data or self._leaves)

    def assigned_names(self) -> list[str]:
        """Return the names of the values that differ now."""
        return [scope.label(key) for scope, before in self._before for key in differing_keys(before, scope.read())]

    def first_run_ended(self) -> bool:
        """Watch from now on only values that the first run changed; return whether a second run is needed.

        Changes of containers among the arguments are restored in any case.
        """
        self._tensor_data = [pair for pair in self._tensor_data if _has_other_data(*pair)]
        self._leaves = [leaf for leaf in self._leaves if _leaf_changed(*leaf)]
        changed = [(scope, before) for scope, before in self._before if _have_changed(before, scope.read())]
        if any(not scope.whole for scope, _ in changed):
            return True
        self._before = changed
        return False

    def record_first_run(self, reach: Reach) -> None:
        """Record the values after the first run, even in containers and objects it made; restore ``tensor.data``."""
        known_owners = {id(scope.owner) for scope, _ in self._before}
        self._before += [(scope, scope.read()) for scope in reach.variables if id(scope.owner) not in known_owners]
        self._after = [scope.read() for scope, _ in self._before]
        self._data_after = [(tensor, tensor.data) for tensor, _ in self._tensor_data]
        self._leaves_after = [(tensor, tensor.requires_grad, tensor.grad) for tensor, _, _ in self._leaves]
        self._restore_data()

    def record_second_run(self) -> None:
        """Watch from now on only values that every call assigns, not those that only the first call created."""
        watched: list[tuple[Variables, ValuesByKey]] = []
        labels: list[str] = []
        for (scope, before), after in zip(self._before, self._after, strict=True):
            current = scope.read()
            if not _have_changed(before, after) and not _have_changed(before, current):
                continue
            stay = (
                []
                if scope.whole
                else [key for key in differing_keys(before, after) if _stays(key, before, after, current)]
            )
            added = stay if scope.write is not None else list(before)
            labels += [scope.label(key) for key in added]
            if added:
                self._before_first.append((scope, before))
            values = {key: value for key, value in before.items() if key not in added}
            watched.append((replace(scope), values | {key: after[key] for key in added if key in after}))
        self._before, self._after, self.not_restored = watched, [], tuple(dict.fromkeys(labels))
        if labels:
            self._keep_first()

    def _keep_first(self) -> None:
        """Keep the changes to leaves and to the data of tensors that only the first run made."""
        data, leaves = list(self._tensor_data), list(self._leaves)
        for number, pair in enumerate(data):
            if not _has_other_data(*pair):
                self._tensor_data[number] = self._data_after[number]
                self.kept_tensors.append(pair[0])
        for number, leaf in enumerate(leaves):
            if not _leaf_changed(*leaf):
                self._leaves[number] = self._leaves_after[number]
                self.kept_tensors.append(leaf[0])
        self._restore_kept = lambda: _restore_data(data, leaves)

    def as_now(self) -> AssignedState:
        """Return the current state of the same variables and tensors."""
        tensors = [*(tensor for tensor, _ in self._tensor_data), *(tensor for tensor, _, _ in self._leaves)]
        return AssignedState(Reach([scope for scope, _ in self._before], tensors))

    def to_copy(self, reach: Reach) -> Iterator[torch.Tensor]:
        """Yield the tensors whose content may be written although the first run did not write it.

        These are the tensors whose data the run assigned, which compiled code may write in place, and the tensors
        except parameters that are reached now but were not before the first run.
        """
        yield from (tensor for tensor, _ in self._tensor_data)
        known_ids = set(map(id, self._known_tensors))
        yield from (new for new in reach.tensors if id(new) not in known_ids and not isinstance(new, nn.Parameter))

    def restore(self) -> None:
        """Restore everything."""
        for scope, before in self._before:
            if _have_changed(before, scope.read()):
                scope.assign(before)
        self._restore_data()

    def restore_all(self) -> None:
        """Restore everything, even the values that ``not_restored`` names: the list will not be read."""
        for scope, before in self._before_first:
            scope.assign(before)
        self._restore_kept()

    def _restore_data(self) -> None:
        _restore_data(self._tensor_data, self._leaves)


_Leaf = tuple[torch.Tensor, bool, torch.Tensor | None]


def _restore_data(tensor_data: Iterable[tuple[torch.Tensor, torch.Tensor]], leaves: Iterable[_Leaf]) -> None:
    for tensor, flag, grad in leaves:
        if _leaf_changed(tensor, flag, grad):
            tensor.requires_grad_(flag)
            tensor.grad = grad
    for tensor, data in tensor_data:
        if _has_other_data(tensor, data):
            tensor.data = data


def _leaf_changed(tensor: torch.Tensor, flag: bool, grad: torch.Tensor | None) -> bool:  # noqa: FBT001 - a value
    """Return whether the call set ``requires_grad`` or ``grad``; a tensor that a write in place attached is no leaf."""
    return tensor.is_leaf and (tensor.requires_grad is not flag or tensor.grad is not grad)


def _have_changed(before: ValuesByKey, now: ValuesByKey) -> bool:
    return list(before) != list(now) or any(True for _ in differing_keys(before, now))


def _stays(key: Any, before: ValuesByKey, after: ValuesByKey, now: ValuesByKey) -> bool:
    """Return whether the first run's value stays: the second run kept it, or went on from what the first run created.

    A tensor that the second run assigned again with the same content is a result of every call, like the tensors that
    hooks collect by name.
    """
    if key == "training":
        return False
    if (key in after) == (key in now) and is_same(after.get(key), now.get(key)):
        return True
    created = before.get(key) is None and after.get(key) is not None
    return created and not _hold_same_tensors(after[key], now.get(key))


def _hold_same_tensors(value: Any, other: Any) -> bool:
    """Return whether two values hold tensors, all under the same names and with the same content."""
    found, others = dict(tensors_in(value)), dict(tensors_in(other))
    return (
        bool(found)
        and found.keys() == others.keys()
        and all(_is_equal(tensor, others[path]) for path, tensor in found.items())
    )


def _data_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the data of a tensor as a separate tensor, or None for kinds whose data cannot be assigned."""
    return tensor.data if _is_plain(tensor) and not tensor.is_inference() else None


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided


def _is_equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    kinds = {(one.dtype, one.device, _is_plain(one) and not one.is_meta) for one in (tensor, other)}
    return kinds == {(tensor.dtype, tensor.device, True)} and torch.equal(tensor, other)


def _has_other_data(tensor: torch.Tensor, data: torch.Tensor) -> bool:
    """Return whether a tensor has another storage, shape, stride, offset or dtype than ``data``."""
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        return False  # its class changed: a lazy parameter, for example
    return storage_key(tensor) != storage_key(data) or _geometry(tensor) != _geometry(data)


def _geometry(tensor: torch.Tensor) -> tuple[Sequence[int], Sequence[int], int, torch.dtype]:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype
