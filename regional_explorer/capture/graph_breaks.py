"""Records the graph breaks that Dynamo reports, each with reason, hint and line, and the marked blocks around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regional_explorer.capture.source_lines import Outdated, as_loaded, is_internal, original_function, source_line
from regional_explorer.record.graph import GraphBreak, MarkedBlock, SourceLine
from regional_explorer.record.json_safe import json_safe
from regional_explorer.torch_api import Break, OpenMark

_ESCAPED_MARK = "torch.fx.traceback.annotate escaped"
"""How Dynamo says that it cannot resume after a break inside a marked block: it reported the break itself before."""


def record_breaks(
    breaks: Sequence[Break], names: Mapping[int, tuple[str, ...]], outdated: Outdated
) -> tuple[GraphBreak, ...]:
    """Return the graph breaks, each place and reason once: Dynamo reports one again for every frame above it.

    ``names`` are the module paths by ``id(module)``. A break in code of torch alone has that code's lines.
    """
    records: dict[tuple[str, SourceLine | None], GraphBreak] = {}
    for graph_break in breaks:
        if graph_break.reason.startswith(_ESCAPED_MARK) and records:
            continue
        frames = [frame for frame in graph_break.frames if "/torch/_dynamo/" not in frame[0]]  # its own wrappers
        users = [frame for frame in frames if not is_internal(frame[0])]
        stack = tuple(
            as_loaded(source_line(file, line, original_function(function)), outdated)
            for file, line, function in users or frames
        )
        reason = _first_sentences(graph_break.reason)
        key = (reason, stack[-1] if stack else None)
        if key not in records or (graph_break.marks and not records[key].blocks):
            modules = records[key].modules if key in records else ()
            blocks, hint = marked_blocks(graph_break.marks, outdated), _workaround(graph_break.reason)
            records[key] = GraphBreak(reason, stack, blocks, hint, modules)
        paths = [path for module in graph_break.modules for path in names.get(module, ()) if path]
        records[key] = replace(records[key], modules=tuple(dict.fromkeys((*records[key].modules, *paths))))
    return tuple(records.values())


def marked_blocks(marks: Sequence[OpenMark], outdated: Outdated) -> tuple[MarkedBlock, ...]:
    """Return the record of marked blocks."""
    return tuple(
        MarkedBlock(
            mark.block,
            json_safe(mark.annotation),
            None if is_internal(file) else as_loaded(source_line(file, line, original_function(function)), outdated),
        )
        for mark in marks
        for file, line, function in [mark.frame]
    )


def _first_sentences(reason: str) -> str:
    """Return Dynamo's headline and explanation; its hints and developer notes fill a screen."""
    lines = [line.strip().rstrip(".") for line in reason.strip().splitlines() if line.strip()]
    explanations = [line.removeprefix("Explanation: ") for line in lines[1:] if line.startswith("Explanation:")]
    return f"{'. '.join([*lines[:1], *explanations])}{'.' if explanations else ''}"


def _workaround(reason: str) -> str:
    """Return the first of Dynamo's hints that names a workaround, rather than where to report the break."""
    hints = [line.strip() for line in reason.splitlines() if line.strip().startswith("Hint:")]
    workarounds = (hint for hint in hints if "torch._dynamo.config." in hint or "`torch.cond`" in hint)
    return next(workarounds, "").removeprefix("Hint: ").rstrip(".")
