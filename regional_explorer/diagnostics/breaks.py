"""Findings about graph breaks: where each is, what runs eagerly because of it, and what helps there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.errors import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.graph_break import MOST_MODULES, GraphBreak, UntracedOps, named_modules
from regional_explorer.record.grouping import grouped


def check_breaks(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-lost`` per region with a graph break inside, one ``graph-break`` per line of other breaks."""
    lost = grouped(
        (evidence.region_of_mark(mark.annotation) or mark.region, (break_, mark.source))
        for break_ in evidence.breaks
        for mark in break_.blocks
    )
    for region, places in lost.items():
        first = places[0][0]
        yield DiagnosticCode.REGION_LOST.found(
            f"A graph break inside the block of region {region!r} makes the whole function around it run as plain "
            f"Python{_place(first)}: {first.reason}",
            region=region,
            where=[*(break_.own_line for break_, _ in places), *(block for _, block in places)],
            remedy=first.advice_in_block,
        )
    for breaks in grouped((break_.own_line, break_) for break_ in evidence.breaks if not break_.blocks).values():
        yield _graph_break(evidence, breaks)


def _graph_break(evidence: Evidence, breaks: Sequence[GraphBreak]) -> Diagnostic:
    """Return the ``graph-break`` diagnostic for the breaks in one line of the user's."""
    reasons = grouped((_place(break_), break_.reason.rstrip(".")) for break_ in breaks)
    causes = "; ".join(f"{place.removeprefix(', ')}: {'; '.join(texts)}" for place, texts in reasons.items())
    advice = dict.fromkeys(text for break_ in breaks for text in (break_.advice, break_.torch_hint))
    stopped = "the graph here" if len(breaks) == 1 else f"the graph {len(breaks)} times in this line"
    return DiagnosticCode.GRAPH_BREAK.found(
        f"Dynamo stopped {stopped}{', ' if _place(breaks[0]) else ''}{causes}. {_eager_part(evidence, breaks)}",
        where=[break_.own_line for break_ in breaks],
        remedy=" ".join(filter(None, advice)),
    )


def _place(break_: GraphBreak) -> str:
    """Return where a break is besides the user's line: its module, and the line if it is in a library."""
    place = break_.place if break_.in_library else break_.inside
    return f", {place}" if place else ""


def _eager_part(evidence: Evidence, breaks: Sequence[GraphBreak]) -> str:
    """Return a sentence with the number of graphs of the call, and the ops outside of them because of the breaks."""
    graphs = {graph.frame for graph in evidence.graphs if graph.kind is not GraphKind.DYNAMO and not graph.parent}
    graphs -= {graph.frame for graph in evidence.graphs if graph.id in evidence.late_graphs}
    sentence = f"The call has {count(len(graphs), 'graph')}"
    untraced = [ops for break_ in breaks for ops in break_.untraced]
    parts = [
        _run_eagerly([ops for ops in untraced if ops.is_cause_known], "this"),
        _run_eagerly([ops for ops in untraced if not ops.is_cause_known], "one or several of the graph breaks"),
    ]
    outside = "; ".join(filter(None, parts))
    return f"{sentence}; outside of {'it' if len(graphs) == 1 else 'them'}, {outside}." if outside else f"{sentence}."


def _run_eagerly(untraced: Sequence[UntracedOps], because: str) -> str:
    """Return how many ops run eagerly, the cause, and their places; empty if there are none."""
    number = sum(ops.count for ops in untraced)
    if not number:
        return ""
    modules = [ops.module for ops in untraced if ops.module and ops.module.path]
    functions = dict.fromkeys(ops.place for ops in untraced if not (ops.module and ops.module.path))
    places = listing(filter(None, (named_modules(modules), *functions)), MOST_MODULES)
    return f"{count(number, 'op')} {'runs' if number == 1 else 'run'} eagerly because of {because}: {places}"
