"""A child process that ends with its parent, however that ends; one question to such a process, and its answer.

This file imports only the standard library, because ``toolchain`` is loaded without torch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

GRACE_S = 2.0
"""Seconds after SIGTERM until a child that still runs is killed."""

POLL_S = 0.1
"""Seconds between checks whether a question was cancelled."""

_CHILD_CODE = "import sys; sys.path[:] = {path!r}; import importlib; importlib.import_module({module!r}).main()"


def can_have_children() -> bool:
    """Return whether this platform has process groups and sessions, and the path of the Python interpreter is known."""
    return os.name == "posix" and bool(sys.executable)


class Child:
    """A child process that runs ``main()`` of the module named ``module``.

    It ends with the process that started it: ``main`` calls ``end_with_parent``, which notices that the pipe is closed.
    It runs in its own session, so that an interrupt of a cell does not reach it. ``arguments`` are in its ``sys.argv``.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        # One of Inductor's compile workers is enough for it, and it must not use a GPU.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # Our own interpreter with our own code.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _CHILD_CODE.format(path=sys.path, module=module), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self._process.pid

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the child has ended by itself, so that it does not stay as a zombie; return whether it has."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._close_pipe()
        return True

    def end(self) -> None:
        """End the child and its own children, and wait for it. On SIGTERM a compiler removes its temporary files."""
        self._signal_group(signal.SIGTERM)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
        self._close_pipe()

    def _signal_group(self, number: int) -> None:
        # Until it has been waited for, no other process can have its id.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _close_pipe(self) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError):
            self._process.stdin.close()


def end_with_parent() -> None:
    """In the child: end when the parent does, whatever this process does at that moment.

    A compiler that this process runs gets SIGTERM as well, and removes its temporary files.
    """
    # Not sys.stdin: Python cannot shut down while another thread reads from it.
    pipe = open(0, "rb", closefd=False)  # noqa: SIM115 - open as long as this process is

    def wait() -> None:
        try:
            pipe.read()  # nothing is written to it
        finally:
            os.killpg(0, signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


QUESTION, ANSWER = "question", "answer"
"""The names of the files with the two, pickled."""


def ask(module: str, question: Any, cancelled: Callable[[], bool]) -> Any:
    """Return the answer to ``question`` of a child whose ``main()`` calls ``answer_question``.

    Raises:
        CancelledError: it was cancelled meanwhile.
        OSError: the child could not be started, or has ended without an answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, QUESTION).write_bytes(pickle.dumps(question))
        child = Child(module, folder)
        try:
            while not child.wait(POLL_S):
                if cancelled():
                    raise CancelledError
        finally:
            child.end()
        return pickle.loads(Path(folder, ANSWER).read_bytes())  # noqa: S301 - our own process with our own code


def answer_question(answer: Callable[[Any], Any]) -> None:
    """In the child: answer the question, unless the parent ends first."""
    end_with_parent()
    folder = Path(sys.argv[1])
    question = pickle.loads((folder / QUESTION).read_bytes())  # noqa: S301 - from the process that started this one
    (folder / ANSWER).write_bytes(pickle.dumps(answer(question)))
