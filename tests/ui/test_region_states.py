"""How a region stands, and its figures, are the same wherever they are shown."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from regional_explorer.exploration.live import with_measured_states
from regional_explorer.page.graph import graph_traits, overlays
from regional_explorer.page.report import session_html, session_text
from regional_explorer.picture.page_records import Records
from regional_explorer.record.artifact import ArtifactCompile, ArtifactRecord, CacheAnswer
from regional_explorer.record.benchmark import NumericsVerdict, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.partition import State
from regional_explorer.record.regions import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.style.element import to_html, words
from regional_explorer.style.formats import NONE, STATE_GLYPHS, duration, speedup
from regional_explorer.tables.benchmark import region_timings_table, regions_table
from regional_explorer.tables.table import Table
from regional_explorer.ui.state import Sort
from regional_explorer.ui.tables import ordered, region_table
from tests.shared import sessions
from tests.shared.sessions import cells

HAVE_CODE = (State.COMPILED, State.MEASURED)
OF_PARTITIONS = tuple(state for state in State if state is not State.EMPTY)


@dataclass(frozen=True)
class Shown:
    """What is said about a region; a figure that is not shown is None."""

    state: str
    ops: tuple[int, int]
    partitions: int
    eager: str | None = None
    compiled: str | None = None
    speedup: str | None = None
    numerics: str | None = None
    compile_s: str | None = None


def session_of(states: list[State], *, matched: bool = True, measured: bool = False, cache: str = "cold") -> Session:
    """Return a session with one region, whose partitions are in these states, half of them in the backward."""
    base = sessions.measured_alone()
    made = ArtifactRecord(ArtifactCompile(6.0, CacheAnswer.MISS if cache == "cold" else CacheAnswer.HIT))
    partitions, timings = [], []
    for cut, timing, state in zip(base.partitions, base.partition_timings, states, strict=False):
        if state in HAVE_CODE:
            partitions.append(replace(cut, state=state))
            timings.append(timing)
        else:
            partitions.append(replace(cut, state=state, artifact=None))
            timings.append(replace(timing, compiled=None))
    found = replace(
        base,
        plan=base.plan.changed("mlp", enabled=State.EAGER not in states),
        members=base.members if matched else {},
        partitions=tuple(partitions),
        artifacts=dict.fromkeys(base.artifacts, made),
        partition_timings=tuple(timings) if measured else (),
    )
    states_shown = with_measured_states(found.partitions, found.partition_timings)
    return replace(found, partitions=states_shown) if measured else found


def in_frame(session: Session) -> Shown:
    """Return what ``ex.regions`` says, with its figures as the others write them."""
    row = regions_table(session).frame().iloc[0]

    def figure(name: str, unit: float = 1.0) -> str | None:
        return None if pd.isna(row[name]) else duration(row[name] * unit)

    return Shown(
        row["state"],
        (row["ops_forward"], row["ops_backward"]),
        row["partitions"],
        figure("eager_us", 1e-6),
        figure("compiled_us", 1e-6),
        None if pd.isna(row["speedup"]) else f"{row['speedup']:.2f}×",
        None if pd.isna(row["numerics"]) else row["numerics"] or None,
        figure("compile_s"),
    )


def in_report(session: Session) -> Shown:
    def row(table: Table[Any]) -> dict[str, str]:
        heads = [column.title for column in table.shown_columns]
        return dict(zip(heads, next(iter(cells(table)), []), strict=False))

    regions, alone = row(regions_table(session)), row(region_timings_table(session))

    def figure(name: str) -> str | None:
        return None if alone.get(name, NONE) in {NONE, ""} else alone[name]

    paid = figure("compile")
    return Shown(
        regions["state"],
        (int(regions["ops forward"]), int(regions["ops backward"])),
        int(regions["partitions"]),
        figure("eager"),
        figure("compiled"),
        figure("speedup"),
        figure("numerics"),
        paid and paid.rsplit(" ", 1)[0],
    )


def in_panel(session: Session) -> Shown:
    (table,) = region_table(region_summaries(session), None, picked=(), opened=None, busy=False)
    (row,) = table[3][2:]
    cells = {cell[1]["data-head"]: cell for cell in row[2:] if "data-head" in cell[1]}
    glyph, state = words(cells["state"]).split()
    assert glyph == STATE_GLYPHS[State(state)]

    def figure(head: str) -> str | None:
        said = re.sub(r"^[✓✗▲▼] ", "", words(cells[head]).strip())
        return None if said == NONE else said

    forward, _, backward = words(cells["ops"]).partition(" + ")
    speedup = figure("speedup")
    return Shown(
        state,
        (int(forward), int(backward or 0)),
        int(cells["state"][1]["title"].split()[0]),
        figure("eager"),
        figure("compiled"),
        speedup and speedup.split()[0],
        figure("numerics"),
        figure("compile"),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(OF_PARTITIONS), max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["cold", "warm"]),
)
@example([State.COMPILED] * 4, True, True, "cold")
@example([State.FAILED, State.COMPILED, State.COMPILED, State.COMPILED], True, True, "warm")
@example([], False, False, "cold")
def test_all_views_say_the_same_of_a_region(states: list[State], matched: bool, measured: bool, cache: str) -> None:
    session = session_of(states, matched=matched, measured=measured, cache=cache)
    shown = in_frame(session)
    panel = in_panel(session)
    assert panel == shown
    # The reports give the cost of a compile beside the run times alone.
    report = shown if measured and states else dataclasses.replace(shown, compile_s=None)
    assert in_report(session) == report
    _, legend = graph_traits(session, Records())["look"]["legend"][0]
    assert legend[-1][-1] == shown.state
    assert legend[1]["title"].endswith(shown.state)


@pytest.mark.parametrize(
    ("states", "matched", "word"),
    [
        *(([state] * 4, True, state.value) for state in OF_PARTITIONS),
        ([State.COMPILED, State.EAGER, State.STALE, State.FAILED], True, "failed"),
        ([State.COMPILED, State.EAGER, State.STALE], True, "stale"),
        ([State.COMPILED, State.EAGER], True, "eager"),
        ([], True, "eager"),
        ([], False, "empty"),
    ],
)
def test_a_region_is_as_its_worst_partition(states: list[State], word: str, *, matched: bool) -> None:
    session = session_of(states, matched=matched)
    assert in_frame(session).state == in_panel(session).state == word
    look = graph_traits(session, Records())["look"]
    (said,) = [entry[-1] for when, entry in look["legend"] if when == word]
    assert said.split()[:2] == [STATE_GLYPHS[State(word)], word]
    if states and len(set(states)) == 1:
        assert {piece["state"] for piece in look["pieces"][0]} == {word}
        assert {piece["words"][1].split()[0] for piece in look["pieces"][0]} == {STATE_GLYPHS[State(word)]}


def test_compile_times_add_up() -> None:
    (one,) = region_summaries(session_of([State.COMPILED] * 4))
    assert (one.compile_s, one.artifacts) == (12.0, 2)
    (one,) = region_summaries(session_of([State.STALE]))
    assert one.compile_s is None


# ------------------------------------------------------------------------------------ in the graph, and in sorted rows


@pytest.fixture
def measured() -> Session:
    return replace(sessions.measured_alone(), grad=False)


def test_rows_without_a_figure_come_last(measured: Session) -> None:
    regions = (sessions.region("other"), *measured.plan.regions)
    facts = region_summaries(replace(measured, plan=replace(measured.plan, regions=regions)))
    assert [one.region.name for one in facts] == ["other", "mlp"]
    for descending in (False, True):
        assert [one.region.name for one in ordered(facts, Sort("speedup", descending))] == ["mlp", "other"]
    assert [one.region.name for one in ordered(facts, Sort("name"))] == ["mlp", "other"]
    assert [one.region.name for one in ordered(facts, Sort("ops", descending=True))] == ["mlp", "other"]


def pieces_of(session: Session) -> list[Any]:
    found: list[Any] = graph_traits(session, Records())["look"]["pieces"][0]
    return found


def test_figures_can_be_laid_over_the_graph(measured: Session) -> None:
    found = {one["title"]: one["values"] for one in overlays(measured)}
    assert list(found) == ["compiled time", "eager time", "speedup"]
    assert set(found["speedup"]) == {cut.id for cut in measured.partitions}
    assert {text for _, text in found["speedup"].values()} == {"2.00×"}
    assert {text for _, text in found["compiled time"].values()} == {"50.0 µs", "100 µs"}
    assert overlays(sessions.trained(2)) == []
    unsure = sessions.alone(measured.partitions[0].id, 1e-4, 5e-5, speedup=Figure(2.0, why="too few rounds (5)"))
    *painted, speedups = overlays(replace(measured, partition_timings=(unsure,)))
    assert [one["title"] for one in painted] == ["compiled time", "eager time"]
    assert speedups["values"] == {}
    assert words(speedups["scale"]) == "speedup not painted: too few rounds (5)"
    in_part = overlays(replace(measured, partition_timings=(unsure, *measured.partition_timings[1:])))[-1]
    assert set(in_part["values"]) == {one.partition for one in measured.partition_timings[1:]}
    assert words(in_part["scale"]).endswith("2.00×; others not painted: too few rounds (5)")


def test_a_hull_tells_its_speedup_as_long_as_it_stands(measured: Session) -> None:
    pieces = pieces_of(measured)
    assert {piece["speedup"] for piece in pieces} == {"2.00×"}
    assert ["time", "100 µs eager, 50.0 µs compiled, 2.00× (1.80–2.20)"] in pieces[0]["facts"]
    other = sessions.alone(measured.partitions[0].id, 100e-6, 80e-6, speedup=Figure(1.25, 1.2, 1.3))
    unequal = replace(measured, partition_timings=(other, *measured.partition_timings[1:]))
    (row,) = region_summaries(unequal)
    assert row.timing is not None
    assert {piece["speedup"] for piece in pieces_of(unequal)} == {speedup(row.timing)} == {"1.54×"}
    stale = replace(measured, partition_timings=())
    assert {piece["speedup"] for piece in pieces_of(stale)} == {""}
    assert overlays(stale) == []


def test_a_speedup_that_the_medians_beside_it_contradict_is_called_noisy(measured: Session) -> None:
    thrice = tuple(
        replace(one, eager=sessions.timing("eager", 3 * one.eager.median_s.value, None))
        for one in measured.partition_timings
    )
    for session, noisy in ((measured, False), (replace(measured, partition_timings=thrice), True)):
        row = to_html(*region_table(region_summaries(session), None, picked=(), opened=None, busy=False))
        assert ("noisy" in row, "the medians say 6.00×, the rounds 2.00×" in row) == (noisy, noisy)


def test_a_config_key_that_this_torch_does_not_know_is_shown(measured: Session) -> None:
    (region,) = measured.plan.regions
    unknown = replace(measured, plan=replace(measured.plan, regions=(replace(region, config={"of_later": 3}),)))
    row = to_html(*region_table(region_summaries(unknown), None, picked=(), opened=None, busy=False))
    assert '<span class="rx-key">of_later=3</span>' in row


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.FASTER])
def test_a_speedup_without_interval_is_grey_and_says_why(verdict: Verdict) -> None:
    why = "the machine was too busy"
    session = sessions.measured_alone(speedup=Figure(2.0, why=why), verdict=verdict)
    row = to_html(*region_table(region_summaries(session), None, picked=(), opened=None, busy=False))
    assert f'title="eager ÷ compiled, without CI ({why}): {verdict}"' in row
    assert '<span class="rx-quiet">2.00×</span>' in row


def test_every_speedup_stands_beside_the_words_not_comparable_where_that_is_the_verdict() -> None:
    verdict = NumericsVerdict.NOT_COMPARABLE
    base = sessions.measured(sessions.measured_alone(numerics=verdict))
    found = tuple(replace(timing, numerics=verdict) for timing in base.timings if timing.variant != "eager")
    session = replace(base, timings=found)
    table = region_table(region_summaries(session), None, picked=(), opened=None, busy=False)
    for shown, least in ((session_html(session), 5), (session_text(session), 5), (" ".join(map(words, table)), 1)):
        speedups = re.split(r"\d\.\d\d×", re.sub(r"\d\.\d\d–\d\.\d\d×", "an interval", shown))[1:]
        assert len(speedups) >= least
        assert all(behind.startswith(f" {verdict}") for behind in speedups)
