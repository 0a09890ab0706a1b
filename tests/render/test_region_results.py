"""Tables of regions alone: what a person decides from."""

from __future__ import annotations

from msgspec.structs import replace

from regional_explorer.page.report import session_html, session_text
from regional_explorer.page.saved import page_html
from regional_explorer.record.timing import MemoryPeak, NumericsVerdict, Verdict
from regional_explorer.style.formats import signed
from regional_explorer.tables.results import memory_table, region_timings_table
from tests.shared import sessions
from tests.shared.sessions import cells, measured_alone, note


def test_a_failed_check_shows_no_speedup_anywhere() -> None:
    session = measured_alone(numerics=NumericsVerdict.FAILED, speedup=None, worst_tensor="mm1")
    (row,) = cells(region_timings_table(session))
    assert row[3:9] == ["–", "–", "–", "numerics failed", "failed", "mm1"]
    assert row[-1] == "–"


def test_what_gains_nothing_is_never_paid_for() -> None:
    (row,) = cells(region_timings_table(measured_alone(verdict=Verdict.SLOWER, speedup=0.5)))
    assert row[3] == "−600 µs"
    assert row[-1] == "never"


def test_warnings_are_told_once() -> None:
    assert note(region_timings_table(measured_alone(warnings=("busy machine: very",)))).count("busy machine") == 1


def test_peaks_that_cannot_be_told_from_none_say_so() -> None:
    peaks = (MemoryPeak("eager", 25_200_000, "resident set", 1 << 20), MemoryPeak("full", 100, "resident set", 1 << 20))
    assert cells(memory_table(replace(measured_alone(), memory=peaks))) == [
        ["eager", "24.0 MiB", "resident set"],
        ["full", "below 1.00 MiB", "resident set"],
    ]


def test_tables_without_figures_are_left_out_of_text_and_page() -> None:
    for said in (session_text(sessions.trained()), session_html(sessions.trained())):
        assert "Regions alone" not in said
        assert "How it adds up" not in said
    for said in (session_text(measured_alone()), session_html(measured_alone())):
        assert "Regions alone" in said
        assert "10,000 calls" in said


def test_a_region_of_which_a_part_was_measured_has_no_row_and_no_table() -> None:
    interrupted = replace(measured_alone(), partition_timings=measured_alone().partition_timings[:1])
    for said in (session_text(interrupted), session_html(interrupted), page_html(interrupted)):
        assert "Regions alone" not in said


def test_the_note_says_what_the_bounds_of_a_sum_assume() -> None:
    said = "bounds of a region with several partitions take all of them at their bounds at once"
    assert said in note(region_timings_table(measured_alone()))
    session = measured_alone()
    first = session.partitions[0]
    alone = tuple(timing for timing in session.partition_timings if timing.partition == first.id)
    single = replace(session, grad=False, partitions=(first,), partition_timings=alone)
    assert len(region_timings_table(single).shown_rows) == 1
    assert said not in note(region_timings_table(single))


def test_differences_have_a_sign() -> None:
    assert (signed(2e-6), signed(-2e-6), signed(None)) == ("+2.00 µs", "−2.00 µs", "–")
