"""Graphviz in a child process, so that it can be stopped: it may take minutes, and holds the GIL all the while.

This file is also the program of the child, run by its path: it imports the standard library only, which keeps the
start short.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys

TIME_LIMIT_S = 10.0
"""How long a layout may take by default."""


def graphviz(dot: str, form: str = "svg", *, time_limit_s: float = TIME_LIMIT_S) -> bytes | None:
    """Return ``dot`` laid out and written as ``form``, or None where that cannot be had in time.

    The libraries that pygraphviz brings are used, so no ``dot`` need be installed; one that is stands in for them.

    Args:
        dot: Text in the DOT language.
        form: An output format of Graphviz, such as ``svg`` or ``json0``.
        time_limit_s: The child is ended after this many seconds.
    """
    command = _command(form)
    if command is None:
        return None
    try:
        return _run(command, dot, time_limit_s)
    except (OSError, subprocess.SubprocessError):
        return None


@functools.lru_cache(maxsize=16)
def _run(command: tuple[str, ...], dot: str, time_limit_s: float) -> bytes:
    """Return what ``command`` makes of ``dot``; a failure raises, so it is not kept and may be tried again."""
    # Our own interpreter or `dot`; the DOT text goes through stdin.
    done = subprocess.run(command, input=dot.encode(), capture_output=True, timeout=time_limit_s, check=True)  # noqa: S603
    if not done.stdout:
        raise subprocess.SubprocessError("nothing was drawn")
    return done.stdout


def _command(form: str) -> tuple[str, ...] | None:
    if sys.executable and importlib.util.find_spec("pygraphviz"):
        # -P keeps this folder, which has a module called html, off the child's path.
        return (sys.executable, "-P", __file__, form)
    dot = shutil.which("dot")
    return (dot, f"-T{form}") if dot else None


def main() -> None:
    """Read DOT from stdin and write it laid out, in the format named by the first argument, to stdout."""
    import pygraphviz

    graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
    sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot"))


if __name__ == "__main__":
    main()
