"""Explains why a trace failed: the user's and torch's lines, whether torch alone fails too, what to try."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from regional_explorer.capture.call import Call
from regional_explorer.capture.user_lines import at_line, is_internal, parse_stack_trace, source_line
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.tracing import Tracing
from regional_explorer.torch_api.dynamo import as_first_call, compile_isolated
from regional_explorer.torch_api.torch_errors import (
    innermost_torch_line,
    original_error,
    raised_in_subgraph,
    raised_while_tracing,
    stacks_at,
)

if TYPE_CHECKING:
    from torch import fx

MOST_LINES = 15
"""The maximum number of lines of torch's own text."""


def trace_failed(
    call: Call, error: Exception, nodes: Iterable[fx.Node], tracing: Tracing, *, dynamic: bool | None
) -> CaptureError:
    """Return the error of a call whose trace raised ``error``; ``nodes`` are those of the graphs made before.

    The call is traced once more, by ``torch.compile(backend="aot_eager")``: the stages that every compile has in
    common. That takes no longer than the trace that failed.
    """
    cause = original_error(error)
    what = "torch could not trace the call" if raised_while_tracing(error) else "torch cannot run the call as traced"
    text = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()][:MOST_LINES]
    where = _user_line(cause, nodes)
    torch_line = innermost_torch_line(cause)
    alike = _fails_alike(call, cause, dynamic=dynamic)
    remedies = []
    if alike is False and tracing.partitioner == "default":
        remedies.append("partitioner='min_cut' splits forward from backward as torch.compile does")
    if raised_in_subgraph(cause):
        remedies.append("the function without the decorator nested_compile_region: its body is then part of the graph")
    place = "this line" if where else "what torch names"
    remedies.append(f"{place} left out of the call, or in a function under @torch.compiler.disable")
    sentences = [
        f"{what}: " + "\n".join(text),
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
