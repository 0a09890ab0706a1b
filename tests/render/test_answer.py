"""The answer in every form: its length, keys and words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regional_explorer.exploration.results import Results, load
from regional_explorer.page.answer import share_text
from regional_explorer.page.report import session_text
from regional_explorer.record.benchmark import NumericsVerdict, VariantName, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import Figure
from regional_explorer.record.files import dump_session
from regional_explorer.record.plan import Plan
from regional_explorer.record.session import Session
from tests.shared import sessions

MOST_LINES = 20
"""The title, seven lines of sentences, three findings of two or three lines, what is left out, and what next."""


def sessions_by_name() -> dict[str, Session]:
    measured, troubled = sessions.measured(), sessions.session_with_diagnostics()
    names = [f"a region with a rather long name, the number {number}" for number in range(30)]
    many = replace(measured, plan=Plan(tuple(replace(measured.plan.regions[0], name=name) for name in names)))
    return {
        "traced": sessions.training_session(1),
        "measured": measured,
        "troubled": troubled,
        "many regions": many,
        "no region": replace(sessions.training_session(1), plan=Plan(), partitions=(), members={}),
        "long title": replace(measured, title="f" * 300),
        **{f"hostile {number}": sessions.hostile_session(text) for number, text in enumerate(sessions.HOSTILE)},
    }


@pytest.mark.parametrize("name", sessions_by_name())
def test_the_repr_of_an_exploration_is_its_answer(name: str) -> None:
    session = sessions_by_name()[name]
    lines = repr(Results(session)).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100
    assert str(Results(session)) == repr(Results(session)) == Results(session)._repr_mimebundle_()["text/plain"]
    assert session_text(session).startswith(repr(Results(session)))


def test_markdown_is_a_sentence_a_table_of_what_was_compared_and_the_conditions() -> None:
    for session in sessions_by_name().values():
        lines = Results(session).answer.markdown.splitlines()
        assert lines[0].startswith("**")
        assert lines[0].endswith("**")
        assert [line.split(" | ")[0] for line in lines[4:7]] == ["| eager", "| torch.compile", "| your plan"]
        assert {line.count(" | ") for line in lines[2:7] if line[1] == " "} == {3}
        assert len("\n".join(lines).encode()) < 2048
    measured = Results(sessions.measured()).answer.markdown
    assert "| your plan | 320 µs (317 µs to 323 µs) | 1.24× (1.21–1.27) | 3.00 s |" in measured
    assert "Measured with torch 2.13.0, cpu, 2 threads, 40 rounds in turns." in measured


def test_json_always_has_the_same_keys() -> None:
    answers = [Results(session).answer for session in sessions_by_name().values()]
    assert len({tuple(json.loads(answer.json)) for answer in answers}) == 1


def test_a_saved_session_has_the_same_answer(tmp_path: Path) -> None:
    session = sessions.measured(sessions.session_with_diagnostics())
    path = tmp_path / "x.json"
    path.write_text(dump_session(session), encoding="utf-8")
    assert load(path).answer == Results(session).answer


# --------------------------------------------------------------------------------------------------------------- words


def answer_text(session: Session) -> str:
    return " ".join(str(Results(session).answer).split())


def test_each_state_gives_results_and_next_step() -> None:
    measured = sessions.measured()
    without_full = replace(measured, timings=measured.timings[:3])
    assert measured.conditions
    changed = replace(measured, conditions=replace(measured.conditions, outdated=True))
    unsure = replace(measured.timings[2], speedup=Figure(1.02, 0.9, 1.1), verdict=Verdict.INCONCLUSIVE)
    no_verdict = replace(measured, timings=(*measured.timings[:2], unsure))
    text = answer_text(sessions.training_session(1))
    assert "nothing is compiled yet. Next: ex.benchmark() compiles and measures" in text
    assert "Use your plan: 1.24× as fast as eager (1.21–1.27)" in answer_text(measured)
    assert "torch.compile was not measured" in answer_text(without_full)
    assert "Next: ex.benchmark() measures torch.compile too." in answer_text(without_full)
    assert "Use the earlier plan: 1.24×" in answer_text(changed)
    assert "Next: ex.benchmark() measures the call as it is now." in answer_text(changed)
    assert "No verdict yet:" in answer_text(no_verdict)
    assert "Next: ex.benchmark(budget_s=" in answer_text(no_verdict)


def test_wrong_results_replace_the_speed() -> None:
    text = answer_text(sessions.measured(numerics=NumericsVerdict.FAILED))
    assert "The results of your plan are wrong: output 0: one element off by" in text
    assert "as fast as your plan" not in text
    assert "320 µs" not in text


def test_variants_have_plain_names() -> None:
    for session in sessions_by_name().values():
        text = answer_text(session)
        assert not {str(VariantName.FULL), str(VariantName.AOT_EAGER), str(VariantName.REGIONAL)} & set(text.split())


def test_findings_with_actions_are_shown() -> None:
    remark = Diagnostic(DiagnosticCode.REGION_WORTH, "Something is worth it", severity=Severity.INFO)
    lost = Diagnostic(DiagnosticCode.REGION_LOST, "It is lost", severity=Severity.ERROR, advice=("Move the line.",))
    text = answer_text(replace(sessions.measured(), diagnostics=(lost, remark, remark)))
    assert "1 error, 2 remarks: ex.diagnostics." in text


@given(st.floats(0.01, 100.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_gain_is_rounded_to_its_interval(value: float, below: float, above: float) -> None:
    figure = Figure(value, value * (1.0 - below), value * (1.0 + above))
    text = share_text(figure * 0.01).partition(" ")[0].replace(",", "")
    decimals = len(text.partition(".")[2])
    half_width = value * (below + above) / 2.0
    assert half_width == 0.0 or 10.0**-decimals >= min(half_width, 1.0) / 10.0 or float(text) == 0.0
