"""Finds out what the kernels of an artifact are made of, by lowering its partition once more."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.artifacts.canonical import canonical
from regional_explorer.compiler.artifacts.tensor_layout import Layout
from regional_explorer.errors import RegionCompileError
from regional_explorer.record.kernels import ArtifactCode, Kernel, KernelKind, normalized
from regional_explorer.regions.cutting.cut import Piece
from regional_explorer.torch_api import GeneratedCode, compile_lock, fake_mode_with_symbols

OTHER_CODE = "Inductor wrote other code when the partition was lowered again, so its kernels are not known"


def artifact_code(
    artifact: Artifact, piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any], generated: GeneratedCode
) -> ArtifactCode:
    """Return the code of ``artifact`` with its kernels.

    Inductor lowers the partition again, which takes what the compile took without its C++ compiler. So nothing is paid
    for by those who do not ask, and an artifact that came out of a cache has its kernels too.
    """
    started = time.perf_counter()
    try:
        with compile_lock(), generated.collected():
            lowered = _lower(piece, inputs, config)
    except RegionCompileError as error:
        return ArtifactCode(artifact.key, artifact.code, problem=str(error), seconds=time.perf_counter() - started)
    seconds = time.perf_counter() - started
    text = artifact.code or lowered.code
    if normalized(text) != normalized(lowered.code):
        return ArtifactCode(artifact.key, text, same_code=False, problem=OTHER_CODE, seconds=seconds)
    return ArtifactCode(
        artifact.key,
        text,
        kernels=tuple(_placed(lowered.kernels, text)),
        views=lowered.views,
        refused=lowered.refused,
        seconds=seconds,
    )


def _lower(piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any]) -> Any:
    # Not at the top: Inductor's code generators are loaded when somebody wants to see their code.
    from regional_explorer.torch_api.kernels import lower_piece

    mode = fake_mode_with_symbols()
    gm, fakes, _ = canonical(piece, inputs, mode)
    names = [node.name for node in gm.graph.nodes if node.op != "output"]
    positions = {name: position for position, name in enumerate(names[-len(piece.nodes) :])}
    return lower_piece(gm, fakes, mode, config, positions)


def _placed(kernels: Sequence[Kernel], text: str) -> Iterator[Kernel]:
    """Yield the kernels with the lines where they are defined and called."""
    lines = text.splitlines()
    launches: Counter[str] = Counter()
    for kernel in kernels:
        calls = _calls(kernel, lines)
        number = launches[kernel.name]
        launches[kernel.name] += 1
        yield replace(
            kernel, defined=_definition(kernel.name, lines), called=calls[number] if number < len(calls) else None
        )


def _definition(name: str, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and last line of ``name = async_compile.…('''…''')``."""
    start = re.compile(rf"^\s*{re.escape(name)} = async_compile\.")
    for first, line in enumerate(lines, 1):
        if start.match(line):
            ends = (last for last, text in enumerate(lines[first:], first + 1) if text.startswith("'''"))
            return first, next(ends, first)
    return None


def _calls(kernel: Kernel, lines: Sequence[str]) -> list[int]:
    """Return the lines that launch a kernel of this name."""
    call = re.compile(rf"(?<![\w.]){re.escape(kernel.name)}(\.run)?\(")
    if kernel.kind is not KernelKind.EXTERN:
        return [number for number, line in enumerate(lines, 1) if call.search(line)]
    # An extern call is named as it is called, but some with the namespace, as in torch.ops.aten.mm.default(…).
    last = re.compile(rf"\b{re.escape(kernel.name.removeprefix('extern_kernels.'))}(\.\w+)?\(")
    return [number for number, line in enumerate(lines, 1) if call.search(line) or last.search(line)]
