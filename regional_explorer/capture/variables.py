"""Reads and writes the values that a call may assign, for each kind of owner."""

from __future__ import annotations

import itertools
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from regional_explorer.capture.tensors import attributes_of, slot_names
from regional_explorer.torch_api.hidden_state import hook_stores

MISSING = object()
_PLAIN_TYPES = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device)


@dataclass
class Variables:
    """The values of one owner that a call may assign, by key; ``name`` is the owner's name in the user's program.

    ``read`` returns a copy of the current values; ``write`` assigns one of them, or removes it if it is ``MISSING``.
    Without ``write``, what a call changes can only be named. ``label_format`` makes the name of a value in the user's
    program. With ``whole``, the owner belongs to an argument: everything that a call does to it is restored, even items
    that it adds. With ``ordered``, the order of the keys is restored too. An owner whose class is no longer
    ``owner_class``, such as a lazy module that has got its parameters, is left alone: the values of its old class do
    not fit.
    """

    name: str
    owner: Any
    read: Callable[[], dict[Any, Any]]
    write: Callable[[Any, Any], None] | None
    label_format: str = "{name}.{key}"
    whole: bool = False
    ordered: bool = False
    owner_class: type = field(init=False)

    def __post_init__(self) -> None:
        """Record the class that the owner has."""
        self.owner_class = type(self.owner)

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Replace the values that differ from these, if they can be written."""
        if self.write is None or type(self.owner) is not self.owner_class:
            return
        current = self.read()
        for key in {**current, **values}:
            if (value := values.get(key, MISSING)) is not current.get(key, MISSING):
                self.write(key, value)
        if self.ordered and list(self.read()) != list(values):
            for key in values:
                self.write(key, MISSING)
            for key, value in values.items():
                self.write(key, value)

    def label(self, key: Any) -> str:
        """Return the name of one of the values in the user's program."""
        return self.label_format.format(name=self.name, key=key, index=index(key)).removeprefix(".")


def index(key: Any) -> str:
    """Return a key of a container as text in brackets: its ``repr`` if it is a plain value, else its class."""
    is_plain = all(isinstance(part, _PLAIN_TYPES) for part in (key if isinstance(key, tuple) else (key,)))
    return f"[{key!r}]" if is_plain else f"[<{type(key).__name__}>]"


def _set_item(items: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        del items[key]
    else:
        items[key] = value


def _set_attribute(owner: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        delattr(owner, key)
    else:
        setattr(owner, key, value)


DICT_TYPES = (dict, OrderedDict, defaultdict, Counter)
_LIST_TYPES = (list, deque, set)


def container_kind(container: Any) -> Any:
    """Return Python's own class of a container; the methods of a subclass of the user's may have side effects."""
    return next((base for base in type(container).__mro__ if base in (*DICT_TYPES, *_LIST_TYPES)), None)


def dict_items(name: str, items: Any, label_format: str = "{name}{index}", *, whole: bool = False) -> Variables:
    """Return the items of a dict."""
    kind = container_kind(items)

    def write(key: Any, value: Any) -> None:
        if value is MISSING:
            kind.__delitem__(items, key)
        else:
            kind.__setitem__(items, key, value)

    return Variables(name, items, lambda: dict(kind.items(items)), write, label_format, whole, ordered=True)


def module_globals(name: str, items: dict[str, Any], names: Collection[str]) -> Variables:
    """Return the variables called ``names`` of a Python module."""

    def read() -> dict[Any, Any]:
        return {key: items[key] for key in names if key in items}

    return Variables(name, items, read, partial(_set_item, items))


def all_items(name: str, values: Any, *, whole: bool) -> Variables:
    """Return the items of a list, a deque or a set, as one value."""
    kind = container_kind(values)

    def write(_key: Any, value: Any) -> None:
        kind.clear(values)
        (kind.update if kind is set else kind.extend)(values, value)

    return Variables(name, values, lambda: {"": tuple(kind.__iter__(values))}, write, "{name}", whole)


def array_elements(name: str, array: np.ndarray[Any, Any]) -> Variables:
    """Return the elements of a NumPy array, as one value."""

    def write(_key: Any, value: Any) -> None:
        array[...] = np.frombuffer(value, array.dtype).reshape(array.shape)

    return Variables(name, array, lambda: {"": array.tobytes()}, write, "{name}")


def next_number(name: str, numbers: itertools.count[Any]) -> Variables:
    """Return the next number of an iterator, which can be read but not set."""
    return Variables(name, numbers, lambda: {"": repr(numbers)}, write=None, label_format="{name}")


def attributes(name: str, owner: Any, hidden: Collection[str] = (), *, whole: bool = False) -> Variables:
    """Return the attributes of an object, in its ``__dict__`` and its slots, except for ``hidden`` ones."""

    def read() -> dict[Any, Any]:
        return {key: value for key, value in attributes_of(owner).items() if key not in hidden}

    def write(key: Any, value: Any) -> None:  # without calling a ``__setattr__`` of the user's
        if key not in slot_names(type(owner)):
            _set_item(vars(owner), key, value)
        elif value is MISSING:
            object.__delattr__(owner, key)
        else:
            object.__setattr__(owner, key, value)

    return Variables(name, owner, read, write, whole=whole)


def class_attributes(cls: type) -> Variables:
    """Return the attributes of a class that are values: no functions, no descriptors, no dunder names."""

    def read() -> dict[Any, Any]:
        return {
            name: value
            for name, value in vars(cls).items()
            if not (name.startswith("__") or callable(value) or hasattr(type(value), "__get__"))
        }

    return Variables(cls.__qualname__, cls, read, partial(_set_attribute, cls))


def closure_variable(name: str, cell: types.CellType) -> Variables:
    """Return a variable of the function around another one."""

    def read() -> dict[Any, Any]:
        try:
            return {name: cell.cell_contents}
        except ValueError:  # an empty cell
            return {}

    return Variables(name, cell, read, lambda _, value: _set_attribute(cell, "cell_contents", value), "{name}")


def call_cache(function: Any) -> Variables:
    """Return how many entries ``functools.lru_cache`` has made and keeps for a function."""

    def read() -> dict[Any, Any]:
        info = function.cache_info()
        return {"cache": (info.misses, info.currsize)}

    return Variables(function.__wrapped__.__name__, function, read, write=None)


def hooks(name: str, owner: torch.Tensor | nn.Module | types.ModuleType) -> Variables:
    """Return the hooks of a tensor, of a module or of all modules."""

    def read() -> dict[Any, Any]:
        return {(store, key): hook for store, hooks in hook_stores(owner).items() for key, hook in hooks.items()}

    def write(key: tuple[str, int], value: Any) -> None:
        _set_item(hook_stores(owner)[key[0]], key[1], value)

    return Variables(name, owner, read, write, "hooks of {name}", ordered=True)


def differing_keys(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield the keys whose values differ, are new or are gone."""
    return (key for key in {**before, **now} if not is_same(before.get(key, MISSING), now.get(key, MISSING)))


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values are the same object, or equal plain values."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, tuple):
        return len(value) == len(other) and all(map(is_same, value, other))
    return isinstance(value, _PLAIN_TYPES) and bool(value == other)
