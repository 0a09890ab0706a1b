"""How parts add up to the whole, and what that advises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regional_explorer.diagnostics.measured import region_diagnostics
from regional_explorer.measure.partitions import BORDERS, CUT_GRAPH, DISPATCH, REST, WRAPPER, reconcile
from regional_explorer.measure.rounds import BenchmarkOptions, RoundsResult, Stop
from regional_explorer.record.regions import RegionTiming, region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, Phase, Reconciled, Timing, Verdict
from tests.measure.test_region_timing import measured
from tests.render.sessions import timing

VARIANTS = {"eager": 10e-4, "aot_eager": 12e-4, "regional": 9e-4, "full": 7e-4}


def variants(phase: Phase = Phase.STEP) -> list[Timing]:
    return [timing(name, seconds, None, phase=phase) for name, seconds in VARIANTS.items()]


def cut_rounds() -> RoundsResult:
    samples = {"aot_eager": {Phase.STEP: (12e-4,) * 9}, CUT_GRAPH: {Phase.STEP: (12.5e-4,) * 9}}
    return RoundsResult("aot_eager", BenchmarkOptions(), samples, {}, {}, 9, 1, 1.0, Stop.BUDGET)


def rows(regions: tuple[RegionTiming, ...], cut: RoundsResult | None) -> dict[str, Reconciled]:
    return {row.part: row for row in reconcile(variants(), regions, cut, 0.99)}


def test_every_step_between_two_totals_is_told_and_they_add_up() -> None:
    found = rows(region_timings(measured()), cut_rounds())
    assert list(found) == ["eager", WRAPPER, "aot_eager", DISPATCH, "mlp", REST, "regional", BORDERS, "full"]
    assert found[WRAPPER].seconds == pytest.approx(2e-4)
    assert found[DISPATCH].seconds == pytest.approx(0.5e-4)
    assert found["mlp"].seconds == pytest.approx(-3e-4)
    assert found[REST].seconds == pytest.approx(-0.5e-4)
    assert found[BORDERS].seconds == pytest.approx(-2e-4)
    between = [row.seconds for row in found.values() if not row.total]
    assert found["eager"].seconds + sum(between) == pytest.approx(found["full"].seconds)


def test_a_region_has_an_interval_and_the_rest_has_none() -> None:
    found = rows(region_timings(measured()), None)
    low, high = found["mlp"].low_s, found["mlp"].high_s
    assert low is not None
    assert high is not None
    assert low < found["mlp"].seconds < high
    assert found[REST].low_s is None
    assert DISPATCH not in found


def test_a_region_whose_gain_is_withheld_is_named_in_the_rest() -> None:
    found = rows(region_timings(measured(numerics=NumericsVerdict.FAILED, speedup=None)), None)
    assert "mlp" not in found
    assert "mlp, of which no gain is known" in found[REST].note


def test_a_region_that_runs_eagerly_gains_nothing() -> None:
    base = measured(compiled_s=None, speedup=None, artifact=None)
    base = replace(base, partitions=tuple(replace(part, artifact=None) for part in base.partitions))
    assert rows(region_timings(base), None)["mlp"].seconds == 0.0


def test_parts_that_take_longer_than_the_whole_are_not_added_up() -> None:
    regions = [replace(row, eager_s=15e-4) for row in region_timings(measured())]
    found = reconcile(variants(), regions, cut_rounds(), 0.99)
    assert [row.part for row in found] == ["eager", "aot_eager", "regional", "full"]
    assert all(row.total for row in found)
    assert [row.note.partition(":")[0] for row in found] == ["parts withheld", *[""] * (len(found) - 1)]
    assert "1.25 times as long eagerly as the whole of aot_eager" in found[0].note


def test_variants_left_out_leave_out_their_steps() -> None:
    some = [row for row in variants() if row.variant in ("eager", "regional")]
    assert [row.part for row in reconcile(some, region_timings(measured()), None, 0.99)] == ["eager", "regional"]


def slower() -> Session:
    return measured(speedup=0.8, speedup_low=0.75, speedup_high=0.85, verdict=Verdict.SLOWER)


def test_a_region_that_gains_is_told_with_its_price() -> None:
    (found,) = region_diagnostics(measured())
    assert found.code == "region-worth"
    assert "'mlp' saves 300 µs in each call, its cold compile of 3.00 s pays off after 10,000 calls" in found.message


def test_a_region_that_loses_is_told_with_the_way_out() -> None:
    (found,) = region_diagnostics(slower())
    assert (found.code, found.region) == ("region-slower", "mlp")
    assert "takes 150 µs longer" in found.message
    assert "ex.disable('mlp')" in found.remedy


def test_nothing_is_advised_without_data() -> None:
    assert region_diagnostics(measured(verdict=Verdict.UNKNOWN)) == []
    assert region_diagnostics(replace(measured(), partition_timings=())) == []
