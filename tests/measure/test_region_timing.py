"""Regions as sums of their partitions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from regional_explorer.exploration.results import Results
from regional_explorer.record.json_file import dump_session, from_json
from regional_explorer.record.regions import RegionTiming, region_timings, whole_region_timings
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming, Phase, Verdict
from tests.render import sessions


def measured(**changes: Any) -> Session:
    """Return two layers of 100 µs forward and 200 µs backward, compiled to half of it, measured once."""
    base = sessions.trained(2)
    found = []
    for part in base.partitions:
        forward = part.graph == "0/forward"
        found.append(
            PartitionTiming(
                partition=part.id,
                region="mlp",
                phase=Phase.FORWARD if forward else Phase.BACKWARD,
                eager_s=1e-4 if forward else 2e-4,
                eager_iqr_s=1e-6,
                compiled_s=5e-5 if forward else 1e-4,
                compiled_iqr_s=1e-6,
                speedup=2.0,
                speedup_low=1.8,
                speedup_high=2.2,
                verdict=Verdict.FASTER,
                samples=40,
                artifact=part.artifact,
                measured_as=None if part.instance == 0 else f"mlp/0/{part.graph}",
                numerics=NumericsVerdict.OK,
            )
        )
    return replace(base, partition_timings=tuple(replace(timing, **changes) for timing in found))


def step(session: Session) -> RegionTiming:
    return whole_region_timings(session)["mlp"]


def test_partitions_add_up_by_phase() -> None:
    forward, backward, whole = region_timings(measured())
    assert [forward.phase, backward.phase, whole.phase] == list(Phase)
    assert forward.eager_s == pytest.approx(2e-4)
    assert backward.eager_s == pytest.approx(4e-4)
    assert whole.eager_s == pytest.approx(6e-4)
    assert whole.compiled_s == pytest.approx(3e-4)
    assert (whole.speedup, whole.speedup_low, whole.speedup_high) == pytest.approx((2.0, 1.8, 2.2))
    assert (whole.partitions, whole.measured) == (4, 2)


def test_what_runs_more_often_counts_more_often() -> None:
    assert step(measured(runs=3)).eager_s == pytest.approx(18e-4)


def test_a_compile_pays_off_after_what_it_cost_over_what_it_gains() -> None:
    whole = step(measured())
    assert whole.compile_s == pytest.approx(3.0)  # one artifact for each phase, 1.5 s each
    assert whole.cache == "cold"
    assert whole.pays_off_after_calls == 10_000


@pytest.mark.parametrize("verdict", [Verdict.SLOWER, Verdict.SAME])
def test_what_gains_nothing_never_pays_off(verdict: Verdict) -> None:
    assert step(measured(verdict=verdict, speedup=0.9, speedup_low=0.8)).pays_off_after_calls == math.inf


def test_too_few_samples_tell_nothing_of_it() -> None:
    assert step(measured(verdict=Verdict.UNKNOWN)).pays_off_after_calls is None


def test_a_failed_check_withholds_the_speedup_of_the_region() -> None:
    base = measured()
    bad = replace(base.partition_timings[1], numerics=NumericsVerdict.FAILED, speedup=None, worst_tensor="mm1")
    whole = step(replace(base, partition_timings=(base.partition_timings[0], bad, *base.partition_timings[2:])))
    assert (whole.speedup, whole.gain_s, whole.verdict) == (None, None, Verdict.UNKNOWN)
    assert (whole.numerics, whole.worst_tensor) == ("failed", "mm1")


def test_what_is_not_compiled_counts_as_eager() -> None:
    base = measured()
    eager = replace(base.partition_timings[0], compiled_s=None, speedup=None, artifact=None)
    parts = (replace(base.partitions[0], artifact=None), *base.partitions[1:])
    whole = step(replace(base, partitions=parts, partition_timings=(eager, *base.partition_timings[1:])))
    assert whole.compiled_s == pytest.approx(3.5e-4)
    assert whole.speedup == pytest.approx(6 / 3.5)


def test_verdicts_that_differ_need_the_bounds_of_the_sum() -> None:
    base = measured()
    slow = replace(base.partition_timings[0], speedup=0.5, speedup_low=0.4, speedup_high=0.6, verdict=Verdict.SLOWER)
    assert step(replace(base, partition_timings=(slow, *base.partition_timings[1:]))).verdict is Verdict.FASTER


def test_a_figure_falls_with_the_artifact_it_was_taken_of() -> None:
    base = measured()
    anew = tuple(replace(part, artifact="new") if part.graph == "0/forward" else part for part in base.partitions)
    assert [row.phase for row in region_timings(replace(base, partitions=anew))] == [Phase.BACKWARD]


def test_frames_have_units_and_a_row_for_each_region_measured_or_not() -> None:
    frame = Results(measured()).region_timings
    assert list(frame["phase"]) == ["forward", "backward", "step"]
    assert frame["eager_us"].tolist() == pytest.approx([200.0, 400.0, 600.0])
    regions = Results(measured()).regions
    assert regions.loc[0, "compiled_us"] == pytest.approx(300.0)
    assert regions.loc[0, "pays_off_after_calls"] == 10_000
    assert Results(sessions.trained(2)).regions["speedup"].isna().all()
    assert len(Results(measured()).partition_timings) == 4


def test_a_session_with_partition_timings_survives_json() -> None:
    text = json.loads(dump_session(measured()))
    assert from_json(Session, {key: text[key] for key in text if key not in ("format", "kind")}) == measured()
