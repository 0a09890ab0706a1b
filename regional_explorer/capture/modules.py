"""Which modules a call can reach, and by which path a user would name them."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

MAX_DEPTH = 4
"""How deep containers, closures and attributes are searched for modules."""


def reachable_modules(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> list[nn.Module]:
    """Return the root modules of a call: passed, closed over, global, bound, in a container or in a partial."""
    roots: list[nn.Module] = []
    seen: set[int] = set()
    for value in (fn, *args, *(kwargs or {}).values()):
        for module in _search(value, MAX_DEPTH, seen):
            if not any(module is root for root in roots):
                roots.append(module)
    inner = {id(child) for root in roots for child in root.modules() if child is not root}
    return [root for root in roots if id(root) not in inner]


def _search(value: Any, depth: int, seen: set[int]) -> Iterator[nn.Module]:
    if depth == 0 or id(value) in seen or isinstance(value, (str, bytes, int, float, type, types.ModuleType)):
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        # What torch.compile returns for a module is a module around it; users name paths below the inner one.
        original = getattr(value, "_orig_mod", None)
        yield original if isinstance(original, nn.Module) else value
        return
    for inner in _contents(value):
        yield from _search(inner, depth - 1, seen)


def _contents(value: Any) -> Iterator[Any]:
    if isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        yield from (value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__)
        yield from value.__defaults__ or ()
    elif isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif hasattr(value, "__dict__") and not isinstance(value, types.BuiltinFunctionType):
        yield from vars(value).values()


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises here
    except ValueError:
        return False
    return True


def module_names(roots: Sequence[nn.Module]) -> dict[int, tuple[str, ...]]:
    """Return every path of every module below ``roots``, keyed by ``id(module)``; a shared module has several."""
    names: dict[int, list[str]] = {}
    for root in roots:
        for path, module in root.named_modules(remove_duplicate=False):
            known = names.setdefault(id(module), [])
            if path not in known:
                known.append(path)
    return {key: tuple(paths) for key, paths in names.items()}


def parameter_names(roots: Sequence[nn.Module]) -> dict[int, str]:
    """Return the first path of every parameter and buffer below ``roots``, keyed by ``id(tensor)``."""
    names: dict[int, str] = {}
    for root in roots:
        for path, tensor in (*root.named_parameters(), *root.named_buffers()):
            names.setdefault(id(tensor), path)
    return names
