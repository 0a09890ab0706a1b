"""Generates code for a GPU that is not there, in a process of its own."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from regional_explorer.compiler.shipment import SentPiece
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.gpu_targets import TF32, GpuTarget


@dataclass(frozen=True)
class GpuQuestion:
    """The question which code pieces have on a GPU; ``settings`` are those of the asking process, pickled.

    ``pieces`` are by key, each with the positions of its nodes. ``compiler`` is the path of the C++ compiler, and in
    ``folder`` what it builds is kept.
    """

    target: GpuTarget
    compiler: str
    folder: str
    settings: bytes
    pieces: Mapping[str, tuple[SentPiece, Mapping[str, int]]]


def codes_on_gpu(question: GpuQuestion) -> dict[str, ArtifactCode] | str:
    """Return the code of each piece by its key, or why there is none for any piece; runs in a process of its own."""
    from regional_explorer.torch_api.virtual_gpu import load_device_guard, virtual_gpu

    problem = "the settings of your process could not be applied"
    try:
        with pickle.loads(question.settings).in_force():  # noqa: S301 - from the process that started this one
            problem = "the device guard could not be built"
            load_device_guard(question.compiler, Path(question.folder))
            with virtual_gpu(question.target):
                return {
                    key: _code_or_problem(piece, positions, question.target)
                    for key, (piece, positions) in question.pieces.items()
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
    import torch

    from regional_explorer.insight.lowered_code import lowered_code
    from regional_explorer.torch_api.graphs import fake_mode_with_symbols
    from regional_explorer.torch_api.shipping import load_piece
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
