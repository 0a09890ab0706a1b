"""The command line: ``regional-explorer run model.py "step(x)"`` and ``regional-explorer show saved.json``."""

from __future__ import annotations

import argparse
import linecache
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regional_explorer.command.command import Command
from regional_explorer.command.expression import read_call
from regional_explorer.command.options import NOTEBOOK_ONLY, CommandError, add_options
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.render.style.untrusted import sendable
from regional_explorer.ui.threads.progress import StreamProgress, Throttle

DONE, FAILED, MISUSED = 0, 1, 2
"""Exit codes: success; the call or the measurement failed; the command was invalid."""

EXPLORED = "__explored__"
"""The module name under which the file runs; no other module can have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except RegionalExplorerError as error:
        if options.verbose:
            traceback.print_exc()
        else:
            _print_error(f"regional-explorer: {error}")
        return MISUSED if isinstance(error, CommandError) else FAILED
    except KeyboardInterrupt:
        _print_error("regional-explorer: interrupted.")
        return FAILED
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stdout = None  # else Python flushes stdout at exit and reports the error again
        return DONE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regional-explorer",
        description="See, compile and measure regions of a PyTorch function.",
        epilog="Exit codes: 0 success, 1 the call or the measurement failed, 2 the command was invalid.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="explore a call made in a Python file",
        description="Execute FILE as a module, then explore CALL in its namespace. Tables go to stdout, progress to "
        "stderr.",
        epilog='Example: regional-explorer run model.py "step(x)" -r mlp=modules:layers.*.mlp --save out.html',
        allow_abbrev=False,
    )
    run.add_argument("file", metavar="FILE", type=Path, help="a Python file that defines everything the call uses")
    run.add_argument("call", metavar="CALL", help='the call, such as "step(x)"')
    add_options(run, leave_out=NOTEBOOK_ONLY)
    run.set_defaults(run=_run)
    show = commands.add_parser(
        "show", help="print a saved session; torch is not needed", description="Print a session saved as JSON."
    )
    show.add_argument("file", metavar="FILE", type=Path, help="a .json file written by --save or ex.save()")
    show.set_defaults(run=_show, verbose=False)
    return parser


def _run(options: argparse.Namespace) -> int:
    from regional_explorer.render.report.text import session_text

    command = Command.of(options)
    call = read_call(options.call)
    command.check()
    names = _execute(options.file)
    fn, args, kwargs = call.evaluate(names)
    stream = StreamProgress(sys.stderr)
    progress = Throttle(stream)
    progress("capturing the call", 0.0)
    exploration = command.explore(fn, args, kwargs)
    try:
        complete = command.measure(exploration, progress=progress)
    finally:
        stream.finish()
    _print(session_text(exploration.session))
    if not complete:
        _print_error("regional-explorer: interrupted; the results so far are shown.")
    if (saved := command.finish(exploration)) is not None:
        _print_error(f"Saved to {saved}.")
    return DONE if complete else FAILED


def _show(options: argparse.Namespace) -> int:
    from regional_explorer.record.codec import load_session
    from regional_explorer.render.report.text import session_text

    _print(session_text(load_session(options.file)))
    return DONE


def _execute(path: Path) -> dict[str, Any]:
    """Execute a file as a module and return its namespace.

    Its name is not ``__main__``, so ``if __name__ == "__main__"`` blocks do not run.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a ValueError: it is no text, or no file can have such a name
        raise CommandError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    file = str(path.resolve())
    module = types.ModuleType(EXPLORED)
    module.__file__ = file
    # Registered because dataclasses look up their module; the file's folder is importable, as for scripts.
    sys.modules[EXPLORED] = module
    sys.path.insert(0, str(path.resolve().parent))
    linecache.checkcache(file)
    try:
        exec(compile(source, file, "exec"), vars(module))  # noqa: S102 - the user's file, which they asked to run
    except Exception as error:
        place = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = place[-1].lineno if place else getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise RegionalExplorerError(f"{path}{where}: {type(error).__name__}: {error}") from error
    return vars(module)


def _print(text: str) -> None:
    """Print to stdout, replacing characters that its encoding lacks."""
    coding = sys.stdout.encoding or "utf-8"
    print(text.encode(coding, "replace").decode(coding), end="", flush=True)  # noqa: T201 - the output of the command


def _print_error(text: str) -> None:
    print(sendable(text), file=sys.stderr)  # noqa: T201 - messages of a command


if __name__ == "__main__":
    sys.exit(main())
