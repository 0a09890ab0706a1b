"""Tables of a plan: its partitions, graph breaks, measured plans and diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from regional_explorer.errors import SessionError, count, listing
from regional_explorer.record.artifact import ArtifactCompile
from regional_explorer.record.benchmark import PartitionTiming, Timing, VariantName
from regional_explorer.record.changes import SpeedChange, run_differences, run_same_code, session_changes, speed_change
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.figure import Figure, measured_once
from regional_explorer.record.graph import GraphBreak, KeptTensor, kept_for_backward, recomputed_ops
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, keys_of_same_code
from regional_explorer.record.region_code import nodes_of_region
from regional_explorer.record.session import Session, derived
from regional_explorer.style.css import TONES, TRENDS, toned
from regional_explorer.style.element import LONG_TEXT, SHORT, Node, clean, node
from regional_explorer.style.formats import (
    MOST_ENTRIES,
    NONE,
    config_text,
    duration,
    interval_note,
    is_withheld,
    size,
    speedup,
    times,
    word,
)
from regional_explorer.tables.benchmark import COMPARED
from regional_explorer.tables.table import Column, Number, Table, bound_columns, columns_of

MOST_BREAKS = 20
MOST_KEPT = 8


def breaks_table(session: Session) -> Table[GraphBreak]:
    """One row per graph break."""
    more = len(session.breaks) - MOST_BREAKS
    return Table(
        "Graph breaks",
        (
            Column("where", lambda row: row.source or "unknown line"),
            Column("code", lambda row: row.source.text if row.source else ""),
            Column("reason", lambda row: f"{row.place}: {row.reason}" if row.is_elsewhere else row.reason),
        ),
        session.breaks,
        notes=lambda: [f"{more} more are in the saved session."] if more > 0 else [],
        shown=session.breaks[:MOST_BREAKS],
        fold="closed",
    )


def kept_table(session: Session) -> Table[KeptTensor]:
    """One row per tensor that a forward keeps for its backward, largest first."""
    tensors, numbers = kept_for_backward(session.graphs), session.plan.numbers
    more = len(tensors) - MOST_KEPT
    regions = {node: region for region in session.members for node in nodes_of_region(session, region)}

    def region_of(tensor: KeptTensor) -> str | None:
        return regions.get(f"{tensor.graph}:{tensor.node.name}")

    return Table(
        "Kept for the backward",
        (
            Column("tensor", lambda tensor: tensor.node.name),
            Column("region", region_of, region=lambda tensor: numbers.get(region_of(tensor) or "")),
            Column("op", lambda tensor: tensor.node.op),
            Column("values", lambda tensor: ", ".join(map(str, tensor.node.values)), "shape"),
            Number("kept_bytes", lambda tensor: tensor.size_bytes, dtype="Int64"),
            Column("line", lambda tensor: str(tensor.node.source) if tensor.node.source else None),
        ),
        tensors,
        notes=lambda: [f"{kept_text(session)}{f'; {more} more: ex.kept' if more > 0 else ''}"],
        shown=tensors[:MOST_KEPT],
        heads=("tensor", "region", "op", "shape", "kept", "line"),
        fold="unless bad",
    )


@derived
def kept_text(session: Session) -> str:
    """Return how much the forwards keep for their backwards, and how many ops are recomputed; empty if neither."""
    tensors, recomputed = kept_for_backward(session.graphs), len(recomputed_ops(session.graphs))
    if not tensors and not recomputed:
        return ""
    total_bytes = sum(tensor.size_bytes or 0 for tensor in tensors)
    dynamic = sum(tensor.size_bytes is None for tensor in tensors)
    unknown = f", {dynamic} of a size that may change" if dynamic else ""
    again = f"; {count(recomputed, 'op')} computed again" if recomputed else ""
    in_graphs = " in the graphs" if session.breaks else ""  # code outside of the graphs may keep more
    return f"{size(total_bytes)} in {count(len(tensors), 'tensor')}{in_graphs}{unknown}{again}"


EqualPartitions = tuple[Partition, ...]
"""Equal partitions of a region: texts and pages show them in one row, the DataFrame has a row for each."""


def partitions_table(session: Session) -> Table[EqualPartitions]:
    """One row per partition, with requested and applied config, and its times if it was measured alone.

    ``runs`` is how often one call runs it. A partition that was ``measured_as`` another one shares its artifact.
    """

    def applied(partition: Partition) -> Mapping[str, Any] | None:
        return artifact.config if (artifact := session.artifact_of(partition)) else None

    def shared_with(partition: Partition) -> str | None:
        owner = session.owners.get(partition.artifact or "")
        return None if owner == partition.id else owner

    timings = {timing.partition: timing for timing in session.partition_timings}
    of_timing: tuple[Column[PartitionTiming], ...] = (
        Column("phase", lambda t: t.eager.phase),
        Number("eager_us", lambda t: t.eager.median_s),
        Number("eager_iqr_us", lambda t: t.eager.iqr_s),
        Number("compiled_us", lambda t: t.compiled and t.compiled.median_s),
        Number("compiled_iqr_us", lambda t: t.compiled and t.compiled.iqr_s),
        *columns_of(lambda t: t.compiled, COMPARED),
        Number("runs", lambda t: t.runs, dtype="Int64"),
        Number("samples", lambda t: len(timings.get(t.measured_as or "", t).eager.samples_s), dtype="Int64"),
        Column("measured_as", lambda t: t.measured_as),
        Column("bitwise", lambda t: t.bitwise),
        Column("worst_tensor", lambda t: t.worst_tensor),
        Column("warnings", lambda t: "; ".join(t.warnings)),
    )
    groups = grouped((_equality_key(part, applied(part)), part) for part in session.partitions)
    region_numbers = session.plan.numbers
    return Table(
        "Partitions",
        (
            Column("partition", lambda parts: parts[0].id),
            Column("region", lambda parts: parts[0].region, region=lambda parts: region_numbers.get(parts[0].region)),
            Column("graph", lambda parts: parts[0].graph),
            Column("", lambda parts: _number_ranges([part.instance for part in parts]), "instances"),
            Number(
                "ops",
                lambda parts: len(parts[0].nodes),
                text=lambda parts: f"{len(parts[0].nodes)}{f' ×{len(parts)}' if len(parts) > 1 else ''}",
            ),
            Column("state", lambda parts: parts[0].state, tone=lambda parts: TONES.get(parts[0].state, "")),
            Column(
                "config_requested",
                lambda parts: parts[0].config_requested,
                "requested",
                write=lambda requested: config_text(requested) or "default",
            ),
            Column(
                "config_applied",
                lambda parts: applied(parts[0]),
                "applied",
                text=lambda parts: _applied_text(parts[0].config_requested, applied(parts[0])),
                tone=lambda parts: _applied_tone(parts[0].config_requested, applied(parts[0])),
            ),
            Column("same_code_without", lambda parts: "; ".join(", ".join(keys) for keys in keys_of_same_code(parts))),
            Column("artifact", lambda parts: parts[0].artifact),
            Number("", lambda parts: len({part.artifact for part in parts} - {None}) or NONE, "artifacts"),
            Column("shared_with", lambda parts: shared_with(parts[0])),
            Number(
                "compile_s",
                lambda parts: measured_once(compiled.seconds) if (compiled := session.compile_of(parts[0])) else None,
                text=lambda parts: _compile_text(
                    [compiled for part in parts if (compiled := session.compile_of(part)) is not None]
                ),
            ),
            Column("cache", lambda parts: compiled.cache if (compiled := session.compile_of(parts[0])) else None),
            Column("error", lambda parts: parts[0].error),
            *columns_of(lambda parts: timings.get(parts[0].id), of_timing),
        ),
        [(part,) for part in session.partitions],
        "No op of the regions could be cut out: ex.diagnostics says why."
        if session.plan.regions
        else "There is no region, so nothing is cut.",
        lambda: [
            "Equal partitions share a row." if len(groups) < len(session.partitions) else "",
            *(
                f"{clean(first.region)} in {clean(first.graph)}: {clean(first.error, LONG_TEXT)}"
                for first, *_ in groups.values()
                if first.error
            ),
        ],
        heads=("region", "graph", "instances", "ops", "state", "requested", "applied", "artifacts", "compile"),
        shown=[tuple(parts) for parts in groups.values()],
        fold="unless bad",
    )


def _equality_key(partition: Partition, applied: Mapping[str, Any] | None) -> Hashable:
    configs = repr(partition.config_requested), repr(applied)
    return partition.region, partition.graph, len(partition.nodes), partition.state, partition.error, configs


def _compile_text(compiles: Sequence[ArtifactCompile]) -> str:
    caches = "/".join(sorted({compiled.cache for compiled in compiles}))
    return f"{duration(sum(compiled.seconds for compiled in compiles))} {caches}" if compiles else NONE


def _applied_tone(requested: Mapping[str, Any], applied: Mapping[str, Any] | None) -> str:
    return "quiet" if applied is None else "" if applied == requested else "warn"


def _applied_text(requested: Mapping[str, Any], applied: Mapping[str, Any] | None) -> str:
    """Return the applied config as text, which marks the keys that differ from the requested config."""
    if applied is None:
        return "not compiled"
    if applied == requested:
        return "same"
    texts = (clean(_applied_key(key, requested, applied), 2 * SHORT) for key in {**requested, **applied})
    return listing(texts, MOST_ENTRIES)


def _applied_key(key: str, requested: Mapping[str, Any], applied: Mapping[str, Any]) -> str:
    if key not in applied:
        return f"{key} missing"
    note = " (not requested)" if key not in requested else " (differs)" if applied[key] != requested[key] else ""
    return f"{key}={applied[key]!r}{note}"


class ComparedSession(NamedTuple):
    """A session among others: how its plan, shapes and environment differ, and its change since the first.

    ``same_code`` names the first plan that runs the same code; it is empty for that plan itself.
    """

    number: int
    session: Session
    differs: Sequence[str]
    first: Session
    same_code: str = ""

    @property
    def timings(self) -> Mapping[str, Timing]:
        """The timing of the whole call by variant; empty if the plan has changed since the measurement."""
        return {} if self.session.is_outdated else self.session.whole_timings

    @property
    def regional(self) -> Timing | None:
        """The timing of the plan."""
        return self.timings.get(VariantName.REGIONAL)

    @property
    def change(self) -> SpeedChange:
        """The change of the speedup since the first session, or why it cannot be compared."""
        if self.session.is_outdated:
            return SpeedChange(problem=f"measured for {self.session.measured_for}")
        if self.session is self.first:
            return SpeedChange(problem="first")
        try:
            return speed_change(self.first, self.session)
        except SessionError:
            return SpeedChange(problem="not comparable")


def runs_table(sessions: Sequence[Session]) -> Table[ComparedSession]:
    """One row per session with times of the whole call: the step, or the forward without gradients."""
    variants = tuple(dict.fromkeys(timing.variant for session in sessions for timing in session.timings))
    differences = run_differences(sessions)
    of_plan: tuple[Column[ComparedSession], ...] = columns_of(lambda run: run.regional, COMPARED)
    return Table(
        "Measured plans",
        (
            Column("", lambda run: run.number, "plan", nodes=lambda run: [node("b", run.number)], class_="rxt-name"),
            Column("", lambda run: "; ".join(run.differs), "differences", nodes=_differences),
            Column("title", lambda run: run.session.title),
            Column("differs", lambda run: "; ".join(run.differs)),
            Column("same_code_as", lambda run: run.same_code),
            Column("changed", lambda run: "; ".join(session_changes(run.first, run.session))),
            *map(_variant_column, variants),
            replace(of_plan[0], head="your plan: speedup", nodes=_drawn_speedup),
            *of_plan[1:-1],
            Number("slowdown", lambda run: run.change.slowdown),
            *bound_columns("slowdown_low", "slowdown_high", lambda run: run.change.slowdown)[:2],
            Column("difference", lambda run: run.change.verdict),
            Number("", _against_first, "against plan 1", text=_ratio_text),
            of_plan[-1],
            Number("partitions", lambda run: len(run.session.partitions)),
            Number("compile_s", lambda run: measured_once(run.session.compile_s), "new code"),
        ),
        [
            ComparedSession(number, session, differs, sessions[0], _plan_of_same_code(session, sessions[: number - 1]))
            for number, (session, differs) in enumerate(zip(sessions, differences, strict=True), 1)
        ],
        heads=(
            *("plan", "differences"),
            *([word(VariantName.REGIONAL)] if VariantName.REGIONAL in variants else []),
            *("your plan: speedup", "CI", "against plan 1", "new code", "numerics"),
        ),
    )


def _against_first(run: ComparedSession) -> Figure | None:
    slowdown = run.change.slowdown
    return None if slowdown is None or slowdown.bounds is None else 1.0 / slowdown


def _ratio_text(run: ComparedSession) -> str:
    ratio = _against_first(run)
    return NONE if ratio is None else f"{times(ratio.value)}{interval_note(ratio)}"


def _plan_of_same_code(session: Session, earlier: Sequence[Session]) -> str:
    return next((f"plan {number}" for number, run in enumerate(earlier, 1) if run_same_code(run, session)), "")


def _variant_column(variant: str) -> Column[ComparedSession]:
    return Number(
        f"{variant}_us", lambda run: run.timings[variant].median_s if variant in run.timings else None, word(variant)
    )


def _differences(run: ComparedSession) -> list[Node]:
    more = f"and {len(run.differs) - MAX_DIFFERENCES} more" if len(run.differs) > MAX_DIFFERENCES else ""
    code = f"same code as {run.same_code}" if run.same_code else ""
    chips = [node("span", text, class_="rx-key") for text in run.differs[:MAX_DIFFERENCES]] or [node("span", NONE)]
    return [*chips, *(node("span", text, class_="rx-quiet") for text in (more, code) if text)]


def _drawn_speedup(run: ComparedSession) -> list[Node]:
    if run.regional is None:
        return []
    if is_withheld(run.regional):
        return [toned(run.regional.verdict, "bad")]
    tone = TONES.get(run.regional.verdict, "quiet")
    return [toned(speedup(run.regional), tone, TRENDS, title=str(run.regional.verdict))]


MIN_PLANS = 2
"""The table is shown from this number of measured plans on."""
MAX_DIFFERENCES = 6
"""The maximum number of differences listed of one plan; ``ex.history`` has all."""

_CURRENT_PLAN = node("span", "current plan", class_="rx-quiet")
_BEFORE_A_CHANGE = node("span", "the same plan in another state", class_="rx-quiet")
_CODE_OF_CURRENT_PLAN = node("span", "same code as the current plan", class_="rx-quiet")


def measured_plans(
    sessions: Sequence[Session], current: Session, use: Callable[[int], Node | None] = lambda _number: None
) -> list[Node]:
    """Return a table with one row per run; empty for fewer than two runs, unless one has the code of ``current``.

    The table marks the plan of ``current``. If that plan was not measured itself, the table marks the plans with the
    same code, whose figures it has. ``use`` returns the button that switches to a plan, given its number; a saved page
    has no such button.
    """
    same_plan = [run.plan == current.plan and run.shapes == current.shapes for run in sessions]
    here = [
        number for number, run in enumerate(sessions) if same_plan[number] and run.environment == current.environment
    ]
    current_number = here[-1] if here else None
    has_its_code = [current_number is None and run_same_code(run, current) for run in sessions]
    if len(sessions) < MIN_PLANS and not any(has_its_code):
        return []
    table = runs_table(sessions)

    def last(run: ComparedSession) -> list[Node]:
        place = run.number - 1
        here = _CURRENT_PLAN if place == current_number else _BEFORE_A_CHANGE if same_plan[place] else use(place)
        return list(filter(None, (here, _CODE_OF_CURRENT_PLAN if has_its_code[place] else None)))

    heads = [one.title for one in table.shown_columns if any(one.content(run) != [NONE] for run in table.rows)]
    return [node("h4", table.title), table.edited(heads, {}, last).grid(aria_label=table.title)]


MOST_PLACES = 3

Extra = Callable[[int, Diagnostic], Node | None]
"""Returns an element to show beside a diagnostic, given its number and itself."""


def diagnostics_nodes(
    diagnostics: Sequence[Diagnostic], extra: Extra = lambda _n, _diagnostic: None, *, infos_open: bool = False
) -> list[Node]:
    """Return warnings and errors as a titled list, and infos as a folded list."""
    items = [(finding.severity, diagnostic_item(finding, extra(n, finding))) for n, finding in enumerate(diagnostics)]
    severe = [item for severity, item in items if severity is not Severity.INFO]
    infos = [item for severity, item in items if severity is Severity.INFO]
    listed = node("ul", *infos, class_="rx-list")
    return [
        *([node("h4", count(len(severe), "diagnostic")), node("ul", *severe, class_="rx-list")] if severe else []),
        *([node("details", node("summary", count(len(infos), "info")), listed, open=infos_open)] if infos else []),
    ]


def diagnostic_item(diagnostic: Diagnostic, extra: Node | None = None, *, short: bool = False) -> Node:
    """Return one diagnostic as a list item; ``short`` leaves out its lines and what upstream does."""
    facts = (
        ("At ", "" if short else ", ".join(str(place) for place in diagnostic.where[:MOST_PLACES])),
        ("Upstream torch: ", "" if short else diagnostic.upstream),
        ("What to do: ", diagnostic.remedy),
    )
    details = (node("div", f"{label}{text}", class_="rx-quiet") for label, text in facts if text)
    head = toned(diagnostic.severity, TONES[diagnostic.severity])
    return node("li", head, " ", node("code", diagnostic.code), " ", node("span", diagnostic.message), extra, *details)


def diagnostics_table(diagnostics: Sequence[Diagnostic]) -> Table[Diagnostic]:
    """One row per diagnostic."""
    return Table(
        "Diagnostics",
        (
            Column("severity", lambda found: found.severity),
            Column("code", lambda found: found.code),
            Column("message", lambda found: found.message),
            Column("where", lambda found: ", ".join(map(str, found.where[:MOST_PLACES]))),
            Column("what to do", lambda found: found.remedy),
        ),
        diagnostics,
    )


class DiagnosticList(list[Diagnostic]):
    """The diagnostics, most severe first; a list like any other."""

    def __repr__(self) -> str:
        """Return a paragraph per diagnostic."""
        return "\n".join(map(str, self)) or "No diagnostics."

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return diagnostics_table(self).dataframe()._repr_html_() if self else "<p>No diagnostics.</p>"


def _number_ranges(numbers: Iterable[int]) -> str:
    """Return ``0–3, 5`` for 0, 1, 2, 3, 5."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return listing([f"{low}–{high}" if high > low else str(low) for low, high in ranges])
