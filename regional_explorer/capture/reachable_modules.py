"""Finds the modules that a call can reach (passed, closed over, global, in containers), and their paths."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from regional_explorer.capture.slots import LRU_CACHE, is_readable, slot_names
from regional_explorer.record.grouping import grouped

MODULE_SEARCH_DEPTH = 8
MODULE_SEARCH_OBJECTS = 20_000
"""The depth and the number of objects to which containers, closures and attributes are searched for modules."""

_MODULE_INTERNALS = frozenset(vars(nn.Module()))
"""The attributes in which a module keeps its parameters, children and hooks: all others are the user's."""


def reachable_modules(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> list[nn.Module]:
    """Return the root modules of a call: passed, closed over, global, bound, in a container or in a partial.

    Paths start at the nearest root: a root stays one even if a module that is found later contains it.
    """
    roots: list[nn.Module] = []
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no address is reused
    level = [fn, *args, *(kwargs or {}).values()]
    for _ in range(MODULE_SEARCH_DEPTH):
        new: list[nn.Module] = []
        next_level: list[Any] = []
        for value in level:
            if id(value) in seen or len(seen) > MODULE_SEARCH_OBJECTS or not is_readable(value):
                continue
            if isinstance(value, _DEAD_ENDS):
                continue
            seen[id(value)] = value
            if isinstance(value, nn.Module):
                # torch.compile returns a module around the user's; users name paths below the inner one.
                original = getattr(value, "_orig_mod", None)
                value = original if isinstance(original, nn.Module) else value  # noqa: PLW2901 - the one users mean
                new.append(value)
            next_level += _contents(value)
        inside = _ids_in(roots)
        root_ids = set(map(id, roots))
        roots += _outermost([module for module in new if id(module) not in inside and not root_ids & _ids_in([module])])
        level = next_level
    return roots


def _ids_in(roots: Sequence[nn.Module]) -> set[int]:
    return {id(module) for root in roots for module in root.modules()}


def _outermost(modules: Sequence[nn.Module]) -> list[nn.Module]:
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    return [module for module in dict.fromkeys(modules) if id(module) not in inner]


_DEAD_ENDS = (str, bytes, int, float, complex, types.ModuleType, types.BuiltinFunctionType, type(None))


def _contents(value: Any) -> Iterator[Any]:
    """Yield what ``value`` holds, if a call of it could reach modules there."""
    if isinstance(value, nn.Module):
        # Its children have paths below it; modules that it holds in other ways are roots themselves.
        for name, item in vars(value).items():
            if name not in _MODULE_INTERNALS and isinstance(item, (list, tuple, Mapping)):
                yield item
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, LRU_CACHE):
        yield value.__wrapped__
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                yield cell.cell_contents
        if not value.__globals__.get("__name__", "").startswith("torch."):
            yield from (value.__globals__[name] for name in _used_names(value.__code__) if name in value.__globals__)
        yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        yield from value
    else:
        yield from _attribute_values(value)


def _used_names(code: types.CodeType) -> set[str]:
    """Return the names of globals and attributes that a function, or one defined inside it, uses."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names, *(name for nested in inner for name in _used_names(nested))}


def _attribute_values(value: Any) -> Iterator[Any]:
    """Yield the attributes of an object or a class; of class attributes, only modules and containers."""
    if not isinstance(value, type):
        yield from getattr(value, "__dict__", {}).values()
        yield from (getattr(value, name, None) for name in slot_names(type(value)))
    for cls in value.__mro__ if isinstance(value, type) else type(value).__mro__:
        items = filter(is_readable, vars(cls).values())
        yield from (item for item in items if isinstance(item, (nn.Module, list, tuple, dict)))


def module_names(roots: Sequence[nn.Module]) -> dict[int, tuple[str, ...]]:
    """Return every path of every module below ``roots``, keyed by ``id(module)``; a shared module has several."""
    names = ((id(module), path) for root in roots for path, module in root.named_modules(remove_duplicate=False))
    return {key: tuple(dict.fromkeys(paths)) for key, paths in grouped(names).items()}


def parameter_names(roots: Sequence[nn.Module]) -> dict[int, str]:
    """Return the first path of every parameter and buffer below ``roots``, keyed by ``id(tensor)``."""
    names: dict[int, str] = {}
    for root in roots:
        for path, tensor in (*root.named_parameters(), *root.named_buffers()):
            names.setdefault(id(tensor), path)
    return names
