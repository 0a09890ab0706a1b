"""Tables of the plan: regions with state and config (requested and applied), partitions, graph breaks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.errors.texts import listing, number_ranges
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.region_summary import RegionSummary, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.render.report.table import Cell, Table
from regional_explorer.render.style.formats import MOST_ENTRIES, NONE, config_text, duration, region_config_text
from regional_explorer.render.style.tones import TONES
from regional_explorer.render.style.untrusted import LONG_TEXT, SHORT, clean

MOST_BREAKS = 20


def breaks_table(session: Session) -> Table:
    """Return one row per graph break."""
    rows = tuple(
        (
            Cell(clean(graph_break.source or "unknown line")),
            Cell(clean(graph_break.source.text if graph_break.source else "")),
            Cell(clean(graph_break.reason)),
        )
        for graph_break in session.breaks[:MOST_BREAKS]
    )
    note = f"{more} more are in the saved session." if (more := len(session.breaks) - len(rows)) else ""
    return Table("Graph breaks", ("where", "code", "reason"), rows, "No graph break: the call is one graph.", note)


def regions_table(session: Session) -> Table:
    """Return one row per region: its selectors, requested config and state."""
    summaries = region_summaries(session)
    return Table(
        "Regions",
        ("region", "selector", "config", "ops forward", "ops backward", "partitions", "state"),
        tuple(_region_state_row(entry, grad=session.grad) for entry in summaries),
        'No region yet. Mark one with ex.mark("mlp", modules="layers.*.mlp") or `with rx.region("mlp")` in the source.',
        "\n".join(f"{clean(entry.region.name, SHORT)}: {entry.note}" for entry in summaries if entry.note),
        figures=frozenset({"ops forward", "ops backward", "partitions"}),
    )


def _equality_key(partition: Partition) -> Hashable:
    configs = repr(partition.config_requested), repr(partition.config_applied)
    return partition.region, partition.graph, len(partition.nodes), partition.state, partition.error, configs


def partitions_table(session: Session) -> Table:
    """Return one row per group of equal partitions of a region."""
    groups = grouped((_equality_key(partition), partition) for partition in session.partitions)
    region_numbers = session.plan.numbers
    empty = (
        "Nothing is cut yet. ex.compile() cuts the regions out and compiles them."
        if session.plan.regions
        else "No region, so nothing is cut."
    )
    return Table(
        "Partitions",
        ("region", "graph", "instances", "ops", "state", "requested", "applied", "artifacts", "compile"),
        tuple(_partition_row(group, region_numbers) for group in groups.values()),
        empty,
        "\n".join(_partition_notes(session, groups.values())),
        figures=frozenset({"ops", "artifacts", "compile"}),
    )


def _region_state_row(entry: RegionSummary, *, grad: bool) -> tuple[Cell, ...]:
    region = entry.region
    return (
        Cell(clean(region.name), region=entry.number),
        Cell(clean(region.selection)),
        Cell(region_config_text(region) or "default", "" if any(config for _, config in region.configs) else "quiet"),
        Cell(str(entry.ops_forward)),
        Cell(str(entry.ops_backward) if grad else NONE),
        Cell(str(len(entry.partitions))),
        Cell(entry.state, TONES.get(entry.state, "")),
    )


def _partition_row(group: Sequence[Partition], region_numbers: Mapping[str, int]) -> tuple[Cell, ...]:
    first = group[0]
    applied, tone = _applied_config(first)
    seconds = [partition.compile_s for partition in group if partition.compile_s is not None]
    artifacts = {partition.artifact for partition in group if partition.artifact}
    caches = sorted({partition.cache for partition in group if partition.cache})
    cost = f"{duration(sum(seconds))} {'/'.join(clean(cache, SHORT) for cache in caches)}".rstrip() if seconds else NONE
    return (
        Cell(clean(first.region), region=region_numbers.get(first.region)),
        Cell(clean(first.graph, SHORT)),
        Cell(number_ranges([partition.instance for partition in group])),
        Cell(str(len(first.nodes)) + (f" ×{len(group)}" if len(group) > 1 else "")),
        Cell(first.state, TONES.get(first.state, "")),
        Cell(config_text(first.config_requested) or "default"),
        Cell(applied, tone),
        Cell(str(len(artifacts)) if artifacts else NONE),
        Cell(cost),
    )


def _partition_notes(session: Session, groups: Collection[Sequence[Partition]]) -> Iterator[str]:
    if len(groups) < len(session.partitions):
        yield "Equal partitions share a row."
    for first, *_ in groups:
        if first.error:
            yield f"{clean(first.region, SHORT)} in {clean(first.graph, SHORT)}: {clean(first.error, LONG_TEXT)}"


def _applied_config(partition: Partition) -> tuple[str, str]:
    """Return the applied config, with keys marked that differ from the requested one, and a tone."""
    if partition.config_applied is None:
        return "not seen yet", "quiet"
    if partition.config_applied == partition.config_requested:
        return "same", ""
    keys = {**partition.config_requested, **partition.config_applied}
    key_texts = (_applied_key(key, partition.config_requested, partition.config_applied) for key in keys)
    return listing((clean(text, 2 * SHORT) for text in key_texts), MOST_ENTRIES), "warn"


def _applied_key(key: str, requested: Mapping[str, Any], applied: Mapping[str, Any]) -> str:
    if key not in applied:
        return f"{key} missing"
    note = " (not requested)" if key not in requested else " (differs)" if applied[key] != requested[key] else ""
    return f"{key}={applied[key]!r}{note}"
