"""Reads errors of torch: finds where a trace failed, and what an assert of generated code is about."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import fx
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._guards import ShapeGuard

_TORCH = Path(torch.__file__).parent
_RAISES_FOR_OTHERS = ("_dynamo/exc.py", "_dynamo/utils.py")
"""Files of torch whose functions raise errors of other code."""


def original_error(error: BaseException) -> BaseException:
    """Return the error that a backend raised, without Dynamo's error around it."""
    while (inner := getattr(error, "inner_exception", None)) is not None:
        error = inner
    return error


def stacks_at(error: BaseException, nodes: Iterable[fx.Node]) -> Iterator[str]:
    """Yield the stack traces of an error, innermost first: code that torch ran, traced, or made a graph of.

    ``nodes`` are those of the graphs made so far: a guard has only torch's own line, and a node the rest of the stack.
    """
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        yield f'File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}\n'
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, fx.Node):
                yield value.stack_trace or ""
            elif name == "self" and isinstance(value, InstructionTranslatorBase):
                summary = value.frame_summary()
                yield f'File "{summary.filename}", line {summary.lineno}, in {summary.name}\n'
            elif isinstance(value, ShapeGuard):
                yield from _stacks_of_guard(value, nodes)


def _stacks_of_guard(guard: ShapeGuard, nodes: Iterable[fx.Node]) -> Iterator[str]:
    match = re.search(r"# (\S+\.py):(\d+) in ", str(guard.sloc.maybe_user_loc))
    yield from (node.stack_trace or "" for node in nodes if match and _is_at(node, match[1], match[2]))


def _is_at(node: fx.Node, file: str, line: str) -> bool:
    """Return whether a node comes from a line, or from a module in its file: stack traces leave out torch's lines."""
    module = file.removesuffix(".py").replace("/", ".")
    classes = [cls for _, cls in (node.meta.get("nn_module_stack") or {}).values()]
    return f'{file}", line {line},' in (node.stack_trace or "") or any(
        module in (cls if isinstance(cls, str) else cls.__module__) for cls in classes
    )


def innermost_torch_line(error: BaseException) -> str:
    """Return torch's innermost line in a traceback, with its function and code; empty without one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(str(_TORCH)) and not frame.filename.endswith(_RAISES_FOR_OTHERS):
            file = Path(frame.filename).relative_to(_TORCH.parent)
            return f"{file}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else "")
    return ""


def was_raised_while_tracing(error: BaseException) -> bool:
    """Return whether an error was raised while Dynamo and its backend traced, not when the traced graphs ran."""
    return _passes_through(error, "_dynamo/convert_frame.py", "_dynamo/output_graph.py")


def was_raised_in_subgraph(error: BaseException) -> bool:
    """Return whether an error was raised on the way through the body of a ``nested_compile_region``."""
    return _passes_through(error, "_higher_order_ops/invoke_subgraph.py")


def _passes_through(error: BaseException, *files: str) -> bool:
    return any(frame.f_code.co_filename.endswith(files) for frame, _ in traceback.walk_tb(error.__traceback__))


_OP_LINE = re.compile(r"^Error in op: (?P<op>.+)$", re.MULTILINE)
_INPUT = "input"
"""The text in place of an op if an assert is about an input; torch up to 2.11 writes no such line."""


def op_of_assert(text: str) -> str:
    """Return the op that returned other sizes or strides than its fake kernel, or an empty text.

    ``text`` is the text of an error of generated code, or contains its line about the op. An op is named like a node's
    target, without ``torch.ops``.
    """
    match = _OP_LINE.search(text) or re.search(r"\(Error in op: (?P<op>.+?)\)", text)
    op = match["op"].strip() if match else ""
    return "" if op == _INPUT else op.removeprefix("torch.ops.")


def is_about_an_input(error: Exception) -> bool:
    """Return whether an error of generated code is an assert about an input. A C++ wrapper raises RuntimeErrors."""
    match = _OP_LINE.search(str(error))
    return match["op"].strip() == _INPUT if match else isinstance(error, AssertionError)


def torch_error_line(error: Exception) -> str:
    """Return the first line of an error, with torch's line about the op behind it."""
    first = (str(error).strip().splitlines() or [""])[0]
    match = _OP_LINE.search(str(error))
    return f"{first} ({match[0].strip()})" if match and match["op"].strip() != _INPUT else first
