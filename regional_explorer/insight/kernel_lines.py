"""Finds the lines of generated code that define and call each kernel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from regional_explorer.record.kernels import Kernel, KernelKind


def with_lines(kernels: Sequence[Kernel], text: str) -> Iterator[Kernel]:
    """Yield the kernels with the lines where they are defined and called."""
    lines = text.splitlines()
    launch_counts: Counter[str] = Counter()
    for kernel in kernels:
        calls = _launch_lines(kernel, lines)
        number = launch_counts[kernel.name]
        launch_counts[kernel.name] += 1
        yield replace(
            kernel, defined=_definition_lines(kernel.name, lines), called=calls[number] if number < len(calls) else None
        )


def _definition_lines(name: str, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and last line of ``name = async_compile.…('''…''')``."""
    start = re.compile(rf"^\s*{re.escape(name)} = async_compile\.")
    for first, line in enumerate(lines, 1):
        if start.match(line):
            ends = (last for last, text in enumerate(lines[first:], first + 1) if text.startswith("'''"))
            return first, next(ends, first)
    return None


def _launch_lines(kernel: Kernel, lines: Sequence[str]) -> list[int]:
    """Return the lines that launch a kernel of this name."""
    call = re.compile(rf"(?<![\w.]){re.escape(kernel.name)}(\.run)?\(")
    if kernel.kind is not KernelKind.EXTERN:
        return [number for number, line in enumerate(lines, 1) if call.search(line)]
    # An extern kernel has the name of its function; some are called with a namespace: torch.ops.aten.mm.default(…).
    qualified = re.compile(rf"\b{re.escape(kernel.name.removeprefix('extern_kernels.'))}(\.\w+)?\(")
    return [number for number, line in enumerate(lines, 1) if call.search(line) or qualified.search(line)]
