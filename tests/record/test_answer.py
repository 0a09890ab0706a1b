"""No answer is impossible, whatever was measured: a test for each rule, over random sessions."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from regional_explorer.page.answer import EARLIER_PLAN, ShownAnswer, headline, sentences
from regional_explorer.record.action import (
    ALONE,
    ActionKind,
    EffectBasis,
    configure_action,
    disable_action,
    mark_nodes_action,
)
from regional_explorer.record.answer import LEAST_SHARE, MOST_FINDINGS, Answer, AnswerState, answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.benchmark import Numerics, NumericsVerdict, VariantName, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import Figure, Noise
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan
from regional_explorer.record.profile import ProfileKind, ProfileRow
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import (
    WIDEST,
    WORDS,
    Missing,
    Speed,
    comparison,
    interval_ends,
    plan_speed,
    ratio_text,
    variant_to_use,
)
from tests.shared import sessions
from tests.shared.claims import text_claims
from tests.shared.random_sessions import RandomMachine, random_measurement

SEEDS = range(96)
DRAWN = 12
"""The number of random measured sessions; each seed changes one of them."""
PLAN, EAGER, FULL = (WORDS[name] for name in (VariantName.REGIONAL, VariantName.EAGER, VariantName.FULL))


@functools.cache
def random_session(seed: int) -> Session:
    """Return a random session: variants may be missing, the plan another, and findings have any gain."""
    chance = RandomMachine(seed + 1000)
    session = random_measurement(seed % DRAWN)[1]
    call_s = session.timings[0].median_s.value
    missing = chance.one_of((), (), (), (VariantName.FULL,), (VariantName.REGIONAL,), tuple(VariantName))
    rows = tuple(
        Numerics(VariantName.REGIONAL, f"output {number}", error=1.0, verdict=chance.one_of(*NumericsVerdict))
        for number in range(chance.one_of(0, 0, 1, 3))
    )
    states = tuple(replace(part, state=chance.one_of(*State)) for part in session.partitions)
    assert session.conditions
    conditions = replace(session.conditions, outdated=chance.one_of(False, False, True))
    return replace(
        session,
        timings=tuple(timing for timing in session.timings if timing.variant not in missing),
        conditions=None if missing == tuple(VariantName) else conditions,
        numerics=rows,
        partitions=chance.one_of(session.partitions, states),
        plan=chance.one_of(session.plan, session.plan, session.plan, Plan()),
        diagnostics=(*session.diagnostics, *(finding(chance, call_s) for _ in range(chance.one_of(0, 1, 3, 9)))),
    )


def finding(chance: RandomMachine, call_s: float) -> Diagnostic:
    """Return a finding whose action saves anything between nothing and many times what a call takes."""
    value = chance.one_of(-1.0, 1.0, 1.0, 1.0) * call_s * chance.magnitude(1e-4, 3.0)
    low, high = sorted((value * chance.magnitude(0.1, 1.0), value * chance.magnitude(1.0, 10.0)))
    figure = chance.one_of(None, Figure(value, why="too few rounds (5)"), *[Figure(value, low, high)] * 4)
    edits = configure_action("mlp", {"max_fusion_size": 512}), disable_action("mlp"), mark_nodes_action("mlp", "a")
    action = chance.one_of(*edits)
    basis = EffectBasis.GUESSED if figure is None else EffectBasis.MEASURED
    codes = DiagnosticCode.OP_RECOMPUTED, DiagnosticCode.REGION_SPLIT, DiagnosticCode.REGION_FAILED
    code: DiagnosticCode = chance.one_of(*codes)
    does = replace(action, gain_s=figure, basis=basis, assumes=ALONE)
    remedy = chance.one_of((does, " helps."), ("Nothing.",))
    return code.finding("Region 'mlp' is found to do something", region="mlp", remedy=remedy)


def answers() -> list[tuple[Session, Answer]]:
    return [(random_session(seed), answer_of(random_session(seed))) for seed in SEEDS]


def figures(answer: Answer) -> list[Figure]:
    """Return all figures of an answer."""
    found: list[Figure | None] = [*answer.times.values(), answer.repaid_after]
    found += [speed.speedup for speed in answer.speeds]
    found += [figure for finding in answer.findings for figure in (finding.gain_s, finding.share)]
    return [figure for figure in found if figure is not None]


def test_the_random_sessions_have_every_answer_state() -> None:
    states = Counter(answer.state for _, answer in answers())
    assert set(states) == set(AnswerState) - {AnswerState.FAILED}
    assert min(states.values()) > 3
    assert any(answer.of_earlier_plan and answer.findings for _, answer in answers())
    assert sum(finding.share is not None for _, answer in answers() for finding in answer.findings) > 5


def test_every_figure_lies_inside_an_interval() -> None:
    for _, answer in answers():
        for figure in figures(answer):
            assert figure.bounds is not None
            low, value, high = interval_ends(figure)
            assert 0.0 < low <= value <= high


def test_meaningless_ratio_is_left_out() -> None:
    ratios = [speed.speedup for _, answer in answers() for speed in answer.speeds if speed.speedup is not None]
    assert ratios
    assert all(interval_ends(ratio)[2] <= WIDEST * interval_ends(ratio)[0] for ratio in ratios)


def test_no_gain_exceeds_the_time_of_the_call() -> None:
    for _, answer in answers():
        for finding in answer.findings:
            if finding.gain_s and answer.times:
                assert finding.gain_s.value <= max(seconds.value for seconds in answer.times.values())
            if finding.share is not None:
                assert interval_ends(finding.share)[2] <= 1.0
                assert finding.gain_s
                assert finding.gain_s.value <= answer.times[PLAN].value


def test_faster_means_ratio_above_one() -> None:
    seen = Counter[str]()
    for _, answer in answers():
        for speed in answer.speeds:
            seen[speed.verdict] += speed.speedup is not None
            if speed.speedup is not None and speed.verdict == Verdict.FASTER:
                assert interval_ends(speed.speedup)[0] > 1.0
            if speed.speedup is not None and speed.verdict == Verdict.SLOWER:
                assert interval_ends(speed.speedup)[2] < 1.0
    assert seen[Verdict.FASTER]
    assert seen[Verdict.SLOWER]


def test_the_ratio_to_torch_compile_is_of_the_same_rounds() -> None:
    for session, answer in answers():
        against = {speed.against: speed for speed in answer.speeds if speed.of == PLAN}
        if FULL in against and (own := against[FULL].speedup) is not None:
            of_variant = session.whole_timings
            full_s, plan_s = (of_variant[name].samples_s for name in (VariantName.FULL, VariantName.REGIONAL))
            ratios = sorted(full / plan for full, plan in zip(full_s, plan_s, strict=True))
            assert ratios[0] <= own.value <= ratios[-1]


def test_missing_torch_compile_is_reported() -> None:
    for session, answer in answers():
        if answer.state in {AnswerState.ANSWERED, AnswerState.NO_VERDICT}:
            missing = plan_speed(session, VariantName.FULL).verdict is Missing.NOT_MEASURED
            text = " ".join(str(ShownAnswer.of(session)).split())
            assert ("torch.compile was not measured" in text) is missing
            if missing and session.plan.regions:
                assert ActionKind.BENCHMARK in {part.kind for part in answer.next if not isinstance(part, str)}


def test_no_sentence_calls_a_variant_unmeasured_that_has_a_time() -> None:
    timed = 0
    for session, answer in answers():
        text = " ".join(sentences(answer))
        for word in answer.times:
            timed += 1
            assert f"{word} was not measured" not in text
        assert not (answer.of_earlier_plan and f"{PLAN} was not measured" in text.lower())
        for bar in bars_of(session):
            assert bar.seconds is None or f"{bar.word} was not measured" not in text
    assert timed > len(SEEDS)


def test_disturbed_rounds_are_counted_in_one_sentence() -> None:
    """Those of the benchmark are other rounds than those of a profile, and a reader sees one answer."""
    counted = 0
    for session, answer in answers():
        assert not re.search(r"\d of [\d,]+ rounds?", " ".join(sentences(answer)))
        counted += bool(re.search(r"\d of [\d,]+ rounds?", str(ShownAnswer.of(session))))
    assert counted > 3


@pytest.mark.parametrize("others", [None, 0.0, 0.1, 1.5])
@pytest.mark.parametrize("disturbed", [0, 4, 60])
def test_a_busy_machine_is_told_with_what_was_seen(others: float | None, disturbed: int) -> None:
    text = Noise(rounds=100, disturbed=disturbed, left_out=disturbed, others=others, cores=2).sentence
    assert ("busy" in text) is (disturbed == 60 or others == 1.5)
    assert ("other processes used" in text) is (others == 1.5)
    assert ("nothing on this system was seen" in text) is ("busy" in text and others in {0.0, 0.1})


def test_wrong_results_have_no_speed() -> None:
    for session, answer in answers():
        if answer.state is AnswerState.WRONG:
            assert PLAN not in answer.times
            assert not any(speed.speedup for speed in answer.speeds if speed.of == PLAN)
            assert (answer.faster, answer.slower, answer.repaid_after) == ((), (), None)
            assert "faster" not in str(ShownAnswer.of(session))
        elif answer.results is not None and not answer.of_earlier_plan:
            assert not answer.results.withholds_speedup


def test_only_faster_plans_repay_their_compile_time() -> None:
    repaid = 0
    for _, answer in answers():
        if answer.repaid_after is not None:
            repaid += 1
            (of_eager,) = (speed for speed in answer.speeds if (speed.of, speed.against) == (PLAN, EAGER))
            assert of_eager.verdict == Verdict.FASTER
            assert answer.waited_s is not None
            assert interval_ends(answer.repaid_after)[0] >= answer.waited_s / interval_ends(answer.times[EAGER])[2]
    assert repaid


def test_figures_of_an_earlier_plan_are_labelled() -> None:
    for session, answer in answers():
        text = str(ShownAnswer.of(session))
        assert (EARLIER_PLAN in text) is session.is_outdated
        if session.is_outdated:
            assert "under your plan" not in text
            assert (answer.waited_s, answer.repaid_after) == (None, None)
            assert not any(finding.share for finding in answer.findings)


def test_every_diagnostic_is_shown_or_counted() -> None:
    for session, answer in answers():
        assert len(answer.findings) + answer.more + sum(answer.remarks.values()) == len(session.diagnostics)
        assert len(answer.findings) <= MOST_FINDINGS
        assert answer.smaller <= answer.more


def test_findings_are_ordered_by_gain() -> None:
    for session, answer in answers():
        severities = {found.code: found.severity for found in session.diagnostics}
        ranks = [
            (severities[one.code] is not Severity.ERROR, -(one.gain_s.value if one.gain_s else 0.0))
            for one in answer.findings
        ]
        assert ranks == sorted(ranks)
        assert all(one.share.value >= LEAST_SHARE for one in answer.findings if one.share is not None)


def test_findings_have_an_action_and_a_basis_of_the_gain() -> None:
    for session, answer in answers():
        text = " ".join(str(ShownAnswer.of(session)).split())
        for one in answer.findings:
            ast.parse(str(one.action))
            assert str(one.action) in text or "ex.apply(ex.answer.findings[" in text
            assert one.gain_s is None or one.action.basis is not EffectBasis.GUESSED


def test_missing_verdict_gives_advice() -> None:
    for session, answer in answers():
        if answer.state is AnswerState.NO_VERDICT and session.plan.regions and not session.is_outdated:
            (action,) = (part for part in answer.next if not isinstance(part, str))
            assert action.kind is ActionKind.BENCHMARK
            assert session.conditions
            budget_s: Any = action.options.get("budget_s", session.conditions.budget_s)
            assert budget_s >= session.conditions.budget_s


@pytest.mark.parametrize(("step_s", "advised"), [(0.01, "ex.benchmark() "), (1.5, "ex.benchmark(budget_s=120) ")])
def test_the_advised_benchmark_is_long_enough_for_a_verdict(step_s: float, advised: str) -> None:
    profiled = sessions.profiled(sessions.training_session(1))
    assert profiled.profile
    session = replace(profiled, profile=replace(profiled.profile, step=Figure(step_s)))
    advice = "".join(map(str, answer_of(session).next))
    assert advice.startswith(advised)
    assert ("a call takes 1.5 s" in advice) is (step_s > 1.0)


def test_a_comparison_without_a_verdict_says_why_in_every_form() -> None:
    reasons = Counter[str]()
    for session, answer in answers():
        shown = ShownAnswer.of(session)
        for speed in answer.speeds:
            unsure = speed.verdict in {str(verdict) for verdict in Verdict if verdict.is_unsure}
            withheld = answer.state is AnswerState.WRONG and PLAN in {speed.of, speed.against}
            assert bool(speed.why) is (unsure and not withheld)
            if speed.why and speed.of == PLAN:
                reasons[re.sub(r"[\d.,]+", "9", speed.why)] += 1
                assert speed.why in " ".join(str(shown).split())
                assert speed.why in shown._repr_html_()
                assert speed.why in [one["why"] for one in json.loads(shown.json)["speeds"]]
    assert len(reasons) >= 3


def test_differing_control_samples_leave_no_verdict_against_torch_compile() -> None:
    measured = sessions.measured()
    assert measured.conditions
    assert plan_speed(measured, VariantName.FULL).verdict == Verdict.FASTER
    floors = {measured.whole_phase: 9.0}
    speed = plan_speed(replace(measured, conditions=replace(measured.conditions, floors=floors)), VariantName.FULL)
    assert speed.verdict == Verdict.INCONCLUSIVE
    assert (
        "the machine is too noisy (eager, timed twice in each round, differed from itself by up to 900 %)" in speed.why
    )


def test_rounds_of_different_code_give_no_verdict() -> None:
    measured = sessions.measured()
    other = tuple(replace(one, verdict=Verdict.NONE) if one.variant == "regional" else one for one in measured.timings)
    session = replace(measured, timings=other)
    speeds = [plan_speed(session, against) for against in (VariantName.EAGER, VariantName.FULL)]
    assert {(speed.verdict, speed.why) for speed in speeds} == {("no verdict", "not all rounds ran the same code")}
    assert "says why not all rounds ran the same code" in "".join(map(str, answer_of(session).next))


def first_sentence(answer: Answer) -> str:
    return "".join(text for text, _ in headline(answer))


def test_the_headline_names_what_to_use_or_why_that_is_unknown() -> None:
    beginnings = Counter[str]()
    for _, answer in answers():
        text = first_sentence(answer)
        beginnings[text.partition(" ")[0]] += 1
        certain = any(speed.is_certain for speed in answer.speeds)
        assert text.startswith("Use ") is bool(answer.use)
        assert bool(answer.use) is certain, "a verdict is used, and nothing else is"
        if answer.state is AnswerState.NO_VERDICT:
            assert any(speed.why for speed in answer.speeds if speed.of == PLAN)
    assert beginnings["Use"] > len(SEEDS) / 4
    assert len(beginnings) >= 4


def test_what_the_headline_names_is_not_slower_in_the_data() -> None:
    used = Counter[str]()
    for _, answer in answers():
        used[answer.use] += 1
        for word in {EAGER, PLAN, FULL} - {answer.use}:
            speed = comparison(answer.speeds, answer.use, word)
            assert speed is None or not speed.is_slower
            if speed is not None and speed.is_certain and answer.use != EAGER:
                assert speed.verdict in {Verdict.FASTER, Verdict.SAME}
        if answer.use == PLAN:
            assert not answer.results or not answer.results.withholds_speedup
    assert {EAGER, PLAN} <= set(used)


def test_a_certain_comparison_decides_beside_an_uncertain_one() -> None:
    eager_s, plan_s, full_s = 69.5e-3, 68.2e-3, 55.3e-3
    speeds = (
        Speed(PLAN, EAGER, Verdict.BUSY, Figure(eager_s / plan_s, 1.01, 1.06)),
        Speed(PLAN, FULL, Verdict.SLOWER, Figure(full_s / plan_s, 0.79, 0.82)),
        Speed(FULL, EAGER, Verdict.FASTER, Figure(eager_s / full_s, 1.25, 1.31)),
    )
    answer = replace(answer_of(sessions.measured()), speeds=speeds, use=variant_to_use(speeds, {}))
    text = "Use torch.compile: 1.23× as fast as your plan (1.22–1.27), 1.26× as fast as eager (1.25–1.31)."
    assert first_sentence(answer) == text


def test_of_equally_fast_variants_the_one_compiled_in_less_time_is_used() -> None:
    speeds = (
        Speed(PLAN, EAGER, Verdict.FASTER, Figure(1.39, 1.27, 1.42)),
        Speed(PLAN, FULL, Verdict.SAME, Figure(1.0, 0.98, 1.02)),
        Speed(FULL, EAGER, Verdict.FASTER, Figure(1.38, 1.3, 1.4)),
    )
    assert variant_to_use(speeds, {PLAN: 40.0, FULL: 30.0}) == FULL
    use = variant_to_use(speeds, {PLAN: 3.5, FULL: 32.0})
    answer = replace(answer_of(sessions.measured()), speeds=speeds, use=use, waited_s=3.5, full_waited_s=32.0)
    assert first_sentence(answer) == (
        "Use your plan: 1.39× as fast as eager (1.27–1.42), as fast as torch.compile (0.98–1.02×), "
        "compiled in a ninth of its time."
    )


def test_only_a_plan_to_use_is_to_be_saved() -> None:
    for _, answer in answers():
        if "save_plan" in "".join(map(str, answer.next)):
            assert answer.use == PLAN


@pytest.mark.parametrize(
    ("speedup", "text"),
    [
        (Figure(1.08, 1.05, 1.1), "1.08× as fast as eager (1.05–1.10)"),
        (Figure(0.81, 0.79, 0.82), "19 % slower than eager (18–21)"),
        (Figure(0.996, 0.994, 0.998), "0.4 % slower than eager (0.2–0.6)"),
        (Figure(0.014, 0.0135, 0.0145), "0.014× as fast as eager (0.013–0.015)"),
        (Figure(2.0), "2.00× as fast as eager"),
    ],
)
def test_a_ratio_is_written_in_one_way(speedup: Figure, text: str) -> None:
    assert ratio_text(speedup, EAGER) == text


def test_a_first_look_says_what_a_call_takes_and_where() -> None:
    profiled = sessions.profiled(sessions.training_session(2))
    assert profiled.profile
    rows = (("layers.0", 0.4), ("layers.1", 0.36), ("layers.0.mlp", 0.2), ("layers.1.mlp", 0.2), ("head", 0.1))
    whole = replace(profiled.profile, eager=Figure(0.049, 0.0481, 0.0502), rows=tuple(module_row(*row) for row in rows))
    answer = answer_of(replace(profiled, profile=whole))
    text = "A step takes 49.0 ms (48.1 ms to 50.2 ms) eager, 76 % of it in layers.*: mlp 40 %."
    assert first_sentence(answer) == text
    busy = replace(whole, eager=Figure(0.049, why="the machine was too busy"))
    shares = "An eager step spends 76 % of its time in layers.*: mlp 40 %."
    assert first_sentence(answer_of(replace(profiled, profile=busy))) == shares
    assert first_sentence(answer_of(sessions.training_session(2))) == "Traced; nothing is compiled yet."


def module_row(name: str, share: float) -> ProfileRow:
    return ProfileRow(ProfileKind.MODULE, name, Figure(share), share, 0.0, share, 1, 0, 0.0)


@pytest.mark.parametrize("form", [str, lambda answer: answer.markdown, lambda answer: answer.json])
def test_answer_has_no_undefined_values(form: Any) -> None:
    for session, _ in answers():
        text = form(ShownAnswer.of(session))
        assert all(claim.holds for claim in text_claims(text)), text
        assert "None" not in text
