"""Finds everything that a call can reach, with its name in the user's program: modules, state, variables."""

from __future__ import annotations

import argparse
import dis
import functools
import itertools
import queue
import random
import sys
import types
import weakref
from collections import Counter, UserDict, UserList, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from regional_explorer.capture import variables
from regional_explorer.capture.tensors import LRU_CACHE, is_readable, tensors_in
from regional_explorer.capture.variables import Variables
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api.dynamo import original_module
from regional_explorer.torch_api.hidden_state import (
    ALL_MODULES,
    MODULE_STORES,
    SHARED_FLAGS,
    current_saved_tensors_hooks,
    hook_functions,
)

Root = tuple[str, nn.Module]
"""A module that no other module holds, preceded by its name in the user's program."""


def module_names(roots: Sequence[Root]) -> dict[int, tuple[str, ...]]:
    """Return every path of every module below ``roots``, keyed by ``id(module)``; a shared module has several.

    If different modules below several roots have the same path, the root's own name stands before it in the first one.
    """
    paths_and_modules = [
        (root_name if name else "", path, module)
        for (name, root), root_name in zip(roots, _distinct(name for name, _ in roots), strict=True)
        for path, module in root.named_modules(remove_duplicate=False)
    ]
    modules_at = grouped((path, id(module)) for _, path, module in paths_and_modules)
    names = (
        (id(module), name)
        for root_name, path, module in paths_and_modules
        for name in ((_dotted(root_name, path), path) if path and len({*modules_at[path]}) > 1 else (path,))
    )
    return {key: tuple(dict.fromkeys(paths)) for key, paths in grouped(names).items()}


Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
"""A random generator that a program may own."""

SEARCH_DEPTH = 12
SEARCH_OBJECTS = 50_000
MAX_ITEMS = 1_000
MAX_ARRAY_BYTES = 1 << 20
"""The limits of the search: depth, number of objects, items per container, and bytes of a NumPy array."""

_ATOMIC_TYPES = (str, bytes, int, float, complex, types.ModuleType, type(None), torch.dtype)
_FOREIGN_PACKAGES = sys.stdlib_module_names | {"torch", "numpy", "regional_explorer"}
_READ_CLASSES = (
    *(types.SimpleNamespace, argparse.Namespace, UserDict, UserList, queue.Queue),
    *(weakref.WeakKeyDictionary, weakref.WeakSet),
)
"""The classes of the standard library whose objects are searched like objects of the user's own classes."""
_HIDDEN_ATTRIBUTES = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set)))
"""The containers in which a module keeps its parameters, children and hooks: all other attributes are the user's."""


@dataclass(frozen=True, slots=True)
class _ReachedValue:
    """A value that a call reaches, its name in the user's program, and whether it belongs to an argument."""

    name: str
    value: Any
    argument: bool = False


@dataclass
class Reach:
    """The variables that a call can assign to, and the tensors and random generators that it can reach.

    ``names`` are those of the tensors in the user's program, keyed by ``id(tensor)``; several may have the same.
    ``roots`` are the modules that are passed, closed over, global, bound, or held by objects and containers. Paths
    start at the nearest root, so a root stays a root even if a module that is found later contains it. ``hooks`` are
    the hooks that were found and not searched yet.
    """

    variables: list[Variables] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    generators: list[Generator] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    roots: list[Root] = field(default_factory=list)
    hooks: list[_ReachedValue] = field(default_factory=list)


def reach(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Reach:
    """Search the function with its closure, globals, defaults and class, the arguments, and the hooks of all these.

    Hooks come last, so that objects that only they use change no name and no path of the program's own.
    """
    reachable = Reach()
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no address is reused
    level = [
        *(_ReachedValue(f"args[{index}]", value, argument=True) for index, value in enumerate(args)),
        *(_ReachedValue(name, value, argument=True) for name, value in (kwargs or {}).items()),
        _ReachedValue("", fn),
    ]
    _search(level, reachable, seen)
    _add_hooks("all modules", ALL_MODULES, reachable)
    reachable.variables.append(variables.module_globals(ALL_MODULES.__name__, vars(ALL_MODULES), SHARED_FLAGS))
    reachable.hooks += [_ReachedValue("", function) for function in current_saved_tensors_hooks() or ()]
    while reachable.hooks:
        level, reachable.hooks = reachable.hooks, []
        _search(level, reachable, seen)
    return reachable


def _search(level: list[_ReachedValue], reachable: Reach, seen: dict[int, Any]) -> None:
    """Add the values of ``level``, and all that they hold, to ``reachable``, unless they were ``seen``."""
    for _ in range(SEARCH_DEPTH):
        next_level: list[_ReachedValue] = []
        modules: list[Root] = []
        for item in level:
            if id(item.value) in seen or len(seen) > SEARCH_OBJECTS or not is_readable(item.value):
                continue
            if isinstance(item.value, _ATOMIC_TYPES):
                continue
            seen[id(item.value)] = item.value
            if isinstance(item.value, nn.Module):
                modules.append((item.name, original_module(item.value)))  # users name paths below the original
            next_level += _values_below(item, reachable)
        reachable.roots += _new_roots(modules, reachable.roots)
        level = next_level


def _add_hooks(name: str, owner: torch.Tensor | nn.Module | types.ModuleType, reachable: Reach) -> None:
    """Add the hooks of a tensor, of a module or of all modules, which a call may change, and the values they use."""
    of_owner = variables.hooks(name or "the module", owner)
    reachable.variables.append(of_owner)
    for hook in of_owner.read().values():
        reachable.hooks.append(_ReachedValue(f"(hook of {of_owner.name})", hook))
        # A library's function is not searched, except for the values that it was made with as a hook.
        if (
            isinstance(hook, types.FunctionType)
            and _is_installed(hook)
            and not _is_foreign(hook.__globals__.get("__name__"))
        ):
            reachable.hooks += _closure_values(hook, reachable)


def _new_roots(modules: Sequence[Root], roots: Sequence[Root]) -> list[Root]:
    """Return the outermost of ``modules`` that no root contains, and that contain no root."""
    if not modules:
        return []
    inside, root_ids = _ids_in(root for _, root in roots), {id(root) for _, root in roots}
    names: dict[nn.Module, str] = {}
    for name, module in modules:
        if id(module) not in inside and not root_ids & _ids_in([module]):
            names.setdefault(module, name)
    inner = {id(child) for module in names for child in module.modules() if child is not module}
    return [(name, module) for module, name in names.items() if id(module) not in inner]


def _ids_in(roots: Iterable[nn.Module]) -> set[int]:
    return {id(module) for root in roots for module in root.modules()}


def _values_below(item: _ReachedValue, reachable: Reach) -> Iterator[_ReachedValue]:
    """Add ``item`` to ``reachable``, and yield the values that it holds."""
    name, value = item.name, item.value
    match value:
        case torch.Tensor():
            reachable.tensors.append(value)
            reachable.names[id(value)] = name
            if value.requires_grad:
                _add_hooks(name, value, reachable)
        case nn.Module():
            yield from _module_values(value, name, reachable)
        case _ if isinstance(value, _FUNCTIONS):
            yield from _values_of_function(value, name, reachable)
        case type():
            yield from _class_values(value, reachable)
        case Mapping() | list() | tuple() | set() | frozenset() | deque():
            yield from _container_values(item, reachable)
        case np.ndarray():
            if value.nbytes <= MAX_ARRAY_BYTES and not value.dtype.hasobject:
                reachable.variables.append(variables.array_elements(name, value))
        case itertools.count():
            reachable.variables.append(variables.next_number(name, value))
        case _ if isinstance(value, Generator):
            reachable.generators.append(value)
        case _:
            yield from _object_values(item, reachable)


_FUNCTIONS = (
    *(types.FunctionType, types.MethodType, types.BuiltinMethodType, functools.partial, LRU_CACHE),
    *(property, functools.cached_property),
)


def _values_of_function(function: Any, name: str, reachable: Reach) -> Iterator[_ReachedValue]:
    """Yield the values that a function, method, partial, property or cached function holds."""
    match function:
        case types.FunctionType():
            yield from _function_values(function, reachable)
        case types.MethodType():
            yield from (_ReachedValue(name, function.__self__), _ReachedValue(name, function.__func__))
        case types.BuiltinMethodType():
            yield _ReachedValue(name, function.__self__)
        case functools.partial():
            args = ((f"args[{index}]", arg) for index, arg in enumerate(function.args))
            arguments = (*args, *function.keywords.items())
            yield from (_ReachedValue(_dotted(name, key), arg, argument=True) for key, arg in arguments)
            yield _ReachedValue(name, function.func)
        case property():
            yield from (_ReachedValue(name, part) for part in (function.fget, function.fset, function.fdel))
        case functools.cached_property():
            yield _ReachedValue(name, function.func)
        case _:
            reachable.variables.append(variables.call_cache(function))
            yield _ReachedValue(name, function.__wrapped__)


def _container_values(item: _ReachedValue, reachable: Reach) -> Iterator[_ReachedValue]:
    """Yield the items of a dict, list or other container, and the attributes that the user's own class adds."""
    name, value = item.name, item.value
    if (kind := variables.container_kind(value)) is not None:
        of_kind = variables.dict_items if kind in variables.DICT_TYPES else variables.all_items
        reachable.variables.append(of_kind(name, value, whole=item.argument))
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, entry in itertools.islice(pairs, MAX_ITEMS):
        yield _ReachedValue(f"{name}{variables.index(key)}", entry, item.argument)
    if not isinstance(value, (tuple, frozenset)):
        yield from _object_values(item, reachable)


def _module_values(module: nn.Module, name: str, reachable: Reach) -> Iterator[_ReachedValue]:
    reachable.variables.append(variables.attributes(name, module, _HIDDEN_ATTRIBUTES))
    _add_hooks(name, module, reachable)
    for store in MODULE_STORES:
        entries = vars(module).get(store, {})  # a module of torch.jit may lack a store, and keeps others in its own way
        if variables.container_kind(entries) is not None:
            reachable.variables.append(variables.dict_items(name, entries, "{name}.{key}"))
        yield from (_ReachedValue(_dotted(name, key), value) for key, value in entries.items())
    user_attributes = ((key, value) for key, value in vars(module).items() if key not in _HIDDEN_ATTRIBUTES)
    yield from (_ReachedValue(_dotted(name, key), value) for key, value in user_attributes)
    yield _ReachedValue(type(module).__qualname__, type(module))


def _object_values(item: _ReachedValue, reachable: Reach) -> Iterator[_ReachedValue]:
    """Yield the attributes of an object; of foreign classes only those in ``_READ_CLASSES`` are searched."""
    cls = type(item.value)
    if _is_foreign(cls.__module__) and cls not in _READ_CLASSES:
        yield from (_ReachedValue(item.name, function) for function in hook_functions(item.value))
        return
    attributes = variables.attributes(item.name, item.value, whole=item.argument)
    reachable.variables.append(attributes)
    yield from (
        _ReachedValue(_dotted(item.name, key), value, item.argument) for key, value in attributes.read().items()
    )
    yield _ReachedValue(cls.__qualname__, cls)


def _class_values(cls: type, reachable: Reach) -> Iterator[_ReachedValue]:
    """Yield the attributes and methods of a class and of its bases, as far as they are the user's own."""
    for base in cls.__mro__:
        if not _is_users(base.__module__, sys.modules.get(base.__module__)):
            continue
        reachable.variables.append(variables.class_attributes(base))
        for key, value in vars(base).items():
            # Class methods and static methods hold the function.
            yield _ReachedValue(f"{base.__qualname__}.{key}", getattr(value, "__func__", value))


def _function_values(function: types.FunctionType, reachable: Reach) -> Iterator[_ReachedValue]:
    """Yield what a function closes over, its defaults, and the globals it uses, also of the user's other files."""
    if _is_installed(function):
        # It may call the user's functions, as a decorator such as torch.no_grad does, and hooks that torch wraps.
        closed_over = (value for variable in _closure_of(function) for value in variable.read().values())
        inside = (vars(function).get("__wrapped__"), *closed_over)
        yield from (_ReachedValue("", value) for value in inside if callable(value))
        return
    reachable.variables.append(variables.attributes(function.__name__, function))
    yield from _closure_values(function, reachable)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from (_ReachedValue("", value) for value in defaults)
    names, assigned = _globals_of(function.__code__)
    if assigned:
        reachable.variables.append(variables.module_globals("", function.__globals__, assigned))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        yield _ReachedValue(name, value)
        if issubclass(type(value), types.ModuleType) and _is_users(value.__name__, value):
            yield from _imported_values(value, name, names, reachable)


def _imported_values(
    module: types.ModuleType, name: str, names: AbstractSet[str], reachable: Reach
) -> Iterator[_ReachedValue]:
    """Yield the variables called ``names`` of a module of the user's, and of the submodules that they include."""
    used = names & vars(module).keys()
    reachable.variables.append(variables.module_globals(name, vars(module), used))
    for key in sorted(used):
        value = vars(module)[key]
        yield _ReachedValue(f"{name}.{key}", value)
        if issubclass(type(value), types.ModuleType) and value.__name__ == f"{module.__name__}.{key}":
            yield from _imported_values(value, f"{name}.{key}", names, reachable)


def _closure_values(function: types.FunctionType, reachable: Reach) -> Iterator[_ReachedValue]:
    for variable in _closure_of(function):
        reachable.variables.append(variable)
        yield from (_ReachedValue(name, value) for name, value in variable.read().items())


def _closure_of(function: types.FunctionType) -> list[Variables]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [variables.closure_variable(name, cell) for name, cell in cells]


@functools.lru_cache(maxsize=2048)
def _globals_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the globals and attributes that code uses, and the globals it assigns, inner functions included."""
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


def _is_users(name: str, module: types.ModuleType | None) -> bool:
    """Return whether a module, given with its full name, is the user's own: not installed, nor Python's or torch's."""
    return not _is_foreign(name) and not _is_installed_file(getattr(module, "__file__", ""))


def _is_foreign(module: str | None) -> bool:
    """Return whether a module, given with its full name, belongs to Python, torch, NumPy or this package."""
    return (module or "").partition(".")[0] in _FOREIGN_PACKAGES


def _is_installed(function: types.FunctionType) -> bool:
    return _is_installed_file(function.__code__.co_filename)


def _is_installed_file(file: str | None) -> bool:
    """Return whether code belongs to an installed package or the interpreter: its variables are not the user's."""
    path = (file or "").replace("\\", "/")
    return (
        "/site-packages/" in path
        or "/dist-packages/" in path
        or path.startswith((f"{sys.base_prefix}/lib/", "<frozen"))
    )


def _dotted(name: str, key: str) -> str:
    return f"{name}.{key}" if name else str(key)


def _parameter_names(roots: Iterable[nn.Module]) -> dict[int, str]:
    """Return the first path of every parameter and buffer below ``roots``, keyed by ``id(tensor)``."""
    names: dict[int, str] = {}
    for root in roots:
        for path, tensor in (*root.named_parameters(), *root.named_buffers()):
            names.setdefault(id(tensor), path)
    return names


def tensor_names(
    reachable: Reach, roots: Sequence[Root], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, str]:
    """Return the names of all tensors that a call reaches, keyed by ``id(tensor)``.

    Those of a single root module have their paths below it; with several roots, the root's own name comes first.
    """
    below_root = _parameter_names(root for _, root in roots)
    in_arguments = [*tensors_in(args, "args"), *tensors_in(kwargs, "kwargs")]
    arguments = {id(tensor): name for name, tensor in reversed(in_arguments)}  # a tensor given twice: its first name
    several_roots = sum(bool(_parameter_names([root])) for _, root in roots) > 1
    reached = reachable.names | arguments
    names = {**below_root, **reached} if several_roots else {**reached, **below_root}
    return dict(zip(names, _distinct(names.values()), strict=True))


def _distinct(names: Iterable[str]) -> Iterable[str]:
    counts: Counter[str] = Counter()
    for name in names:
        base = name or "unnamed"
        counts[base] += 1
        yield f"{base} ({counts[base]})" if counts[base] > 1 else base
