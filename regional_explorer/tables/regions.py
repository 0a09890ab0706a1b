"""The table of the regions: their selectors, configs and ops, and their times, each measured alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import isinf
from typing import NamedTuple

from regional_explorer.errors import count, listing
from regional_explorer.record.artifact import PassRun
from regional_explorer.record.benchmark import Verdict
from regional_explorer.record.figure import measured_once
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Direction
from regional_explorer.record.regions import (
    RegionSummary,
    RegionTiming,
    call_parts,
    gain_alone_s,
    region_summaries,
    region_timings_of_whole_call,
    tracing_cost_s,
)
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import disagreement
from regional_explorer.style.css import TONES, TRENDS, toned
from regional_explorer.style.element import Node, clean, node
from regional_explorer.style.formats import (
    NONE,
    between,
    duration,
    is_withheld,
    percent,
    region_config_text,
    signed,
    speedup,
    with_interval,
)
from regional_explorer.tables.benchmark import COMPARED, warning_lines
from regional_explorer.tables.table import Cell, Column, Number, Table, columns_of


def regions_table(session: Session) -> Table[RegionSummary]:
    """One row per region; its times are per call (forward + backward if the call takes gradients).

    The times are the sums of its partitions, each measured alone, eager against compiled; ``ex.partitions`` has the
    phases. They are NaN before ``ex.benchmark(regions=True)``, and again once the region has changed. ``compile_s`` are
    the seconds waited for its own artifacts: less than the sum of their compiles if these overlap.
    ``pays_off_after_calls`` is the number of calls that save as much time, by the part of the gain that the whole call
    keeps: inf if there is no such number, NaN if it is unknown or if the whole call was not measured to be faster.
    ``over_trace`` says that the speedup is over the traced ops, which are slower than the program's own.
    """
    summaries = region_summaries(session)
    treated = ["treatment"] if any(summary.region.treatment.functions for summary in summaries) else []
    gain_s = gain_alone_s(timing for summary in summaries if (timing := summary.timing))
    of_timing: tuple[Column[RegionTiming], ...] = (
        Number("eager_us", lambda t: t.eager_s),
        Number("compiled_us", lambda t: t.compiled_s),
        Number("", lambda t: t.gain_of_call_s, "gain per call", write=signed),
        *COMPARED[:-1],
        Column("over_trace", lambda t: t.over_trace),
        Column("worst_tensor", lambda t: t.worst_tensor, "worst", tone="quiet"),
        Column("cache", lambda t: t.cache),
        Number("pays_off_after_calls", lambda t: t.pays_off_after_calls, "paid for after", text=_pay_off_text),
    )
    return Table(
        "Regions",
        (
            Column("region", lambda s: s.region.name, region=lambda s: s.number, class_="rxt-name"),
            Column(
                "selector",
                lambda s: s.region.selection,
                class_="rxt-picks",
                order=lambda s: s.ops_forward + s.ops_backward,
            ),
            Column("enabled", lambda s: s.region.enabled),
            Column("state", lambda s: s.state, tone=lambda s: TONES.get(s.state, "")),
            Number("ops_forward", lambda s: s.ops_forward),
            Number("ops_backward", lambda s: s.ops_backward, text=None if session.grad else lambda _: NONE),
            Number("partitions", lambda s: len(s.partitions)),
            Number("compile_s", lambda s: measured_once(s.compile_s), text=_compile_text),
            Column(
                "config",
                lambda s: s.region.config,
                text=lambda s: region_config_text(s.region) or "default",
                tone=lambda s: "" if any(config for _, config in s.region.configs) else "quiet",
                class_="rxt-config",
                order=lambda s: sum(len(config) for _, config in s.region.configs),
            ),
            Column("backward_config", lambda s: s.region.backward_config),
            Column("treatment" if treated else "", lambda s: ", ".join(s.region.treatment.texts)),
            *columns_of(lambda s: s.timing, of_timing),
            Column(
                "numerics",
                lambda s: s.timing and (s.numerics or ""),
                text=lambda s: s.numerics or NONE,
                tone=lambda s: TONES.get(s.numerics, "quiet") if s.numerics else "",
                class_="rxt-results",
            ),
            Column(
                "", lambda s: s.timing and s.timing.eager_s, "eager → compiled", nodes=_time_cell, class_="rxt-time"
            ),
            Number(
                "",
                lambda s: s.timing and s.timing.gain_of_call_s,
                "of the call",
                nodes=_gain_cell(gain_s),
                class_="rxt-gain",
            ),
        ),
        summaries,
        'No region yet. Mark one with ex.mark("mlp", modules="layers.*.mlp") or `with rx.region("mlp")` in the source.',
        lambda: [f"{clean(s.region.name)}: {s.note}" for s in summaries if s.note],
        heads=("region", "selector", "config", *treated, "ops forward", "ops backward", "partitions", "state"),
    )


class PassOnPiece(NamedTuple):
    """What a pass did with the partitions of a region that share an artifact."""

    region: str
    direction: Direction
    partitions: int
    run: PassRun


def passes_table(session: Session) -> Table[PassOnPiece]:
    """One row per pass and compiled piece of a region, in the order in which they ran: the ops before and after.

    Equal partitions share a row; ``before`` and ``after`` have the graphs as code. A pass with a ``problem`` was left
    out.
    """
    alike = Counter(
        (part.region, Direction.of_graph(part.graph), part.artifact) for part in session.partitions if part.artifact
    )
    rows = [
        PassOnPiece(region, direction, times, run)
        for (region, direction, key), times in alike.items()
        if key in session.artifacts
        for run in session.artifacts[key].passes
    ]
    numbers = session.plan.numbers
    return Table(
        "Passes",
        (
            Column("region", lambda row: row.region, region=lambda row: numbers.get(row.region)),
            Column("pass", lambda row: row.run.name),
            Column("direction", lambda row: row.direction),
            Number("partitions", lambda row: row.partitions),
            Number("ops_before", lambda row: sum(row.run.ops_before.values())),
            Number("ops_after", lambda row: sum(row.run.ops_after.values())),
            Column("change", lambda row: row.run.change, text=lambda row: row.run.change or "nothing"),
            Column("problem", lambda row: row.run.problem, tone="bad"),
            Column("before", lambda row: row.run.before),
            Column("after", lambda row: row.run.after),
        ),
        rows,
        heads=("region", "pass", "direction", "partitions", "ops before", "ops after", "change", "problem"),
    )


def regions_alone_table(session: Session) -> Table[RegionSummary]:
    """The measured regions with their times, the largest gain first."""
    table = regions_table(session)
    measured = [(row, row.timing) for row in table.rows if row.timing is not None]

    def notes() -> Iterator[str]:
        phases = "Forward + backward" if session.grad else "Forward"
        equal = " Equal partitions were measured once." if any(t.measured < t.partitions for _, t in measured) else ""
        several = (
            " The bounds of a region with several partitions assume that all of them are at their bounds at once, so "
            "they are wider than a CI of the sum."
        )
        yield (
            f"{phases}, all partitions of a region together; ex.partitions has each.{equal}"
            f"{several if any(t.partitions > 1 for _, t in measured) else ''}"
        )
        yield call_parts_text(session)
        yield trace_note(session)
        yield from warning_lines((t.partition, t.warnings) for t in session.partition_timings)

    return replace(
        table,
        title="Regions alone",
        empty="",
        notes=notes,
        heads=(
            *("region", "eager", "compiled", "gain per call", "speedup", "CI", "verdict", "numerics", "worst"),
            *("compile", "paid for after"),
        ),
        shown=[row for row, t in sorted(measured, key=lambda pair: -pair[1].gain_s.value if pair[1].gain_s else 0.0)],
    )


def _compile_text(summary: RegionSummary) -> str:
    timing = summary.timing
    return f"{duration(timing.compile_s)} {timing.cache}" if timing and timing.compile_s else NONE


def call_parts_text(session: Session) -> str:
    """Return how the regions' gains add up to the call's: ``trace +8.6 ms, mlp −18.3 ms, …, together −10.8 ms``."""
    parts = call_parts(session)
    texts = [f"{clean(part.part)} {signed(part.seconds)}" for part in parts]
    together = f"together {signed(sum(part.seconds for part in parts))} against eager"
    return f"In each call: {', '.join([*texts, together])}." if parts else ""


def _pay_off_text(timing: RegionTiming) -> str:
    """Return the number of calls after which a region's compile pays off: ``1,200 calls``, ``never``, or a dash."""
    calls = timing.pays_off_after_calls
    if calls is None or is_withheld(timing):
        return NONE
    return "never" if isinf(calls) else count(int(calls), "call")


def trace_note(session: Session) -> str:
    """Return a note if tracing is slower than the program: on regions' speedups, else on its cost; empty if neither.

    The note names each region whose traced ops, run eagerly, take longer than the program's own call. If there is none,
    the note gives the cost of tracing, if that is at least half of what the regions gain.
    """
    cost_s, timings = tracing_cost_s(session, session.whole_phase), list(region_timings_of_whole_call(session).values())
    faster = [timing for timing in timings if timing.verdict is Verdict.FASTER]
    if cost_s is None or not faster:
        return ""
    cost = f"{with_interval(cost_s, duration)} longer than the program's own, before anything is compiled"
    causes = "guards, wrappers, and traced ops in place of the program's (traced − eager)"
    if over_trace := [clean(timing.region) for timing in faster if timing.over_trace]:
        return (
            f"The speedup of {listing(over_trace)} is over traced ops, not over the program: run eagerly, traced ops "
            f"take longer than the program's own call. Traced, the call takes {cost}: {causes}."
        )
    if (cost_s.low or 0.0) >= TRACING_MATTERS * gain_alone_s(faster):
        return f"Traced, the call takes {cost}: {causes}. Regions have to gain that back first."
    return ""


TRACING_MATTERS = 0.5
"""Tracing is mentioned if it costs at least this share of the regions' gain alone."""


def _time_cell(summary: RegionSummary) -> list[Node | str]:
    timing = summary.timing
    compiled = "" if summary.compile_s is None else f"compiled in {duration(summary.compile_s)}"
    state_about = "; ".join(filter(None, (summary.note, compiled)))
    state = [toned(summary.state, TONES.get(summary.state, ""))]
    if state_about:
        state[0][1]["title"] = state_about
    if timing is None:
        return list(state)
    if summary.state is State.MEASURED:
        state = []
    before = duration(timing.eager_s.value)
    if timing.compiled_s is None:
        return [*state, node("span", before, title=f"eager {before} in each call")]
    after = duration(timing.compiled_s.value)
    unit = after.partition(" ")[2]
    unsure = timing.eager_s.why or timing.compiled_s.why
    title = "; ".join(filter(None, (f"medians in each call: eager {before}, compiled {after}", compiled, unsure)))
    if unsure and timing.exceeds_call:
        return [*state, toned("noisy", "warn", title=f"{title}: alone it took longer than the whole call")]
    class_ = "rx-quiet" if unsure else None
    times = node("span", f"{before.removesuffix(f' {unit}')} → {after}", title=title, class_=class_)
    return [*state, times, *speedup_nodes(timing)]


def speedup_nodes(timing: RegionTiming) -> list[Node | str]:
    """Return the speedup of a region with its interval; empty without a speedup."""
    if is_withheld(timing):
        return [toned(timing.verdict, "bad", title=f"numerics {timing.numerics}")]
    if timing.speedup is None:
        return []
    tone = TONES.get(timing.verdict, "quiet") if timing.speedup.bounds else "quiet"
    bounds_text = "with its CI" if timing.partitions == 1 else "with all its partitions at their bounds at once"
    if timing.speedup.bounds is None:
        bounds_text = f"without CI ({timing.speedup.why})"
    title = f"eager ÷ compiled of the same rounds, {bounds_text}: {timing.verdict}"
    if timing.over_trace:
        title += "; here eager means the traced ops, which are slower than the program's own"
    # The times beside the speedup are sums of medians, the speedup is the median over rounds.
    of_medians = timing.eager_s.value / (timing.compiled_s or timing.eager_s).value
    disagrees = disagreement(of_medians, timing.speedup)
    noisy = [toned("noisy", "warn", title=disagrees)] if disagrees else []
    bounds = node("small", between(timing.speedup))
    return [toned(speedup(timing), tone, TRENDS, title=title), bounds, *noisy]


def _gain_cell(gain_alone_s: float) -> Cell[RegionSummary]:
    """Return the cell of what a region saves of the call; ``gain_alone_s`` is what all regions gain, measured alone."""

    def cell(summary: RegionSummary) -> list[Node | str]:
        timing = summary.timing
        gain = None if timing is None else timing.gain_of_call_s
        if timing is None or gain is None or is_withheld(timing) or gain.bounds is None:
            return [NONE]
        least, most = sorted(gain.bounds)
        bounds = f"{signed(-most)} to {signed(-least)} in each call by the speedup, measured alone"
        if timing.verdict is not Verdict.FASTER:
            return [toned(signed(-gain.value), TONES.get(timing.verdict, "quiet"), {}, title=bounds)]
        share = f"{percent(gain.value / gain_alone_s)} of what the regions gain alone"
        kept_share = "" if timing.kept_share is None else f"; the call keeps {percent(timing.kept_share)} of that"
        return [toned(signed(-gain.value), "good", {}, title=f"{bounds}: {share}{kept_share}")]

    return cell
