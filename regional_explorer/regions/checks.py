"""What was asked beside what was done, as diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.graph import Graph, GraphBreak
from regional_explorer.record.region import Partition, Region
from regional_explorer.regions.select import annotated_config, annotation_key, marked_nodes


def check_breaks(breaks: Iterable[GraphBreak]) -> list[Diagnostic]:
    """Return one ``graph-break`` per place where Dynamo stopped a graph."""
    return [
        Diagnostic(
            "graph-break",
            f"Dynamo stopped the graph here: {item.reason}",
            Severity.INFO,
            where=item.stack[-1:],
            upstream="the same, without telling; what stands there runs in plain Python.",
            remedy="Move this line out of the call if a region should reach across it.",
        )
        for item in breaks
    ]


def check_source_configs(graphs: Sequence[Graph]) -> list[Diagnostic]:
    """Return a ``config-conflict`` where marks of one region, or marks without an id, ask for different configs."""
    found = []
    by_region: dict[str, dict[str, list]] = {}  # type: ignore[type-arg]
    for node in marked_nodes(graphs):
        key = annotation_key(node.annotation)
        group = "default" if key.startswith("default:") else key.removeprefix("id:")
        config = annotated_config(node.annotation)
        by_region.setdefault(group, {}).setdefault(repr(config), []).append((node, config))
    for group, configs in by_region.items():
        if len(configs) > 1:
            first = [nodes[0] for nodes in configs.values()]
            unnamed = group == "default"
            kept = "are kept apart here, one region per config" if unnamed else f"are compiled under {first[0][1]}"
            found.append(
                Diagnostic(
                    "config-conflict",
                    f"Marks {'without an id' if unnamed else f'of region {group!r}'} ask for {len(configs)} different "
                    f"configs; they {kept}.",
                    region=None if unnamed else group,
                    nodes=tuple(node.name for node, _ in first),
                    where=tuple(line for node, _ in first if (line := node.source) is not None),
                    upstream=f"all of them would be compiled under the first, {first[0][1]}, without a word.",
                    remedy="Give each block its own region name.",
                )
            )
    return found


def global_config(region: Region, key: str, reason: str, graphs: Sequence[Graph]) -> Diagnostic:
    """Return the ``config-global`` for a key in the source that is not one region's to set."""
    marked = [node for node in marked_nodes(graphs) if annotation_key(node.annotation) in region.selectors[0].patterns]
    return Diagnostic(
        "config-global",
        f"{key!r} was not applied to region {region.name!r}: {reason}",
        region=region.name,
        where=tuple(line for node in marked[:1] if (line := node.source) is not None),
        upstream="it is patched in for the one compile, with whatever effect that has.",
        remedy="Set it for the whole process in torch._inductor.config, or leave it out.",
    )


def check_partitions(partitions: Sequence[Partition]) -> list[Diagnostic]:
    """Return a ``region-failed`` per distinct failure of a compile."""
    found: dict[tuple[str, str], list[Partition]] = {}
    for part in partitions:
        if part.error is not None:
            found.setdefault((part.region, part.error), []).append(part)
    return [
        Diagnostic(
            "region-failed",
            f"Region {region!r} did not compile and runs eagerly ({', '.join(part.id for part in parts[:3])}): {error}",
            Severity.ERROR,
            region=region,
            graph=parts[0].graph,
            nodes=parts[0].nodes,
            upstream="the whole call would fail.",
            remedy=f"Try another config, or ex.disable({region!r}).",
        )
        for (region, error), parts in found.items()
    ]
