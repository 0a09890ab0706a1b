"""Lines of the user's program: found in tracebacks and stack traces, each with its text and the function around it."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from regional_explorer.record.graph import SourceLine

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"  # torchvision is not torch
_THIS_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


def source_line(file: str, line: int, function: str, text: str | None = None) -> SourceLine:
    """Return the line with its text and the function around it."""
    linecache.checkcache(file)  # edited since, under autoreload
    line_text = linecache.getline(file, line) if text is None else text
    # linecache also has the cells of a notebook, whose temporary file names exist nowhere.
    enclosing = [span for span in _function_spans("".join(linecache.getlines(file))) if span[0] <= line <= span[1]]
    start, _, scope = max(enclosing, default=(0, 0, ""))
    return SourceLine(file, line, function, line_text.strip(), start, scope)


@functools.lru_cache(maxsize=256)
def _function_spans(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return first line, last line and name of every function in the source text of a module."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    return tuple(_function_spans_below(tree, ""))


def _function_spans_below(tree: ast.AST, scope: str) -> Iterator[tuple[int, int, str]]:
    for node in ast.iter_child_nodes(tree):
        name = scope
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{scope}.{node.name}".lstrip(".")
        elif isinstance(node, ast.Lambda):
            name = f"{scope}.<lambda>".lstrip(".")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node.lineno, node.end_lineno or node.lineno, name
        yield from _function_spans_below(node, name)


@functools.lru_cache(maxsize=4096)
def parse_stack_trace(trace: str | None) -> tuple[tuple[str, int, str, str], ...]:
    """Return the arguments of ``source_line`` for each line of a node's ``stack_trace``.

    Torch's own frames are left out unless there are no others.
    """
    frames = [
        (file, int(line), original_function(function), text)
        for file, line, function, text in re.findall(
            r'^\s*File "(.*?)", line (\d+), in (.*?)\n((?:(?!\s*File ").*)?)', trace or "", re.MULTILINE
        )
    ]
    user_frames = [frame for frame in frames if not is_internal(frame[0])]
    return tuple(user_frames or frames)


def original_function(name: str) -> str:
    """Return the name of the function that a Dynamo resume function continues after a graph break; others as is."""
    return re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", name)


def at_line(line: SourceLine | None) -> str:
    """Return `` at model.py:3: x = y`` for messages, or nothing where the line is not known."""
    return f" at {line}: {line.text}" if line else ""


def user_line(error: BaseException) -> SourceLine | None:
    """Return the innermost line of the user's program in the traceback of ``error``, or None."""
    return innermost_user_line(traceback.extract_tb(error.__traceback__))


def innermost_user_line(frames: traceback.StackSummary) -> SourceLine | None:
    """Return the innermost line of the user's program in a stack, or None: the caller of a magic is not part of it."""
    for frame in reversed(frames):
        if f"{os.sep}IPython{os.sep}" in frame.filename:
            return None
        if not is_internal(frame.filename):
            return SourceLine(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip())
    return None


def is_internal(file: str) -> bool:
    """Return whether a file belongs to torch, to this package or to the interpreter, rather than to the user."""
    return not file.startswith("<ipython-input") and (
        file.startswith((_TORCH, _THIS_PACKAGE, "<")) or "/unittest/mock.py" in file or file.endswith("/contextlib.py")
    )
