"""How a region stands is the same wherever it is shown."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regional_explorer.page.report import session_html, session_text
from regional_explorer.page.view import view_state
from regional_explorer.picture.records import Records
from regional_explorer.record.partition import State
from regional_explorer.record.regions import region_summaries, with_measured_states
from regional_explorer.record.session import Session
from regional_explorer.record.timing import NumericsVerdict, PartitionTiming, Phase, Verdict
from regional_explorer.style.element import words
from regional_explorer.style.formats import NONE, STATE_GLYPHS, duration
from regional_explorer.tables.results import regions_table
from regional_explorer.ui.tables import region_table
from tests.shared import sessions

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
    base = sessions.trained(2)
    partitions = tuple(
        replace(
            cut,
            state=state,
            artifact=cut.artifact if state in HAVE_CODE else None,
            compile_s=1.5 + number if state in HAVE_CODE else None,
            cache=cache if state in HAVE_CODE else None,
        )
        for number, (cut, state) in enumerate(zip(base.partitions, states, strict=False))
    )
    timings = tuple(
        PartitionTiming(
            cut.id,
            cut.region,
            Phase.FORWARD,
            eager_s=30e-6,
            eager_iqr_s=1e-6,
            compiled_s=10e-6 if cut.artifact else None,
            compiled_iqr_s=1e-6 if cut.artifact else None,
            speedup=3.0 if cut.artifact else None,
            speedup_low=2.5 if cut.artifact else None,
            speedup_high=3.5 if cut.artifact else None,
            verdict=Verdict.FASTER if cut.artifact else Verdict.UNKNOWN,
            artifact=cut.artifact,
            numerics=NumericsVerdict.OK if cut.artifact else NumericsVerdict.NOT_CHECKED,
        )
        for cut in partitions
    )
    found = replace(
        base,
        plan=base.plan.changed("mlp", enabled=State.EAGER not in states),
        members=base.members if matched else {},
        partitions=partitions,
        partition_timings=timings if measured else (),
    )
    return with_measured_states(found) if measured else found


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


def of_tables(regions: dict[str, str], alone: dict[str, str]) -> Shown:
    """Return what the tables of a report say."""

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


def in_text(session: Session) -> Shown:
    lines = session_text(session, width=1000).splitlines()

    def table(title: str) -> dict[str, str]:
        if title not in lines:
            return {}
        head, _, row = (re.split(r"\s{2,}", line.strip()) for line in lines[lines.index(title) + 1 :][:3])
        return dict(zip(head, row, strict=True))

    return of_tables(table("Regions"), table("Regions alone"))


def in_html(session: Session) -> Shown:
    page = session_html(session)

    def table(title: str) -> dict[str, str]:
        found = re.search(rf"<h4>{title}</h4><div[^>]*>(<table>.*?</table>)", page)
        if found is None:
            return {}
        head, row = (
            ["".join(cell.itertext()) for cell in line]
            for line in ET.fromstring(found[1]).iter("tr")  # noqa: S314
        )
        cells = dict(zip(head, row, strict=True))
        if "state" in cells:
            glyph, cells["state"] = cells["state"].split()
            assert glyph == STATE_GLYPHS[State(cells["state"])]
        return {name: re.sub(r"^[✓✗] ", "", cell) for name, cell in cells.items()}

    return of_tables(table("Regions"), table("Regions alone"))


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
    report = shown if measured and states else replace(shown, compile_s=None)
    assert in_text(session) == report
    assert in_html(session) == report
    _, legend = view_state(session, Records())["look"]["legend"][0]
    assert legend[-1][-1] == shown.state
    assert legend[1]["title"].endswith(shown.state)


@pytest.mark.parametrize("state", OF_PARTITIONS)
def test_the_word_of_a_region_is_that_of_its_partitions(state: State) -> None:
    session = session_of([state] * 4)
    assert {in_frame(session).state, in_panel(session).state} == {state.value}
    look = view_state(session, Records())["look"]
    pieces = look["pieces"][0]
    assert {piece["state"] for piece in pieces} == {state.value}
    assert {piece["words"][1].split()[0] for piece in pieces} == {STATE_GLYPHS[state]}
    (text,) = [entry[-1] for when, entry in look["legend"] if when == state]
    assert text.split()[:2] == [STATE_GLYPHS[state], state]


@pytest.mark.parametrize(
    ("states", "matched", "word"),
    [
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


def test_compile_times_add_up() -> None:
    (one,) = region_summaries(session_of([State.COMPILED] * 4))
    assert (one.compile_s, one.artifacts) == (12.0, 2)
    (one,) = region_summaries(session_of([State.STALE]))
    assert one.compile_s is None
