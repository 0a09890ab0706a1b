"""Runs a captured graph op by op, with a mark before and after each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from regional_explorer.measure.timing.clock import Clock
from regional_explorer.torch_api import resolve


@dataclass(frozen=True, slots=True)
class _Step:
    """One op: what it reads, and what nobody needs after it."""

    node: fx.Node
    freed: tuple[fx.Node, ...]


class OpTimer:
    """Runs ``gm`` as its generated code does, each value freed after its last use, and times every op.

    ``marks`` holds name, begin and end of each op that ran, in order; freeing what an op used last is part of it.
    ``moved_bytes`` has what the ops read and write, filled in by a run with ``weighing``.
    """

    def __init__(self, gm: fx.GraphModule, clock: Clock[Any]) -> None:
        self.marks: list[tuple[str, Any, Any]] = []
        self.moved_bytes: dict[str, int] = {}
        self.weighing = False
        self._clock = clock
        self._inputs = list(gm.graph.find_nodes(op="placeholder"))
        self._output = gm.graph.output_node()
        self._constants = {node: resolve(gm, node) for node in gm.graph.find_nodes(op="get_attr")}
        ops = [node for node in gm.graph.nodes if node.op == "call_function"]
        last = {used: node for node in ops for used in node.all_input_nodes}
        kept = {*self._output.all_input_nodes, *self._constants}
        freed: dict[fx.Node, list[fx.Node]] = {node: [] if node.users else [node] for node in ops}
        for used, node in last.items():
            if used not in kept:
                freed[node].append(used)
        self._steps = [_Step(node, tuple(freed[node])) for node in ops]

    def run(self, args: list[Any]) -> Any:
        """Run the graph on ``args``, which is emptied."""
        values = dict(zip(self._inputs, args, strict=True)) | self._constants
        args.clear()
        mark, marks = self._clock.mark, self.marks
        for step in self._steps:
            node = step.node
            target: Any = node.target
            arguments: Any = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            given, named = arguments
            del arguments
            begin = mark()
            value = target(*given, **named)
            if self.weighing:
                self.moved_bytes[node.name] = moved_bytes(target, (given, named), value)
            del given, named
            values[node] = value
            del value
            for dead in step.freed:
                del values[dead]
            marks.append((node.name, begin, mark()))
        return fx.map_arg(self._output.args[0], values.__getitem__)


def overhead_s(clock: Clock[Any], calls: int = 200) -> float:
    """Return the seconds that timing an op costs: the median of an op that does nothing, timed the same way."""
    spans = []
    for _ in range(calls):
        values: dict[int, Any] = {0: None}
        given: tuple[Any, ...] = (None,)
        named: dict[str, Any] = {}
        begin = clock.mark()
        value = _nothing(*given, **named)
        del given, named
        values[1] = value
        del value
        for dead in (0,):
            del values[dead]
        spans.append((begin, clock.mark()))
    clock.synchronize()
    seconds = sorted(clock.seconds(begin, end) for begin, end in spans)
    return seconds[len(seconds) // 2]


def _nothing(value: object) -> object:
    """Return ``value``."""
    return value


def moved_bytes(target: Callable[..., Any], inputs: Any, outputs: Any) -> int:
    """Return how many bytes an op reads and writes at least: each input and output once, a view none."""
    if target is operator.getitem:
        return 0
    read, written = list(_tensors(inputs)), list(_tensors(outputs))
    storages = {tensor.untyped_storage().data_ptr() for tensor in read}
    schema = getattr(target, "_schema", None)
    mutates = schema is not None and schema.is_mutable
    if not mutates and all(tensor.untyped_storage().data_ptr() in storages for tensor in written):
        return 0
    return sum(map(_size, read)) + sum(map(_size, written))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the dense tensors among nested arguments or results."""
    if isinstance(values, torch.Tensor):
        if values.layout is torch.strided:
            yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, Mapping):
        yield from _tensors(list(values.values()))


def _size(tensor: torch.Tensor) -> int:
    """Return the bytes behind a tensor; elements that a broadcast repeats count once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else min(size, 1)
    return elements * tensor.element_size()
