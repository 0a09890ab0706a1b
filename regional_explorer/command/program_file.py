"""Reads and executes the Python file that defines the call to explore."""

from __future__ import annotations

import linecache
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from regional_explorer.command.options import CommandError
from regional_explorer.errors import RegionalExplorerError

EXPLORED_MODULE = "__explored__"
"""The name of the module that the file runs as; no other module has it."""


def read_source(path: Path) -> str:
    """Return the text of a Python file.

    Raises:
        CommandError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a ValueError: it is not text, or not a valid file name
        raise CommandError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error


def execute(path: Path, source: str) -> dict[str, Any]:
    """Execute a file as a module and return its namespace.

    Its name is not ``__main__``, so ``if __name__ == "__main__"`` blocks do not run.

    Raises:
        RegionalExplorerError: the file raises; the message has the line.
    """
    file = str(path.resolve())
    module = types.ModuleType(EXPLORED_MODULE)
    module.__file__ = file
    # Registered because dataclasses look up their module; the file's folder is importable, as for scripts.
    sys.modules[EXPLORED_MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    linecache.checkcache(file)
    try:
        exec(compile(source, file, "exec"), vars(module))  # noqa: S102 - the user's file, which they asked to run
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise RegionalExplorerError(f"{path}{where}: {type(error).__name__}: {error}") from error
    return vars(module)
