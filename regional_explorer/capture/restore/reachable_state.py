"""Finds what a call can reach and change: variables of functions, classes, modules; tensors; random generators."""

from __future__ import annotations

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
    ClassAttributes,
    ClosureVariable,
    Items,
    Keys,
    Variables,
)

MAX_DEPTH = 12
MAX_SEEN = 50_000
MAX_ITEMS = 1_000
"""The depth, the number of objects, and the number of items per container to which the search goes."""

_ATOMS = (str, bytes, int, float, complex, types.ModuleType, type(None), torch.dtype)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_LISTS = (list, deque, set)
_FOREIGN = sys.stdlib_module_names | {"torch", "numpy", "regional_explorer"}
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
"""The attributes in which a module keeps its parameters, children and hooks: all others are the user's."""


@dataclass
class Reach:
    """The variables that a call can assign to, and the tensors and random generators that it can reach."""

    variables: list[Variables] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    generators: list[Generator] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """A value that was found, its name in the user's program, and whether it belongs to an argument."""

    name: str
    value: Any
    argument: bool = False


def reach(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Reach:
    """Search the function with its closure, globals, defaults and class, and the arguments."""
    found = Reach()
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no address is reused
    level = [
        *(_Found(f"args[{index}]", value, argument=True) for index, value in enumerate(args)),
        *(_Found(name, value, argument=True) for name, value in (kwargs or {}).items()),
        _Found("", fn),
    ]
    for _ in range(MAX_DEPTH):
        below: list[_Found] = []
        for item in level:
            if isinstance(item.value, _ATOMS) or id(item.value) in seen or len(seen) > MAX_SEEN:
                continue
            seen[id(item.value)] = item.value
            below += _below(item, found)
        level = below
    return found


def _below(item: _Found, found: Reach) -> Iterator[_Found]:
    """Add ``item`` to what was found, and yield what it holds."""
    name, value = item.name, item.value
    match value:
        case torch.Tensor():
            found.tensors.append(value)
        case nn.Module():
            yield from _module(value, name, found)
        case types.FunctionType():
            yield from _function(value, found)
        case types.MethodType():
            yield from (_Found(name, value.__self__), _Found(name, value.__func__))
        case types.BuiltinMethodType():
            yield _Found(name, value.__self__)
        case functools.partial():
            yield from (_Found(f"args[{index}]", given, argument=True) for index, given in enumerate(value.args))
            yield from (_Found(key, given, argument=True) for key, given in value.keywords.items())
            yield _Found(name, value.func)
        case type():
            yield from _class(value, found)
        case Mapping() | list() | tuple() | set() | frozenset() | deque():
            yield from _container(item, found)
        case _ if isinstance(value, Generator):
            found.generators.append(value)
        case _:
            yield from _object(item, found)


def _container(item: _Found, found: Reach) -> Iterator[_Found]:
    """Read a dict, a list and the like; subclasses are read too, but their items cannot be restored."""
    name, value = item.name, item.value
    if type(value) in _DICTS:
        found.variables.append(Keys(name, value, whole=item.argument))
    elif type(value) in _LISTS:
        found.variables.append(Items(name, value, whole=item.argument))
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    yield from (_Found(f"{name}[{key!r}]", held, item.argument) for key, held in itertools.islice(pairs, MAX_ITEMS))
    if not isinstance(value, (tuple, frozenset)):
        yield from _object(item, found)


def _module(module: nn.Module, name: str, found: Reach) -> Iterator[_Found]:
    found.variables.append(Attributes(name, module, hidden=_OF_MODULES))
    for kind in ("_parameters", "_buffers", "_modules"):
        held = vars(module)[kind]
        found.variables.append(Keys(name, held, attributes=True))
        yield from (_Found(_attribute(name, key), value) for key, value in held.items())
    own = ((key, value) for key, value in vars(module).items() if key not in _OF_MODULES)
    yield from (_Found(_attribute(name, key), value) for key, value in own)
    yield _Found(type(module).__qualname__, type(module))


def _object(item: _Found, found: Reach) -> Iterator[_Found]:
    """Read an object of a class that is not torch's, NumPy's or the standard library's."""
    kind = type(item.value)
    if kind.__module__.partition(".")[0] in _FOREIGN:
        return
    attributes = Attributes(item.name, item.value, whole=item.argument)
    found.variables.append(attributes)
    yield from (_Found(_attribute(item.name, key), value, item.argument) for key, value in attributes.read().items())
    yield _Found(kind.__qualname__, kind)


def _class(kind: type, found: Reach) -> Iterator[_Found]:
    """Read the classes of the user's own code: their attributes, and what their methods use."""
    for base in kind.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", "")
        if base.__module__.partition(".")[0] in _FOREIGN or _installed(file):
            continue
        found.variables.append(ClassAttributes(base.__qualname__, base))
        for key, value in vars(base).items():
            # Class methods and static methods hold the function.
            yield _Found(f"{base.__qualname__}.{key}", getattr(value, "__func__", value))


def _function(function: types.FunctionType, found: Reach) -> Iterator[_Found]:
    """Read what a function closes over, its defaults, and the globals it uses; those it assigns can be restored."""
    if _installed(function.__code__.co_filename):
        yield _Found("", vars(function).get("__wrapped__"))  # under torch.no_grad as a decorator, or torch.compile
        return
    found.variables.append(Attributes(function.__name__, function))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        variable = ClosureVariable(name, cell)
        found.variables.append(variable)
        yield from (_Found(name, value) for value in variable.read().values())
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from (_Found("", value) for value in defaults)
    names, assigned = _globals_of(function.__code__)
    if assigned:
        found.variables.append(Keys("", function.__globals__, only=assigned))
    yield from (_Found(name, function.__globals__[name]) for name in sorted(names) if name in function.__globals__)


@functools.lru_cache(maxsize=2048)
def _globals_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of globals and attributes that code uses, and of globals it assigns; with inner functions."""
    names = set(code.co_names)
    assigned = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_assigned = _globals_of(constant)
            names |= inner
            assigned |= inner_assigned
    return frozenset(names), frozenset(assigned)


def _installed(file: str | None) -> bool:
    """Return whether code belongs to an installed package or the interpreter: its variables are not the user's."""
    path = (file or "").replace("\\", "/")
    return (
        "/site-packages/" in path
        or "/dist-packages/" in path
        or path.startswith((f"{sys.base_prefix}/lib/", "<frozen"))
    )


def _attribute(name: str, key: str) -> str:
    return f"{name}.{key}" if name else str(key)
