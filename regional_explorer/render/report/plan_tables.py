"""Tables of the plan: regions with state and config (requested and applied), partitions, graph breaks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.region import Region
from regional_explorer.record.region_summary import RegionSummary, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.formats import MOST_KEYS, NONE, config_text, duration
from regional_explorer.render.style.tones import TONES
from regional_explorer.render.style.untrusted import LONG_TEXT, SHORT, clean

MOST_BREAKS = 20


def breaks_table(session: Session) -> Table:
    """Return one row per graph break."""
    rows = tuple(
        (
            Cell(clean(found.source or "unknown line")),
            Cell(clean(found.source.text if found.source else "")),
            Cell(clean(found.reason)),
        )
        for found in session.breaks[:MOST_BREAKS]
    )
    note = f"{more} more are in the saved session." if (more := len(session.breaks) - len(rows)) else ""
    return Table("Graph breaks", ("where", "code", "reason"), rows, "No graph break: the call is one graph.", note)


def regions_table(session: Session) -> Table:
    """Return one row per region: its selectors, requested config and state."""
    summaries = region_summaries(session)
    return Table(
        "Regions",
        ("region", "selector", "config", "ops forward", "ops backward", "partitions", "state"),
        tuple(_region_row(one, grad=session.grad) for one in summaries),
        'No region yet. Mark one with ex.mark("mlp", modules="layers.*.mlp") or `with rx.region("mlp")` in the source.',
        "\n".join(f"{clean(one.region.name, SHORT)}: {one.note}" for one in summaries if one.note),
        figures=frozenset({"ops forward", "ops backward", "partitions"}),
    )


def _shown_facts(cut: Partition) -> Hashable:
    configs = repr(cut.config_requested), repr(cut.config_applied)
    return cut.region, cut.graph, len(cut.nodes), cut.state, cut.error, configs


def partitions_table(session: Session) -> Table:
    """Return one row per group of equal partitions of a region."""
    alike = grouped((_shown_facts(cut), cut) for cut in session.partitions)
    index = {region.name: number for number, region in enumerate(session.plan.regions)}
    empty = (
        "Nothing is cut yet. ex.compile() cuts the regions out and compiles them."
        if session.plan.regions
        else "No region, so nothing is cut."
    )
    return Table(
        "Partitions",
        ("region", "graph", "instances", "ops", "state", "requested", "applied", "artifacts", "compile"),
        tuple(_partition_row(cuts, index) for cuts in alike.values()),
        empty,
        "\n".join(_partition_notes(session, alike.values())),
        figures=frozenset({"ops", "artifacts", "compile"}),
    )


def summary(session: Session) -> tuple[tuple[str, str], ...]:
    """Return labels and texts of the first lines: what was captured, and where."""
    where = session.environment
    graphs = [graph for graph in session.graphs if graph.parent is None and graph.kind is not GraphKind.DYNAMO]
    sizes = ", ".join(f"{clean(graph.id, SHORT)} {count(len(graph.ops), 'op')}" for graph in graphs[:MOST_KEYS])
    more = f" and {len(graphs) - MOST_KEYS} more" if len(graphs) > MOST_KEYS else ""
    shapes = [("shapes", session.shapes)] if session.dynamic is not None else []
    return (
        ("graphs", (sizes + more) or "none was captured"),
        *shapes,
        ("gradients", "captured for training" if session.grad else "captured without gradients"),
        ("graph breaks", str(len(session.breaks)) if session.breaks else "none"),
        ("torch", f"{clean(where.torch, SHORT)}, Python {clean(where.python, SHORT)}"),
        ("device", f"{clean(where.device)}, {count(where.threads, 'thread')}"),
    )


def region_config_text(region: Region) -> str:
    """Return the requested config of a region; both if forward and backward differ."""
    if region.backward_config is None:
        return config_text(region.config)
    return "; ".join(f"{direction} {config_text(config) or 'default'}" for direction, config in region.configs)


def _region_row(one: RegionSummary, *, grad: bool) -> tuple[Cell, ...]:
    region = one.region
    return (
        Cell(clean(region.name), region=one.number),
        Cell(clean(region.selection)),
        Cell(region_config_text(region) or "default", "" if any(config for _, config in region.configs) else "quiet"),
        Cell(str(one.ops_forward)),
        Cell(str(one.ops_backward) if grad else NONE),
        Cell(str(len(one.partitions))),
        Cell(one.state, TONES.get(one.state, "")),
    )


def _partition_row(cuts: Sequence[Partition], index: Mapping[str, int]) -> tuple[Cell, ...]:
    first = cuts[0]
    applied, tone = _applied(first)
    paid = [cut.compile_s for cut in cuts if cut.compile_s is not None]
    caches = sorted({cut.cache for cut in cuts if cut.cache})
    cost = f"{duration(sum(paid))} {'/'.join(clean(cache, SHORT) for cache in caches)}".rstrip() if paid else NONE
    return (
        Cell(clean(first.region), region=index.get(first.region)),
        Cell(clean(first.graph, SHORT)),
        Cell(_instances([cut.instance for cut in cuts])),
        Cell(str(len(first.nodes)) + (f" ×{len(cuts)}" if len(cuts) > 1 else "")),
        Cell(first.state, TONES.get(first.state, "")),
        Cell(config_text(first.config_requested) or "default"),
        Cell(applied, tone),
        Cell(str(len({cut.artifact for cut in cuts if cut.artifact})) if any(cut.artifact for cut in cuts) else NONE),
        Cell(cost),
    )


def _partition_notes(session: Session, alike: Collection[Sequence[Partition]]) -> Iterator[str]:
    if len(alike) < len(session.partitions):
        yield "Equal partitions share a row."
    for cuts in alike:
        if cuts[0].error:
            yield f"{clean(cuts[0].region, SHORT)} in {clean(cuts[0].graph, SHORT)}: {clean(cuts[0].error, LONG_TEXT)}"


def _applied(cut: Partition) -> tuple[str, str]:
    """Return the applied config, with keys marked that differ from the requested one, and a tone."""
    if cut.config_applied is None:
        return "not seen yet", "quiet"
    if cut.config_applied == cut.config_requested:
        return "same", ""
    keys = {**cut.config_requested, **cut.config_applied}
    words = (_applied_key(key, cut.config_requested, cut.config_applied) for key in keys)
    return listing((clean(word, 2 * SHORT) for word in words), MOST_KEYS), "warn"


def _applied_key(key: str, requested: Mapping[str, Any], applied: Mapping[str, Any]) -> str:
    if key not in applied:
        return f"{key} missing"
    note = " (not requested)" if key not in requested else " (differs)" if applied[key] != requested[key] else ""
    return f"{key}={applied[key]!r}{note}"


def _instances(numbers: Sequence[int]) -> str:
    """Return ``0–3, 5`` for 0, 1, 2, 3, 5."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return listing([f"{low}–{high}" if high > low else str(low) for low, high in spans], 4)
