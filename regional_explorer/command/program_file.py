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

    Its name is not ``__main__``, so ``if __name__ == "__main__"`` blocks do not run. ``sys.argv`` has only the file:
    the arguments of this command are not the file's.

    Raises:
        RegionalExplorerError: the file raises, or ends the program; the message has the line.
    """
    file = str(path.resolve())
    module = types.ModuleType(EXPLORED_MODULE)
    module.__file__ = file
    # Registered because dataclasses look up their module; the file's folder is importable, as for scripts.
    sys.modules[EXPLORED_MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    linecache.checkcache(file)
    arguments, sys.argv = sys.argv, [str(path)]
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the user's file, which they asked to run
    except SystemExit as error:
        raise RegionalExplorerError(
            f"{path}{_line(error, file)}: the file ends the program here. Put what is only for running it as a script "
            'under `if __name__ == "__main__":`, which is left out here.'
        ) from error
    except Exception as error:
        raise RegionalExplorerError(f"{path}{_line(error, file)}: {type(error).__name__}: {error}") from error
    finally:
        sys.argv = arguments
    return vars(module)


def _line(error: BaseException, file: str) -> str:
    """Return the last line of ``file`` that an error passed, such as ``, line 7``; an empty text if it passed none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    return f", line {line}" if line else ""
