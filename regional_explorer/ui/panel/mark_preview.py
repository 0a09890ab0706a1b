"""Previews a new region: its partitions and diagnostics, before anything is compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.region import Partition
from regional_explorer.record.session import Session
from regional_explorer.regions.cutting.preview import Preview
from regional_explorer.render.style.figures import count
from regional_explorer.render.style.untrusted import LONG_TEXT, SHORT, markup


def preview_html(name: str, found: Preview, session: Session) -> str:
    """Return as HTML the partitions that region ``name`` would have, changes to other regions, and new diagnostics."""
    mine = [part for part in found.partitions if part.region == name]
    ops = sorted({len(part.nodes) for part in mine})
    sizes = f" of {ops[0]}{f'–{ops[-1]}' if len(ops) > 1 else ''} {'op' if ops == [1] else 'ops'}" if ops else ""
    graphs = ", ".join(f"{number} in {markup(graph, SHORT)}" for graph, number in _count_by(mine, "graph").items())
    where = f" ({graphs})" if graphs else ""
    others = "".join(f"; {markup(text)}" for text in _changed_counts(name, found.partitions, session.partitions))
    head = (
        f"Region <b>{markup(name, SHORT)}</b> would give <b>{count(len(mine), 'partition')}</b>{sizes}{where}{others}."
    )
    messages = "".join(map(_message, _new_diagnostics(found.diagnostics, session.diagnostics)))
    return f'<div role="status">{head}</div>' + (f'<ul class="rx-list">{messages}</ul>' if messages else "")


def _message(found: Diagnostic) -> str:
    tone = {Severity.ERROR: "bad", Severity.WARNING: "warn"}.get(found.severity, "quiet")
    remedy = f' <span class="rx-quiet">{markup(found.remedy, LONG_TEXT)}</span>' if tone != "quiet" else ""
    head = f'<span class="rx-{tone}">{"! " if remedy else ""}{markup(found.severity)}</span>'
    return f"<li>{head} <code>{markup(found.code)}</code> {markup(found.message, LONG_TEXT)}{remedy}</li>"


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
