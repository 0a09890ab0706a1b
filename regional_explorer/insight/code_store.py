"""Keeps the generated code of a program and the findings in it; generates code, for this machine or for a GPU."""

from __future__ import annotations

import os
import pickle
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from regional_explorer.capture.convert import GraphRecorder
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.shipment import SentPiece
from regional_explorer.compiler.switch import Switch
from regional_explorer.compiler.workers import LostWorkerError, can_have_workers, run_alone
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import CompileEnvironmentError, RegionCompileError
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, Kernel, code_hash, normalized
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.gpu_targets import TF32, GpuTarget
from regional_explorer.record.graph import GraphKind, Node, Role
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import DEFAULT, Preparation
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import INSTALL_COMPILER, build_command, cxx_compiler, inductor_cache_directory
from regional_explorer.torch_api.lowering import lower_piece
from regional_explorer.torch_api.releasing import GeneratedCode
from regional_explorer.torch_api.shipping import ShipmentError, dump, load_piece
from regional_explorer.torch_api.torch_config import Settings, settings_text

if TYPE_CHECKING:
    from torch import fx


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
        needed = self.needed_keys()
        return tuple(
            diagnostic
            for region, (keys, diagnostics) in self.diagnoses.items()
            if keys == needed.get(region, [])
            for diagnostic in diagnostics
        )

    def needed_keys(self) -> dict[str, list[str]]:
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

    def wanted_under(self, region: str, changes: Mapping[str, Any]) -> dict[str, WantedArtifact]:
        """Return the ingredients of each partition's artifact under ``changes`` of its config, by partition id.

        Partitions whose layouts are not recorded yet, as after an edit of the plan, are left out.
        """
        settings, changed = settings_text(), {}
        for switch in self._switches_of(region):
            if switch.workpiece is not None:
                merged = {**self.program.config_for(switch), **changes}
                config = {key: value for key, value in merged.items() if value is not DEFAULT}
                changed[switch.partition.name] = self.program.wanted_under(switch, config, settings)
        return changed

    def codes_under(
        self, region: str, changed: Mapping[str, WantedArtifact], target: GpuTarget | None, run: Run
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
                    program.tried_configs.setdefault(wanted.workpiece.fingerprint, {})[wanted.key] = wanted.config
                    build = build_command(code.text, wanted.config)
                    program.store.hashes[wanted.key] = code_hash(code.text, build)
        elif missing:
            run.estimate(None)
            run.progress(f"generating the code of {region} for {target.title}", 0.0)
            codes |= codes_on_gpu(missing, target, run)
        self._other_codes |= {(key, gpu_name): code for key, code in codes.items()}
        return {name: codes[wanted.key] for name, wanted in changed.items() if wanted.key in codes}

    def _switches_of(self, region: str) -> Iterator[Switch]:
        return (switch for switch in self.program.switches if switch.piece.claim.region == region)


def _missing(all_wanted: Iterable[WantedArtifact], codes: Mapping[str, ArtifactCode]) -> list[WantedArtifact]:
    """Return the distinct items without known code; an item whose code failed, say on a full disk, is tried again."""
    by_key = {wanted.key: wanted for wanted in all_wanted}
    return [wanted for key, wanted in by_key.items() if key not in codes or codes[key].problem is not None]


def _with_progress(
    missing: Sequence[WantedArtifact], region: str, codes: Mapping[str, ArtifactCode], run: Run
) -> Iterator[WantedArtifact]:
    """Yield the missing items until cancelled, with progress before each; the time estimate is from ``known`` code."""
    for number, wanted in enumerate(missing):
        if run.cancelled():
            return
        mean_s = sum(code.seconds for code in codes.values()) / len(codes) if codes else None
        run.estimate(None if mean_s is None else mean_s * (len(missing) - number))
        run.progress(f"reading the code of {region} ({number + 1} of {len(missing)})", number / len(missing))
        yield wanted


# --------------------------------------------------------------------------------------------- from a piece to its code


def lowered_code(
    gm: fx.GraphModule,
    fakes: Sequence[Any],
    mode: Any,
    config: Mapping[str, Any],
    positions: Mapping[str, int],
    inputs: Sequence[str] = (),
    prepared: Preparation | None = None,
) -> ArtifactCode:
    """Return the code of a piece as ``lower_piece`` does, with the lines of its kernels; ``inputs`` are input names."""
    code = lower_piece(gm, fakes, mode, config, positions, partial(_node_records, inputs=inputs), prepared)
    return replace(code, kernels=tuple(with_lines(code.kernels, code.text)))


def _node_records(gm: fx.GraphModule, inputs: Sequence[str]) -> tuple[Node, ...]:
    graph, *_ = GraphRecorder(GraphKind.INFERENCE, 0).record(gm, "lowered")
    # Dynamic sizes come first, as inputs of their own.
    placeholders = [node.name for node in graph.nodes if node.role not in (Role.OP, Role.OUTPUT, Role.SUBGRAPH)]
    labels = dict(zip(placeholders[len(placeholders) - len(inputs) :], inputs, strict=False))
    return tuple(replace(node, label=labels.get(node.name, node.label)) for node in graph.nodes)


def with_lines(kernels: Sequence[Kernel], text: str) -> Iterator[Kernel]:
    """Yield the kernels with the lines where they are defined and called."""
    lines = text.splitlines()
    launch_counts: Counter[str] = Counter()
    for kernel in kernels:
        calls = _launch_lines(kernel, lines)
        number = launch_counts[kernel.name]
        launch_counts[kernel.name] += 1
        yield replace(
            kernel, defined=_definition_lines(kernel.name, lines), called=calls[number] if number < len(calls) else None
        )


def _definition_lines(name: str, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and last line of ``name = async_compile.…('''…''')``."""
    start = re.compile(rf"^\s*{re.escape(name)} = async_compile\.")
    for first, line in enumerate(lines, 1):
        if start.match(line):
            ends = (last for last, text in enumerate(lines[first:], first + 1) if text.startswith("'''"))
            return first, next(ends, first)
    return None


def _launch_lines(kernel: Kernel, lines: Sequence[str]) -> list[int]:
    """Return the lines that launch a kernel of this name."""
    call = re.compile(rf"(?<![\w.]){re.escape(kernel.name)}(\.run)?\(")
    if not kernel.kind.is_call:
        return [number for number, line in enumerate(lines, 1) if call.search(line)]
    # An extern kernel has the name of its function; some are called with a namespace: torch.ops.aten.mm.default(…).
    qualified = re.compile(rf"\b{re.escape(kernel.name.removeprefix('extern_kernels.'))}(\.\w+)?\(")
    return [number for number, line in enumerate(lines, 1) if call.search(line) or qualified.search(line)]


OTHER_CODE = "Inductor wrote other code when the partition was lowered again, so its kernels are not known"


def artifact_code(artifact: Artifact, wanted: WantedArtifact, generated: GeneratedCode) -> ArtifactCode:
    """Return the code of ``artifact`` with its kernels.

    Inductor lowers the partition again, which takes as long as the compile without the C++ compiler. So compiles stay
    fast unless the code is requested, and artifacts loaded from a cache have kernels too.
    """
    code = code_under(wanted, generated)
    if code.problem is not None or not artifact.code:
        return replace(code, text=artifact.code or code.text)
    if normalized(artifact.code) != normalized(code.text):
        return ArtifactCode(artifact.code, problem=OTHER_CODE, seconds=code.seconds)
    return replace(code, text=artifact.code, kernels=tuple(with_lines(code.kernels, artifact.code)))


def code_under(wanted: WantedArtifact, generated: GeneratedCode) -> ArtifactCode:
    """Return the code that Inductor generates for ``wanted``, without compiling it."""
    started, piece = time.perf_counter(), wanted.workpiece.piece
    if (backend := wanted.treatment.backend) is not None:
        return ArtifactCode("", problem=f"The backend {backend.name!r} compiles the region, and shows no code")
    try:
        with compile_lock(), generated.collecting():
            mode = fake_mode_with_symbols()
            gm, fakes, *_, before = wanted.treated(mode)
            positions = node_positions(before, piece)
            code = lowered_code(gm, fakes, mode, wanted.config, positions, piece.inputs, piece.prepared)
    except RegionCompileError as error:
        code = ArtifactCode("", problem=str(error))
    return replace(code, seconds=time.perf_counter() - started)


def node_positions(gm: fx.GraphModule, piece: Piece) -> dict[str, int]:
    """Return the positions in ``Partition.nodes`` of the nodes of a piece, by their names in its canonical form."""
    names = [node.name for node in gm.graph.nodes if node.op != "output"]
    return {name: position for position, name in enumerate(names[-len(piece.nodes) :])}


# ------------------------------------------------------------------------------------- code for a GPU that is not there


def codes_on_gpu(missing: Sequence[WantedArtifact], target: GpuTarget, run: Run) -> dict[str, ArtifactCode]:
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
        request = _CodeRequest(target, *_gpu_worker_arguments(target), pieces)
        result = run_alone(_codes_in_worker, request, run.cancelled)
    except CancelledError:
        return codes
    except LostWorkerError as error:
        raise CompileEnvironmentError(
            f"The process that generates code for {target.title} could not be started, or ended early, perhaps for "
            f"lack of memory ({error}). Try again."
        ) from error
    except Exception as error:  # raised by an import of the process: torch writes files in some, and the disk is full
        raise CompileEnvironmentError(
            f"No code for {target.title}: torch cannot be imported in another process: {type(error).__name__}: {error}."
        ) from error
    if isinstance(result, str):
        raise CompileEnvironmentError(f"No code for {target.title}: {result}.")
    codes.update(result)
    return codes


def _gpu_worker_arguments(target: GpuTarget) -> tuple[str, str, bytes]:
    """Return the C++ compiler, the folder for what it builds, and this process's settings, pickled.

    Raises:
        CompileEnvironmentError: one of them is not available.
    """
    compiler = cxx_compiler()
    if compiler is None:
        raise CompileEnvironmentError(
            f"No code for {target.title}: generating GPU code needs a C++ compiler, and none was found. "
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


@dataclass(frozen=True)
class _CodeRequest:
    """A request for the code of pieces on a GPU; ``settings`` are those of the asking process, pickled.

    ``pieces`` are by key, each with the positions of its nodes. ``compiler`` is the path of the C++ compiler; its
    output is kept in ``folder``.
    """

    target: GpuTarget
    compiler: str
    folder: str
    settings: bytes
    pieces: Mapping[str, tuple[SentPiece, Mapping[str, int]]]


def _codes_in_worker(request: _CodeRequest) -> dict[str, ArtifactCode] | str:
    """Return the code of each piece by its key, or why there is none for any piece; runs in a process of its own."""
    from regional_explorer.torch_api.virtual_gpu import load_device_guard, virtual_gpu

    problem = "the settings of your process could not be applied"
    try:
        with pickle.loads(request.settings).in_force():  # noqa: S301 - from the process that started this one
            problem = "the device guard could not be built"
            load_device_guard(request.compiler, Path(request.folder))
            with virtual_gpu(request.target):
                return {
                    key: _code_or_problem(piece, positions, request.target)
                    for key, (piece, positions) in request.pieces.items()
                }
    except Exception as error:  # noqa: BLE001 - reported in place of the code
        return f"{problem}: {type(error).__name__}: {error}"


def _code_or_problem(piece: SentPiece, positions: Mapping[str, int], target: GpuTarget) -> ArtifactCode:
    try:
        return _generate_code(piece, positions, target)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next piece may work
        last_frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({Path(last_frame.filename).name}:{last_frame.lineno})"
        first_line = (str(error).strip().splitlines() or [""])[0]
        return ArtifactCode("", target=target.name, problem=f"{type(error).__name__}: {first_line}{where}")


def _generate_code(piece: SentPiece, positions: Mapping[str, int], target: GpuTarget) -> ArtifactCode:
    from regional_explorer.torch_api.virtual_gpu import kernel_resources, to_gpu

    mode = fake_mode_with_symbols()
    gm, inputs = load_piece(piece.content, mode)
    code = lowered_code(gm, to_gpu(gm, inputs, mode), mode, piece.config, positions, prepared=piece.prepared)
    resources = kernel_resources(code.text, target)
    rounds_to_tf32 = torch.get_float32_matmul_precision() != "highest"
    kernels = tuple(
        replace(
            kernel,
            gpu=resources.get(kernel.name),
            dtype=TF32 if rounds_to_tf32 and kernel.dtype == "float32" else kernel.dtype,
        )
        for kernel in code.kernels
    )
    return replace(code, kernels=kernels, target=target.name)
