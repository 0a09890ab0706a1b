"""Tables of a plan: its partitions, graph breaks, measured plans and diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.errors import count, listing, number_ranges
from regional_explorer.record.changes import differences
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition
from regional_explorer.record.regions import RegionSummary, region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Timing, VariantName
from regional_explorer.style.css import TONES, TRENDS, toned
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, node
from regional_explorer.style.formats import (
    MOST_ENTRIES,
    NONE,
    config_text,
    duration,
    interval,
    region_config_text,
    speedup,
)
from regional_explorer.tables.frame import ShownFrame
from regional_explorer.tables.table import Cell, Table

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


MIN_PLANS = 2
"""The table is shown from this number of measured plans on."""
MAX_DIFFERENCES = 6
"""How many differences of one plan are listed at most; ``ex.history`` has all."""

_CURRENT_PLAN = node("span", "current plan", class_="rx-quiet")


def measured_plans(
    runs: Sequence[Session], current: Session, use: Callable[[int], Node | None] = lambda _number: None
) -> list[Node]:
    """Return a table with one row per run, the plan of ``current`` marked; nothing while there are fewer than two.

    ``use`` returns the button that switches to a plan, given its number; a saved page has none.
    """
    if len(runs) < MIN_PLANS:
        return []
    variants = list(dict.fromkeys(timing.variant for run in runs for timing in run.timings))
    heads = ["plan", "differences", *variants, "regional: speedup", "CI", "compile", "numerics", ""]
    figures = {*variants, "regional: speedup", "CI", "compile"}
    head = node("tr", *(node("th", text, class_="rxt-figure" if text in figures else "") for text in heads))
    plan_differences = differences([run.plan for run in runs])
    shapes_differ = len({run.shapes for run in runs}) > 1
    rows = []
    for number, (run, plan_texts) in enumerate(zip(runs, plan_differences, strict=True)):
        difference_texts = [*([f"shapes: {run.shapes}"] if shapes_differ else []), *plan_texts]
        is_current = run.plan == current.plan and run.shapes == current.shapes
        timings = run.whole_timings
        regional = timings.get(VariantName.REGIONAL)
        cells = [
            *(_figure_cell(duration(timings[name].median_s) if name in timings else NONE, name) for name in variants),
            _speedup_cell(regional),
            _figure_cell(interval(regional) if regional else NONE, "CI"),
            _figure_cell(duration(run.compile_s), "compile"),
            node("td", regional.numerics if regional else NONE, data_head="numerics"),
        ]
        chips = [node("span", text, class_="rx-key") for text in difference_texts[:MAX_DIFFERENCES]]
        more = (
            node("span", f"and {len(difference_texts) - MAX_DIFFERENCES} more", class_="rx-quiet")
            if len(difference_texts) > MAX_DIFFERENCES
            else ""
        )
        rows.append(
            node(
                "tr",
                node("td", node("b", str(number + 1)), class_="rxt-name"),
                node("td", *(chips or [node("span", "–")]), more),
                *cells,
                node("td", _CURRENT_PLAN if is_current else use(number), class_="rxt-last"),
            )
        )
    table = node("table", node("thead", head), node("tbody", *rows), aria_label="Measured plans")
    return [node("h4", "Measured plans"), table]


def _figure_cell(text: str, head: str) -> Node:
    return node("td", text, class_="rxt-figure", data_head=head)


def _speedup_cell(regional: Timing | None) -> Node:
    if regional is None:
        return _figure_cell(NONE, "speedup")
    tone = TONES.get(regional.verdict, "quiet")
    text = toned(speedup(regional), tone, TRENDS, title=str(regional.verdict))
    return node("td", text, class_="rxt-figure", data_head="speedup")


MOST_PLACES = 3

Extra = Callable[[int, Diagnostic], Node | None]
"""Returns an element to show beside a diagnostic, given its number and itself."""


def diagnostics_nodes(diagnostics: Sequence[Diagnostic], extra: Extra = lambda _n, _diagnostic: None) -> list[Node]:
    """Return warnings and errors as a titled list, and infos as a folded one."""
    items = [(finding.severity, diagnostic_item(finding, extra(n, finding))) for n, finding in enumerate(diagnostics)]
    severe = [item for severity, item in items if severity is not Severity.INFO]
    infos = [item for severity, item in items if severity is Severity.INFO]
    return [
        *([node("h4", count(len(severe), "diagnostic")), node("ul", *severe, class_="rx-list")] if severe else []),
        *(
            [node("details", node("summary", count(len(infos), "info")), node("ul", *infos, class_="rx-list"))]
            if infos
            else []
        ),
    ]


def diagnostic_item(diagnostic: Diagnostic, extra: Node | None = None, *, short: bool = False) -> Node:
    """Return one diagnostic as a list item; ``short`` leaves out its lines and the upstream issue."""
    facts = (
        ("At ", "" if short else ", ".join(str(place) for place in diagnostic.where[:MOST_PLACES])),
        ("Upstream torch: ", "" if short else diagnostic.upstream),
        ("What to do: ", diagnostic.remedy),
    )
    details = (node("div", f"{label}{text}", class_="rx-quiet") for label, text in facts if text)
    head = toned(diagnostic.severity, TONES[diagnostic.severity])
    return node("li", head, " ", node("code", diagnostic.code), " ", node("span", diagnostic.message), extra, *details)


DIAGNOSTIC_COLUMNS = ("severity", "code", "message", "where", "what to do")


class DiagnosticList(list[Diagnostic]):
    """The diagnostics, most severe first; a list like any other."""

    def __repr__(self) -> str:
        """Return a paragraph per diagnostic."""
        return "\n".join(map(str, self)) or "No diagnostics."

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        rows = [
            (str(entry.severity), str(entry.code), entry.message, ", ".join(map(str, entry.where[:3])), entry.remedy)
            for entry in self
        ]
        return ShownFrame(rows, columns=list(DIAGNOSTIC_COLUMNS))._repr_html_() if rows else "<p>No diagnostics.</p>"
