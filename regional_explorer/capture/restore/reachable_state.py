"""Finds what a call can reach and change: variables of functions, classes, modules; tensors; random generators."""

from __future__ import annotations

import argparse
import dis
import functools
import itertools
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from regional_explorer.capture.restore.random_state import Generator
from regional_explorer.capture.restore.variables import (
    Attributes,
    CallCache,
    ClassAttributes,
    ClosureVariable,
    Hooks,
    Items,
    Keys,
    Variables,
)
from regional_explorer.capture.slots import LRU_CACHE, is_readable

STATE_SEARCH_DEPTH = 12
STATE_SEARCH_OBJECTS = 50_000
MAX_ITEMS = 1_000
"""The depth, the number of objects, and the number of items per container to which the search goes."""

_ATOMIC_TYPES = (str, bytes, int, float, complex, types.ModuleType, type(None), torch.dtype)
_DICT_TYPES = (dict, OrderedDict, defaultdict, Counter)
_LIST_TYPES = (list, deque, set)
_FOREIGN_PACKAGES = sys.stdlib_module_names | {"torch", "numpy", "regional_explorer"}
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_HIDDEN_ATTRIBUTES = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set)))
"""The containers in which a module keeps its parameters, children and hooks: all other attributes are the user's."""
_MODULE_HOOKS = tuple(sorted(name for name in _HIDDEN_ATTRIBUTES if "_hooks" in name))
_TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@dataclass
class Reach:
    """The variables that a call can assign to, and the tensors and random generators that it can reach.

    ``names`` are those of the tensors in the user's program; several may have the same.
    """

    variables: list[Variables] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    generators: list[Generator] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Reached:
    """A value that a call reaches, its name in the user's program, and whether it belongs to an argument."""

    name: str
    value: Any
    argument: bool = False


def reach(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Reach:
    """Search the function with its closure, globals, defaults and class, and the arguments."""
    reachable = Reach()
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no address is reused
    level = [
        *(_Reached(f"args[{index}]", value, argument=True) for index, value in enumerate(args)),
        *(_Reached(name, value, argument=True) for name, value in (kwargs or {}).items()),
        _Reached("", fn),
    ]
    for _ in range(STATE_SEARCH_DEPTH):
        next_level: list[_Reached] = []
        for item in level:
            if id(item.value) in seen or len(seen) > STATE_SEARCH_OBJECTS or not is_readable(item.value):
                continue
            if isinstance(item.value, _ATOMIC_TYPES):
                continue
            seen[id(item.value)] = item.value
            next_level += _values_below(item, reachable)
        level = next_level
    return reachable


def _values_below(item: _Reached, reachable: Reach) -> Iterator[_Reached]:
    """Add ``item`` to ``reachable``, and yield what it holds."""
    name, value = item.name, item.value
    match value:
        case torch.Tensor():
            reachable.tensors.append(value)
            reachable.names.append(name)
            if value.is_leaf and value.requires_grad:
                reachable.variables.append(Hooks(name, value, stores=_TENSOR_HOOKS))
        case nn.Module():
            yield from _module_values(value, name, reachable)
        case types.FunctionType():
            yield from _function_values(value, reachable)
        case types.MethodType():
            yield from (_Reached(name, value.__self__), _Reached(name, value.__func__))
        case types.BuiltinMethodType():
            yield _Reached(name, value.__self__)
        case _ if isinstance(value, LRU_CACHE):
            reachable.variables.append(CallCache(value.__wrapped__.__name__, value))
            yield _Reached(name, value.__wrapped__)
        case functools.partial():
            yield from (_Reached(f"args[{index}]", arg, argument=True) for index, arg in enumerate(value.args))
            yield from (_Reached(key, arg, argument=True) for key, arg in value.keywords.items())
            yield _Reached(name, value.func)
        case type():
            yield from _class_values(value, reachable)
        case Mapping() | list() | tuple() | set() | frozenset() | deque():
            yield from _container_values(item, reachable)
        case _ if isinstance(value, Generator):
            reachable.generators.append(value)
        case _:
            yield from _object_values(item, reachable)


def _container_values(item: _Reached, reachable: Reach) -> Iterator[_Reached]:
    """Read a dict, a list and the like; subclasses are read too, but their items cannot be restored."""
    name, value = item.name, item.value
    if type(value) in _DICT_TYPES:
        reachable.variables.append(Keys(name, value, whole=item.argument))
    elif type(value) in _LIST_TYPES:
        reachable.variables.append(Items(name, value, whole=item.argument))
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    yield from (_Reached(f"{name}[{key!r}]", entry, item.argument) for key, entry in itertools.islice(pairs, MAX_ITEMS))
    if not isinstance(value, (tuple, frozenset)):
        yield from _object_values(item, reachable)


def _module_values(module: nn.Module, name: str, reachable: Reach) -> Iterator[_Reached]:
    reachable.variables.append(Attributes(name, module, hidden=_HIDDEN_ATTRIBUTES))
    reachable.variables.append(Hooks(name, module, stores=_MODULE_HOOKS))
    for store in ("_parameters", "_buffers", "_modules"):
        entries = vars(module)[store]
        reachable.variables.append(Keys(name, entries, attributes=True))
        yield from (_Reached(_dotted(name, key), value) for key, value in entries.items())
    user_attributes = ((key, value) for key, value in vars(module).items() if key not in _HIDDEN_ATTRIBUTES)
    yield from (_Reached(_dotted(name, key), value) for key, value in user_attributes)
    yield _Reached(type(module).__qualname__, type(module))


def _object_values(item: _Reached, reachable: Reach) -> Iterator[_Reached]:
    """Read a namespace, or an object of a class that is not torch's, NumPy's or the standard library's."""
    cls = type(item.value)
    if cls.__module__.partition(".")[0] in _FOREIGN_PACKAGES and cls not in _NAMESPACES:
        return
    attributes = Attributes(item.name, item.value, whole=item.argument)
    reachable.variables.append(attributes)
    yield from (_Reached(_dotted(item.name, key), value, item.argument) for key, value in attributes.read().items())
    yield _Reached(cls.__qualname__, cls)


def _class_values(cls: type, reachable: Reach) -> Iterator[_Reached]:
    """Read the classes of the user's own code: their attributes, and what their methods use."""
    for base in cls.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", "")
        if base.__module__.partition(".")[0] in _FOREIGN_PACKAGES or _is_installed(file):
            continue
        reachable.variables.append(ClassAttributes(base.__qualname__, base))
        for key, value in vars(base).items():
            # Class methods and static methods hold the function.
            yield _Reached(f"{base.__qualname__}.{key}", getattr(value, "__func__", value))


def _function_values(function: types.FunctionType, reachable: Reach) -> Iterator[_Reached]:
    """Read what a function closes over, its defaults, and the globals it uses; those it assigns can be restored."""
    if _is_installed(function.__code__.co_filename):
        yield _Reached("", vars(function).get("__wrapped__"))  # under torch.no_grad as a decorator, or torch.compile
        return
    reachable.variables.append(Attributes(function.__name__, function))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        variable = ClosureVariable(name, cell)
        reachable.variables.append(variable)
        yield from (_Reached(name, value) for value in variable.read().values())
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from (_Reached("", value) for value in defaults)
    names, assigned = _globals_of(function.__code__)
    if assigned:
        reachable.variables.append(Keys("", function.__globals__, only=assigned))
    yield from (_Reached(name, function.__globals__[name]) for name in sorted(names) if name in function.__globals__)


@functools.lru_cache(maxsize=2048)
def _globals_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of globals and attributes that code uses, and of globals it assigns; with inner functions."""
    names = set(code.co_names)
    assigned = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner_names, inner_assigned = _globals_of(constant)
            names |= inner_names
            assigned |= inner_assigned
    return frozenset(names), frozenset(assigned)


def _is_installed(file: str | None) -> bool:
    """Return whether code belongs to an installed package or the interpreter: its variables are not the user's."""
    path = (file or "").replace("\\", "/")
    return (
        "/site-packages/" in path
        or "/dist-packages/" in path
        or path.startswith((f"{sys.base_prefix}/lib/", "<frozen"))
    )


def _dotted(name: str, key: str) -> str:
    return f"{name}.{key}" if name else str(key)
