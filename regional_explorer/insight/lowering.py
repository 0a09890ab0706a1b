"""Generates the code of a partition, and finds the nodes of each kernel, by lowering it with Inductor again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.artifacts.canonical import canonical
from regional_explorer.compiler.artifacts.tensor_layout import Layout
from regional_explorer.errors import RegionCompileError
from regional_explorer.insight.kernel_lines import with_lines
from regional_explorer.insight.lowered_records import after_passes, output
from regional_explorer.record.kernels import ArtifactCode, normalized
from regional_explorer.regions.cutting.cut import Piece
from regional_explorer.torch_api import GeneratedCode, compile_lock, fake_mode_with_symbols

if TYPE_CHECKING:
    from torch import fx

OTHER_CODE = "Inductor wrote other code when the partition was lowered again, so its kernels are not known"


def artifact_code(
    artifact: Artifact, piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any], generated: GeneratedCode
) -> ArtifactCode:
    """Return the code of ``artifact`` with its kernels.

    Inductor lowers the partition again, which takes as long as the compile without the C++ compiler. So compiles stay
    fast if nobody requests the code, and artifacts loaded from a cache have kernels too.
    """
    code = code_under(artifact.key, piece, inputs, config, generated)
    if code.problem is not None or not artifact.code:
        return replace(code, text=artifact.code or code.text)
    if normalized(artifact.code) != normalized(code.text):
        return ArtifactCode(artifact.key, artifact.code, same_code=False, problem=OTHER_CODE, seconds=code.seconds)
    return replace(code, text=artifact.code, kernels=tuple(with_lines(code.kernels, artifact.code)))


def code_under(
    key: str, piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any], generated: GeneratedCode
) -> ArtifactCode:
    """Return the code that a partition has under ``config``; it is not compiled."""
    started = time.perf_counter()
    try:
        with compile_lock(), generated.collected():
            lowered = _lower_partition(piece, inputs, config)
    except RegionCompileError as error:
        return ArtifactCode(key, "", problem=str(error), seconds=time.perf_counter() - started)
    return ArtifactCode(
        key,
        lowered.code,
        kernels=tuple(with_lines(lowered.kernels, lowered.code)),
        views=lowered.views,
        refused=lowered.refused,
        seconds=time.perf_counter() - started,
        after_passes=after_passes(lowered, piece.inputs),
        output=output(lowered, piece.inputs),
        output_problem=lowered.output.problem if lowered.output is not None else "",
    )


def _lower_partition(piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any]) -> Any:
    # Not at the top: Inductor's code generators are imported only when code is requested.
    from regional_explorer.torch_api.lower_piece import lower_piece

    mode = fake_mode_with_symbols()
    gm, fakes, _ = canonical(piece, inputs, mode)
    return lower_piece(gm, fakes, mode, config, _node_positions(gm, piece))


def positions_of(piece: Piece, inputs: Sequence[Layout]) -> dict[str, int]:
    """Return the positions in ``Partition.nodes`` of the nodes of a piece, by the names they have in canonical form."""
    gm, _, _ = canonical(piece, inputs, fake_mode_with_symbols())
    return _node_positions(gm, piece)


def _node_positions(gm: fx.GraphModule, piece: Piece) -> dict[str, int]:
    names = [node.name for node in gm.graph.nodes if node.op != "output"]
    return {name: position for position, name in enumerate(names[-len(piece.nodes) :])}
