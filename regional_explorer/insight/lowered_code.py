"""Converts a lowered partition to a record."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from regional_explorer.capture.convert import GraphRecorder
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.workpiece import Wanted
from regional_explorer.errors import RegionCompileError
from regional_explorer.record.artifact import ArtifactCode, Kernel, normalized
from regional_explorer.record.graph import GraphKind, Node, Role
from regional_explorer.record.tracing import Prepared
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.lowering import lower_piece
from regional_explorer.torch_api.releasing import GeneratedCode

if TYPE_CHECKING:
    from torch import fx


def lowered_code(
    gm: fx.GraphModule,
    fakes: Sequence[Any],
    mode: Any,
    config: Mapping[str, Any],
    positions: Mapping[str, int],
    inputs: Sequence[str] = (),
    prepared: Prepared | None = None,
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


def artifact_code(artifact: Artifact, wanted: Wanted, generated: GeneratedCode) -> ArtifactCode:
    """Return the code of ``artifact`` with its kernels.

    Inductor lowers the partition again, which takes as long as the compile without the C++ compiler. So compiles stay
    fast if nobody requests the code, and artifacts loaded from a cache have kernels too.
    """
    code = code_under(wanted, generated)
    if code.problem is not None or not artifact.code:
        return replace(code, text=artifact.code or code.text)
    if normalized(artifact.code) != normalized(code.text):
        return ArtifactCode(artifact.code, problem=OTHER_CODE, seconds=code.seconds)
    return replace(code, text=artifact.code, kernels=tuple(with_lines(code.kernels, artifact.code)))


def code_under(wanted: Wanted, generated: GeneratedCode) -> ArtifactCode:
    """Return the code that Inductor generates for ``wanted``, without compiling it."""
    started, piece = time.perf_counter(), wanted.workpiece.piece
    try:
        with compile_lock(), generated.collected():
            mode = fake_mode_with_symbols()
            gm, fakes, _ = wanted.workpiece.canonical(mode)
            positions = node_positions(gm, piece)
            code = lowered_code(gm, fakes, mode, wanted.config, positions, piece.inputs, piece.prepared)
    except RegionCompileError as error:
        code = ArtifactCode("", problem=str(error))
    return replace(code, seconds=time.perf_counter() - started)


def node_positions(gm: fx.GraphModule, piece: Piece) -> dict[str, int]:
    """Return the positions in ``Partition.nodes`` of the nodes of a piece, by their names in its canonical form."""
    names = [node.name for node in gm.graph.nodes if node.op != "output"]
    return {name: position for position, name in enumerate(names[-len(piece.nodes) :])}
