"""A child process that ends with its parent, however that ends, and exchanges pickled messages through pipes.

This file imports only the standard library, because ``toolchain`` is loaded without torch.
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
"""Seconds after SIGTERM until a child that still runs is killed."""

_CHILD_CODE = "import sys; sys.path[:] = {path!r}; import importlib; importlib.import_module({module!r}).main()"


def can_have_children() -> bool:
    """Return whether this platform has process groups and sessions, and the path of the Python interpreter is known."""
    return os.name == "posix" and bool(sys.executable)


class Child:
    """A child process that runs ``main()`` of the module named ``module``.

    It ends with the process that started it: ``main`` calls ``serve_parent``, which notices that the pipe is closed. It
    runs in its own session, so that an interrupt of a cell does not reach it.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, module: str, *, answers: bool = False) -> None:
        # One of Inductor's compile workers is enough for it, and it must not use a GPU.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # Our own interpreter with our own code.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _CHILD_CODE.format(path=sys.path, module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message, which the child receives through ``serve_parent``."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        pickle.dump(message, self._process.stdin)
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Wait for the next answer.

        Raises:
            EOFError: the child has ended.
        """
        assert self._process.stdout is not None  # noqa: S101 - a pipe, with ``answers``
        return pickle.load(self._process.stdout)  # noqa: S301 - our own process with our own code

    def wait(self) -> None:
        """Wait until the child has ended by itself, so that it does not stay as a zombie."""
        self._process.wait()
        self._close_pipes()

    def end(self) -> None:
        """End the child and its own children, and wait for it. On SIGTERM a compiler removes its temporary files."""
        self._signal_group(signal.SIGTERM)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
        self._close_pipes()

    def _signal_group(self, number: int) -> None:
        # Until it has been waited for, no other process can have its id.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def serve_parent(on_message: Callable[[Any], object] = lambda _message: None) -> None:
    """In the child: pass the parent's messages to ``on_message``, on a thread, and end with the parent.

    A compiler that this process runs gets SIGTERM as well, and removes its temporary files.
    """
    # Not sys.stdin: Python cannot shut down while another thread reads from it.
    pipe = open(0, "rb", closefd=False)  # noqa: SIM115 - open as long as this process is

    def listen() -> None:
        try:
            while True:
                on_message(pickle.load(pipe))  # noqa: S301 - from the process that started this one
        finally:
            os.killpg(0, signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()


def answer_channel() -> Callable[[Any], None]:
    """In the child: return a function that sends answers to the parent. Later output to stdout is discarded."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(message: Any) -> None:
        pickle.dump(message, pipe)
        pipe.flush()

    return answer
