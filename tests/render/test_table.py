"""A table is declared once: its DataFrame, its text and its elements say the same."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from regional_explorer.style.element import to_html
from regional_explorer.tables.table import Column, Number, Table
from tests.shared.sessions import cells


class Step(NamedTuple):
    name: str
    seconds: float | None
    moved: int
    region: int | None = None


STEPS = (Step("load", 1.5e-3, 3 << 20, 0), Step("wait", None, 0))


def steps(rows: tuple[Step, ...] = STEPS) -> Table[Step]:
    return Table(
        "Steps",
        (
            Column("step", lambda step: step.name, region=lambda step: step.region),
            Number("time_us", lambda step: step.seconds),
            Number("moved_bytes", lambda step: step.moved, "moves", tone=lambda step: "" if step.moved else "warn"),
            Column("", lambda step: "nothing" if not step.moved else "", "what it lacks"),
        ),
        rows,
        "No step.",
        lambda: ["A note."],
        heads=("time", "step", "moves", "what it lacks"),
    )


def test_the_frame_has_exact_values_in_the_unit_of_their_names() -> None:
    frame = steps().frame()
    assert list(frame.columns) == ["step", "time_us", "moved_bytes"]
    assert next(frame.itertuples(index=False, name=None)) == ("load", 1500.0, 3 << 20)
    assert frame["time_us"].isna().tolist() == [False, True]


def test_texts_and_elements_have_the_heads_in_order_and_values_for_people() -> None:
    assert cells(steps()) == [["1.50 ms", "load", "3.00 MiB", ""], ["–", "wait", "0 B", "nothing"]]
    assert steps().text().splitlines()[1].split() == ["time", "step", "moves", "what", "it", "lacks"]
    assert [re.split(r"\s{2,}", line.strip()) for line in steps().text().splitlines()[3:5]] == [
        ["1.50 ms", "load", "3.00 MiB"],
        ["–", "wait", "0 B", "nothing"],
    ]
    page = to_html(*steps().nodes())
    assert '<td class="rx-figure">1.50 ms</td><td><span class="rx-chip rx-r0">A</span> load</td>' in page
    assert '<td class="rx-figure"><span class="rx-warn">! 0 B</span></td>' in page
    assert page.endswith('<p class="rx-note">A note.</p>')


def test_without_rows_numbers_stay_numbers_and_it_says_what_is_missing() -> None:
    empty = steps(())
    assert empty.frame()["time_us"].sum() == 0.0
    assert empty.text() == "Steps\n  No step."
    assert to_html(*empty.nodes()) == '<h4>Steps</h4><p class="rx-empty">No step.</p>'


def test_a_fold_of_many_rows_is_closed_unless_one_is_bad() -> None:
    many = replace(steps(STEPS[:1] * 6), fold="long")
    assert "<details><summary>Steps</summary>" in to_html(*many.nodes())
    for opened in (replace(many, rows=STEPS[:1] * 5), replace(many, rows=(*STEPS[:1] * 5, STEPS[1]))):
        assert "<details open><summary>Steps</summary>" in to_html(*opened.nodes())
    assert "<details><summary>" in to_html(*replace(steps(), fold="closed").nodes())


def test_figures_of_another_plan_say_so() -> None:
    found = replace(steps(), outdated=True)
    assert found.frame()["plan"].tolist() == ["another", "another"]
    assert found.text().startswith("Steps of another plan")
    assert "rx-outdated" in to_html(*found.nodes())
    assert replace(steps(), outdated=False).frame()["plan"].tolist() == ["current", "current"]
