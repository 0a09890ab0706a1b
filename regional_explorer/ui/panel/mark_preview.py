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
    found, name = form.preview, form.previewed_name
    if found is None or form.error:  # the error says why there is none
        return []
    if isinstance(found, str):
        return [node("span", found, class_="rx-quiet")]
    mine = [part for part in found.partitions if part.region == name]
    ops = sorted({len(part.nodes) for part in mine})
    sizes = f" of {ops[0]}{f'–{ops[-1]}' if len(ops) > 1 else ''} {'op' if ops == [1] else 'ops'}" if ops else ""
    graphs = ", ".join(f"{number} in {graph}" for graph, number in _count_by(mine, "graph").items())
    where = f" ({graphs})" if graphs else ""
    others = "".join(f"; {text}" for text in _changed_counts(name, found.partitions, session.partitions))
    parts = node("b", count(len(mine), "partition"))
    head = node(
        "div",
        "Region ",
        node("b", clean(name, SHORT)),
        " would give ",
        parts,
        f"{sizes}{where}{others}.",
        role="status",
    )
    messages = [diagnostic_item(one, short=True) for one in _new_diagnostics(found.diagnostics, session.diagnostics)]
    return [head, *([node("ul", *messages, class_="rx-list")] if messages else [])]


def previewed_nodes(form: MarkForm) -> list[str]:
    """Return what a pattern that is being typed matches, as ``graph:name``; nothing for nodes selected by hand."""
    if form.kind == SELECTION or not isinstance(form.preview, Preview):
        return []
    parts = (part for part in form.preview.partitions if part.region == form.previewed_name)
    return [f"{part.graph}:{name}" for part in parts for name in part.nodes]


def _count_by(partitions: Iterable[Partition], what: str) -> Counter[str]:
    return Counter(getattr(part, what) for part in partitions)


def _changed_counts(name: str, then: Iterable[Partition], now: Iterable[Partition]) -> list[str]:
    before, after = _count_by(now, "region"), _count_by(then, "region")
    return [
        f"{other}: {before[other]} → {after[other]}"
        for other in before
        if other != name and before[other] != after[other]
    ]


def _new_diagnostics(then: Sequence[Diagnostic], now: Sequence[Diagnostic]) -> list[Diagnostic]:
    known = {(one.code, one.message) for one in now}
    return [one for one in then if (one.code, one.message) not in known]
