"""Figures of regions reach the table, the graph and the sorting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from regional_explorer.page.view import overlays, view_state
from regional_explorer.picture.records import Records
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming, Phase, Verdict
from regional_explorer.ui.state import Sort
from regional_explorer.ui.tables import ordered
from tests.shared import sessions


@pytest.fixture
def measured() -> Session:
    base = replace(sessions.trained(2), grad=False)
    figures = (30e-6, 1e-6, 10e-6, 1e-6, 3.0, 2.5, 3.5, Verdict.FASTER)
    timings = tuple(
        PartitionTiming(cut.id, cut.region, Phase.FORWARD, *figures, artifact=cut.artifact, numerics=NumericsVerdict.OK)
        for cut in base.partitions
    )
    return replace(base, partition_timings=timings)


def test_rows_without_a_figure_come_last(measured: Session) -> None:
    regions = (sessions.region("other"), *measured.plan.regions)
    facts = region_summaries(replace(measured, plan=replace(measured.plan, regions=regions)))
    assert [one.region.name for one in facts] == ["other", "mlp"]
    for descending in (False, True):
        assert [one.region.name for one in ordered(facts, Sort("speedup", descending))] == ["mlp", "other"]
    assert [one.region.name for one in ordered(facts, Sort("name"))] == ["mlp", "other"]
    assert [one.region.name for one in ordered(facts, Sort("ops", descending=True))] == ["mlp", "other"]


def pieces_of(session: Session) -> list[Any]:
    found: list[Any] = view_state(session, Records())["look"]["pieces"][0]
    return found


def test_figures_can_be_laid_over_the_graph(measured: Session) -> None:
    found = {one["title"]: one["values"] for one in overlays(measured)}
    assert list(found) == ["compiled time", "eager time", "speedup"]
    assert set(found["speedup"]) == {cut.id for cut in measured.partitions}
    assert {text for _, text in found["speedup"].values()} == {"3.00×"}
    assert {text for _, text in found["compiled time"].values()} == {"10.0 µs"}
    assert overlays(sessions.trained(2)) == []


def test_a_hull_tells_its_speedup_as_long_as_it_stands(measured: Session) -> None:
    pieces = pieces_of(measured)
    assert {piece["speedup"] for piece in pieces} == {"3.00×"}
    assert ["time", "30.0 µs eager, 10.0 µs compiled, 3.00× (2.50–3.50)"] in pieces[0]["facts"]
    other = replace(measured.partition_timings[0], speedup=1.5, speedup_low=1.4, speedup_high=1.6, compiled_s=20e-6)
    unequal = replace(measured, partition_timings=(other, *measured.partition_timings[1:]))
    pieces = pieces_of(unequal)
    (row,) = region_summaries(unequal)
    assert row.timing is not None
    assert {piece["speedup"] for piece in pieces} == {f"{row.timing.speedup:.2f}×"} == {"2.00×"}, "that of the row"
    changed = tuple(replace(cut, artifact="another") for cut in measured.partitions)
    stale = replace(measured, partitions=changed)
    assert {piece["speedup"] for piece in pieces_of(stale)} == {""}
    assert overlays(stale) == []
