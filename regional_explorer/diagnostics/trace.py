"""Diagnostics about the trace: graph breaks, the backward of regions, repaired ops, kept state, edited source."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.errors import count, listing
from regional_explorer.record.action import Action, ActionKind
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import (
    MOST_MODULES,
    Graph,
    GraphBreak,
    GraphKind,
    Node,
    UntracedOps,
    marked_region,
    named_modules,
)
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import CutRule
from regional_explorer.regions.instances import Claim, claims_from_around

# --------------------------------------------------------------------------------------------------------- graph breaks


def check_breaks(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``region-lost`` per region with a graph break inside, one ``graph-break`` per line of other breaks."""
    lost = grouped(
        (evidence.region_of_mark(mark.annotation) or mark.region, (break_, mark.source))
        for break_ in evidence.breaks
        for mark in break_.blocks
    )
    for region, places in lost.items():
        first = places[0][0]
        yield DiagnosticCode.REGION_LOST.finding(
            f"A graph break inside the block of region {region!r} makes the whole function around it run as plain "
            f"Python{_after_comma(_place(first))}",
            f": {first.reason}",
            region=region,
            where=[*(break_.own_line for break_, _ in places), *(block for _, block in places)],
            remedy=first.advice_in_block,
        )
    for breaks in grouped((break_.own_line, break_) for break_ in evidence.breaks if not break_.blocks).values():
        yield _graph_break(evidence, breaks)


def _graph_break(evidence: Evidence, breaks: Sequence[GraphBreak]) -> Diagnostic:
    """Return the ``graph-break`` diagnostic for the breaks in one line of the user's."""
    reasons = grouped((_place(break_), break_.reason.rstrip(".")) for break_ in breaks)
    causes = (f"{place if number else ''}: {'; '.join(texts)}" for number, (place, texts) in enumerate(reasons.items()))
    advice = dict.fromkeys(text for break_ in breaks for text in (break_.advice, break_.torch_hint))
    stopped = "the graph here" if len(breaks) == 1 else f"the graph {len(breaks)} times in this line"
    return DiagnosticCode.GRAPH_BREAK.finding(
        f"Dynamo stopped {stopped}{_after_comma(_place(breaks[0]))}",
        f"{'; '.join(causes)}. {_graphs_sentence(evidence, breaks)}",
        where=[break_.own_line for break_ in breaks],
        remedy=" ".join(filter(None, advice)),
    )


def _place(break_: GraphBreak) -> str:
    """Return where a break is besides the user's line: its module, and the line if it is in a library."""
    return break_.place if break_.in_library else break_.inside


def _after_comma(place: str) -> str:
    return f", {place}" if place else ""


def _graphs_sentence(evidence: Evidence, breaks: Sequence[GraphBreak]) -> str:
    """Return a sentence: how many graphs the call has, and which ops run outside of them after the breaks."""
    graphs = {graph.frame for graph in evidence.graphs if graph.kind is not GraphKind.DYNAMO and not graph.parent}
    graphs -= {graph.frame for graph in evidence.graphs if graph.id in evidence.late_graphs}
    sentence = f"The call has {count(len(graphs), 'graph')}"
    untraced = [ops for break_ in breaks for ops in break_.untraced]
    parts = [
        _eager_ops_text([ops for ops in untraced if ops.is_cause_known], "this"),
        _eager_ops_text([ops for ops in untraced if not ops.is_cause_known], "one or several of the graph breaks"),
    ]
    outside = "; ".join(filter(None, parts))
    return f"{sentence}; outside of {'it' if len(graphs) == 1 else 'them'}, {outside}." if outside else f"{sentence}."


def _eager_ops_text(untraced: Sequence[UntracedOps], because: str) -> str:
    """Return how many ops run eagerly, the cause, and their places; empty if there are none."""
    number = sum(ops.count for ops in untraced)
    if not number:
        return ""
    modules = [ops.module for ops in untraced if ops.module and ops.module.path]
    functions = dict.fromkeys(ops.place for ops in untraced if not (ops.module and ops.module.path))
    places = listing(filter(None, (named_modules(modules), *functions)), MOST_MODULES)
    return f"{count(number, 'op')} {'runs' if number == 1 else 'run'} eagerly because of {because}: {places}"


# ---------------------------------------------------------------------------------------------- the backward of regions


def check_backward(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield ``backward-unmarked`` and ``backward-only``: backward ops whose forward op is missing or unmarked."""
    backward = list(evidence.of_kind(GraphKind.BACKWARD))
    by_region = grouped((stray.region, stray) for graph in backward for stray in _stray_ops(evidence, graph))
    only_backward = grouped(
        (evidence.region_of_mark(node.annotation) or _marked_region_name(node), (graph, node))
        for graph in backward
        for node in graph.ops
        if node.annotated and not (node.origin in evidence.origins and evidence.origins[node.origin].annotated)
    )
    for region, strays in by_region.items():
        yield _backward_unmarked(evidence, region, strays)
    for region, ops in only_backward.items():
        yield _backward_only(evidence, region, ops)


@dataclass(frozen=True)
class UnclaimedOp:
    """A backward op that has no forward op, reads results of an instance of ``region``, and belongs to no instance.

    ``feeds_back`` says whether the instance also reads the op's result, ``reason`` why the op does not belong to it.
    """

    graph: Graph
    node: Node
    region: str
    feeds_back: bool
    reason: str


def _stray_ops(evidence: Evidence, graph: Graph) -> Iterator[UnclaimedOp]:
    claims, users = evidence.claims[graph.id], evidence.users(graph.id)
    loose = [node for node in graph.ops if node.origin is None and not node.annotated and node.name not in claims]
    op_names = {node.name for node in graph.ops}
    # A sum of three gradients is two ops in a row: each takes over the claims of its loose inputs and users.
    above: dict[str, set[Claim | None]] = {}
    below: dict[str, set[Claim | None]] = {}
    for node in loose:
        above[node.name] = {
            claim for name in node.inputs if name in op_names for claim in above.get(name, {claims.get(name)})
        }
    for node in reversed(loose):
        below[node.name] = {claim for name in users.get(node.name, ()) for claim in below.get(name, {claims.get(name)})}
    circular = functools.cache(lambda: claims_from_around(graph, claims))
    for node in loose:
        sources = above[node.name]
        around = next((claim for claim in sources & below[node.name] if claim is not None), None)
        owner = around or (next(iter(sources)) if len(sources) == 1 else None)
        if owner is not None:
            if evidence.plan.cut is not CutRule.INSTANCES:
                reason = f"cut='{evidence.plan.cut}' takes only marked ops"
            elif node.name in circular():
                reason = "if the instance had them, instances would feed each other in a cycle"
            elif len(sources) > 1:
                reason = "they also take inputs from outside the instance"
            else:
                reason = "an op that draws random numbers, writes, or runs a body keeps its place"
            yield UnclaimedOp(graph, node, owner.region, around is not None, reason)


def _marked_region_name(node: Node) -> str:
    marked = marked_region(node.annotation)
    return str(marked[0]) if marked is not None else "default"


def _backward_unmarked(evidence: Evidence, region: str, strays: list[UnclaimedOp]) -> Diagnostic:
    first_graph = strays[0].graph
    input_nodes = [evidence.nodes[stray.graph.id][name] for stray in strays for name in stray.node.inputs]
    between = sum(stray.feeds_back for stray in strays)
    places = {(region, stray.graph.id) for stray in strays}
    most = max((len(parts) for (name, _, id_), parts in evidence.instances.items() if (name, id_) in places), default=0)
    have, run = ("has", "runs") if len(strays) == 1 else ("have", "run")
    effect = (
        f"; {'it' if len(strays) == 1 else f'{between} of them'} {'lies' if between == 1 else 'lie'} between ops of "
        f"one instance, whose backward becomes {'up to ' if len(strays) > 1 else ''}{count(most, 'partition')}"
    )
    return DiagnosticCode.BACKWARD_UNMARKED.finding(
        f"{count(len(strays), 'op')} in the backward of region {region!r} {have} no forward op (a sum of gradients has "
        f"none) and {run} eagerly, in no region",
        f": {listing(stray.node.name for stray in strays)}"
        f"{effect if between and most else ''}. "
        f"The reason: {'; '.join(dict.fromkeys(stray.reason for stray in strays))}.",
        region=region,
        graph=first_graph.id,
        at=(stray.node for stray in strays if stray.graph is first_graph),
        where=input_nodes,
        remedy="Nothing has to be done. Gradients are summed where a value of the region is used more than once."
        if evidence.plan.cut is CutRule.INSTANCES
        else (Action(ActionKind.CUT), ": sums of gradients that one instance computes then belong to it."),
    )


def _backward_only(evidence: Evidence, region: str, ops: list[tuple[Graph, Node]]) -> Diagnostic:
    return DiagnosticCode.BACKWARD_ONLY.finding(
        f"{count(len(ops), 'op')} of the backward carry the mark of region {region!r}, but their forward ops do not "
        f"({listing(node.name for _, node in ops)})",
        ". The cause is a graph break in a function that the block calls. "
        "A backward op goes where its forward op goes, so these run eagerly.",
        region=region,
        graph=ops[0][0].id,
        at=(node for graph, node in ops if graph is ops[0][0]),
        where=evidence.dynamo_nodes(node.origin for _, node in ops),
        remedy="Remove the graph break from what the block calls.",
    )


# ----------------------------------------------------------------------------------------------- repairs, state, source


def check_repaired(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``aot-eager-failed`` if ops of the captured graphs failed and were repaired."""
    if not evidence.failed_ops:
        return
    first = evidence.failed_ops[0]
    nodes = [evidence.nodes[op.graph][op.node] for op in evidence.failed_ops]
    yield DiagnosticCode.AOT_EAGER_FAILED.finding(
        "The captured graph does not run as torch made it",
        f": {first.node} ({first.target}, "
        f"{count(len(nodes), 'such op')}) raises '{first.error}' In the trace, its input has other strides than the "
        "kernel before it returns. Here the op gets a copy, so that regions and the rest run; the variant aot_eager is "
        "left out.",
        graph=first.graph,
        at=(op.node for op in evidence.failed_ops if op.graph == first.graph),
        where=nodes,
        remedy="No change is needed.",
        upstream=f"{DiagnosticCode.AOT_EAGER_FAILED.upstream} Under its regional backend, include the op and the one "
        "before it in a region.",
    )


MOST_ATTRIBUTES = 16
"""The maximum number of attributes or functions that are named."""


def check_state(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``state-kept`` for state that the first call changed and that is not restored."""
    if evidence.not_restored:
        yield DiagnosticCode.STATE_KEPT.finding(
            "The first call changed state that later calls see",
            f": "
            f"{listing(evidence.not_restored, most=MOST_ATTRIBUTES)}. It was not restored, so a later "
            "call is traced and measured.",
            remedy="No change is needed if it is a cache; else assign it before rx.explore, or outside of the call.",
        )


def check_guarded_state(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``state-guarded`` for Python values that each call assigns and a guard reads."""
    if evidence.reassigned:
        guard, _, place = evidence.failed_guard.partition(" #")
        line = re.search(r"([^/\\\s]+:\d+ in \S+)", place)  # Dynamo shortens the path
        yield DiagnosticCode.STATE_GUARDED.finding(
            f"Each call assigns {listing(evidence.reassigned, most=MOST_ATTRIBUTES)}, and a guard reads it "
            f"({guard}{f', {line[1]}' if line else ''})",
            ": the next call is traced again. Benchmarks restore it before "
            "each call, so they measure a call that never comes twice in a program.",
            remedy="Assign it outside of the call, or keep it in a tensor: a buffer has no such guard.",
        )


def check_source(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``source-changed`` for functions whose file was edited after it was loaded."""
    # A comprehension or a lambda is listed under the function around it.
    functions = {(line.file, line.scope.partition(".<")[0]): line for line in reversed(evidence.outdated)}
    if functions:
        first_lines = tuple(reversed(functions.values()))
        yield DiagnosticCode.SOURCE_CHANGED.finding(
            "The source was edited after it was loaded, and the old code runs",
            f": "
            f"{listing(list(map(str, first_lines)), most=MOST_ATTRIBUTES)}. Line numbers are those of the old "
            "code; the text of its lines is no longer known.",
            where=first_lines[:MOST_ATTRIBUTES],
            remedy="Load the source again (importlib.reload, %autoreload or a new kernel), make new objects of "
            "its classes, and explore again.",
        )
