"""Findings about configs of regions, and about options of subgraphs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from regional_explorer.diagnostics.evidence import Evidence, lines
from regional_explorer.errors import count, listing
from regional_explorer.record.action import TO_SOURCE, configure_action
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph, MarkedBlock, Node, subgraphs
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import DEFAULT, Direction, Region, SelectorKind, config_of, configs_text
from regional_explorer.regions.select import (
    annotated_config,
    annotation_key,
    marked_nodes,
    subgraph_key,
)


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
            f"configs ({requested})",
            f": {outcome}.",
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
            f"{'belongs' if len(cases) == 1 else 'belong'} to the inner region only",
            f": "
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
            f"compile_with_inductor={annotation} does not switch the mark off",
            f": {count(len(nodes), 'op')} {'is' if len(nodes) == 1 else 'are'} marked.",
            at=nodes,
            remedy='Remove the annotation, or carve ops out of a region with annotate({"fallback_to_eager": True}).',
        )


def global_config_diagnostic(region: Region, key: str, reason: str, graphs: Sequence[Graph]) -> Diagnostic:
    """Return the ``config-global`` diagnostic for a key in the source that cannot be set for one region."""
    marked = [node for node in marked_nodes(graphs) if annotation_key(node.annotation) in region.selectors[0].patterns]
    return DiagnosticCode.CONFIG_GLOBAL.finding(
        f"{key!r} was not applied to region {region.name!r}",
        f": {reason}",
        region=region.name,
        where=lines(marked)[:1],
        remedy="Set it for the whole process in torch._inductor.config, or leave it out.",
    )


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
            f"The nested_compile_region of {region.name!r} has options that no plan can hold",
            f". {' '.join(sentences)}",
            region=region.name,
            graph=bodies[0].id,
            where=(op for body in bodies for op in body.ops[:1]),
            remedy=("Leave the options in the source: neither a plan file nor ", TO_SOURCE, " contains them."),
            severity=Severity.WARNING if ignored else Severity.INFO,
        )
