"""Converts live graphs, their bodies, marked blocks and graph breaks to records."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any

import torch
from msgspec.structs import replace
from torch import fx, nn

from regional_explorer.capture.user_lines import (
    Outdated,
    is_internal,
    loaded_line,
    original_function,
    parse_stack_trace,
)
from regional_explorer.record.files import json_safe
from regional_explorer.record.graph import (
    Chain,
    Graph,
    GraphBreak,
    GraphKind,
    MarkedBlock,
    ModuleCall,
    Node,
    Role,
    SourceLine,
    TensorSpec,
    traced_from,
)
from regional_explorer.torch_api.dynamo import Break, OpenMark, calls_subgraph, subgraph_options
from regional_explorer.torch_api.graphs import (
    ANNOTATION,
    FALLBACK,
    ORIGIN,
    bodies,
    input_expression,
    is_of_module,
    is_operator,
    is_python_float,
    resolve,
    runs_random_op,
    user_annotations,
)
from regional_explorer.torch_api.hidden_state import MODULE_STORES, Hook


def with_other_callers(chain: Chain, callers: Sequence[Chain]) -> Chain:
    """Return the modules of an op in a body; aliases are their paths under the body's other callers.

    ``callers`` are the modules of the ops that call the body: ``layers.0.act`` in the body of ``layers.0`` is
    ``layers.1.act`` too if ``layers.1`` calls it.
    """
    traced = traced_from(chain, callers)
    if not traced:
        return chain
    other_calls = [caller[-1] for caller in callers if caller and caller[-1].path != traced[-1].path]
    return tuple(
        _with_aliases(call, traced[-1], other_calls) if depth >= len(traced) - 1 else call
        for depth, call in enumerate(chain)
    )


def _with_aliases(call: ModuleCall, traced: ModuleCall, other_calls: Sequence[ModuleCall]) -> ModuleCall:
    if call.path != traced.path and not call.path.startswith(f"{traced.path}."):
        return call  # a module outside of the first caller, which all callers share
    suffix = call.path.removeprefix(traced.path)
    paths = [f"{path}{suffix}" for other in other_calls for path in (other.path, *other.aliases)]
    return replace(call, aliases=tuple(dict.fromkeys(alias for alias in (*call.aliases, *paths) if alias != call.path)))


ModuleNames = Mapping[int, tuple[str, ...]]


@dataclass
class GraphRecorder:
    """Records the live graphs of one kind in one Dynamo frame, with the bodies of their higher-order ops.

    ``names`` are the module paths by ``id(module)``, from ``module_names``. ``origins`` has the recorded Dynamo node of
    each origin; nodes copy its stack and modules. ``inputs`` are the recorded inputs of the Dynamo graph in order, for
    graphs that have the same inputs.
    """

    kind: GraphKind
    frame: int
    names: ModuleNames = field(default_factory=dict)
    origins: Mapping[int, Node] = field(default_factory=dict)
    inputs: Sequence[Node] = ()
    outdated: Outdated = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read each line once: files may change before the next trace."""
        self._source_line = functools.cache(partial(loaded_line, self.outdated))

    def record(
        self,
        gm: fx.GraphModule,
        graph_id: str,
        parent: tuple[str, str] | None = None,
        callers: Sequence[Chain] = (),
    ) -> list[Graph]:
        """Return the record of ``gm`` and, after it, of the bodies of its higher-order ops: ``graph_id/attribute``.

        For a body, ``parent`` is the graph and the node that holds it, ``callers`` the modules around each op that
        calls it.
        """
        inputs = self.inputs if parent is None else ()
        nodes = tuple(self._node(node, gm, inputs, callers) for node in gm.graph.nodes)
        records = [Graph(graph_id, self.kind, self.frame, nodes, parent)]
        by_name = records[0].by_name
        for node, body in bodies(gm):
            holders = (holder for holder in gm.graph.find_nodes(op="get_attr") if resolve(gm, holder) is body)
            users = [user for holder in holders for user in holder.users]
            around = [by_name[user.name].modules for user in users]
            inner, *nested = self.record(body, f"{graph_id}/{node.target}", (graph_id, node.name), around)
            if self.kind is GraphKind.DYNAMO and users and calls_subgraph(users[0]):
                name = _function_name(inner, by_name[users[0].name]) or str(node.target)
                inner = replace(inner, name=name, options=subgraph_options(users[0]))
            records += [inner, *nested]
        return records

    def _node(self, node: fx.Node, gm: fx.GraphModule, inputs: Sequence[Node], callers: Sequence[Chain]) -> Node:
        custom = node.meta.get("custom") or {}
        role, label = Role.OP, ""
        if node.op == "placeholder":
            role, label = self._input_role(node, inputs)
        elif node.op == "output":
            role = Role.OUTPUT
        elif node.op == "get_attr":
            role = Role.SUBGRAPH if isinstance(resolve(gm, node), fx.GraphModule) else Role.CONSTANT
        record = Node(
            name=node.name,
            role=role,
            target=_target_name(node),
            inputs=tuple(source.name for source in node.all_input_nodes),
            values=() if node.op == "placeholder" and is_python_float(node) else tuple(_tensor_specs(node)),
            label=label,
        )
        if role not in (Role.OP, Role.SUBGRAPH):
            # Placeholders that are first read inside an annotated block carry its mark, which means nothing there.
            return record
        origin = self.origins.get(custom.get(ORIGIN, -1))
        frames = parse_stack_trace(node.meta.get("stack_trace")) if origin is None else ()
        return replace(
            record,
            stack=origin.stack if origin else tuple(self._source_line(*frame) for frame in frames),
            modules=origin.modules if origin else self._module_calls(node.meta.get("nn_module_stack"), callers),
            annotated=ANNOTATION in custom,
            annotation=json_safe(custom.get(ANNOTATION)),
            annotations=user_annotations(custom),
            carved=FALLBACK in custom,
            origin=custom.get(ORIGIN),
            recompute=self.kind is GraphKind.BACKWARD and node.meta.get("partitioner_tag") == "is_forward",
            random=runs_random_op(node),
        )

    def _input_role(self, node: fx.Node, inputs: Sequence[Node]) -> tuple[Role, str]:
        """Return the role of an input, and the name that the user knows it by."""
        if self.kind is GraphKind.DYNAMO:
            return _dynamo_input(node)
        description = type(node.meta.get("desc")).__name__
        if "Tangent" in description or node.name.startswith("tangents_"):
            return Role.TANGENT, ""
        if (match := re.fullmatch(r"(?:primals_|arg)(\d+)(?:_\d+)?", node.name)) is None:
            return Role.SAVED, ""
        # AOTAutograd numbers its inputs in the order of Dynamo's graph; primals_ counts from one.
        index = getattr(node.meta.get("desc"), "idx", int(match[1]) - node.name.startswith("primals_"))
        if 0 <= index < len(inputs):
            return inputs[index].role, inputs[index].label
        return Role.INPUT, ""

    def _module_calls(
        self, stack: Mapping[str, tuple[str, Any]] | None, callers: Sequence[Chain]
    ) -> tuple[ModuleCall, ...]:
        calls = []
        for key, (expression, cls) in (stack or {}).items():
            # Keys are "<id(module)>" or, for the k-th call, "<id(module)>@k"; the path is Dynamo's expression.
            module_id, _, call = str(key).partition("@")
            paths = self.names.get(int(module_id)) if module_id.isdigit() else None
            path, *aliases = paths or (re.sub(r"^[LG]\[['\"]\w+['\"]\]\.?", "", expression),)
            class_name = cls if isinstance(cls, str) else getattr(cls, "__name__", str(cls))
            calls.append(
                ModuleCall(path, class_name.rsplit(".", 1)[-1], int(call) if call.isdigit() else 0, tuple(aliases))
            )
        return with_other_callers(tuple(calls), callers)


def _function_name(body: Graph, call: Node) -> str:
    """Return the function that a body was traced from: the frame below the call in the stacks of the body's ops."""
    lines = (line for op in body.ops for line in op.stack[len(call.stack) : len(call.stack) + 1])
    return next((line.scope or line.function for line in lines), "")


_MODULE_ENTRY = re.compile(rf"\.(?:{'|'.join(MODULE_STORES)})\['([^']*)'\]")


def _dynamo_input(node: fx.Node) -> tuple[Role, str]:
    # As a user would write Dynamo's expression: model.layers.0.weight or batch['x'].
    label = _MODULE_ENTRY.sub(r".\1", input_expression(node))
    label = re.sub(r"^[LG]\['(\w+)'\]", r"\1", label)
    if not is_of_module(node):
        return Role.INPUT, label
    example = node.meta.get("example_value")
    return (Role.PARAMETER if isinstance(example, torch.Tensor) and example.requires_grad else Role.BUFFER), label


def _target_name(node: fx.Node) -> str:
    """Return a readable, stable name of a node's target, such as ``aten.mul.Tensor``."""
    target = node.target
    if isinstance(target, str) or is_operator(target):
        return str(target)
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", str(target))
    return f"{module}.{name}" if module and not module.startswith(("_operator", "builtins")) else name


def _tensor_specs(node: fx.Node) -> Iterator[TensorSpec]:
    example = node.meta.get("val", node.meta.get("example_value"))
    for item in example if isinstance(example, (list, tuple)) else (example,):
        if isinstance(item, torch.Tensor):
            strided = item.layout is torch.strided
            yield TensorSpec(
                dtype=str(item.dtype).removeprefix("torch."),
                shape=tuple(map(_int_or_text, item.shape)),
                stride=tuple(map(_int_or_text, item.stride())) if strided else (),
                device=str(item.device),
            )


def _int_or_text(size: Any) -> int | str:
    return size if type(size) is int else str(size)


_WRAPPERS = ("/torch/_dynamo/", "/regional_explorer/capture/")
"""Where Dynamo and ``traceable`` define functions around the user's: their lines say nothing."""

_ESCAPED_MARK = "torch.fx.traceback.annotate escaped"
"""How Dynamo says that it cannot resume after a break inside a marked block; it has reported the break before."""


def record_breaks(
    breaks: Sequence[Break], names: ModuleNames, outdated: Outdated, hooks: Sequence[Hook] = ()
) -> tuple[GraphBreak, ...]:
    """Return the graph breaks, each place and reason once: Dynamo reports one again for every frame above it.

    ``names`` are the module paths by ``id(module)``, ``hooks`` those of these modules. A break only in torch's own code
    has that code's lines.
    """
    records: dict[tuple[str, SourceLine | None, SourceLine | None], GraphBreak] = {}
    for graph_break in breaks:
        if graph_break.reason.startswith(_ESCAPED_MARK) and records:
            continue
        frames = [frame for frame in graph_break.frames if not any(where in frame[0] for where in _WRAPPERS)]
        lines = [loaded_line(outdated, file, line, original_function(function)) for file, line, function in frames]
        users = [line for line in lines if not is_internal(line.file)]
        stack, innermost = tuple(users or lines), lines[-1] if lines else None
        reason = _first_sentences(graph_break.reason)
        key = (reason, stack[-1] if stack else None, innermost)
        # Dynamo's explanation is longer when it reports a break again for a loop.
        key = next(
            (
                earlier_key
                for earlier_key in records
                if earlier_key[1:] == key[1:] and reason.startswith(earlier_key[0])
            ),
            key,
        )
        if key not in records or (graph_break.marks and not records[key].blocks):
            earlier = records.get(key, GraphBreak(reason))
            blocks, hint = marked_blocks(graph_break.marks, outdated), _workaround(graph_break.reason)
            records[key] = replace(earlier, stack=stack, blocks=blocks, hint=hint, innermost=innermost)
        kind, hooked = _hook_of(graph_break, frames, hooks)
        broken = [(id(module), type(module).__name__) for module in hooked] if kind else graph_break.modules[-1:]
        paths = [path for number, _ in graph_break.modules for path in names.get(number, ()) if path]
        records[key] = replace(
            records[key],
            modules=tuple(dict.fromkeys((*records[key].modules, *paths))),
            broken=tuple(dict.fromkeys((*records[key].broken, *(module_call(*module, names) for module in broken)))),
            hook=kind or records[key].hook,
        )
    return tuple(records.values())


def module_call(module_id: int, class_name: str, names: ModuleNames) -> ModuleCall:
    """Return the record of a module under its first path; the path is empty if the user's program has none."""
    path, *aliases = names.get(module_id, ("",))
    return ModuleCall(path, class_name, aliases=tuple(aliases))


def _hook_of(
    graph_break: Break, frames: Sequence[tuple[str, int, str]], hooks: Sequence[Hook]
) -> tuple[str, list[nn.Module]]:
    """Return the kind of hook that a break is in, and the modules with this hook; an empty kind outside of hooks."""
    if _BACKWARD_HOOKS.search(graph_break.reason):  # Dynamo traces into no module with such a hook
        broken = {number for number, _ in graph_break.modules[-1:]}
        running = [hook for hook in hooks if hook.is_backward and (hook.module is None or id(hook.module) in broken)]
    else:
        running = [hook for hook in hooks if hook.code is not None and any(_runs(hook.code, frame) for frame in frames)]
    return (running[0].kind if running else ""), [hook.module for hook in running if hook.module is not None]


def _runs(code: CodeType, frame: tuple[str, int, str]) -> bool:
    """Return whether a frame, given by file, line and function, runs this code, or resumes it after a break."""
    file, line, function = frame
    same_function = (file, original_function(function)) == (code.co_filename, code.co_name)
    return same_function and line in {number for _, _, number in code.co_lines()}


def marked_blocks(marks: Sequence[OpenMark], outdated: Outdated) -> tuple[MarkedBlock, ...]:
    """Return the record of marked blocks."""
    return tuple(
        MarkedBlock(
            mark.block,
            json_safe(mark.annotation),
            None if is_internal(file) else loaded_line(outdated, file, line, original_function(function)),
        )
        for mark in marks
        for file, line, function in [mark.frame]
    )


_BACKWARD_HOOKS = re.compile(r"backwards? hooks", re.IGNORECASE)


def _first_sentences(reason: str) -> str:
    """Return Dynamo's headline and explanation; its hints and developer notes fill a screen."""
    lines = [line.strip().rstrip(".") for line in reason.strip().splitlines() if line.strip()]
    explanations = [line.removeprefix("Explanation: ") for line in lines[1:] if line.startswith("Explanation: ")]
    return f"{'. '.join([*lines[:1], *explanations])}{'.' if explanations else ''}"


_WORKAROUND = re.compile(r"torch\._dynamo\.config\.|`torch\.cond`|Remove the `torch\.compiler\.disable`")
"""Matches a hint that names a way around a break."""


def _workaround(reason: str) -> str:
    """Return the first of Dynamo's hints that names a workaround; other hints say where to report the break."""
    hints = [line.strip() for line in reason.splitlines() if line.strip().startswith("Hint:")]
    # Under compiled autograd, a trace by another backend than Inductor's fails (torch 2.13).
    workarounds = (hint for hint in hints if _WORKAROUND.search(hint) and "compiled_autograd" not in hint)
    return next(workarounds, "").removeprefix("Hint: ").rstrip(".")
