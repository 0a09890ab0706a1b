"""Runs Graphviz in a child process with a time limit, which can be killed: a layout may take minutes."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import threading
import time

LAYOUT_LIMIT_S = 10.0
"""How long a layout may take by default."""
STOP_POLL_S = 0.05
"""Seconds between two checks whether the child is to be killed."""
MOST_DRAWINGS = 16
"""How many drawings are cached, so that the same text is not laid out twice."""

_CHILD = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot"))
"""
"""The program of the child: DOT from stdin, laid out in the format that its argument names, to stdout."""

_drawings: dict[tuple[tuple[str, ...], str], bytes] = {}


def graphviz(
    dot: str,
    form: str = "svg",
    *,
    time_limit_s: float = LAYOUT_LIMIT_S,
    stop: threading.Event | None = None,
    command: tuple[str, ...] | None = None,
) -> bytes | None:
    """Return ``dot`` laid out and written as ``form``, or None if that fails or takes too long.

    The libraries of pygraphviz are used; without pygraphviz, an installed ``dot`` executable.

    Args:
        dot: Text in the DOT language.
        form: An output format of Graphviz, such as ``svg`` or ``json0``.
        time_limit_s: The child is ended after this many seconds.
        stop: Ends the child at once when another thread sets it.
        command: The command to run; by default that of ``layout_command``.
    """
    command = command or layout_command(form)
    if command is None:
        return None
    drawing = _drawings.get((command, dot))
    if drawing is None:
        try:
            drawing = _run_layout(command, dot, time_limit_s, stop or threading.Event())
        except (OSError, subprocess.SubprocessError):
            return None
        while len(_drawings) >= MOST_DRAWINGS:
            _drawings.pop(next(iter(_drawings)), None)
        _drawings[command, dot] = drawing
    return drawing


def _run_layout(command: tuple[str, ...], dot: str, time_limit_s: float, stop: threading.Event) -> bytes:
    """Return the output of ``command`` for ``dot``.

    Raises:
        OSError: the command cannot be run.
        subprocess.SubprocessError: it failed, was stopped or took too long.
    """
    deadline = time.monotonic() + time_limit_s
    # Our own interpreter or `dot`; the DOT text goes through stdin.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:  # noqa: S603
        text: bytes | None = dot.encode()
        try:
            while not stop.is_set() and time.monotonic() < deadline:
                # After a time-out, the next call continues the last one and takes no text.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    drawing, _ = child.communicate(text, timeout=STOP_POLL_S)
                    if child.returncode or not drawing:
                        raise subprocess.SubprocessError("nothing was drawn")
                    return drawing
                text = None
        finally:
            child.kill()
    raise subprocess.SubprocessError("stopped")


def layout_command(form: str) -> tuple[str, ...] | None:
    """Return the command that lays out and writes as ``form``; None if neither pygraphviz nor dot is installed."""
    if sys.executable and importlib.util.find_spec("pygraphviz"):
        # -P keeps the current folder off the child's path: its modules could shadow those of the standard library.
        return (sys.executable, "-P", "-c", _CHILD, form)
    dot = shutil.which("dot")
    return (dot, f"-T{form}") if dot else None
