"""Previews a new region: its partitions and diagnostics, before anything is compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from regional_explorer.errors.texts import count
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.partition import Partition
from regional_explorer.record.preview import Preview
from regional_explorer.record.session import Session
from regional_explorer.render.report.diagnostics_list import diagnostic_item
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.untrusted import SHORT, clean
from regional_explorer.ui.state import SELECTION, MarkForm


def preview_nodes(form: MarkForm, session: Session) -> list[Node]:
    """Return the partitions that the region would have, changes to other regions, and new diagnostics."""
    preview, name = form.preview, form.previewed_name
    if preview is None or form.error:  # the error says why there is none
        return []
    if isinstance(preview, str):
        return [node("span", preview, class_="rx-quiet")]
    partitions = [part for part in preview.partitions if part.region == name]
    ops = sorted({len(part.nodes) for part in partitions})
    sizes = f" of {ops[0]}{f'–{ops[-1]}' if len(ops) > 1 else ''} {'op' if ops == [1] else 'ops'}" if ops else ""
    graphs = ", ".join(f"{number} in {graph}" for graph, number in _count_by(partitions, "graph").items())
    where = f" ({graphs})" if graphs else ""
    other_changes = "".join(f"; {text}" for text in _changed_counts(name, preview.partitions, session.partitions))
    partition_count = node("b", count(len(partitions), "partition"))
    head = node(
        "div",
        "Region ",
        node("b", clean(name, SHORT)),
        " would give ",
        partition_count,
        f"{sizes}{where}{other_changes}.",
        role="status",
    )
    new_diagnostics = _new_diagnostics(preview.diagnostics, session.diagnostics)
    messages = [diagnostic_item(diagnostic, short=True) for diagnostic in new_diagnostics]
    return [head, *([node("ul", *messages, class_="rx-list")] if messages else [])]


def previewed_nodes(form: MarkForm) -> list[str]:
    """Return what a pattern that is being typed matches, as ``graph:name``; nothing for nodes selected by hand."""
    if form.kind == SELECTION or not isinstance(form.preview, Preview):
        return []
    partitions = (part for part in form.preview.partitions if part.region == form.previewed_name)
    return [f"{part.graph}:{name}" for part in partitions for name in part.nodes]


def _count_by(partitions: Iterable[Partition], attribute: str) -> Counter[str]:
    return Counter(getattr(part, attribute) for part in partitions)


def _changed_counts(name: str, previewed: Iterable[Partition], current: Iterable[Partition]) -> list[str]:
    before, after = _count_by(current, "region"), _count_by(previewed, "region")
    return [
        f"{other}: {before[other]} → {after[other]}"
        for other in before
        if other != name and before[other] != after[other]
    ]


def _new_diagnostics(previewed: Sequence[Diagnostic], current: Sequence[Diagnostic]) -> list[Diagnostic]:
    current_messages = {(diagnostic.code, diagnostic.message) for diagnostic in current}
    return [diagnostic for diagnostic in previewed if (diagnostic.code, diagnostic.message) not in current_messages]
