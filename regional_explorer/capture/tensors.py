"""Finds the tensors inside the values that a call takes and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor inside ``value`` with its path, such as ``[0].logits``.

    Looks into lists, tuples, mappings, dataclasses and model outputs; each object once.
    """
    yield from _walk(value, name, set())


def _walk(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if not isinstance(value, (list, tuple, Mapping)) and not _is_dataclass_instance(value):
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for key, item in _items(value):
        yield from _walk(item, name + key, seen)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        # Model outputs of transformers are both mapping and dataclass; their mapping leaves out what is None.
        yield from ((f".{key}" if str(key).isidentifier() else f"[{key!r}]", item) for key, item in value.items())
    elif _is_dataclass_instance(value):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value))
    elif hasattr(value, "_fields"):
        yield from ((f".{field}", getattr(value, field)) for field in value._fields)
    else:
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def _is_dataclass_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
