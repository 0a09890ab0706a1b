"""What Python code can assign to (attributes, slots, keys, items, closure cells): reads, compares, restores it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from regional_explorer.capture.slots import slot_names

_MISSING = object()
_PLAIN_TYPES = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device)


@dataclass
class Variables(ABC):
    """The values of one owner that a call may assign, by key; ``name`` is the owner's name in the user's program.

    With ``whole``, the owner belongs to an argument: all that a call does to it is restored, also what it adds.
    """

    name: str
    owner: Any
    whole: bool = False

    restorable: ClassVar[bool] = True
    """Whether values can be assigned; else what a call changes is named."""

    @abstractmethod
    def read(self) -> dict[Any, Any]:
        """Return a copy of the current values."""

    @abstractmethod
    def assign(self, values: Mapping[Any, Any]) -> None:
        """Replace all values by these."""

    def label(self, key: Any) -> str:
        """Return the name of one of the values in the user's program."""
        return f"{self.name}.{key}" if self.name else str(key)


@dataclass
class Keys(Variables):
    """The items of a dict, or only those of the keys ``only``; with ``attributes``, labels look like attributes."""

    only: Collection[str] | None = None
    attributes: bool = False

    def read(self) -> dict[Any, Any]:
        """Return the values now."""
        if self.only is None:
            return dict(self.owner)
        return {key: self.owner[key] for key in self.only if key in self.owner}

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Write what differs, or everything if the order of the keys differs."""
        now = self.read()
        for key in [key for key in now if key not in values]:
            del self.owner[key]
        for key, value in values.items():
            if now.get(key, _MISSING) is not value:
                self.owner[key] = value
        if self.only is None and list(self.owner) != list(values):
            self.owner.clear()
            self.owner.update(values)

    def label(self, key: Any) -> str:
        """Return the label of an item, as an index or as a name."""
        return super().label(key) if self.attributes or self.only is not None else f"{self.name}[{key!r}]"


@dataclass
class Items(Variables):
    """The items of a list, a deque or a set, as one value."""

    def read(self) -> dict[Any, Any]:
        """Return the items now."""
        return {"": tuple(self.owner)}

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Write the items."""
        self.owner.clear()
        (self.owner.update if isinstance(self.owner, set) else self.owner.extend)(values[""])

    def label(self, key: Any) -> str:  # noqa: ARG002 - there is only one
        """Return the name of the list."""
        return self.name


@dataclass
class Attributes(Variables):
    """The attributes of an object, in its ``__dict__`` and its slots, except for ``hidden`` ones."""

    hidden: Collection[str] = ()
    _slots: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Find the slots."""
        self._slots = tuple(slot_names(type(self.owner)))

    def read(self) -> dict[Any, Any]:
        """Return the values now."""
        slots = {name: value for name in self._slots if (value := getattr(self.owner, name, _MISSING)) is not _MISSING}
        instance_dict = getattr(self.owner, "__dict__", {})
        return slots | {name: value for name, value in instance_dict.items() if name not in self.hidden}

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Write what differs, without calling ``__setattr__``."""
        now, instance_dict = self.read(), getattr(self.owner, "__dict__", {})
        for name in now.keys() - values.keys():
            if name in instance_dict:
                del instance_dict[name]
            else:
                object.__delattr__(self.owner, name)
        for name, value in values.items():
            if now.get(name, _MISSING) is not value:
                if name in self._slots:
                    object.__setattr__(self.owner, name, value)
                else:
                    instance_dict[name] = value


@dataclass
class ClassAttributes(Variables):
    """The attributes of a class that are values: no functions, no descriptors, no dunder names."""

    def read(self) -> dict[Any, Any]:
        """Return the values now."""
        return {
            name: value
            for name, value in vars(self.owner).items()
            if not (name.startswith("__") or callable(value) or hasattr(type(value), "__get__"))
        }

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Write what differs."""
        now = self.read()
        for name in now.keys() - values.keys():
            delattr(self.owner, name)
        for name, value in values.items():
            if now.get(name, _MISSING) is not value:
                setattr(self.owner, name, value)


@dataclass
class ClosureVariable(Variables):
    """A variable that a function closes over; ``owner`` is its cell."""

    def read(self) -> dict[Any, Any]:
        """Return the value now."""
        try:
            return {self.name: self.owner.cell_contents}
        except ValueError:  # an empty cell
            return {}

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Write the value."""
        if self.name in values:
            self.owner.cell_contents = values[self.name]
        else:
            del self.owner.cell_contents

    def label(self, key: Any) -> str:
        """Return the name of the variable."""
        return str(key)


@dataclass
class CallCache(Variables):
    """What ``functools.lru_cache`` keeps for a function: single entries can be neither read nor removed."""

    restorable: ClassVar[bool] = False

    def read(self) -> dict[Any, Any]:
        """Return how many entries were made and are kept."""
        info = self.owner.cache_info()
        return {"cache": (info.misses, info.currsize)}

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Do nothing."""


@dataclass
class Hooks(Variables):
    """The hooks of a module or a leaf tensor, in the dicts that the attributes ``stores`` hold."""

    stores: Collection[str] = ()

    def read(self) -> dict[Any, Any]:
        """Return the hooks now."""
        return {(store, key): hook for store in self.stores for key, hook in self._hooks(store).items()}

    def _hooks(self, store: str) -> dict[int, Any]:
        return getattr(self.owner, store, None) or {}  # a tensor has no dict before its first hook

    def assign(self, values: Mapping[Any, Any]) -> None:
        """Replace all hooks by these."""
        for store in self.stores:
            hooks, kept = self._hooks(store), {key: hook for (name, key), hook in values.items() if name == store}
            hooks.clear()
            hooks.update(kept)

    def label(self, key: Any) -> str:  # noqa: ARG002 - hooks have no names
        """Return a name for all the hooks."""
        return f"hooks of {self.name or 'the module'}"


def differing(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield the keys whose values differ, are new or are gone."""
    return (key for key in {**before, **now} if not same(before.get(key, _MISSING), now.get(key, _MISSING)))


def same(value: Any, other: Any) -> bool:
    """Return whether two values are the same object, or equal plain values."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return isinstance(value, _PLAIN_TYPES) and bool(value == other)
