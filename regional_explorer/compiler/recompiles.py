"""Graphs that Dynamo traces again in later calls: the warning at the user's line, and ``recompiled`` diagnostics."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import warnings
from pathlib import Path

import torch

from regional_explorer.capture.live_graph import Frame
from regional_explorer.compiler.cut_program import CutProgram
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Node, Role
from regional_explorer.record.grouping import grouped

_CACHE_ENTRY = re.compile(r"^\d+/\d+: ")
_OBSERVED_VALUES = re.compile(r"[.,]? *\b(expected|actual)\b.*| == .*?(?= +#|$)")


def warn_of_trace(frame: Frame, partitions: str) -> None:
    """Warn, at the line that made the call, that the ``partitions`` of ``frame`` are not compiled yet."""
    why = f", since a guard failed: {frame.reason.strip().rstrip('.')}" if frame.reason else ""
    warnings.warn(
        f"The call was traced again ({frame_inputs(frame)}){why}. Eager until the next ex.compile(): {partitions}.",
        stacklevel=stacklevel_of_caller(),
    )


def frame_inputs(frame: Frame) -> str:
    """Return the dtypes and shapes of the first few inputs of a frame, as text."""
    nodes = [node for node in frame.dynamo[0].nodes if node.role is Role.INPUT]
    return ", ".join(str(value) for node in nodes[:4] for value in node.values) or "no tensor as input"


def stacklevel_of_caller() -> int:
    """Return the stacklevel of the user's line: the first outside torch, this package and the stdlib."""
    inner = tuple(
        f"{Path(file).parent}{os.sep}" for file in (torch.__file__, Path(__file__).parent, contextlib.__file__)
    )
    files = [frame.filename for frame in inspect.stack(0)]
    generated = "<eval_with_key>"  # the code of an fx graph
    return next((level for level, file in enumerate(files) if not file.startswith((*inner, generated))), 1)


def recompiles(program: CutProgram) -> list[Diagnostic]:
    """Return one ``recompiled`` per region and failed guard; graphs without regions get one without a region."""
    grouped_traces = grouped(
        ((region, _failed_guards(frame.reason)), (frame, node))
        for frame in program.capture.frames
        if frame.late
        for region, node in _regions_in_frame(program, frame).items()
    )
    return [_recompiled_diagnostic(region, traces) for (region, _), traces in grouped_traces.items()]


def _regions_in_frame(program: CutProgram, frame: Frame) -> dict[str | None, Node | None]:
    """Return the regions in a frame, each with the first of its ops."""
    first_ops: dict[str | None, Node | None] = {}
    for graph in frame.dynamo:
        for node in graph.ops:
            if (claim := program.assignment.claim(graph.id, node)) is not None:
                first_ops.setdefault(claim.region, node)
    return first_ops or {None: next(iter(frame.dynamo[0].ops), None)}


def _failed_guards(reason: str) -> frozenset[str]:
    """Return which guards failed, without the sizes, values and cache entries that differ from call to call."""
    lines = (_CACHE_ENTRY.sub("", line.strip()) for line in reason.splitlines())
    return frozenset(_OBSERVED_VALUES.sub("", line).strip() for line in lines if line)


def _recompiled_diagnostic(region: str | None, traces: list[tuple[Frame, Node | None]]) -> Diagnostic:
    frames = [frame for frame, _ in traces]
    traced = "the call" if region is None else f"region {region!r}"
    inputs, graphs = frame_inputs(frames[-1]), ", ".join(str(frame.index) for frame in frames)
    if len(frames) == 1:
        text = f"A later call made Dynamo trace {traced} again (graph {graphs}: {inputs})"
    else:
        text = f"Later calls made Dynamo trace {traced} again {len(frames)} times (graphs {graphs}; the last: {inputs})"
    reason = frames[-1].reason
    return Diagnostic(
        DiagnosticCode.RECOMPILED,
        f"{text}{f', since a guard failed: {reason}' if reason else ''}.",
        Severity.INFO,
        region=region,
        graph=frames[0].dynamo[0].id,
        where=tuple(dict.fromkeys(node.source for _, node in traces if node is not None and node.source is not None)),
        upstream="it would compile all its regions again at that moment.",
        remedy="Its partitions run eagerly until the next ex.compile(); dynamic=True may avoid another trace.",
    )
