"""Generates the code of partitions for a GPU that is not there, in a child process."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import Any, Self

from regional_explorer.compiler.processes.child import Child, can_have_children
from regional_explorer.errors import CompileEnvironmentError
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.record.kernels import ArtifactCode
from regional_explorer.torch_api import (
    INSTALL_COMPILER,
    UNSENDABLE,
    Settings,
    cxx_compiler,
    inductor_cache_directory,
)

ANSWER_POLL_S = 0.1


class CancelledError(Exception):
    """The caller has cancelled the request."""


class GpuCodeGenerator:
    """A child process that generates code for ``target``; it ends with the block it is used in.

    Raises:
        CompileEnvironmentError: there is no C++ compiler or no cache directory, a setting cannot be serialized, or
            the process could not be started.
    """

    def __init__(self, target: GpuTarget, cancelled: Callable[[], bool]) -> None:
        self.target = target
        self._cancelled = cancelled
        compiler = cxx_compiler()
        if compiler is None:
            raise CompileEnvironmentError(
                f"No code for {target.title}: generating it takes a C++ compiler, too, and none was found. "
                f"{INSTALL_COMPILER}"
            )
        if not can_have_children():
            raise CompileEnvironmentError(
                f"No code for {target.title}: it is generated in a child process, which needs Linux or macOS."
            )
        try:
            settings = pickle.dumps(Settings.now())
        except UNSENDABLE as error:
            raise CompileEnvironmentError(
                f"No code for {target.title}: it is generated in another process, and a setting of Inductor's in this "
                f"one, such as a pass of yours, cannot be sent there: {error}."
            ) from error
        try:
            folder = os.path.join(inductor_cache_directory(), "regional_explorer")  # noqa: PTH118 - sent as text
        except OSError as error:
            raise CompileEnvironmentError(
                f"No code for {target.title}: Inductor's cache directory cannot be used: {error}."
            ) from error
        try:
            self._child = Child("regional_explorer.insight.gpu_worker", answers=True)
        except OSError as error:
            raise CompileEnvironmentError(f"No process could be started for {target.title}: {error}.") from error
        self._start_request = (target, compiler, folder, settings)

    def __enter__(self) -> Self:
        """Wait until the child is ready.

        Raises:
            CompileEnvironmentError: it cannot generate code here.
        """
        try:
            problem = self._request(self._start_request)
        except BaseException:
            self._child.end()
            raise
        if problem is not None:
            self._child.end()
            raise CompileEnvironmentError(f"No code for {self.target.title}: {problem}.")
        return self

    def __exit__(self, *_error: object) -> None:
        """End the child."""
        self._child.end()

    def code(self, key: str, portable_piece: bytes, positions: dict[str, int]) -> ArtifactCode:
        """Return the code of a piece that ``portable`` serialized."""
        code: ArtifactCode = self._request((key, portable_piece, positions))
        return code

    def _request(self, request: Any) -> Any:
        """Send ``request`` and wait for the answer.

        Raises:
            CancelledError: it was cancelled meanwhile.
            CompileEnvironmentError: the child has ended.
        """
        answers: list[Any] = []

        def ask() -> None:
            try:
                self._child.send(request)
                answers.append(self._child.receive())
            except (OSError, EOFError, ValueError, pickle.UnpicklingError):
                pass

        thread = threading.Thread(target=ask, daemon=True, name="regional-explorer-gpu-code")
        thread.start()
        while thread.is_alive():
            if self._cancelled():
                self._child.end()
                raise CancelledError
            thread.join(ANSWER_POLL_S)
        if not answers:
            raise CompileEnvironmentError(
                f"The process that generates code for {self.target.title} ended early, perhaps for lack of "
                "memory. Try again."
            )
        return answers[0]
