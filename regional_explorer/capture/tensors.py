"""Finds the tensors inside arguments and results: in containers, dataclasses and attributes, each with its path."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from regional_explorer.capture.slots import has_slots, is_readable, slot_names

TENSOR_SEARCH_DEPTH = 16
TENSOR_SEARCH_OBJECTS = 20_000
"""The depth and the number of objects to which a value is searched."""

_WITHOUT_TENSORS = (
    *(type(None), bool, int, float, complex, str, bytes, enum.Enum, type),
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
"""Types that hold no tensors."""


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor inside ``value`` with its path, such as ``[0].logits``.

    Looks into lists, tuples, mappings, dataclasses, model outputs and the attributes of other objects (a KV cache, a
    class of the user's), each once; not into modules, whose tensors are not results.
    """
    return ((path, leaf) for path, leaf in _leaves(value, name, set()) if isinstance(leaf, torch.Tensor))


def opaque_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the type of every object inside ``value`` that ``tensors_in`` cannot look into."""
    return (
        (path, type(leaf).__name__) for path, leaf in _leaves(value, name, set()) if not isinstance(leaf, torch.Tensor)
    )


def _leaves(value: Any, name: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    if not is_readable(value):
        return
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if isinstance(value, _WITHOUT_TENSORS) or id(value) in seen:
        return
    seen.add(id(value))
    items = None if depth > TENSOR_SEARCH_DEPTH or len(seen) > TENSOR_SEARCH_OBJECTS else _keyed_items(value)
    if items is None:
        yield name, value
        return
    for key, item in items:
        yield from _leaves(item, name + key, seen, depth + 1)


def _keyed_items(value: Any) -> list[tuple[str, Any]] | None:
    """Return what ``value`` holds, each item with its key in the path, or None if that is not known."""
    if isinstance(value, nn.Module):
        return None
    if isinstance(value, Mapping):
        # Model outputs of transformers are both mapping and dataclass; as a mapping they leave out what is None.
        return [(f".{key}" if str(key).isidentifier() else f"[{key!r}]", item) for key, item in value.items()]
    if dataclasses.is_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    if hasattr(value, "_fields") and isinstance(value, tuple):
        return [(f".{field}", getattr(value, field)) for field in value._fields]  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    attributes = _python_attributes(value)
    # Sorted by name: a trace may set them in another order than the program does.
    return None if attributes is None else [(f".{key}", attributes[key]) for key in sorted(attributes)]


def _python_attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object of a class written in Python; None for others, such as iterators."""
    if not has_slots(type(value)) and not hasattr(value, "__dict__"):
        return None
    in_slots = {name: getattr(value, name) for name in slot_names(type(value)) if hasattr(value, name)}
    return in_slots | {str(key): item for key, item in getattr(value, "__dict__", {}).items()}
