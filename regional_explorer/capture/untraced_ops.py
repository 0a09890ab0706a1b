"""Explains what was not traced: the error of a trace that failed, and the ops that a call runs in no graph."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import nn

from regional_explorer.capture.call import Call
from regional_explorer.capture.convert import ModuleNames, module_call
from regional_explorer.capture.user_lines import (
    Outdated,
    at_line,
    is_internal,
    loaded_line,
    original_function,
    parse_stack_trace,
    source_line,
)
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.graph import GraphBreak, ModuleCall, UntracedOps
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Tracing
from regional_explorer.torch_api.dynamo import as_first_call, compile_isolated
from regional_explorer.torch_api.graphs import WatchingMode, runs_graphs
from regional_explorer.torch_api.hidden_state import called_module
from regional_explorer.torch_api.torch_errors import (
    innermost_torch_line,
    original_error,
    stacks_at,
    was_raised_in_subgraph,
    was_raised_while_tracing,
)

if TYPE_CHECKING:
    from torch import fx


MOST_LINES = 15
"""The maximum number of lines of torch's own text."""


def trace_error(
    call: Call, error: Exception, nodes: Iterable[fx.Node], tracing: Tracing, *, dynamic: bool | None
) -> CaptureError:
    """Return the error of a call whose trace raised ``error``; ``nodes`` are those of the graphs made before.

    The call is traced once more, by ``torch.compile(backend="aot_eager")``: the stages that every compile has in
    common. This takes no longer than the trace that failed.
    """
    cause = original_error(error)
    headline = (
        "torch could not trace the call" if was_raised_while_tracing(error) else "torch cannot run the call as traced"
    )
    text = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()][:MOST_LINES]
    where = _user_line(cause, nodes)
    torch_line = innermost_torch_line(cause)
    alike = _fails_alike(call, cause, dynamic=dynamic)
    remedies = []
    if alike is False and tracing.partitioner == "default":
        remedies.append("tracing=rx.Tracing('min_cut') splits forward from backward as torch.compile does")
    if was_raised_in_subgraph(cause):
        remedies.append("the function without the decorator nested_compile_region: its body is then part of the graph")
    place = "this line" if where else "what torch names"
    remedies.append(f"{place} left out of the call, or in a function under @torch.compiler.disable")
    sentences = [
        f"{headline}: " + "\n".join(text),
        f"It happened{where}" if where else "",
        f"Torch raised it at {torch_line}" if torch_line else "",
        _ALIKE[alike],
        f"What to try: {'; '.join(remedies)}.",
    ]
    return CaptureError(RefusalCode.TRACE_FAILED, "\n".join(filter(None, sentences)))


_ALIKE = {
    True: 'torch.compile(fn, backend="aot_eager") fails with the same error, and so with any other compiler behind it.',
    False: 'torch.compile(fn, backend="aot_eager") does not fail with this error.',
    None: "",
}


def _user_line(error: BaseException, nodes: Iterable[fx.Node]) -> str:
    """Return ``at_line`` of the user's innermost line that torch was at, or an empty text."""
    for stack in stacks_at(error, nodes):
        for file, line, function, _ in reversed(parse_stack_trace(stack)):
            if not is_internal(file):
                return at_line(source_line(file, line, function))
    return ""


def _fails_alike(call: Call, cause: BaseException, *, dynamic: bool | None) -> bool | None:
    """Return whether plain torch fails with the same error; None if the call cannot be run again."""
    try:
        with call.restoring(), as_first_call(call.fn):
            call.run(compile_isolated(call.fn, "aot_eager", dynamic=dynamic))
    except CaptureError:
        return None
    except Exception as error:  # noqa: BLE001 - torch may raise anything
        other = original_error(error)
        return _identity(other) == _identity(cause)
    return False


def _identity(error: BaseException) -> tuple[type[BaseException], str]:
    return type(error), (str(error).strip().splitlines() or [""])[0]


# -------------------------------------------------------------------------------------------- ops that run in no graph


def untraced_ops(
    call: Call, traced: Callable[..., Any], names: ModuleNames, outdated: Outdated
) -> tuple[UntracedOps, ...]:
    """Run the forward of ``traced`` once, in a block of ``call.restoring``; return the ops that run between its graphs.

    ``names`` are the module paths by ``id(module)``.
    """
    recorder = _OpRecorder()
    try:
        with recorder:
            call.forward(traced)
    except Exception:  # noqa: BLE001 - an operator may refuse a dispatch mode; then no op is known
        return ()
    return tuple(
        UntracedOps(
            op=op,
            count=number,
            module=_module_call(place.module, names),
            line=loaded_line(outdated, *_line_arguments(place.line)) if place.line else None,
            function=original_function(place.line[0].co_name) if place.in_function and place.line else "",
        )
        for (place, op), number in recorder.counts.items()
    )


def with_untraced(breaks: Sequence[GraphBreak], untraced: Sequence[UntracedOps]) -> tuple[GraphBreak, ...]:
    """Return the breaks, each with the untraced ops whose nearest break it is: by line, then module, then function.

    Ops that are equally near to breaks in several lines go to the first of these breaks, with an unknown cause.
    """

    def nearness(graph_break: GraphBreak, ops: UntracedOps) -> tuple[bool, int, bool]:
        path = f"{ops.module.path}." if ops.module else ""
        depth = max((len(around) for around in graph_break.modules if path.startswith(f"{around}.")), default=0)
        function = (ops.line.file, ops.function) if ops.line else None
        in_function = any((line.file, line.function) == function for line in graph_break.stack)
        return ops.line in graph_break.stack, depth, in_function

    def nearest_break(ops: UntracedOps) -> tuple[int, UntracedOps]:
        distances = [nearness(graph_break, ops) for graph_break in breaks]
        nearest = [number for number, near in enumerate(distances) if near == max(distances)]
        is_known = len({breaks[number].own_line for number in nearest}) == 1
        return nearest[0], replace(ops, is_cause_known=is_known)

    nearest = grouped(map(nearest_break, untraced))
    return tuple(replace(item, untraced=tuple(nearest.get(number, ()))) for number, item in enumerate(breaks))


def _module_call(module: nn.Module | None, names: ModuleNames) -> ModuleCall | None:
    return None if module is None else module_call(id(module), type(module).__name__, names)


def _line_arguments(line: tuple[CodeType, int]) -> tuple[str, int, str]:
    code, number = line
    return code.co_filename, number, original_function(code.co_name)


class _Place(NamedTuple):
    """The innermost module around an op, the innermost line of the user's, and whether it is inside the module."""

    module: nn.Module | None
    line: tuple[CodeType, int] | None
    in_function: bool


_NOT_COUNTED = (torch.ops.aten.detach.default, torch.ops.aten._local_scalar_dense.default)  # noqa: SLF001 - ``item()``
"""Ops that compute nothing: they let autograd save a result, and give Python a number."""


class _OpRecorder(WatchingMode):
    """Counts the ops that run in no graph, by place and name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[tuple[_Place, str]]()
        self._below = Call.forward.__code__

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func`` and count it, unless it computes nothing or a graph runs it."""
        place = None if func in _NOT_COUNTED else self._place(sys._getframe(1))  # noqa: SLF001 - Python's way to the caller
        if place is not None:
            self.counts[place, str(func)] += 1
        return func(*args, **(kwargs or {}))

    def _place(self, frame: FrameType | None) -> _Place | None:
        """Return the place of an op; None if AOTAutograd's code runs it, a graph or what is around it."""
        module, line, in_function = None, None, False
        while frame is not None and frame.f_code is not self._below and (module is None or line is None):
            if runs_graphs(frame.f_code.co_filename):
                return None
            if line is None and not is_internal(frame.f_code.co_filename):
                line, in_function = (frame.f_code, frame.f_lineno), module is None
            if module is None:
                module = called_module(frame)
            frame = frame.f_back
        return _Place(module, line, in_function)
