"""Regions as sums of their partitions, how they add up to the call, and the diagnostics of both."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from msgspec.structs import replace

from regional_explorer.diagnostics.measured import plan_diagnostics, region_diagnostics
from regional_explorer.measure.benchmark import BenchmarkResults
from regional_explorer.measure.partitions import BORDERS, CUT_GRAPH, DISPATCH, REST, WRAPPER, reconcile
from regional_explorer.measure.rounds import RoundsResult, StopReason
from regional_explorer.page.answer import answer_text
from regional_explorer.record.answer import answer_of
from regional_explorer.record.artifact import ArtifactCompile, ArtifactRecord, CacheResult
from regional_explorer.record.benchmark import (
    Conditions,
    NumericsVerdict,
    PartitionTiming,
    Phase,
    ReconciliationRow,
    Timing,
    Verdict,
)
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.figure import Figure, Noise, exactly
from regional_explorer.record.graph import Graph
from regional_explorer.record.partition import State
from regional_explorer.record.regions import (
    RegionTiming,
    call_parts,
    is_one_region,
    region_timings,
    region_timings_of_whole_call,
)
from regional_explorer.record.session import Session
from regional_explorer.style.element import to_html
from regional_explorer.style.formats import speedup
from regional_explorer.tables.regions import regions_alone_table
from tests.shared.sessions import measured, measured_alone, partition_timing, timing


def value_and_bounds(figure: Figure | None) -> tuple[float | None, ...]:
    """Return a figure's value and the bounds of its interval."""
    assert figure is not None
    return figure.value, figure.low, figure.high


def step_timing(session: Session) -> RegionTiming:
    return region_timings_of_whole_call(session)["mlp"]


def session_with_timing(part: PartitionTiming, number: int = 0) -> Session:
    """Return ``measured_alone()`` with this timing of one of its partitions."""
    base = measured_alone()
    parts = [part if place == number else other for place, other in enumerate(base.partition_timings)]
    return replace(base, partition_timings=tuple(parts))


FIRST, SECOND, *_ = measured_alone().partition_timings


def session_with_speedup(speedup: float, verdict: Verdict = Verdict.FASTER) -> Session:
    """Return a session whose step takes 1 ms eagerly, and has this speedup under the plan."""
    eager = timing("eager", 1e-3, 1.0, phase=Phase.STEP, verdict=Verdict.BASELINE)
    regional = timing("regional", 1e-3 / speedup, speedup, phase=Phase.STEP, verdict=verdict)
    return replace(measured_alone(), timings=(eager, regional))


def test_partitions_add_up_by_phase_as_often_as_they_run() -> None:
    forward, backward, whole = region_timings(measured_alone())
    assert [forward.phase, backward.phase, whole.phase] == list(Phase)
    for figure, expected in (
        (forward.eager_s, (2e-4, 1.98e-4, 2.02e-4)),
        (backward.eager_s, (4e-4, 3.96e-4, 4.04e-4)),
        (whole.eager_s, (6e-4, 5.94e-4, 6.06e-4)),
        (whole.compiled_s, (3e-4, 2.97e-4, 3.03e-4)),
        (whole.speedup, (2.0, 1.8, 2.2)),
        (whole.gain_s, (3e-4, 6e-4 - 6e-4 / 1.8, 6e-4 - 6e-4 / 2.2)),
    ):
        assert value_and_bounds(figure) == pytest.approx(expected)
    assert (whole.partitions, whole.measured) == (4, 2)
    assert step_timing(measured_alone(runs=3)).eager_s.value == pytest.approx(18e-4)


def test_compile_pays_off_after_cost_over_gain() -> None:
    whole = step_timing(session_with_speedup(1 / 0.7))  # the call gains as much as the region alone
    assert whole.compile_s == pytest.approx(3.0)  # one artifact for each phase, 1.5 s each
    assert whole.cache == "cold"
    assert whole.pays_off_after_calls == 10_000
    base = measured_alone()
    warm = ArtifactRecord(ArtifactCompile(1.5, CacheResult.HIT))
    mixed = step_timing(replace(base, artifacts={**base.artifacts, "artifact-0/forward": warm}))
    assert (mixed.compile_warm_s, mixed.compile_cold_s, mixed.cache) == (1.5, 1.5, "cold+warm")
    for verdict in (Verdict.SLOWER, Verdict.SAME):
        gains_nothing = measured_alone(verdict=verdict, speedup=Figure(0.9, 0.8, 1.1))
        assert step_timing(gains_nothing).pays_off_after_calls == math.inf
    assert step_timing(session_with_speedup(1 / 0.9)).pays_off_after_calls == 30_000, (
        "wrappers and borders take some of the gain"
    )
    assert step_timing(session_with_speedup(0.62, Verdict.SLOWER)).pays_off_after_calls is None, (
        "the call is not faster"
    )
    assert step_timing(measured_alone()).pays_off_after_calls is None, "the call was not measured"
    for unsure in (Verdict.UNKNOWN, Verdict.INCONCLUSIVE, Verdict.BUSY):
        assert step_timing(measured_alone(verdict=unsure)).pays_off_after_calls is None, unsure


def test_a_failed_check_withholds_the_speedup_of_the_region() -> None:
    failed = {"numerics": NumericsVerdict.FAILED, "speedup": None, "worst_tensor": "mm1"}
    whole = step_timing(session_with_timing(partition_timing(SECOND.partition, 2e-4, 1e-4, **failed), 1))
    assert (whole.speedup, whole.gain_s, whole.verdict) == (None, None, Verdict.WITHHELD)
    assert (whole.numerics, whole.worst_tensor) == ("failed", "mm1")


def test_worst_tensor_of_a_region_has_its_numerics_verdict() -> None:
    for verdict in (NumericsVerdict.FAILED, NumericsVerdict.CHAOTIC, NumericsVerdict.NOT_COMPARABLE):
        first = partition_timing(FIRST.partition, 2e-4, 1e-4, worst_tensor="mm")
        second = partition_timing(SECOND.partition, 2e-4, 1e-4, numerics=verdict, worst_tensor="mm1")
        base = session_with_timing(first)
        parts = tuple(second if part.partition == second.partition else part for part in base.partition_timings)
        whole = step_timing(replace(base, partition_timings=parts))
        assert (whole.numerics, whole.worst_tensor) == (verdict, "mm1")


def test_uncompiled_partitions_count_as_eager() -> None:
    base = session_with_timing(replace(FIRST, compiled=None))
    whole = step_timing(replace(base, partitions=(replace(base.partitions[0], artifact=None), *base.partitions[1:])))
    assert value_and_bounds(whole.compiled_s)[0] == pytest.approx(3.5e-4)
    assert value_and_bounds(whole.speedup)[0] == pytest.approx(6 / 3.5)


@pytest.mark.parametrize(
    ("speedup", "verdict", "of_sum"),
    [
        # Verdicts that differ need the bounds of the sum, which is faster all the same.
        (Figure(0.5, 0.4, 0.6), Verdict.SLOWER, Verdict.FASTER),
        (Figure(0.5, 0.4, 0.6), Verdict.BUSY, Verdict.FASTER),
        # Beside other work a region has no verdict if its sum and a partition have none.
        (Figure(0.2, 0.1, 3.0), Verdict.BUSY, Verdict.BUSY),
        (Figure(0.2, why="the machine was too busy"), Verdict.BUSY, Verdict.BUSY),
    ],
)
def test_verdict_of_a_sum_with_a_slower_part(speedup: Figure, verdict: Verdict, of_sum: Verdict) -> None:
    part = partition_timing(FIRST.partition, 1e-4, 2e-4, speedup=speedup, verdict=verdict)
    assert step_timing(session_with_timing(part)).verdict is of_sum
    assert step_timing(measured_alone(verdict=Verdict.BUSY)).verdict is Verdict.BUSY


def test_a_sum_has_no_interval_where_a_part_has_none() -> None:
    eager = replace(timing("eager", 1e-4, None), median_s=Figure(1e-4, why="too few"))
    session = session_with_timing(replace(FIRST, eager=eager))
    whole, table = step_timing(session), regions_alone_table(session)
    assert (whole.eager_s.bounds, whole.eager_s.why) == (None, "too few")
    assert table.text().count("Without interval: eager (too few).") == 1
    assert 'title="too few"' in to_html(*table.elements())
    assert whole.speedup is not None
    assert whole.speedup.bounds is not None


# ------------------------------------------------------------------------------------------ how they add up to a call

VARIANTS = {"eager": 10e-4, "aot_eager": 12e-4, "regional": 9e-4, "full": 7e-4}


def variant_timings() -> list[Timing]:
    return [timing(name, seconds, None, phase=Phase.STEP) for name, seconds in VARIANTS.items()]


def cut_rounds() -> RoundsResult:
    samples = {"aot_eager": {Phase.STEP: (12e-4,) * 9}, CUT_GRAPH: {Phase.STEP: (12.5e-4,) * 9}}
    return RoundsResult("aot_eager", 5.0, samples, {}, {}, 9, 1, 1.0, StopReason.BUDGET)


def rows_by_part(regions: tuple[RegionTiming, ...], cut: RoundsResult | None) -> dict[str, ReconciliationRow]:
    return {row.part: row for row in reconcile(variant_timings(), regions, cut)}


def test_steps_between_totals_add_up() -> None:
    found = rows_by_part(region_timings(measured_alone()), cut_rounds())
    assert list(found) == ["eager", WRAPPER, "aot_eager", DISPATCH, "mlp", REST, "regional", BORDERS, "full"]
    between = {name: row.seconds.value for name, row in found.items() if not row.total}
    expected = {WRAPPER: 2e-4, DISPATCH: 0.5e-4, "mlp": -3e-4, REST: -0.5e-4, BORDERS: -2e-4}
    assert between == pytest.approx(expected)
    assert found["eager"].seconds.value + sum(between.values()) == pytest.approx(found["full"].seconds.value)


def test_mismatched_total_is_reported() -> None:
    eager, aot_eager, *others = variant_timings()
    for median_s, note in ((12.2e-4, ""), (13e-4, "the rows above add up to 1.20 ms: the machine was not the same")):
        uneven = [eager, replace(aot_eager, median_s=exactly(median_s)), *others]
        found = {row.part: row.note for row in reconcile(uneven, region_timings(measured_alone()), cut_rounds())}
        assert found["aot_eager"].startswith(note)
        assert bool(found["aot_eager"]) is bool(note)
        assert found["eager"] == ""


def test_a_region_has_an_interval_and_the_rest_has_none() -> None:
    found = rows_by_part(region_timings(measured_alone()), None)
    value, low, high = (end or 0.0 for end in value_and_bounds(found["mlp"].seconds))
    assert low < value < high < 0.0
    assert found[REST].seconds.bounds is None
    assert found[REST].seconds.why == "the rest of several runs"
    assert DISPATCH not in found


def test_difference_has_no_interval_if_a_total_has_none() -> None:
    why = "the machine was too busy"
    busy = [
        replace(row, median_s=Figure(row.median_s.value, why=why)) if row.variant == "aot_eager" else row
        for row in variant_timings()
    ]
    cut = dataclasses.replace(cut_rounds(), noise=Noise(rounds=30, disturbed=25))
    found = {row.part: row.seconds for row in reconcile(busy, region_timings(measured_alone()), cut)}
    assert [name for name, seconds in found.items() if seconds.why == why] == [WRAPPER, "aot_eager", DISPATCH]
    assert found[WRAPPER].value == pytest.approx(2e-4)
    assert found[BORDERS].bounds is not None


def test_the_rest_names_a_region_with_a_withheld_gain() -> None:
    found = rows_by_part(region_timings(measured_alone(numerics=NumericsVerdict.FAILED, speedup=None)), None)
    assert "mlp" not in found
    assert "mlp, whose gain is unknown" in found[REST].note
    base = measured_alone(compiled_s=None)
    base = replace(base, partitions=tuple(replace(part, artifact=None) for part in base.partitions))
    assert rows_by_part(region_timings(base), None)["mlp"].seconds == exactly(0.0)


def test_parts_longer_than_the_whole_are_not_added_up() -> None:
    regions = [replace(row, eager_s=exactly(15e-4)) for row in region_timings(measured_alone())]
    found = reconcile(variant_timings(), regions, cut_rounds())
    assert [row.part for row in found] == ["eager", "aot_eager", "regional", "full"]
    assert all(row.total for row in found)
    assert [row.note.partition(":")[0] for row in found] == ["parts withheld", *[""] * (len(found) - 1)]
    assert "1.25 times as long eagerly as the whole of aot_eager" in found[0].note


def test_reconciliation_skips_the_steps_of_unmeasured_variants() -> None:
    some = [row for row in variant_timings() if row.variant in ("eager", "regional")]
    assert [row.part for row in reconcile(some, region_timings(measured_alone()), None)] == ["eager", "regional"]


@pytest.mark.parametrize(
    ("speedup", "price", "saved"),
    [
        (
            1 / 0.7,
            "'mlp' saves 300 µs in each call, its cold compile of 3.00 s pays off after 10,000 calls",
            "they save the step 300 µs, 1.43× (1.40–1.46).",
        ),
        (  # wrappers and borders take some of the gain
            1 / 0.9,
            "'mlp' saves 100 µs in each call, its cold compile of 3.00 s pays off after 30,000 calls (10,000 by",
            "they save the step 100 µs, 1.11× (1.08–1.14); measured alone, they save 300 µs",
        ),
    ],
)
def test_gaining_region_is_reported_with_its_cost(speedup: float, price: str, saved: str) -> None:
    (found,) = region_diagnostics(session_with_speedup(speedup))
    assert found.code == "region-worth"
    assert price in found.message
    assert saved in found.message


def test_slower_plan_is_reported_with_its_ratio() -> None:
    (found,) = plan_diagnostics(session_with_speedup(0.62, Verdict.SLOWER))
    assert (found.code, found.severity) == ("plan-slower", Severity.WARNING)
    assert found.message == "The plan is 38 % slower than eager (35–41)."
    assert found.remedy == "Mark larger regions: none is slower alone, but the code around each costs time, too."
    faster = session_with_speedup(1.25)
    assert plan_diagnostics(faster) == []
    slower = session_with_speedup(0.62, Verdict.SLOWER)
    failed = tuple(replace(part, state=State.FAILED, artifact=None, error="no") for part in slower.partitions)
    assert plan_diagnostics(replace(slower, partitions=failed)) == [], "no compiled code ran"
    full = timing("full", 0.4e-3, 2.5, phase=Phase.STEP)
    upstream = timing("upstream", 1.03e-3, 0.97, phase=Phase.STEP, verdict=Verdict.SLOWER)
    (found,) = plan_diagnostics(replace(faster, timings=(*faster.timings, full, upstream)))
    assert (found.code, found.severity) == ("plan-slower", Severity.INFO)
    assert found.message == (
        "The plan is 50.0 % slower than torch.compile. "
        "Under upstream, the same marks run 0.97× (0.94–1.00) as fast as eager."
    )


@pytest.mark.parametrize("quiet", ["the partitions", "the call"])
def test_disturbed_measurements_are_all_reported(quiet: str) -> None:
    busy, calm = Noise(100, 30, 30, 1.0, 2), Noise(2000, 0, 0, 0.0, 2)
    of_call, of_partition = (busy, calm) if quiet == "the partitions" else (calm, busy)
    base = measured()
    assert base.conditions
    results = BenchmarkResults(conditions=replace(base.conditions, noise=of_call))
    results.add_noise(of_partition)
    assert results.conditions
    assert results.conditions.noise == of_call, "the verdicts on the call depend on it"
    assert replace(base, conditions=results.conditions).noise == busy


def test_slower_region_is_reported_with_a_remedy() -> None:
    slower = measured_alone(speedup=Figure(0.8, 0.75, 0.85), verdict=Verdict.SLOWER)
    (found,) = region_diagnostics(slower)
    assert (found.code, found.region) == ("region-slower", "mlp")
    assert "takes 150 µs (106 µs to 200 µs) longer" in found.message
    assert "ex.disable('mlp')" in found.remedy
    for without_data in (
        measured_alone(),
        measured_alone(verdict=Verdict.UNKNOWN),
        replace(measured_alone(), partition_timings=()),
    ):
        assert region_diagnostics(without_data) == []


def reduce_to_one_region(call: Session, **changes: Any) -> Session:
    """Return the session with only the ops of one partition in each graph, so that the region has all ops."""
    cut = {part.graph: part for part in reversed(call.partitions)}
    graphs = tuple(replace(g, nodes=tuple(n for n in g if n.name in cut[g.id].nodes)) for g in call.graphs)
    timings = tuple(t for t in call.partition_timings if t.partition in {part.id for part in cut.values()})
    return replace(call, graphs=graphs, partitions=tuple(cut.values()), partition_timings=timings, **changes)


def session_with_slow_trace(speedup: float, verdict: Verdict, traced_s: float = 3e-3, eager_s: float = 1e-3) -> Session:
    """Return a session whose traced ops take longer than the program, by default three times, both eager."""
    base = session_with_speedup(speedup, verdict)
    eager = timing("eager", eager_s, 1.0, phase=Phase.STEP, verdict=Verdict.BASELINE)
    traced = timing("aot_eager", traced_s, eager_s / traced_s, phase=Phase.STEP, verdict=Verdict.SLOWER)
    return replace(base, timings=(eager, traced, base.timings[1]))


def test_no_larger_region_is_advised_if_one_has_all_ops() -> None:
    (found,) = plan_diagnostics(reduce_to_one_region(session_with_slow_trace(0.62, Verdict.SLOWER)))
    assert "arger region" not in found.remedy
    assert found.remedy.startswith("One region has all ops already, so none can be larger.")
    assert "2.00 ms (2.00 ms to 2.00 ms) of each call: guards, AOTAutograd's wrappers" in found.remedy
    without_trace = reduce_to_one_region(session_with_speedup(0.62, Verdict.SLOWER))
    (found,) = plan_diagnostics(without_trace)
    assert "The difference is: guards" in found.remedy, "the figure was not measured"
    full = timing("full", 0.4e-3, 2.5, phase=Phase.STEP)
    faster = reduce_to_one_region(session_with_speedup(1.25))
    (found,) = plan_diagnostics(replace(faster, timings=(*faster.timings, full)))
    assert "The difference is 400 µs (400 µs to 400 µs) of each call: the code that calls the region" in found.remedy
    assert found.remedy.endswith("Use plain torch.compile for this call.")


def test_slower_region_of_all_ops_is_not_enlarged() -> None:
    slower = measured_alone(speedup=Figure(0.8, 0.75, 0.85), verdict=Verdict.SLOWER)
    (found,) = region_diagnostics(reduce_to_one_region(slower))
    assert found.remedy == "ex.disable('mlp'): one region has all ops already, so none can be larger."
    with_call = replace(session_with_speedup(0.62, Verdict.SLOWER), partition_timings=slower.partition_timings)
    (found,) = plan_diagnostics(reduce_to_one_region(with_call))
    assert found.remedy.endswith("Or ex.disable('mlp').")


@pytest.mark.parametrize("change", ["two partitions", "an op outside", "a later call"])
def test_a_region_of_every_op_is_recognized(change: str) -> None:
    whole = reduce_to_one_region(measured_alone())
    assert is_one_region(whole)
    first = whole.partitions[0]
    changed = {
        "two partitions": replace(whole, partitions=(*whole.partitions, replace(first, id="another"))),
        "an op outside": replace(whole, graphs=measured_alone().graphs),
        "a later call": replace(whole, graphs=(*whole.graphs, late_graph()), late_graphs=("1/forward",)),
    }[change]
    assert is_one_region(changed) is (change == "a later call")


def late_graph() -> Graph:
    return replace(measured_alone().graphs[0], id="1/forward")


def test_a_speedup_over_a_slow_trace_says_so() -> None:
    over = session_with_slow_trace(1.25, Verdict.FASTER, eager_s=5e-4)  # its regions take 600 µs eagerly, alone
    assert step_timing(over).over_trace
    assert speedup(step_timing(over)) == "2.00× over the trace"
    table = regions_alone_table(over)
    assert "2.00× over the trace" in table.text()
    assert "The speedup of mlp is over traced ops, not over the program" in " ".join(table.text().split())
    (found,) = region_diagnostics(over)
    assert "Traced, the call takes 2.50 ms (2.50 ms to 2.50 ms) longer than the program's own, before" in found.message
    assert "against traced ops that are slower than the program's own" in " ".join(answer_text(answer_of(over)).split())


def test_cost_of_tracing_is_reported_when_it_eats_the_gain() -> None:
    costly = session_with_slow_trace(1.25, Verdict.FASTER, traced_s=1.2e-3)
    assert not step_timing(costly).over_trace
    note = "Traced, the call takes 200 µs (200 µs to 200 µs) longer than the program's own"
    assert note in " ".join(regions_alone_table(costly).text().split())
    assert note in region_diagnostics(costly)[0].message


def test_parts_of_the_call_add_up_to_the_difference_that_is_shown() -> None:
    session = session_with_slow_trace(1.25, Verdict.FASTER, traced_s=1.2e-3)
    eager, _, regional = session.timings
    parts = call_parts(session)
    assert [part.part for part in parts] == ["trace", "mlp", "everything else"]
    assert sum(part.seconds for part in parts) == pytest.approx(regional.median_s.value - eager.median_s.value)
    assert parts[0].seconds == pytest.approx(2e-4)
    gain_s = step_timing(session).gain_of_call_s
    assert gain_s
    assert parts[1].seconds == -gain_s.value, "as in the region's row"
    text = " ".join(regions_alone_table(session).text().split())
    assert "In each call: trace +200 µs, mlp −300 µs, everything else" in text
    assert "against eager." in text
    assert [part.part for part in call_parts(replace(session, timings=(eager, regional)))] == [
        "mlp",
        "trace and everything else",
    ]
    assert not call_parts(replace(session, partition_timings=()))
    assert not call_parts(replace(session, conditions=replace(conditions(), outdated=True)))


@pytest.mark.parametrize("why", ["cheap", "not slower", "not measured", "of another plan", "no region gains"])
def test_a_trace_without_cost_is_not_mentioned(why: str) -> None:
    session = session_with_slow_trace(1.25, Verdict.FASTER, traced_s=1.1e-3 if why == "cheap" else 3e-3, eager_s=1e-3)
    eager, traced, regional = session.timings
    session = {
        "cheap": session,
        "not slower": replace(session, timings=(eager, replace(traced, verdict=Verdict.INCONCLUSIVE), regional)),
        "not measured": replace(session, timings=(eager, regional)),
        "of another plan": replace(session, conditions=replace(conditions(), outdated=True)),
        "no region gains": replace(session, partition_timings=measured_alone(verdict=Verdict.SAME).partition_timings),
    }[why]
    assert "Traced" not in regions_alone_table(session).text()
    assert not step_timing(session).over_trace
    assert speedup(step_timing(session)) == "2.00×"


def conditions() -> Conditions:
    found = measured().conditions
    assert found
    return found
