"""A child process that ends with its parent, however the parent ends.

This file imports the standard library only, as ``background`` does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

GRACE_S = 2.0
"""Seconds that a child has to end after SIGTERM; then it is killed."""

_CODE = "import sys; sys.path[:] = {path!r}; import importlib; importlib.import_module({module!r}).main()"


def can_have_children() -> bool:
    """Return whether this platform knows sessions and groups of processes, and where Python is."""
    return os.name == "posix" and bool(sys.executable)


class Child:
    """A process that runs ``main()`` of the module called ``module``.

    It ends with the process that started it: ``main`` calls ``serve_parent``, which sees the pipe close. A
    session of its own keeps an interrupt of a cell from reaching it.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, module: str, *, answers: bool = False) -> None:
        # One compile worker in this process is enough, and a graphics card is none of its business.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # Our own interpreter with our own text.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _CODE.format(path=sys.path, module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id, which is the id of its group too."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message, which the child gets through ``serve_parent``."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        pickle.dump(message, self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Wait for the next answer.

        Raises:
            EOFError: the child has ended.
        """
        assert self._process.stdout is not None  # noqa: S101 - asked for with ``answers``
        return pickle.load(self._process.stdout)  # noqa: S301 - our own process with our own text

    def wait(self) -> None:
        """Wait until it has ended by itself, so that it is never left as a zombie."""
        self._process.wait()
        self._close()

    def end(self) -> None:
        """End it and what it runs; returns when it is gone. A compiler tidies up after SIGTERM."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._close()

    def _signal(self, number: int) -> None:
        # As long as nobody has collected it, its id cannot be another's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def serve_parent(hear: Callable[[Any], object] = lambda _message: None) -> None:
    """In the child: pass what the parent sends to ``hear``, on a thread, and end with the parent.

    A compiler that this process runs gets SIGTERM as well, and tidies up.
    """
    # Not sys.stdin: Python could not shut down while another thread waits for it.
    pipe = open(0, "rb", closefd=False)  # noqa: SIM115 - open as long as this process is

    def listen() -> None:
        try:
            while True:
                hear(pickle.load(pipe))  # noqa: S301 - from the process that started this one
        finally:
            os.killpg(0, signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()


def answer_channel() -> Callable[[Any], None]:
    """In the child: return a function that answers the parent. What is printed from now on is dropped."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(message: Any) -> None:
        pickle.dump(message, pipe)
        pipe.flush()

    return answer
