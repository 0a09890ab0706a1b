"""The child process that generates code for a GPU that is not there."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from regional_explorer.compiler.child import answer_channel, serve_parent
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.gpu_targets import TF32, GpuTarget


def main() -> None:
    """In the child: receive a target, then answer each piece with its code for that target, or why there is none."""
    requests: SimpleQueue[Any] = SimpleQueue()
    serve_parent(requests.put)
    answer = answer_channel()
    from regional_explorer.torch_api.virtual_gpu import load_device_guard, virtual_gpu

    target, compiler, folder, settings = requests.get()
    problem = "the settings of your process could not be applied"
    try:
        pickle.loads(settings).apply()  # noqa: S301 - from the process that started this one
        problem = "the device guard could not be built"
        load_device_guard(compiler, Path(folder))
    except Exception as error:  # noqa: BLE001 - reported in place of the code
        answer(f"{problem}: {type(error).__name__}: {error}")
        return
    answer(None)
    with virtual_gpu(target):
        while True:
            answer(_code_or_problem(requests.get(), target))


def _code_or_problem(request: tuple[str, bytes, dict[str, int]], target: GpuTarget) -> ArtifactCode:
    key, portable_piece, positions = request
    try:
        return _generate_code(key, portable_piece, positions, target)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next piece may work
        last_frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({Path(last_frame.filename).name}:{last_frame.lineno})"
        first_line = (str(error).strip().splitlines() or [""])[0]
        return ArtifactCode(key, "", target=target.name, problem=f"{type(error).__name__}: {first_line}{where}")


def _generate_code(key: str, portable_piece: bytes, positions: dict[str, int], target: GpuTarget) -> ArtifactCode:
    import torch

    from regional_explorer.insight.lowering import after_passes, output, with_lines
    from regional_explorer.torch_api.graphs import fake_mode_with_symbols
    from regional_explorer.torch_api.lowering import lower_piece
    from regional_explorer.torch_api.shipping import load_piece
    from regional_explorer.torch_api.virtual_gpu import kernel_resources, to_gpu

    dumped, config = pickle.loads(portable_piece)  # noqa: S301 - from the process that started this one
    mode = fake_mode_with_symbols()
    gm, inputs = load_piece(dumped, mode)
    lowered = lower_piece(gm, to_gpu(gm, inputs, mode), mode, config, positions)
    resources = kernel_resources(lowered.code, target)
    rounds_to_tf32 = torch.get_float32_matmul_precision() != "highest"
    kernels = tuple(
        replace(
            kernel,
            gpu=resources.get(kernel.name),
            dtype=TF32 if rounds_to_tf32 and kernel.dtype == "float32" else kernel.dtype,
        )
        for kernel in with_lines(lowered.kernels, lowered.code)
    )
    return ArtifactCode(
        key,
        lowered.code,
        kernels,
        lowered.views,
        lowered.refused,
        target=target.name,
        after_passes=after_passes(lowered, ()),
        output=output(lowered, ()),
        output_problem=lowered.output.problem if lowered.output is not None else "",
    )
