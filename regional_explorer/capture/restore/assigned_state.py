"""Restores what a call assigned anew: tensors that modules hold, and containers passed as arguments."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

MAX_DEPTH = 6
Container = dict[Any, Any] | list[Any]


class AssignedState:
    """The tensors of modules, and the containers among the arguments, as they were before a call.

    A call may assign what it could have written in place: ``self.state = h``, ``cache["k"] = torch.cat(…)``. Of a
    module, a tensor put in another's place is put back; what its first call makes and keeps, a mask or a table, stays.
    Dicts, lists and objects that were passed are put back whole.
    """

    def __init__(self, roots: Sequence[nn.Module], arguments: Any) -> None:
        modules = {id(module): module for root in roots for module in root.modules()}.values()
        self._tensors = [
            (space, name, value)
            for module in modules
            for space in (vars(module)["_buffers"], vars(module))
            for name, value in space.items()
            if isinstance(value, torch.Tensor)
        ]
        self._containers = [(container, container.copy()) for container in _containers(arguments, MAX_DEPTH, set())]

    def replaced(self) -> bool:
        """Tell whether anything is another object than it was."""
        return any(map(_replaced, self._tensors)) or any(_changed(*pair) for pair in self._containers)

    def replacements(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that modules hold now where they held others."""
        return (space[name] for space, name, _ in filter(_replaced, self._tensors))

    def restore(self) -> None:
        """Put everything back."""
        for found in filter(_replaced, self._tensors):
            space, name, value = found
            space[name] = value
        for container, before in self._containers:
            if not _changed(container, before):
                continue
            container.clear()
            if isinstance(container, dict):
                container.update(before)
            else:
                container.extend(before)


def _replaced(found: tuple[dict[str, Any], str, Any]) -> bool:
    space, name, value = found
    return isinstance(now := space.get(name), torch.Tensor) and now is not value


def _changed(container: Container, before: Container) -> bool:
    if isinstance(container, dict) and list(container) != list(before):
        return True
    now, then = (list(held.values()) if isinstance(held, dict) else held for held in (container, before))
    return len(now) != len(then) or any(one is not other for one, other in zip(now, then, strict=True))


def _containers(value: Any, depth: int, seen: set[int]) -> Iterator[Container]:
    if depth == 0 or id(value) in seen or isinstance(value, (torch.Tensor, nn.Module, type)):
        return
    seen.add(id(value))
    if not isinstance(value, (dict, list, tuple)):
        value = getattr(value, "__dict__", None)
    if type(value) in (dict, list, OrderedDict, defaultdict):
        yield value
    for item in value.values() if isinstance(value, dict) else value or ():
        yield from _containers(item, depth - 1, seen)
