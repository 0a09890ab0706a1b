"""Generates code and keeps it by artifact and target, for this machine or for a GPU."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from regional_explorer.compiler.child import Child, can_have_children
from regional_explorer.compiler.fingerprint import artifact_key, portable, surroundings
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import CompileEnvironmentError
from regional_explorer.insight.lowering import artifact_code, code_under, positions_of
from regional_explorer.record.artifact import ArtifactCode, code_hash
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.record.plan import DEFAULT
from regional_explorer.torch_api.config import Settings
from regional_explorer.torch_api.environment import compile_lock
from regional_explorer.torch_api.inductor import INSTALL_COMPILER, cxx_compiler, inductor_cache_directory
from regional_explorer.torch_api.shipping import UNSENDABLE

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


P = TypeVar("P")

NOT_SENT = "it has dynamic sizes, constants, or operators of other libraries, which the other process would not know"


@dataclass(frozen=True)
class Changed:
    """A partition under a changed config: its switch, the config, and the key of its code."""

    switch: Switch
    config: Mapping[str, Any]
    key: str


class Codes:
    """The generated code and kernels of the partitions of ``program``.

    ``found`` has that of artifacts, by key; ``revision`` changes with it. Code for other configs, or for GPUs that are
    not there, is kept in ``_other_codes``, by key and target.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.found: dict[str, ArtifactCode] = {}
        self.revision = 0
        self._other_codes: dict[tuple[str, str], ArtifactCode] = {}

    def read(self, region: str, run: Run) -> None:
        """Lower the artifacts of a region again for their code and kernels, one after the other, until cancelled."""
        program, store = self._program, self._program.store
        keys = program.keys()
        missing = {
            keys[switch]: switch
            for switch in self._switches_of(region)
            if keys.get(switch, "") in store.artifacts and _needs_code(self.found.get(keys[switch]))
        }
        for key, switch in _with_progress(missing, region, run):
            config = program.config_for(switch)
            self.found[key] = artifact_code(
                store.artifacts[key], switch.piece, switch.inputs or (), config, store.generated
            )
            self.revision += 1

    def changed(self, region: str, changes: Mapping[str, Any]) -> tuple[Changed, ...]:
        """Return the partitions of a region under ``changes`` of its config.

        Those whose layouts are not recorded are left out: an edit of the plan makes such ones.
        """
        settings, changed = surroundings(), []
        for switch in self._switches_of(region):
            if switch.inputs is not None:
                merged = {**self._program.config_for(switch), **changes}
                config = {key: value for key, value in merged.items() if value is not DEFAULT}
                changed.append(Changed(switch, config, artifact_key(switch.fingerprint(), config, settings)))
        return tuple(changed)

    def under(
        self, region: str, changed: Sequence[Changed], target: GpuTarget | None, run: Run
    ) -> dict[str, ArtifactCode]:
        """Return the code of ``changed`` partitions of a region, by partition id.

        Nothing is compiled, nor needs to have been; with ``target`` it is the code for that GPU.

        Raises:
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
        """
        program = self._program
        gpu_name = "" if target is None else target.name
        missing = {part.key: part for part in changed if _needs_code(self._other_codes.get((part.key, gpu_name)))}
        with ExitStack() as stack:
            generator = None
            if target is not None and missing:
                run.progress(f"starting a process for {target.title}", 0.0)
                try:
                    generator = stack.enter_context(GpuCodeGenerator(target, run.cancelled))
                except CancelledError:
                    missing = {}
            for key, part in _with_progress(missing, region, run):
                switch, config = part.switch, part.config
                if generator is None:
                    code = code_under(key, switch.piece, switch.inputs or (), config, program.store.generated)
                else:
                    try:
                        code = _code_on_gpu(generator, key, switch, config)
                    except CancelledError:
                        break
                self._other_codes[key, gpu_name] = code
                if generator is None and code.text:
                    program.tried.setdefault(switch.fingerprint(), {})[key] = config
                    program.store.hashes[key] = code_hash(code.text)
        return {
            part.switch.partition.name: self._other_codes[part.key, gpu_name]
            for part in changed
            if (part.key, gpu_name) in self._other_codes
        }

    def _switches_of(self, region: str) -> Iterator[Switch]:
        return (switch for switch in self._program.switches if switch.piece.claim.region == region)


def _needs_code(code: ArtifactCode | None) -> bool:
    """Return whether code has to be generated: a failure, for example because of a full disk, is tried again."""
    return code is None or code.problem is not None


def _code_on_gpu(generator: GpuCodeGenerator, key: str, switch: Switch, config: Mapping[str, Any]) -> ArtifactCode:
    inputs = switch.inputs or ()
    with compile_lock():
        portable_piece = portable(switch.piece, inputs, config)
    if portable_piece is None:
        return ArtifactCode(key, "", target=generator.target.name, problem=f"The partition cannot be sent: {NOT_SENT}.")
    return generator.code(key, portable_piece, positions_of(switch.piece, inputs))


def _with_progress(partitions: Mapping[str, P], region: str, run: Run) -> Iterator[tuple[str, P]]:
    """Yield the partitions until cancelled, reporting progress before each."""
    for done, (key, partition) in enumerate(partitions.items()):
        if run.cancelled():
            return
        run.progress(f"reading the code of {region} ({done + 1} of {len(partitions)})", done / len(partitions))
        yield key, partition
