"""Restores what a call assigned in Python, or names what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from regional_explorer.capture.reachable import Reach, Variables, differing, parameter_names, same
from regional_explorer.capture.tensors import tensors_in

ValuesByKey = Mapping[Any, Any]


class AssignedState:
    """The values, before a call, of everything that it can assign.

    A call may assign what it could have written in place: ``self.state = h``, ``cache["k"] = torch.cat(…)``,
    ``weight.data = …``, ``self.steps += 1``. What every call assigns is restored before the next one. What only the
    first call creates and later ones reuse (a mask, a table, a flag that it exists) stays: ``not_restored`` names it.
    Whether a leaf requires grad, and its ``grad``, are restored, too.
    """

    def __init__(self, reach: Reach) -> None:
        self.not_restored: tuple[str, ...] = ()
        self._before: list[tuple[Variables, ValuesByKey]] = [(scope, scope.read()) for scope in reach.variables]
        self._after: list[ValuesByKey] = []
        self._before_first: list[tuple[Variables, ValuesByKey]] = []
        self._tensor_data = [(tensor, data) for tensor in reach.tensors if (data := _data_of(tensor)) is not None]
        self._leaves = [(tensor, tensor.requires_grad, tensor.grad) for tensor in reach.tensors if tensor.is_leaf]
        self._known_tensors = reach.tensors

    @property
    def changes(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self._before or self._tensor_data or self._leaves)

    def first_run_ended(self) -> bool:
        """Watch from now on only what the first run changed; return whether a second run is needed to learn the rest.

        Changes of containers among the arguments are restored in any case.
        """
        self._tensor_data = [pair for pair in self._tensor_data if _data_moved(*pair)]
        self._leaves = [leaf for leaf in self._leaves if _leaf_changed(*leaf)]
        changed = [(scope, before) for scope, before in self._before if _any_changed(before, scope.read())]
        if any(not scope.whole for scope, _ in changed):
            return True
        self._before = changed
        return False

    def note_first_run(self, reach: Reach) -> None:
        """Note the values after the first run, also in containers and objects that it made; restore tensors' data."""
        known_owners = {id(scope.owner) for scope, _ in self._before}
        self._before += [(scope, scope.read()) for scope in reach.variables if id(scope.owner) not in known_owners]
        self._after = [scope.read() for scope, _ in self._before]
        self._restore_data()

    def note_second_run(self) -> None:
        """Watch from now on only what every call assigns, not what only the first one created."""
        watched: list[tuple[Variables, ValuesByKey]] = []
        labels: list[str] = []
        for (scope, before), after in zip(self._before, self._after, strict=True):
            now = scope.read()
            if not _any_changed(before, after) and not _any_changed(before, now):
                continue
            stay = [] if scope.whole else [key for key in differing(before, after) if _stays(key, before, after, now)]
            added = stay if scope.restorable else list(before)
            labels += [scope.label(key) for key in added]
            if added:
                self._before_first.append((scope, before))
            values = {key: value for key, value in before.items() if key not in added}
            watched.append((scope, values | {key: after[key] for key in added if key in after}))
        self._before, self._after, self.not_restored = watched, [], tuple(dict.fromkeys(labels))

    def as_now(self) -> AssignedState:
        """Return the current state of the same variables and tensors."""
        tensors = [*(tensor for tensor, _ in self._tensor_data), *(tensor for tensor, _, _ in self._leaves)]
        state = AssignedState(Reach([scope for scope, _ in self._before], tensors))
        state.not_restored = self.not_restored
        return state

    def to_copy(self, reach: Reach) -> Iterator[torch.Tensor]:
        """Yield the tensors whose content may be written although the first run did not write it.

        These are the tensors whose data it assigned, which compiled code may write in place; and, except for
        parameters, the tensors that are reached now but were not before the first run.
        """
        yield from (tensor for tensor, _ in self._tensor_data)
        known_ids = set(map(id, self._known_tensors))
        yield from (new for new in reach.tensors if id(new) not in known_ids and not isinstance(new, nn.Parameter))

    def restore(self) -> None:
        """Restore everything."""
        for scope, before in self._before:
            if _any_changed(before, scope.read()):
                scope.assign(before)
        self._restore_data()

    def restore_what_stays(self) -> None:
        """Restore what ``not_restored`` names, too: nobody will be told."""
        for scope, before in self._before_first:
            scope.assign(before)

    def _restore_data(self) -> None:
        for tensor, flag, grad in self._leaves:
            if _leaf_changed(tensor, flag, grad):
                tensor.requires_grad_(flag)
                tensor.grad = grad
        for tensor, data in self._tensor_data:
            if _data_moved(tensor, data):
                tensor.data = data


def _leaf_changed(tensor: torch.Tensor, flag: bool, grad: torch.Tensor | None) -> bool:  # noqa: FBT001 - a value
    """Return whether the call set ``requires_grad`` or ``grad``; a tensor that a write in place attached is no leaf."""
    return tensor.is_leaf and (tensor.requires_grad is not flag or tensor.grad is not grad)


def _any_changed(before: ValuesByKey, now: ValuesByKey) -> bool:
    return list(before) != list(now) or any(True for _ in differing(before, now))


def _stays(key: Any, before: ValuesByKey, after: ValuesByKey, now: ValuesByKey) -> bool:
    """Return whether what the first run assigned stays: if there was nothing before, or the second run kept it."""
    if key == "training":
        return False
    created = before.get(key) is None and after.get(key) is not None
    return created or ((key in after) == (key in now) and same(after.get(key), now.get(key)))


def _data_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the data of a tensor as a separate tensor, or None for kinds whose data cannot be assigned."""
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided or tensor.is_inference():
        return None
    return tensor.data


def _data_moved(tensor: torch.Tensor, data: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        return False  # its class changed: a lazy parameter, for example
    return tensor.untyped_storage()._cdata != data.untyped_storage()._cdata or _geometry(tensor) != _geometry(data)


def _geometry(tensor: torch.Tensor) -> tuple[Sequence[int], Sequence[int], int, torch.dtype]:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype


_UNNAMED = "unnamed"


def tensor_names(
    reachable: Reach, roots: Sequence[nn.Module], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, str]:
    """Return the names of all tensors that a call reaches, keyed by ``id(tensor)``.

    Those of a single root module have their paths below it; with several roots, the root's own name comes first.
    """
    below_root = parameter_names(roots)
    in_arguments = [*tensors_in(args, "args"), *tensors_in(kwargs, "kwargs")]
    arguments = {id(tensor): name for name, tensor in reversed(in_arguments)}  # a tensor given twice: its first name
    reached = {id(tensor): name for name, tensor in zip(reachable.names, reachable.tensors, strict=True)}
    several_roots = sum(bool(parameter_names([root])) for root in roots) > 1
    names = {**below_root, **reached, **arguments} if several_roots else {**reached, **arguments, **below_root}
    return dict(zip(names, _distinct(names.values()), strict=True))


def _distinct(names: Iterable[str]) -> Iterable[str]:
    counts: Counter[str] = Counter()
    for name in names:
        counts[name] += 1
        yield f"{name or _UNNAMED} ({counts[name]})" if counts[name] > 1 else name or _UNNAMED
