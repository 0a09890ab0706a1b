"""Findings about configs of regions, and about options of subgraphs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.diagnostics.evidence import Evidence, lines
from regional_explorer.errors import count, listing
from regional_explorer.record.action import TO_SOURCE, Action, ActionKind, configure_action, mark_action
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph, MarkedBlock, Node, subgraphs
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.plan import DEFAULT, Direction, Region, Selector, SelectorKind, config_of, configs_text
from regional_explorer.regions.select import (
    annotated_config,
    annotation_key,
    calls_of,
    marked_nodes,
    subgraph_key,
)


def check_neighbours(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield at most one ``config-neighbour``, with all pairs of regions where upstream mixes up the configs."""
    marked = (
        (part, _first_marked_input(evidence, part))
        for part in evidence.partitions
        if evidence.plan[part.region].enabled
    )
    leaks = grouped(
        ((part.region, first[0]), (part, first[1]))
        for part, first in marked
        if first is not None and _region_config(evidence, first[0], part) != _region_config(evidence, part.region, part)
    )
    if not leaks:
        return
    pairs = listing(
        f"{fed!r} under {_region_config(evidence, source, cases[0][0]) or 'no config'} of {source!r} ({len(cases)} of "
        f"{sum(part.region == fed for part in evidence.partitions)})"
        for (fed, source), cases in leaks.items()
    )
    part, input_name = next(iter(leaks.values()))[0]
    total = sum(map(len, leaks.values()))
    input_nodes = [evidence.nodes[case.graph][name] for cases in leaks.values() for case, name in cases[:1]]
    yield DiagnosticCode.CONFIG_NEIGHBOUR.finding(
        f"{count(total, 'partition')} {'is' if total == 1 else 'are'} fed directly by another region with another "
        f"config. Here {'it is' if total == 1 else 'each is'} compiled under its own region's config.",
        region=part.region if len(leaks) == 1 else None,
        graph=part.graph,
        at=(input_name,),
        where=input_nodes,
        remedy="No change is needed.",
        upstream=f"it compiles a piece under the config of its first marked input: {pairs}. There, give neighbours the "
        "same config, or leave an unmarked op between them.",
    )


def _region_config(evidence: Evidence, region: str, part: Partition) -> dict[str, Any]:
    """Return the config of a region in the direction of ``part``."""
    return config_of(evidence.plan[region], Direction.of_graph(part.graph))


def _first_marked_input(evidence: Evidence, part: Partition) -> tuple[str, str] | None:
    """Return the input that upstream reads a partition's config from, and its region; None if it is the same region.

    Upstream takes the first mark with configs among the nodes of a piece, inputs first. Cutting has copied the mark of
    whatever feeds the piece onto its inputs (``_compile_submod`` in torch/fx/passes/regional_inductor.py, 2.13).
    """
    nodes, claims = evidence.nodes[part.graph], evidence.claims[part.graph]
    own_nodes = set(part.nodes)
    for name in part.nodes:
        for source in nodes[name].inputs:
            if source not in own_nodes and source in claims and _holds_configs(nodes[source]):
                region = claims[source].region
                if evidence.plan[region].enabled:
                    return (region, source) if region != part.region else None
    return None


def _holds_configs(node: Node) -> bool:
    """Return whether upstream would find a config at a node if all regions were marked in the source."""
    return not node.annotated or (isinstance(node.annotation, Mapping) and "inductor_configs" in node.annotation)


def check_conflicts(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield a ``config-conflict`` where marks of one region, or marks without an id, request different configs."""
    first_nodes: dict[str, dict[str, Node]] = {}  # by id and config
    for node in _marked_ops(evidence):
        key = annotation_key(node.annotation)
        same_id = first_nodes.setdefault("" if key.startswith("default:") else key, {})
        same_id.setdefault(json.dumps(annotated_config(node.annotation), sort_keys=True), node)
    for key, nodes in first_nodes.items():
        if len(nodes) < 2:  # noqa: PLR2004 - one config is no conflict
            continue
        requested = listing(repr(annotated_config(node.annotation)) for node in nodes.values())
        region = evidence.plan[evidence.assignment.by_annotation[key]] if key else None
        if region is not None and not region.enabled:
            continue
        outcome = (
            f"all are compiled under {configs_text(region)}" if region else "each config is a region of its own here"
        )
        yield DiagnosticCode.CONFIG_CONFLICT.finding(
            f"Marks {f'of region {region.name!r}' if region else 'without a name'} request {len(nodes)} different "
            f"configs ({requested}): {outcome}.",
            region=region.name if region else None,
            at=nodes.values(),
            remedy="Give each block its own region name.",
            severity=Severity.WARNING if region else Severity.INFO,
        )


def _marked_ops(evidence: Evidence) -> Iterator[Node]:
    """Yield the ops with a mark in the source that a region of the plan selects."""
    keys = {pattern for region in evidence.plan.regions for pattern in region.patterns(SelectorKind.ANNOTATION)}
    return (node for node in marked_nodes(evidence.graphs) if annotation_key(node.annotation) in keys)


def check_nested(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``config-nested`` per pair of nested marks where the outer config does not apply to the inner ops."""
    nested: dict[tuple[str, str], list[tuple[int, MarkedBlock, MarkedBlock]]] = {}
    for origin, (*outer_blocks, inner) in evidence.blocks.items():
        inner_name = evidence.region_of_mark(inner.annotation)
        owner = evidence.assignment.owners.get(origin)
        if inner_name is None or owner is None or owner.region != inner_name or not evidence.plan[inner_name].enabled:
            continue
        for outer in outer_blocks:
            outer_name = evidence.region_of_mark(outer.annotation)
            if outer_name is not None and _lacks_config_of(evidence.plan[inner_name], evidence.plan[outer_name]):
                nested.setdefault((outer_name, inner_name), []).append((origin, outer, inner))
    for (outer_name, inner_name), cases in nested.items():
        _, outer, inner = cases[0]
        nodes = evidence.dynamo_nodes(origin for origin, _, _ in cases)
        yield DiagnosticCode.CONFIG_NESTED.finding(
            f"{count(len(cases), 'op')} inside both {outer_name!r} and {inner_name!r} "
            f"{'belongs' if len(cases) == 1 else 'belong'} to the inner region only: "
            f"{listing(node.name for node in nodes)} {'is' if len(nodes) == 1 else 'are'} compiled under "
            f"{configs_text(evidence.plan[inner_name])}, not under {configs_text(evidence.plan[outer_name])}.",
            region=inner_name,
            at=nodes,
            where=(outer.source, inner.source),
            remedy=("Repeat the config at the inner mark, or ", configure_action(inner_name), "."),
        )


def _lacks_config_of(inner: Region, outer: Region) -> bool:
    """Return whether in some direction ``inner`` lacks a key of ``outer``'s config, or has another value for it."""
    return any(
        config_of(inner, direction).get(key, DEFAULT) != value
        for direction in Direction
        for key, value in config_of(outer, direction).items()
    )


def check_falsy(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``annotation-false`` per value that was meant to switch a mark off."""
    marked = (node for node in _marked_ops(evidence) if not isinstance(node.annotation, Mapping))
    by_annotation = grouped((repr(node.annotation), node) for node in marked if not node.annotation)
    for annotation, nodes in by_annotation.items():
        yield DiagnosticCode.ANNOTATION_FALSE.finding(
            f"compile_with_inductor={annotation} does not switch the mark off: {count(len(nodes), 'op')} "
            f"{'is' if len(nodes) == 1 else 'are'} marked.",
            at=nodes,
            remedy='Remove the annotation, or carve ops out of a region with annotate({"fallback_to_eager": True}).',
        )


def check_directions(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``config-direction`` per region marked in the source whose backward has a config of its own."""
    for region in evidence.plan.regions:
        keys = region.patterns(SelectorKind.ANNOTATION)
        if region.backward_config is None or not keys:
            continue
        marked = [node for node in marked_nodes(evidence.graphs) if annotation_key(node.annotation) in keys]
        yield DiagnosticCode.CONFIG_DIRECTION.finding(
            f"The backward of region {region.name!r} has a config of its own, "
            f"{config_of(region, Direction.BACKWARD) or 'which is empty'}. Only the plan has it: a mark in the source "
            "has one config for forward and backward.",
            region=region.name,
            where=lines(marked)[:1],
            remedy=(
                "Keep it with ",
                Action(ActionKind.SAVE_PLAN, needs="path"),
                " or the text of ",
                TO_SOURCE,
                ", which sets the config outside of the block.",
            ),
        )


def global_config_diagnostic(region: Region, key: str, reason: str, graphs: Sequence[Graph]) -> Diagnostic:
    """Return the ``config-global`` diagnostic for a key in the source that cannot be set for one region."""
    marked = [node for node in marked_nodes(graphs) if annotation_key(node.annotation) in region.selectors[0].patterns]
    return DiagnosticCode.CONFIG_GLOBAL.finding(
        f"{key!r} was not applied to region {region.name!r}: {reason}",
        region=region.name,
        where=lines(marked)[:1],
        remedy="Set it for the whole process in torch._inductor.config, or leave it out.",
    )


def check_eager_subgraphs(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield at most one ``subgraph-eager``, for all bodies without options whose ops and calls are in no region."""
    bodies = [body for body in subgraphs(evidence.graphs) if body.options is None and _is_eager_body(evidence, body)]
    if not bodies:
        return
    names = listing(dict.fromkeys(body.name for body in bodies))
    yield DiagnosticCode.SUBGRAPH_EAGER.finding(
        f"{count(len(bodies), 'subgraph')} of nested_compile_region ({names}) "
        f"{'is' if len(bodies) == 1 else 'are'} in no region and {'runs' if len(bodies) == 1 else 'run'} eagerly.",
        graph=bodies[0].id,
        where=(body.ops[0] for body in bodies if body.ops),
        remedy=(
            mark_action("blocks", Selector(SelectorKind.SUBGRAPHS, ("*",))),
            " makes a region of them. A function's name in place of '*' picks only its bodies.",
        ),
    )


def _is_eager_body(evidence: Evidence, body: Graph) -> bool:
    owners = evidence.assignment.owners
    calls = calls_of(body, evidence.graphs)
    outer = evidence.by_id[body.parent[0]] if body.parent else None
    compiled = bool(calls) and all(call.origin in owners for call in calls)
    in_compiled = outer is not None and outer.name and not _is_eager_body(evidence, outer)
    return bool(body.ops) and not compiled and not in_compiled and not any(op.origin in owners for op in body.ops)


def check_subgraph_options(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``subgraph-options`` per region with options that a plan cannot hold."""
    for region in evidence.plan.regions:
        keys = region.patterns(SelectorKind.SUBGRAPH)
        bodies = [body for body in subgraphs(evidence.graphs) if body.options and subgraph_key(body) in keys]
        followed = dict.fromkeys(option for body in bodies if body.options for option in body.options.followed)
        ignored = dict.fromkeys(option for body in bodies if body.options for option in body.options.ignored)
        if not followed and not ignored:
            continue
        sentences = [f"Torch applies these while tracing: {', '.join(followed)}."] if followed else []
        sentences += [f"These are ignored: {', '.join(ignored)}."] if ignored else []
        yield DiagnosticCode.SUBGRAPH_OPTIONS.finding(
            f"The nested_compile_region of {region.name!r} has options that no plan can hold. {' '.join(sentences)}",
            region=region.name,
            graph=bodies[0].id,
            where=(op for body in bodies for op in body.ops[:1]),
            remedy=("Leave the options in the source: neither a plan file nor ", TO_SOURCE, " contains them."),
            severity=Severity.WARNING if ignored else Severity.INFO,
        )
