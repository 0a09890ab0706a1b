"""Serializes partitions with their fake inputs, for another process to compile."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx._graph_pickler import GraphPickler, Options

BUILTIN_NAMESPACES = ("aten", "prims")
"""The namespaces of operators that every process registers by itself."""


UNSENDABLE = (pickle.PicklingError, AttributeError, TypeError, AssertionError, NotImplementedError)
"""The exceptions that pickling raises for objects that it cannot serialize."""


def dump_piece(gm: fx.GraphModule, inputs: Sequence[Any]) -> bytes | None:
    """Return a piece and the fakes for its inputs as bytes.

    None is returned for what may differ in another process: dynamic sizes, other devices than the CPU,
    constants, bodies of higher-order ops, and operators of other libraries.
    """
    if not (all(map(_is_plain_tensor, inputs)) and all(map(_is_plain_node, gm.graph.nodes))):
        return None
    try:
        return GraphPickler.dumps((gm, list(inputs)), Options(ops_filter=None))
    except UNSENDABLE:
        return None


def load_piece(dumped: bytes, mode: FakeTensorMode) -> tuple[fx.GraphModule, list[Any]]:
    """Return the piece and inputs that ``dump_piece`` serialized, with the fakes in ``mode``."""
    loaded: Any = GraphPickler.loads(dumped, mode)
    gm, inputs = loaded
    return gm, inputs


def _is_plain_tensor(value: Any) -> bool:
    if not isinstance(value, FakeTensor) or value.device.type != "cpu" or value.layout is not torch.strided:
        return False
    return not any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride(), value.storage_offset()))


def _is_plain_node(node: fx.Node) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    is_sendable_op = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in BUILTIN_NAMESPACES
    return is_sendable_op or node.target is operator.getitem
