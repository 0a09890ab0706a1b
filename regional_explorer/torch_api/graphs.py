"""FX graphs: boxed calls, bodies, questions about nodes (schema, tags), partitions; autocast, version counters."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.effects import with_effects
from torch.fx.graph import _BoxedCodeGen
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from regional_explorer.torch_api.versions import FALLBACK, BoxedCall


def boxed(gm: fx.GraphModule) -> BoxedCall:
    """Return ``gm`` as a function of one argument list, which it empties so that activations can be freed."""
    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    return gm.forward


def bodies(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.GraphModule]]:
    """Yield the bodies of the higher-order ops of ``gm`` with the ``get_attr`` node that names them, each body once."""
    seen_ids: set[int] = set()
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            body = resolve(gm, node)
            if isinstance(body, fx.GraphModule) and id(body) not in seen_ids:
                seen_ids.add(id(body))
                yield node, body


def resolve(gm: fx.GraphModule, node: fx.Node) -> Any:
    """Return the value that a ``get_attr`` node refers to."""
    return functools.reduce(getattr, str(node.target).split("."), gm)


def input_expression(node: fx.Node) -> str:
    """Return Dynamo's expression for an input of its graph, such as ``L['x']``, or an empty text."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def is_operator(target: Any) -> bool:
    """Return whether a node's target is one of torch's operators, whose ``str`` is its full name."""
    return isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)


def target_key(node: fx.Node) -> str:
    """Return the target of a node as text that is equal for equal code."""
    target = node.target
    if isinstance(target, str) or is_operator(target):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


def draws_random(node: fx.Node) -> bool:
    """Return whether a node draws from a random generator.

    Attention and recurrent ops are tagged as random for the dropout within them; without dropout, or outside of
    training, they draw nothing.
    """
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = arguments_of(node)
    return all(arguments.get(name, True) not in (0, False) for name in ("dropout_p", "dropout", "train", "training"))


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call of an operator by name, those left out with their defaults."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]  # only operators have one
    positional = {argument.name: value for argument, value in zip(arguments, node.args, strict=False)}
    return {argument.name: argument.default_value for argument in arguments} | positional | node.kwargs


def returns_new_tensors(node: fx.Node) -> bool:
    """Return whether a node is an operator that returns new tensors: no view, and no write in place."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    return not schema.is_mutable and all(result.alias_info is None for result in schema.returns)


def is_elementwise(node: fx.Node) -> bool:
    """Return whether each element of an operator's result depends on one element of each of its inputs."""
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def is_effect_token(node: fx.Node) -> bool:
    """Return whether a node is a token that only orders ops with effects, such as the checks of ``linalg``.

    AOTAutograd traces it as a tensor of size 0 and runs the graph with None in its place.
    """
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return node.args[0].target is with_effects and node.args[1:] == (0,)
    return any(user.target is with_effects and user.args[0] is node for user in node.users)


def is_carved(node: fx.Node) -> bool:
    """Return whether a node was carved out: Inductor calls its eager kernel."""
    return FALLBACK in (node.meta.get("custom") or {})


def set_versions(versions: Iterable[tuple[torch.Tensor, int]]) -> None:
    """Restore version counters of tensors whose content was restored too."""
    if versions := list(versions):
        torch._C._autograd._unsafe_set_version_counter(*zip(*versions, strict=True))


def rename(node: fx.Node, name: str) -> None:
    """Rename a node; ``Graph.node_copy`` keeps the old name, and there is no public way to change it."""
    node._rename(name)


def propose_partitions(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Return how upstream's partitioner groups ``nodes``, each group in the order of the graph."""
    chosen = set(nodes)
    support = create_op_support(lambda _submodules, node: node in chosen)
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    position = {node: index for index, node in enumerate(gm.graph.nodes)}
    return [sorted(partition.nodes, key=position.__getitem__) for partition in partitioner.propose_partitions()]


AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")
"""The types of device that have an autocast state."""


def outside_autocast() -> AbstractContextManager[Any]:
    """Return a block without autocast, as AOTAutograd runs its graphs: they contain their casts already."""
    block: AbstractContextManager[Any] = torch._C._DisableAutocast()
    return block
