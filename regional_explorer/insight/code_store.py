"""Keeps the generated code of a program and the findings in it; generates code, for this machine or for a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.shipment import SentPiece
from regional_explorer.compiler.switch import Switch
from regional_explorer.compiler.workers import LostWorkerError, can_have_workers, run_alone
from regional_explorer.compiler.workpiece import Wanted
from regional_explorer.errors import CompileEnvironmentError
from regional_explorer.insight.gpu_worker import GpuQuestion, codes_on_gpu
from regional_explorer.insight.lowered_code import artifact_code, code_under, node_positions
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, code_hash
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import DEFAULT
from regional_explorer.torch_api.inductor import (
    INSTALL_COMPILER,
    build_command,
    cxx_compiler,
    inductor_cache_directory,
)
from regional_explorer.torch_api.shipping import ShipmentError, dump
from regional_explorer.torch_api.torch_config import Settings, surroundings


class Insights:
    """The generated code of the partitions of ``program``, the times of its kernels, and why regions are slow.

    ``codes`` and ``kernel_times`` are by key of the artifact; ``_other_codes`` is code for other configs, or for GPUs
    that are not there, by key and target. ``diagnoses`` are by region, with the keys that its artifacts had then.
    ``revision`` changes whenever a session shows something new.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.codes: dict[str, ArtifactCode] = {}
        self.kernel_times: dict[str, ArtifactKernelTimes] = {}
        self.diagnoses: dict[str, tuple[list[str], tuple[Diagnostic, ...]]] = {}
        self.revision = 0
        self._other_codes: dict[tuple[str, str], ArtifactCode] = {}

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The findings about regions whose code has not changed since they were diagnosed."""
        needed = self.needed() if self.diagnoses else {}
        return tuple(
            diagnostic
            for region, (keys, diagnostics) in self.diagnoses.items()
            if keys == needed.get(region, [])
            for diagnostic in diagnostics
        )

    def needed(self) -> dict[str, list[str]]:
        """Return the keys of the artifacts that each region needs now."""
        return grouped((switch.piece.claim.region, key) for switch, key in self.program.keys().items())

    def forget_replaced(self) -> None:
        """Forget code that a compile replaced under the same key, as autotuning may."""
        for key, artifact in self.program.store.artifacts.items():
            if key in self.codes and artifact.code and code_hash(artifact.code) != code_hash(self.codes[key].text):
                del self.codes[key]
                self.kernel_times.pop(key, None)
                self.diagnoses = {
                    name: diagnosis for name, diagnosis in self.diagnoses.items() if key not in diagnosis[0]
                }

    def read(self, region: str, run: Run) -> None:
        """Lower the artifacts of a region again for their code and kernels, one after the other, until cancelled."""
        program, artifacts = self.program, self.program.store.artifacts
        keys = program.keys()
        compiled = [
            program.wanted(keys[switch], switch)
            for switch in self._switches_of(region)
            if keys.get(switch, "") in artifacts
        ]
        for wanted in _with_progress(_missing(compiled, self.codes), region, self.codes, run):
            self.codes[wanted.key] = artifact_code(artifacts[wanted.key], wanted, program.store.generated)
            self.revision += 1

    def changed(self, region: str, changes: Mapping[str, Any]) -> dict[str, Wanted]:
        """Return the ingredients of each partition's artifact under ``changes`` of its config, by partition id.

        Partitions whose layouts are not recorded yet, as after an edit of the plan, are left out.
        """
        settings, changed = surroundings(), {}
        for switch in self._switches_of(region):
            if switch.workpiece is not None:
                merged = {**self.program.config_for(switch), **changes}
                config = {key: value for key, value in merged.items() if value is not DEFAULT}
                changed[switch.partition.name] = switch.workpiece.wanted(config, settings)
        return changed

    def under(
        self, region: str, changed: Mapping[str, Wanted], target: GpuTarget | None, run: Run
    ) -> dict[str, ArtifactCode]:
        """Return the code of ``changed`` partitions of a region, by partition id; fewer if cancelled.

        Nothing is compiled, and nothing has to be compiled before. With ``target`` the code is for that GPU.

        Raises:
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
        """
        program, gpu_name = self.program, "" if target is None else target.name
        codes = {key: code for (key, name), code in self._other_codes.items() if name == gpu_name}
        missing = _missing(changed.values(), codes)
        if target is None:
            for wanted in _with_progress(missing, region, codes, run):
                codes[wanted.key] = code = code_under(wanted, program.store.generated)
                if code.text:
                    program.tried.setdefault(wanted.workpiece.fingerprint, {})[wanted.key] = wanted.config
                    build = build_command(code.text, wanted.config)
                    program.store.hashes[wanted.key] = code_hash(code.text, build)
        elif missing:
            run.estimate(None)
            run.progress(f"generating the code of {region} for {target.title}", 0.0)
            codes |= _codes_on_gpu(missing, target, run)
        self._other_codes |= {(key, gpu_name): code for key, code in codes.items()}
        return {name: codes[wanted.key] for name, wanted in changed.items() if wanted.key in codes}

    def _switches_of(self, region: str) -> Iterator[Switch]:
        return (switch for switch in self.program.switches if switch.piece.claim.region == region)


def _missing(all_wanted: Iterable[Wanted], codes: Mapping[str, ArtifactCode]) -> list[Wanted]:
    """Return the distinct items without known code; an item whose code failed, say on a full disk, is tried again."""
    by_key = {wanted.key: wanted for wanted in all_wanted}
    return [wanted for key, wanted in by_key.items() if key not in codes or codes[key].problem is not None]


def _with_progress(
    missing: Sequence[Wanted], region: str, codes: Mapping[str, ArtifactCode], run: Run
) -> Iterator[Wanted]:
    """Yield the missing items until cancelled, with progress before each; the time estimate is from ``known`` code."""
    for number, wanted in enumerate(missing):
        if run.cancelled():
            return
        mean_s = sum(code.seconds for code in codes.values()) / len(codes) if codes else None
        run.estimate(None if mean_s is None else mean_s * (len(missing) - number))
        run.progress(f"reading the code of {region} ({number + 1} of {len(missing)})", number / len(missing))
        yield wanted


def _codes_on_gpu(missing: Sequence[Wanted], target: GpuTarget, run: Run) -> dict[str, ArtifactCode]:
    """Return the code for ``target`` by key, generated in a child process; nothing if cancelled meanwhile.

    Raises:
        CompileEnvironmentError: there is no C++ compiler or no cache directory, a setting cannot be serialized, or
            the process cannot work here.
    """
    codes, pieces = {}, {}
    for wanted in missing:
        try:
            piece, gm = SentPiece.of(wanted)
            dump(piece.config)
        except ShipmentError as why:
            problem = f"The partition cannot be sent to another process: {why}."
            codes[wanted.key] = ArtifactCode("", target=target.name, problem=problem)
        else:
            pieces[wanted.key] = piece, node_positions(gm, wanted.workpiece.piece)
    if not pieces:
        return codes
    try:
        question = GpuQuestion(target, *_surroundings_of_gpu_code(target), pieces)
        answer = run_alone(codes_on_gpu, question, run.cancelled)
    except CancelledError:
        return codes
    except LostWorkerError as error:
        raise CompileEnvironmentError(
            f"The process that generates code for {target.title} could not be started, or ended early, perhaps for "
            f"lack of memory ({error}). Try again."
        ) from error
    if isinstance(answer, str):
        raise CompileEnvironmentError(f"No code for {target.title}: {answer}.")
    codes.update(answer)
    return codes


def _surroundings_of_gpu_code(target: GpuTarget) -> tuple[str, str, bytes]:
    """Return the C++ compiler, the folder for what it builds, and this process's settings, pickled.

    Raises:
        CompileEnvironmentError: one of them is not available.
    """
    compiler = cxx_compiler()
    if compiler is None:
        raise CompileEnvironmentError(
            f"No code for {target.title}: generating it takes a C++ compiler, too, and none was found. "
            f"{INSTALL_COMPILER}"
        )
    if not can_have_workers():
        raise CompileEnvironmentError(
            f"No code for {target.title}: it is generated in a child process, which needs Linux or macOS."
        )
    try:
        settings = dump(Settings.now())
    except ShipmentError as why:
        raise CompileEnvironmentError(
            f"No code for {target.title}: it is generated in another process, and {why}."
        ) from why
    try:
        folder = os.path.join(inductor_cache_directory(), "regional_explorer")  # noqa: PTH118 - sent as text
    except OSError as error:
        raise CompileEnvironmentError(
            f"No code for {target.title}: Inductor's cache directory cannot be used: {error}."
        ) from error
    return compiler, folder, settings
