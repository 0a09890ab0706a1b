"""Converts live graphs to frozen records: each node with its role, inputs, modules, source line, origin and options."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from regional_explorer.capture.body_callers import BodyContext, with_callers
from regional_explorer.capture.source_lines import parse_stack_trace, source_line
from regional_explorer.record.graph import (
    Chain,
    Graph,
    GraphKind,
    ModuleCall,
    Node,
    Role,
    SubgraphOptions,
    TensorSpec,
)
from regional_explorer.record.json_safe import json_safe
from regional_explorer.torch_api import (
    ANNOTATION,
    FALLBACK,
    ORIGIN,
    bodies,
    calls_subgraph,
    draws_random,
    input_expression,
    is_operator,
    resolve,
    subgraph_options,
)

ModuleNames = Mapping[int, tuple[str, ...]]


def record_graphs(
    gm: fx.GraphModule,
    graph_id: str,
    kind: GraphKind,
    frame: int,
    *,
    names: ModuleNames,
    origins: Mapping[int, Node] | None = None,
    inputs: Sequence[Node] = (),
    body_context: BodyContext | None = None,
) -> list[Graph]:
    """Return the record of ``gm`` and, after it, of the bodies of its higher-order ops.

    Args:
        gm: the live graph.
        graph_id: its id; a body gets ``graph_id/attribute``.
        kind: which of the graphs of its frame it is.
        frame: number of the Dynamo frame.
        names: module paths by ``id(module)``, from ``module_names``.
        origins: the recorded Dynamo node of each origin; nodes copy its stack and modules.
        inputs: the recorded inputs of the Dynamo graph in order, for graphs that have the same inputs.
        body_context: for a body, the graph and the ops that use it.
    """
    converter = _NodeConverter(kind, names, origins or {}, inputs, body_context.callers if body_context else ())
    nodes = tuple(converter.convert(node, gm) for node in gm.graph.nodes)
    records = [Graph(graph_id, kind, frame, nodes, body_context.parent if body_context else None)]
    modules = {node.name: node.modules for node in nodes}
    for node, body in bodies(gm):
        users = [
            user for attr in gm.graph.find_nodes(op="get_attr") if resolve(gm, attr) is body for user in attr.users
        ]
        inner, *nested = record_graphs(
            body,
            f"{graph_id}/{node.target}",
            kind,
            frame,
            names=names,
            origins=origins,
            body_context=BodyContext((graph_id, node.name), [modules[user.name] for user in users]),
        )
        if kind is GraphKind.DYNAMO and users and calls_subgraph(users[0]):
            call = next(record for record in nodes if record.name == users[0].name)
            inner = replace(
                inner, name=_function_name(inner, call) or str(node.target), options=_recorded_options(users[0])
            )
        records += [inner, *nested]
    return records


def _function_name(body: Graph, call: Node) -> str:
    """Return the function that a body was traced from: in the stacks of its ops, the frame below that of the call."""
    lines = (line for op in body.ops for line in op.stack[len(call.stack) : len(call.stack) + 1])
    return next((line.scope or line.function for line in lines), "")


def _recorded_options(call: fx.Node) -> SubgraphOptions | None:
    options = subgraph_options(call)
    if options is None:
        return None
    return replace(options, config=json_safe(options.config), backward_config=json_safe(options.backward_config))


class _NodeConverter:
    """Converts the nodes of one live graph."""

    def __init__(
        self,
        kind: GraphKind,
        names: ModuleNames,
        origins: Mapping[int, Node],
        inputs: Sequence[Node],
        callers: Sequence[Chain],
    ) -> None:
        self._kind = kind
        self._names = names
        self._origins = origins
        self._inputs = list(inputs)
        self._callers = callers
        self._source_line = functools.cache(source_line)  # files may change before the next trace

    def convert(self, node: fx.Node, gm: fx.GraphModule) -> Node:
        """Return the record of a node."""
        custom = node.meta.get("custom") or {}
        role, label = self._node_role(node, gm)
        record = Node(
            name=node.name,
            role=role,
            target=_target_name(node),
            inputs=tuple(source.name for source in node.all_input_nodes),
            values=tuple(_tensor_specs(node)),
            label=label,
        )
        if role not in (Role.OP, Role.SUBGRAPH):
            # Placeholders that are first read inside an annotated block carry its mark, which means nothing there.
            return record
        origin = self._origins.get(custom.get(ORIGIN, -1))
        frames = parse_stack_trace(node.meta.get("stack_trace")) if origin is None else ()
        return replace(
            record,
            stack=origin.stack if origin else tuple(self._source_line(*frame) for frame in frames),
            modules=origin.modules if origin else self._module_calls(node.meta.get("nn_module_stack")),
            annotated=ANNOTATION in custom,
            annotation=json_safe(custom.get(ANNOTATION)),
            carved=FALLBACK in custom,
            origin=custom.get(ORIGIN),
            recompute=self._kind is GraphKind.BACKWARD and node.meta.get("partitioner_tag") == "is_forward",
            random=draws_random(node),
        )

    def _node_role(self, node: fx.Node, gm: fx.GraphModule) -> tuple[Role, str]:
        """Return the role of a node, and for an input the name that the user knows it by."""
        match node.op:
            case "output":
                return Role.OUTPUT, ""
            case "get_attr":
                return (Role.SUBGRAPH if isinstance(resolve(gm, node), fx.GraphModule) else Role.CONSTANT), ""
            case "placeholder":
                return self._input_role(node)
            case _:
                return Role.OP, ""

    def _input_role(self, node: fx.Node) -> tuple[Role, str]:
        if self._kind is GraphKind.DYNAMO:
            return _dynamo_input(node)
        description = type(node.meta.get("desc")).__name__
        if "Tangent" in description or node.name.startswith("tangents_"):
            return Role.TANGENT, ""
        if (match := re.fullmatch(r"(?:primals_|arg)(\d+)(?:_\d+)?", node.name)) is None:
            return Role.SAVED, ""
        # AOTAutograd numbers its inputs in the order of Dynamo's graph; primals_ counts from one.
        index = getattr(node.meta.get("desc"), "idx", int(match[1]) - node.name.startswith("primals_"))
        if 0 <= index < len(self._inputs):
            return self._inputs[index].role, self._inputs[index].label
        return Role.INPUT, ""

    def _module_calls(self, stack: Mapping[str, tuple[str, Any]] | None) -> tuple[ModuleCall, ...]:
        calls = []
        for key, (expression, cls) in (stack or {}).items():
            # Keys are "<id(module)>" or, for the k-th call, "<id(module)>@k"; the path is Dynamo's expression.
            module_id, _, call = str(key).partition("@")
            paths = self._names.get(int(module_id)) if module_id.isdigit() else None
            path, *aliases = paths or (_strip_root(expression),)
            class_name = cls if isinstance(cls, str) else getattr(cls, "__name__", str(cls))
            calls.append(
                ModuleCall(path, class_name.rsplit(".", 1)[-1], int(call) if call.isdigit() else 0, tuple(aliases))
            )
        return with_callers(tuple(calls), self._callers)


def _strip_root(expression: str) -> str:
    return re.sub(r"^[LG]\[['\"]\w+['\"]\]\.?", "", expression)


def _dynamo_input(node: fx.Node) -> tuple[Role, str]:
    label = _readable_input(input_expression(node))
    static = (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type")
    if static is None:
        return Role.INPUT, label
    example = node.meta.get("example_value")
    return (Role.PARAMETER if isinstance(example, torch.Tensor) and example.requires_grad else Role.BUFFER), label


def _readable_input(expression: str) -> str:
    """Return Dynamo's expression for an input as a user would write it: ``model.layers.0.weight`` or ``batch['x']``."""
    text = re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", expression)
    return re.sub(r"^[LG]\['(\w+)'\]", r"\1", text)


def _target_name(node: fx.Node) -> str:
    """Return a readable, stable name of what a node calls, such as ``aten.mul.Tensor``."""
    target = node.target
    if isinstance(target, str) or is_operator(target):
        return str(target)
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", str(target))
    if target is operator.getitem:
        return "getitem"
    return f"{module}.{name}" if module and not module.startswith(("_operator", "builtins")) else name


def _tensor_specs(node: fx.Node) -> Iterator[TensorSpec]:
    example = node.meta.get("val", node.meta.get("example_value"))
    for item in example if isinstance(example, (list, tuple)) else (example,):
        if isinstance(item, torch.Tensor):
            strided = item.layout is torch.strided
            yield TensorSpec(
                dtype=str(item.dtype).removeprefix("torch."),
                shape=tuple(_int_or_text(size) for size in item.shape),
                stride=tuple(_int_or_text(size) for size in item.stride()) if strided else (),
                device=str(item.device),
            )


def _int_or_text(size: Any) -> int | str:
    return size if type(size) is int else str(size)
