"""The bars of an answer: whose figures they are, which plans can be taken, what a search says of the plan at hand."""

from __future__ import annotations

from msgspec.structs import replace

from regional_explorer.page.answer import answer_markdown, answer_nodes, answer_text, chart_nodes
from regional_explorer.record.answer import AnswerState, answer_of
from regional_explorer.record.bars import EARLIER, SO_FAR, bars_of, eager_plan
from regional_explorer.record.benchmark import Conditions, NumericsVerdict, Timing, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import AS_TORCH_COMPILE, Plan, whole_graph
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import BEST, Missing, interval_ends, speeds_of_try
from regional_explorer.record.statistics import median_figure, paired_ratios
from regional_explorer.record.tuning import AT_HAND, EAGER, TORCH_COMPILE, Outcome, SearchStage, Try, Tuning
from regional_explorer.style.element import to_html, words
from regional_explorer.tables.benchmark import timings_table
from tests.shared import sessions

BASE = sessions.training_session(1)
FOUND = replace(BASE.plan, regions=(replace(BASE.plan.regions[0], config={"max_fusion_size": 8}),))


ROUNDS = 12
SECONDS = {EAGER: 4e-2, TORCH_COMPILE: 3e-2, AT_HAND: 3.5e-2, "quick": 2e-2}


def timing(title: str) -> Timing:
    """Return the timing of a call in the rounds of a final comparison."""
    samples = tuple(SECONDS[title] * (1.0 + 1e-3 * (number % 3)) for number in range(ROUNDS))
    verdict, right = Verdict.BASELINE if title == EAGER else Verdict.FASTER, NumericsVerdict.OK
    speedup = Figure(4e-2 / SECONDS[title], 3.98e-2 / SECONDS[title], 4.02e-2 / SECONDS[title])
    return Timing(title, BASE.whole_phase, samples, median_figure(samples), 1e-5, speedup, verdict, numerics=right)


def final_try(title: str, plan: Plan | None = None, **changes: object) -> Try:
    """Return a try of a final comparison, in which eager takes 40 ms, torch.compile 30 ms."""
    full = Figure(3e-2 / SECONDS[title], 2.98e-2 / SECONDS[title], 3.02e-2 / SECONDS[title])
    one = timing(title)
    known = Try(title, SearchStage.KEYS, Outcome.MEASURED, plan, "", "", True, one.median_s, one.speedup, full)
    return replace(known, **changes)


CONDITIONS = Conditions("cpu", "2.13.0", 2, 0.99, ROUNDS, "the budget is spent", 1.0)
REFERENCES = tuple(final_try(title, stage=SearchStage.REFERENCE) for title in (EAGER, TORCH_COMPILE))
SEARCH = Tuning(
    (*REFERENCES, final_try(AT_HAND, BASE.plan), final_try("quick", FOUND)),
    "quick",
    TORCH_COMPILE,
    Figure(1.5),
    timings=tuple(map(timing, SECONDS)),
    conditions=CONDITIONS,
)


def searched(session: Session = BASE, tuning: Tuning = SEARCH) -> Session:
    return replace(session, tuning=tuning)


def compared(session: Session = BASE, tuning: Tuning = SEARCH, at_hand: str = AT_HAND) -> Session:
    """Return a session whose figures are of the rounds of a search, in which its plan had the title ``at_hand``."""
    variants = {EAGER: "eager", TORCH_COMPILE: "full", at_hand: "regional"}
    timings = (replace(one, variant=variants[one.variant]) for one in tuning.timings if one.variant in variants)
    return replace(session, tuning=tuning, timings=tuple(timings), conditions=tuning.conditions)


def bars(session: Session) -> dict[str, tuple[float, str, Plan | None]]:
    return {bar.word: (bar.seconds.value, bar.verdict, bar.plan) for bar in bars_of(session) if bar.seconds}


def test_a_benchmark_gives_the_bars_of_its_own_rounds() -> None:
    session = sessions.measured()
    times = {timing.variant: timing.median_s for timing in session.timings if timing.phase is session.whole_phase}
    shown = bars_of(session)
    assert [bar.word for bar in shown] == ["eager", "torch.compile", "your plan"]
    assert [bar.seconds for bar in shown] == [times[name] for name in ("eager", "full", "regional")]
    assert {bar.word: bar.plan for bar in shown if bar.plan} == {
        "eager": eager_plan(session.plan),
        "torch.compile": whole_graph(AS_TORCH_COMPILE),
    }


def test_a_time_of_an_earlier_run_is_called_so_wherever_it_is_shown() -> None:
    measured = sessions.measured()
    timings = tuple(replace(one, earlier=one.variant == "full") for one in measured.timings)
    session, note = replace(measured, timings=timings), "torch.compile (of an earlier run)"
    answer, shown = answer_of(session), bars_of(session)
    assert {bar.word: bar.apart for bar in shown if bar.apart} == {"torch.compile": "an earlier run"}
    assert f"Of other rounds: {note}." in " ".join(" ".join(map(words, chart_nodes(shown))).split())
    assert f"under {note}" in " ".join(answer_text(answer).split())
    assert f"| {note} |" in answer_markdown(answer)
    table = timings_table(session)
    assert note in {table.columns[0].plain_text(row) for row in table.rows}
    assert set(table.dataframe().variant) == {one.variant for one in timings}
    assert note not in answer_text(answer_of(measured)) + answer_markdown(answer_of(measured))


def test_the_tooltip_of_a_ratio_has_the_interval_that_its_verdict_takes() -> None:
    timings = sessions.measured().whole_timings
    ratios = paired_ratios(timings["eager"].samples_s, timings["regional"].samples_s)
    speed = next(bar.speed for bar in bars_of(sessions.measured()) if bar.word == "your plan")
    assert speed is not None
    assert speed.verdict_speedup is not None
    (low, high), (least, most) = median_figure(ratios).bounds or (0, 0), speed.verdict_speedup.bounds or (0, 0)
    assert least <= low <= high <= most
    chart = "".join(map(to_html, chart_nodes(bars_of(sessions.measured()))))
    assert f"the verdict takes a stricter interval, {least:.2f}–{most:.2f}×" in chart
    assert speed.turned.turned.verdict_speedup == speed.verdict_speedup


def test_torch_compile_has_an_empty_bar_until_it_is_measured() -> None:
    measured = sessions.measured()
    without = replace(measured, timings=tuple(one for one in measured.timings if one.variant != "full"))
    empty = bars_of(without)[1]
    assert (empty.word, empty.seconds, empty.verdict) == ("torch.compile", None, Missing.NOT_MEASURED)
    assert "torch.compile not measured" in " ".join(" ".join(map(words, chart_nodes(bars_of(without)))).split())
    untold = tuple(replace(one, median_s=Figure(1.0, why="too few rounds (5)")) for one in without.timings)
    assert bars_of(replace(without, timings=untold)) == (empty,), "also where no time is certain"
    assert bars_of(replace(without, timings=())) == ()


def test_a_search_gives_an_answer_like_a_benchmark() -> None:
    assert {word: shown[1:] for word, shown in bars(compared()).items()} == {
        "eager": ("", eager_plan(BASE.plan)),
        "torch.compile": (Verdict.FASTER, whole_graph(AS_TORCH_COMPILE)),
        "your plan": (Verdict.FASTER, None),
        BEST: (Verdict.FASTER, FOUND),
    }
    assert not any(bar.apart for bar in bars_of(compared())), "all are of the same rounds"
    answer = answer_of(compared())
    assert answer.state is AnswerState.ANSWERED
    assert answer.use == BEST
    used = "Use the plan that the search found: 1.50× as fast as torch.compile, 2.00× as fast as eager (1.99–2.01)."
    assert used in " ".join(answer_text(answer).split())


def test_a_found_plan_is_compared_by_the_rounds_of_the_search() -> None:
    over_eager, over_full = speeds_of_try(SEARCH, SEARCH.by_title["quick"], BEST)
    assert (over_eager.of, over_eager.against, over_eager.speedup) == (BEST, EAGER, timing("quick").speedup)
    assert over_full.speedup == median_figure(paired_ratios(timing(TORCH_COMPILE).samples_s, timing("quick").samples_s))
    floors = {BASE.whole_phase: 9.0}
    noisy = replace(SEARCH, conditions=replace(CONDITIONS, floors=floors))
    _, unsure = speeds_of_try(noisy, SEARCH.by_title["quick"], BEST)
    assert unsure.verdict is Verdict.INCONCLUSIVE
    assert unsure.why.startswith("the machine is too noisy")


def test_applied_result_is_the_answer() -> None:
    used = compared(replace(BASE, plan=FOUND), at_hand="quick")
    assert bars(used)[BEST][1:] == (Verdict.FASTER, None)
    assert bars(used)[EARLIER][1:] == (Verdict.FASTER, BASE.plan)
    answer = answer_of(used)
    assert answer.found is None
    assert answer.results is NumericsVerdict.OK
    assert not answer.of_earlier_plan


def test_bars_of_a_search_without_the_current_plan_are_apart() -> None:
    measured = sessions.measured()
    (*own, found) = bars_of(searched(measured))
    assert (found.word, found.apart, found.plan) == (BEST, "the search", FOUND)
    assert own == list(bars_of(measured))


def test_a_search_that_was_stopped_has_the_best_so_far() -> None:
    quick = final_try("quick", FOUND, final=False, speedup=None)
    stopped = Tuning((final_try(EAGER, final=False), quick), stopped="cancelled")
    assert list(bars(searched(tuning=stopped))) == [SO_FAR]
    assert bars(searched(tuning=stopped))[SO_FAR][1:] == (Verdict.FASTER, FOUND)
    text = " ".join(answer_text(answer_of(searched(tuning=stopped))).split())
    assert "Your plan is not measured yet. The search was stopped; the best plan so far takes 20.0 ms" in text


def test_the_answer_says_that_a_search_had_no_time() -> None:
    timings = (timing(EAGER), timing(TORCH_COMPILE))
    nothing = Tuning(REFERENCES, TORCH_COMPILE, TORCH_COMPILE, timings=timings, conditions=CONDITIONS)
    untouched = compared(replace(BASE, plan=Plan(), partitions=(), members={}), nothing)
    assert list(bars(untouched)) == ["eager", "torch.compile"]
    text = " ".join(answer_text(answer_of(untouched)).split())
    assert "The search had no time to try a plan" in text
    assert "Use torch.compile: 1.33× as fast as eager (1.33–1.34)." in text


def test_bar_lengths_follow_the_ratios_not_the_medians() -> None:
    measured = sessions.measured()
    eager = measured.whole_timings["eager"].median_s.value
    faster = replace(measured.whole_timings["regional"], median_s=Figure(2 * eager, eager, 3 * eager))
    timings = tuple(faster if one == measured.whole_timings["regional"] else one for one in measured.timings)
    by_word = {bar.word: bar for bar in bars_of(searched(replace(measured, timings=timings)))}
    for bar in by_word.values():
        assert bar.drawn_s
        if bar.speed is None or bar.speed.speedup is None:
            assert bar.drawn_s == bar.seconds
        else:
            assert bar.drawn_s == eager / bar.speed.speedup
    assert by_word["your plan"].seconds == faster.median_s
    assert BEST in by_word, "of other rounds"
    longest_s = max(max(interval_ends(bar.drawn_s)) for bar in by_word.values() if bar.drawn_s)
    own = by_word["your plan"].drawn_s
    assert own
    assert f"width:{100 * own.value / longest_s:.1f}%" in str(chart_nodes(tuple(by_word.values())))


def test_a_bar_without_a_ratio_to_eager_uses_torch_compiles() -> None:
    raced = replace(final_try("quick", FOUND, final=False, speedup=None), over_full=Figure(1.5, 1.4, 1.6))
    measured = sessions.measured()
    bars = {bar.word: bar for bar in bars_of(searched(measured, Tuning((final_try(EAGER, final=False), raced))))}
    full = bars["torch.compile"].drawn_s
    assert full
    assert bars[SO_FAR].drawn_s == full.value / Figure(1.5, 1.4, 1.6)


def test_the_chart_shows_times_and_ratios() -> None:
    chart = chart_nodes(bars_of(compared()))
    (shown,) = (words(node) for node in answer_nodes(answer_of(compared()), chart))
    for text in ("eager 40.0 ms 1.00×", "torch.compile 30.0 ms ▲ 1.33×", "best found 20.0 ms ▲ 2.00×"):
        assert text in " ".join(shown.split())
    assert chart_nodes(()) == []
