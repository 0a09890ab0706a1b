"""Makes calls of compiled code cheap: one check of all inputs, and no wrapper without work."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx
from torch._C._dynamo.guards import TensorGuards
from torch._inductor.output_code import CompiledFxGraph
from torch.autograd import profiler

from regional_explorer.torch_api.graphs import BoxedCall, computes_nothing


def layout_matcher(values: Sequence[Any]) -> Callable[..., bool] | None:
    """Return a function that checks whether arguments have the class, dtype, device, sizes and strides of ``values``.

    It is the check of Dynamo's guards, in C++: 90 tensors take 6 µs instead of 59. None if a value is no plain strided
    tensor.
    """
    if not values or not all(type(value) in _PLAIN and value.layout is torch.strided for value in values):
        return None
    sizes, strides = [list(value.shape) for value in values], [list(value.stride()) for value in values]
    # Without both lists, TensorGuards reads memory that is not its own (torch 2.11 to 2.15).
    guards = TensorGuards(*values, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)  # type: ignore[arg-type]  # lists of lists
    check: Callable[..., bool] = guards.check
    return check


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that gets the values at ``positions`` of a sequence; for several values it runs in C."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda values: [values[position] for position in positions]


def settled_call(call: BoxedCall, unseen: Collection[int]) -> BoxedCall:
    """Return a function for later calls of compiled code, without Inductor's work around the first call of a graph.

    ``unseen`` are the places of results that no code of the user can write to. A running profiler still gets the name
    of the graph.
    """
    if hasattr(call, "settled"):
        return call.settled(unseen)  # type: ignore[no-any-return]
    if not isinstance(call, CompiledFxGraph) or call.current_callable is None:
        return call
    run = call.current_callable
    return lambda args: call(args) if profiler._is_profiler_enabled else run(args)


def without_wrapper(call: Callable[..., Any], gm: fx.GraphModule) -> BoxedCall | None:
    """Return Inductor's function inside AOTAutograd's wrappers of ``gm``, if the wrappers have nothing to do.

    AOTAutograd's wrapper copies results into inputs that the graph writes. It also recreates results that are views of
    an input, so that a later write to the input is noticed. A graph with neither needs no wrapper.
    """
    outputs = gm.graph.output_node().args[0]
    if not isinstance(outputs, (tuple, list)) or any(map(_may_be_input, outputs)):
        return None
    if not all(_only_returns(node) for node in gm.graph.nodes if node.op not in ("placeholder", "output")):
        return None
    inner = _compiled_graph(call)
    # A base returned for a view, or an input returned to be copied back, would be one more output.
    return inner if inner is not None and len(inner.output_strides or ()) == len(outputs) else None


def _may_be_input(output: Any) -> bool:
    """Return whether an output may share memory with an input, or is no tensor."""
    while isinstance(output, fx.Node) and computes_nothing(output):
        if output.op != "call_function" or not output.all_input_nodes:
            return True
        output = output.args[0]
    return not isinstance(output, fx.Node)


def _only_returns(node: fx.Node) -> bool:
    """Return whether a node is an operator of torch's own that writes nothing."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem
    return node.target.namespace in ("aten", "prims") and not node.target._schema.is_mutable


def _compiled_graph(call: Callable[..., Any]) -> CompiledFxGraph | None:
    """Return the compiled graph that a wrapper of AOTAutograd calls; None if there is none or several.

    Which wrappers there are differs from torch 2.11 to 2.15: all of their closures are searched.
    """
    graphs: list[CompiledFxGraph] = []
    seen: set[int] = set()
    waiting: list[Any] = [call]
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if isinstance(function, CompiledFxGraph):
            graphs.append(function)
        elif callable(function):
            cells = getattr(function, "__closure__", None) or ()
            waiting += [value for cell in cells if callable(value := _content(cell))]
            waiting.append(getattr(function, "__wrapped__", None))
    return graphs[0] if len(graphs) == 1 else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None
