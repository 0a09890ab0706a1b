"""A table is declared once: its DataFrame has exact values, its text and elements the same ones rounded."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from msgspec import structs

from regional_explorer.exploration.edits import Draft
from regional_explorer.exploration.results import FloorResult, RegionCode, RegionStages, Results, compare
from regional_explorer.page.report import report, session_html, session_text
from regional_explorer.record.files import load_session
from regional_explorer.record.floor import Floor
from regional_explorer.style.element import to_html, words
from regional_explorer.style.formats import NONE
from regional_explorer.tables.frame import MOST_FRAME_ROWS, ShownFrame
from regional_explorer.tables.plan import DiagnosticList, runs_table
from regional_explorer.tables.table import ABOUT, Column, Number, Table
from tests.shared import sessions
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


def test_the_frame_has_exact_values_in_the_named_unit() -> None:
    frame = steps().dataframe()
    assert list(frame.columns) == ["step", "time_us", "moved_bytes"]
    assert next(frame.itertuples(index=False, name=None)) == ("load", 1500.0, 3 << 20)
    assert frame["time_us"].isna().tolist() == [False, True]


def test_texts_and_elements_have_ordered_heads_and_rounded_values() -> None:
    assert cells(steps()) == [["1.50 ms", "load", "3.00 MiB", ""], ["–", "wait", "0 B", "nothing"]]
    assert steps().text().splitlines()[1].split() == ["time", "step", "moves", "what", "it", "lacks"]
    assert [re.split(r"\s{2,}", line.strip()) for line in steps().text().splitlines()[3:5]] == [
        ["1.50 ms", "load", "3.00 MiB"],
        ["–", "wait", "0 B", "nothing"],
    ]
    page = to_html(*steps().elements())
    assert '<td class="rx-figure">1.50 ms</td><td><span class="rx-chip rx-r0">A</span> load</td>' in page
    assert '<td class="rx-figure"><span class="rx-warn">! 0 B</span></td>' in page
    assert page.endswith('<p class="rx-note">A note.</p>')


def test_empty_table_keeps_types_and_says_what_is_missing() -> None:
    empty = steps(())
    assert empty.dataframe()["time_us"].sum() == 0.0
    assert empty.text() == "Steps\n  No step."
    assert to_html(*empty.elements()) == '<h4>Steps</h4><p class="rx-empty">No step.</p>'


def test_a_fold_is_closed_unless_a_row_is_bad() -> None:
    good = replace(steps(STEPS[:1]), fold="unless bad")
    assert "<details><summary>Steps</summary>" in to_html(*good.elements())
    assert "<details open><summary>Steps</summary>" in to_html(*replace(good, rows=STEPS).elements())
    assert "<details><summary>" in to_html(*replace(steps(), fold="closed").elements())


def test_figures_of_another_plan_are_labelled() -> None:
    found = replace(steps(), outdated="another plan")
    assert found.dataframe()["plan"].tolist() == ["another plan", "another plan"]
    assert found.text().startswith("Steps of another plan")
    assert "rx-outdated" in to_html(*found.elements())
    assert replace(steps(), outdated="").dataframe()["plan"].tolist() == ["current", "current"]


# --------------------------------------------------------------------------------------------- as a notebook shows them

OPTIONS = ("display.precision", "display.float_format", "display.max_colwidth", "display.max_rows", "display.width")


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("median_us", 1234.5678, "1,230"),
        ("median_us", 12.3456, "12.3"),
        ("compile_s", 3.14159, "3.14"),
        ("compile_s", 0.0314159, "0.0314"),
        ("at_most_us", math.inf, "inf"),
        ("peak_bytes", 3 << 20, "3,145,728"),
        ("peak_bytes", float(3 << 20), "3,145,728"),
        ("speedup", 1.23456, "1.23"),
        ("speedup", math.nan, "–"),
        ("numerics", None, "–"),
        ("pays_off_after_calls", math.inf, "inf"),
        ("samples", 12345, "12,345"),
        ("enabled", True, "True"),
        ("config", {"max_fusion_size": 8}, "max_fusion_size=8"),
        ("config", {}, "–"),
        ("note", "<b>", "&lt;b&gt;"),
    ],
)
def test_a_value_is_formatted_for_reading(column: str, value: object, text: str) -> None:
    frame = ShownFrame([{column: value}])
    assert f">{text}<" in frame._repr_html_()
    assert column in frame._repr_html_(), "the column keeps the name that code uses"


UNIT_TEXT = re.compile(r"\d (µs|ms|s|[KMG]iB|B)\b")


@pytest.mark.parametrize("name", sessions.FRAMES)
def test_figures_are_in_the_unit_that_the_column_names(name: str) -> None:
    frame = getattr(Results(sessions.profiled(sessions.measured())), name)
    for column in [column for column in frame if str(column).endswith(("_us", "_s", "_bytes"))]:
        page = ShownFrame(frame[[column]])._repr_html_()
        assert not UNIT_TEXT.search(words(page))
        shown = re.findall(r"text-align:right[^>]*>([^<]*)</td>", page)
        for text, value in zip(shown, frame[column], strict=True):
            assert text == NONE or float(text.replace(",", "")) == pytest.approx(value, rel=0.01)


def test_a_title_names_no_unit_if_its_figures_do() -> None:
    session = sessions.profiled(sessions.measured())
    for shown in (session_text(session), words(session_html(session))):
        assert UNIT_TEXT.search(shown)
        assert not re.search(r"\w_(us|bytes)\b", shown)


def test_every_table_is_shown_and_has_its_columns_when_empty() -> None:
    session = sessions.measured()
    code, stages = RegionCode.of(session, "mlp"), RegionStages("mlp", session, ())
    floor = FloorResult(structs.replace(session, floor=Floor((), 0, 0.0, session.environment)))
    tables = [code.kernels, stages.changes, stages.frame, floor.frame]
    assert "median_us" in Results(sessions.training_session(1)).timings._repr_html_()
    for table in (*tables, compare(), compare(session), Results(session).kernel_times("mlp")):
        assert type(table) is ShownFrame
        assert len(table.columns) > 2
    assert list(stages.frame.columns) == ["partition", "stage", "node", "op", "comes_from", "lines"]
    assert list(floor.frame.columns)[-2:] == ["floor_us", "over_aten_us"]


def test_long_tables_wrap_and_are_cut() -> None:
    page = ShownFrame({"message": ["text " * 60]})._repr_html_()
    assert page.count("text ") + page.count("text<") == 60
    assert "white-space:normal" in page
    page = ShownFrame({"n": range(500)})._repr_html_()
    assert page.count("<tr>") == MOST_FRAME_ROWS + 1
    assert f"The first {MOST_FRAME_ROWS} of 500 rows." in page
    page = ShownFrame(pd.DataFrame({"low_bytes": pd.array([1_500_000, None], dtype="Int64")}))._repr_html_()
    assert ">1,500,000<" in page
    assert ">–<" in page
    assert "NA" not in page
    assert ">1,500,000<" in ShownFrame(pd.DataFrame({"number": pd.array([1_500_000], dtype="Int64")}))._repr_html_()


def test_selections_of_a_shown_frame_are_plain_data_frames() -> None:
    options = {name: pd.get_option(name) for name in OPTIONS}
    frame = Results(sessions.measured()).timings
    assert frame.median_us[2] == sessions.measured().timings[2].median_s.value * 1e6
    for made in (frame[frame.variant == "full"], frame[["variant"]], frame.copy(), frame.sort_values("median_us")):
        assert type(made) is pd.DataFrame
    assert type(frame.groupby("variant").median_us.median().to_frame()) is pd.DataFrame
    assert {name: pd.get_option(name) for name in OPTIONS} == options, "no option of pandas is touched"


def test_diagnostics_are_a_list_and_show_a_table() -> None:
    found = DiagnosticList(sessions.session_with_diagnostics().diagnostics)
    assert found == list(sessions.session_with_diagnostics().diagnostics)
    page = found._repr_html_()
    assert "<table" in page
    assert "region-split" in page
    assert "Mark the op between them too." in page
    assert DiagnosticList()._repr_html_() == "<p>No diagnostics.</p>"


def test_configure_takes_keywords_like_a_marked_region() -> None:
    session = sessions.training_session(1)
    draft = Draft(session.plan, session.graphs, session.breaks)
    dotted: dict[str, Any] = {"cpp.simdlen": 256}
    draft.configure("mlp", max_fusion_size=8, **dotted)
    assert draft.plan["mlp"].config["max_fusion_size"] == 8
    draft.configure("mlp", {"max_fusion_size": 4}, realize_reads_threshold=3, direction="backward")
    backward = draft.plan["mlp"].backward_config
    assert backward is not None
    assert (backward["max_fusion_size"], backward["realize_reads_threshold"]) == (4, 3)
    assert draft.plan["mlp"].config["max_fusion_size"] == 8


def test_every_column_title_is_explained() -> None:
    session_files = sorted((Path(__file__).parents[1] / "golden" / "sessions").glob("*.json"))
    found = {
        column.title
        for session in map(load_session, session_files)
        for table in (*report(session), runs_table((session, session)))
        for column in table.shown_columns
        if table.shown_rows
    }
    assert found - ABOUT.keys() == set()
