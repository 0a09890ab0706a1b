"""Runs a captured call in float64, as a reference for eager and compiled results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.capture.tensors import tensors_in
from regional_explorer.capture.trace import Capture
from regional_explorer.measure.accuracy.values import Values, dense
from regional_explorer.torch_api import boxed, draws_random, resolve

LOW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Float64:
    """Runs a capture in float64.

    Each graph is rewritten to compute in float64; between graphs, and for AOTAutograd and autograd, values keep the
    dtype that they were traced with. The exact value of each is kept and found again by its place in memory, so that
    the next graph continues from it, in the elements that nothing has written to since.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._exact_values: dict[tuple[Any, ...], torch.Tensor] = {}
        self._kept_alive: list[torch.Tensor] = []

    def run(self) -> Values:
        """Return outputs, gradients, and what the call wrote, in float64.

        Raises:
            Exception: whatever torch raises if an operator has no float64 kernel.
        """
        call = self._capture.call
        with self._capture.running(self._float64_implementation), call.restoring():
            outputs, gradients = call.run(self._capture.run)
            tensors = (*tensors_in(outputs, "output"), *((name, tensor) for name, tensor, _ in call.written()))
            return Values(
                tuple((name, self._exact_result(tensor)) for name, tensor in tensors),
                tuple(
                    (name, None if gradient is None else self._exact_result(gradient))
                    for name, gradient in zip(call.gradient_names, gradients, strict=False)
                ),
            )

    def _float64_implementation(self, live: LiveGraph) -> Callable[[list[Any]], Any]:
        written_inputs = _written_inputs(live.gm)
        dtypes = [_traced_dtype(value) for value in live.gm.graph.output_node().args[0]]  # type: ignore[union-attr]
        run_float64 = boxed(to_float64(live.gm))

        def implementation(args: list[Any]) -> list[Any]:
            exact_args = [self._exact_value(value) for value in args]
            written = [(args[index].detach(), exact_args[index]) for index in written_inputs]
            args.clear()
            results = run_float64(exact_args)
            for value, exact in written:
                value.copy_(exact)
            return [self._rounded_to(value, dtype) for value, dtype in zip(results, dtypes, strict=True)]

        return implementation

    def _exact_result(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the exact value of a result, never the user's own tensor: what the call wrote to it is undone."""
        value = dense(tensor)
        exact: torch.Tensor = self._exact_value(value)
        return exact.clone() if exact is value else exact

    def _exact_value(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in LOW_DTYPES:
            return value
        exact = self._exact_values.get(_memory_place(value))
        if exact is None:
            return value.detach().double()
        written = exact.to(value.dtype) != value.detach()
        return torch.where(written, value.detach().double(), exact) if written.any() else exact

    def _rounded_to(self, value: Any, dtype: torch.dtype | None) -> Any:
        if not isinstance(value, torch.Tensor) or dtype not in LOW_DTYPES or value.dtype is not torch.float64:
            return value
        rounded = value.to(dtype)
        self._exact_values[_memory_place(rounded)] = value
        self._kept_alive.append(rounded)  # so that no other value takes its place in memory
        return rounded


def _written_inputs(gm: fx.GraphModule) -> list[int]:
    """Return the positions of the inputs that a graph writes to, by copies at its end."""
    return [
        index
        for index, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
    ]


def _memory_place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def _traced_dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def to_float64(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of ``gm`` that computes in float64 wherever it computed in a lower precision.

    Ops that draw random numbers draw them as before, so that the draws are the same.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, Any] = {}
    for node in gm.graph.nodes:
        copy = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            attr = resolve(gm, node)
            copy.target = f"float64_{len(attributes)}"
            attributes[copy.target] = _attribute_in_float64(attr)
        elif node.op == "call_function":
            copy.args = fx.node.map_aggregate(copy.args, _float64_if_lower)
            copy.kwargs = fx.node.map_aggregate(copy.kwargs, _float64_if_lower)
            if draws_random(node):
                copy.args = (node.target, [_traced_dtype(source) for source in node.args], *copy.args)
                copy.kwargs = dict(node.kwargs)
                copy.target = _draw_as_before
        copies[node] = copy
    return fx.GraphModule(attributes, graph)


def _attribute_in_float64(attr: Any) -> Any:
    if isinstance(attr, fx.GraphModule):
        return to_float64(attr)
    return attr.detach().double() if isinstance(attr, torch.Tensor) and attr.dtype in LOW_DTYPES else attr


def _float64_if_lower(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in LOW_DTYPES else value


def _draw_as_before(target: Any, dtypes: Sequence[torch.dtype | None], *args: Any, **kwargs: Any) -> Any:
    """Run a random op in the dtypes of the trace, and return its results in float64."""
    traced_args = [
        value.to(dtype) if isinstance(value, torch.Tensor) and dtype is not None else value
        for value, dtype in zip(args, dtypes, strict=True)
    ]
    results = target(*traced_args, **kwargs)
    if target is torch.ops.aten.native_dropout.default:
        keep_mask = results[1]
        return args[0] * keep_mask * (0.0 if args[1] == 1 else 1.0 / (1.0 - args[1])), keep_mask
    if isinstance(results, torch.Tensor):
        return results.double() if results.dtype in LOW_DTYPES else results
    return type(results)(value.double() if getattr(value, "dtype", None) in LOW_DTYPES else value for value in results)
