"""Generated code with a clock around each kernel launch: a separate build, used only for kernel times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.torch_api.load_code import load_code

CLOCK, NOTE = "_regional_explorer_clock", "_regional_explorer_note"


def timed_code(code: ArtifactCode) -> str:
    """Return the text of ``code`` with a clock around each known launch that is a statement on one line."""
    lines = code.text.splitlines()
    launches = {kernel.called: index for index, kernel in enumerate(code.kernels) if kernel.called is not None}
    timed_lines = []
    for number, line in enumerate(lines, 1):
        if number in launches and _is_whole_statement(line):
            indent = line[: len(line) - len(line.lstrip())]
            timed_lines += [f"{indent}_t = {CLOCK}()", line, f"{indent}{NOTE}({launches[number]}, {CLOCK}() - _t)"]
        else:
            timed_lines.append(line)
    return "\n".join(timed_lines) + "\n"


def _is_whole_statement(line: str) -> bool:
    """Return whether the statement that a line starts ends on the same line."""
    return line.count("(") == line.count(")") and not re.search(r"[\\,({\[]\s*$", line)


Generated = Callable[[list[Any]], Sequence[Any]]
"""The function that Inductor generates; it takes one argument list, which it empties."""


def build_timed(
    code: ArtifactCode, config: Mapping[str, Any], clock: Callable[[], float], note: Callable[[int, float], None]
) -> Generated:
    """Return the generated function of ``code`` with clocks.

    Its kernels are those of the artifact, which Inductor finds in its cache: only the Python around them differs.
    """
    call: Generated = load_code(timed_code(code), config, {CLOCK: clock, NOTE: note}).call
    return call


def build_untimed(code: ArtifactCode, config: Mapping[str, Any]) -> Generated:
    """Return the generated function of ``code`` without the wrapper that the artifact calls it through."""
    call: Generated = load_code(code.text, config, {}).call
    return call
