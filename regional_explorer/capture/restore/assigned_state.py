"""Restores what a call assigned in Python, by comparing its runs; some values, such as caches, are kept instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from regional_explorer.capture.restore.reachable_state import Reach
from regional_explorer.capture.restore.variables import Variables, differing, same

Values = Mapping[Any, Any]


class AssignedState:
    """The values, before a call, of everything that it can assign.

    A call may assign what it could have written in place: ``self.state = h``, ``cache["k"] = torch.cat(…)``,
    ``weight.data = …``, ``self.steps += 1``. What every call assigns is restored before the next one. What only the
    first call creates and later ones reuse (a mask, a table, a flag that it exists) stays: ``kept`` names it. Whether
    a tensor requires grad is restored, too.
    """

    def __init__(self, reach: Reach) -> None:
        self.kept: tuple[str, ...] = ()
        self._before: list[tuple[Variables, Values]] = [(each, each.read()) for each in reach.variables]
        self._after: list[Values] = []
        self._data = [(tensor, data) for tensor in reach.tensors if (data := _data_of(tensor)) is not None]
        self._flags = [(tensor, tensor.requires_grad) for tensor in reach.tensors if tensor.is_leaf]
        self._known = reach.tensors

    @property
    def changes(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self._before or self._data or self._flags)

    def first_run_ended(self) -> bool:
        """Watch from now on only what the first run changed; return whether a second run is needed to learn the rest.

        Changes of containers among the arguments are restored in any case.
        """
        self._data = [pair for pair in self._data if _moved(*pair)]
        self._flags = [(tensor, flag) for tensor, flag in self._flags if _differs(tensor, flag)]
        changed = [(each, before) for each, before in self._before if _changed(before, each.read())]
        if any(not each.whole for each, _ in changed):
            return True
        self._before = changed
        return False

    def note_first_run(self, reach: Reach) -> None:
        """Note the values after the first run, also in containers and objects that it made; restore tensors' data."""
        known = {id(each.owner) for each, _ in self._before}
        self._before += [(each, each.read()) for each in reach.variables if id(each.owner) not in known]
        self._after = [each.read() for each, _ in self._before]
        self._restore_data()

    def note_second_run(self) -> None:
        """Watch from now on only what every call assigns, not what only the first one created."""
        watched: list[tuple[Variables, Values]] = []
        kept: list[str] = []
        for (each, before), after in zip(self._before, self._after, strict=True):
            now = each.read()
            if not _changed(before, after) and not _changed(before, now):
                continue
            made = [] if each.whole else [key for key in differing(before, after) if _stays(key, before, after, now)]
            kept += [each.label(key) for key in made]
            values = {key: value for key, value in before.items() if key not in made}
            watched.append((each, values | {key: after[key] for key in made if key in after}))
        self._before, self._after, self.kept = watched, [], tuple(dict.fromkeys(kept))

    def as_now(self) -> AssignedState:
        """Return the current state of the same variables and tensors."""
        watched = [tensor for tensor, _ in (*self._data, *self._flags)]
        state = AssignedState(Reach([each for each, _ in self._before], watched))
        state.kept = self.kept
        return state

    def to_copy(self, reach: Reach) -> Iterator[torch.Tensor]:
        """Yield the tensors whose content may be written although the first run did not write it.

        These are the tensors whose data it assigned, which compiled code may write in place; and, except for
        parameters, the tensors that are reached now but were not before the first run.
        """
        yield from (tensor for tensor, _ in self._data)
        known = set(map(id, self._known))
        yield from (found for found in reach.tensors if id(found) not in known and not isinstance(found, nn.Parameter))

    def restore(self) -> None:
        """Restore everything."""
        for each, before in self._before:
            if _changed(before, each.read()):
                each.assign(before)
        self._restore_data()

    def _restore_data(self) -> None:
        for tensor, flag in self._flags:
            if _differs(tensor, flag):
                tensor.requires_grad_(flag)
        for tensor, data in self._data:
            if _moved(tensor, data):
                tensor.data = data


def _differs(tensor: torch.Tensor, flag: bool) -> bool:  # noqa: FBT001 - what ``requires_grad`` was
    """Return whether the call set ``requires_grad``; a tensor that requires grad after a write in place is no leaf."""
    return tensor.is_leaf and tensor.requires_grad is not flag


def _changed(before: Values, now: Values) -> bool:
    return list(before) != list(now) or any(True for _ in differing(before, now))


def _stays(key: Any, before: Values, after: Values, now: Values) -> bool:
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


def _moved(tensor: torch.Tensor, data: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        return False  # its class changed: a lazy parameter, for example
    return tensor.untyped_storage()._cdata != data.untyped_storage()._cdata or _place(tensor) != _place(data)


def _place(tensor: torch.Tensor) -> tuple[Sequence[int], Sequence[int], int, torch.dtype]:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype
