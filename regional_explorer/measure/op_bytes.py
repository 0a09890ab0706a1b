"""Counts the bytes that each op of a captured graph has to read and write, from schemas, sizes and storages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx


class OpBytes(fx.Interpreter):
    """Runs a graph op by op; ``moved`` has the bytes that each op moves, by name."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.moved: dict[str, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node."""
        if n.op != "call_function":
            return super().run_node(n)
        inputs = self.fetch_args_kwargs_from_env(n)
        result = super().run_node(n)
        target: Any = n.target
        self.moved[n.name] = moved_bytes(target, inputs, result)
        return result


def moved_bytes(target: Callable[..., Any], inputs: Any, outputs: Any) -> int:
    """Return the least bytes that an op reads and writes: each input and output once; a view moves none."""
    if target is operator.getitem:
        return 0
    read, written = list(_dense_tensors(inputs)), list(_dense_tensors(outputs))
    input_storages = {tensor.untyped_storage().data_ptr() for tensor in read}
    schema = getattr(target, "_schema", None)
    mutates = schema is not None and schema.is_mutable
    if not mutates and all(tensor.untyped_storage().data_ptr() in input_storages for tensor in written):
        return 0
    return sum(map(_tensor_bytes, read)) + sum(map(_tensor_bytes, written))


def _dense_tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the dense tensors among nested arguments or results."""
    if isinstance(values, torch.Tensor):
        if values.layout is torch.strided:
            yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _dense_tensors(value)
    elif isinstance(values, Mapping):
        yield from _dense_tensors(list(values.values()))


def _tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes behind a tensor; elements that a broadcast repeats count once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else min(size, 1)
    return elements * tensor.element_size()
