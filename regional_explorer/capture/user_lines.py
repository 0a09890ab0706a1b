"""The lines of the user's program that tracebacks and stack traces name, each with its text and its function."""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import torch

from regional_explorer.record.graph import SourceLine, function_spans, is_library

Outdated = Mapping[tuple[str, str, int], SourceLine]
"""Lines without a text, by file, function and number: the code that runs is older than the file's text."""

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"  # torchvision is not torch
_THIS_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


def source_line(file: str, line: int, function: str, text: str | None = None) -> SourceLine:
    """Return the line with its text and the function around it."""
    linecache.checkcache(file)  # it may have been edited since, under autoreload
    line_text = linecache.getline(file, line) if text is None else text
    # linecache also has the cells of a notebook, whose temporary file names exist nowhere.
    spans = function_spans("".join(linecache.getlines(file)))
    around = [span for span in spans if span.def_line <= line <= span.last]
    _, def_line, _, scope = max(around, default=(0, 0, 0, ""), key=lambda span: span[1:])
    return SourceLine(file, line, function, line_text.strip(), def_line, scope)


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


def outdated_lines(codes: Iterable[CodeType]) -> dict[tuple[str, str, int], SourceLine]:
    """Return the lines of functions whose files were edited after they were loaded.

    Their text is not known any more. Notebook cells, installed libraries, and modules with another loader than Python's
    own are left out.
    """
    return {
        (code.co_filename, code.co_name, number): SourceLine(
            code.co_filename, number, code.co_name, scope=code.co_qualname.replace(".<locals>", "")
        )
        for code in dict.fromkeys(codes)
        if code.co_name == original_function(code.co_name) and _is_outdated(code)
        for number in sorted({number for _, _, number in code.co_lines() if number})
    }


def _is_outdated(code: CodeType) -> bool:
    file = code.co_filename
    if is_internal(file) or is_library(file) or not _is_read_as_it_is(file):
        return False
    try:
        stat = Path(file).stat()
        current_codes = _codes_in(file, (stat.st_mtime_ns, stat.st_size))
    except OSError:  # a cell of a notebook, for instance
        return False
    lines = list(code.co_lines())
    return not any(code == other and lines == list(other.co_lines()) for other in current_codes)


def _is_read_as_it_is(file: str) -> bool:
    """Return whether no loader but Python's own loaded the file, or runpy ran it as a whole.

    pytest, for example, rewrites assertions; and marimo runs the cells of a file in a module that nothing has loaded.
    """
    modules = (vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__"))
    loaded = [names for names in modules if names.get("__file__") == file]
    by_runpy = "__cached__"  # which it sets in modules without a loader
    return all(
        by_runpy in names if names.get("__loader__") is None else type(names["__loader__"]) is SourceFileLoader
        for names in loaded
    )


@functools.lru_cache(maxsize=64)
def _codes_in(file: str, stamp: tuple[int, int]) -> tuple[CodeType, ...]:  # noqa: ARG001 - read again when it changes
    """Return the code of all functions in a file as it is now; empty if the file is not Python."""
    try:
        return tuple(codes_below(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def codes_below(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions and classes defined in ``code``, at any depth."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from codes_below(inner)


def loaded_line(outdated: Outdated, file: str, line: int, function: str, text: str | None = None) -> SourceLine:
    """Return the line as ``source_line`` does, without its text if the file was edited since it was loaded."""
    return outdated.get((file, function, line)) or source_line(file, line, function, text)


def original_function(name: str) -> str:
    """Return the name of the function that a Dynamo resume function continues after a graph break; others as is."""
    return re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", name)


def at_line(line: SourceLine | None) -> str:
    """Return `` at model.py:3: x = y`` for messages, or nothing where the line is not known."""
    return f" at {line}: {line.text}" if line else ""


def at_user_line(frames: traceback.StackSummary) -> str:
    """Return ``at_line`` of the user's innermost line in a stack; the caller of a magic is not part of the program."""
    for frame in reversed(frames):
        if f"{os.sep}IPython{os.sep}" in frame.filename:
            break
        if not is_internal(frame.filename):
            return at_line(SourceLine(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip()))
    return ""


def is_internal(file: str) -> bool:
    """Return whether a file belongs to torch, to this package or to the interpreter, rather than to the user."""
    return not file.startswith("<ipython-input") and (
        file.startswith((_TORCH, _THIS_PACKAGE, "<")) or "/unittest/mock.py" in file or file.endswith("/contextlib.py")
    )
