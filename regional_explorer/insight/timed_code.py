"""Generated code with a clock around each kernel launch: a separate build, used only for kernel times."""

from __future__ import annotations

import re

from regional_explorer.record.kernels import ArtifactCode

CLOCK, NOTE = "_regional_explorer_clock", "_regional_explorer_note"
"""The names under which the code finds the clock, and the function that takes a kernel's index and seconds."""


def timed_code(code: ArtifactCode) -> str:
    """Return the text of ``code`` with a clock around each known launch that is a statement on one line.

    Its kernels are those of the artifact, which Inductor finds in its cache: only the Python around them differs.
    """
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
