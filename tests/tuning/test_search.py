"""The search on a simulated bench: its tries, its answer, its texts, and that it keeps its budget."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regional_explorer.compiler.run import Run
from regional_explorer.measure.rounds import RoundsResult
from regional_explorer.measure.timings import measure_rounds
from regional_explorer.record.benchmark import Conditions, Phase, Timing
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.plan import (
    AS_TORCH_COMPILE,
    FROZEN,
    WHOLE,
    Direction,
    Plan,
    Region,
    Selector,
    SelectorKind,
    Tracing,
    config_of,
    whole_graph,
)
from regional_explorer.record.tuning import (
    AT_HAND,
    EAGER,
    TORCH_COMPILE,
    NumericsRequirement,
    Outcome,
    SearchStage,
    Suggestion,
    SuggestionKind,
    Try,
    Tuning,
)
from regional_explorer.tables.tuning import search_sentences, tries_table
from regional_explorer.tuning import tries
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.ledger import Ledger
from regional_explorer.tuning.search import tune
from regional_explorer.tuning.space import WAYS, WRAPPER, whole_graph_candidate
from tests.tuning.replay import MIB, Behaviour, ReplayBench, SimulatedPiece, cost_model

JOINT = Tracing(joint_passes=True)
KEYS = ({"cpp_wrapper": True}, {"size_asserts": False}, {"max_fusion_size": 16}, {"inplace_buffers": False})
MARKED = Plan((Region("mlp", (Selector(SelectorKind.MODULES, ("mlp",)),)),))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "tries.jsonl")


def limits(budget_s: float = 600.0, **others: Any) -> Limits:
    return Limits(budget_s, keys=KEYS, **others)


def outcome(tuning: Tuning, title: str) -> Outcome:
    return tuning.by_title[title].outcome


def title(tracing: Tracing, **config: Any) -> str:
    return whole_graph_candidate(SearchStage.KEYS, tracing, config).title


def test_the_fastest_plan_is_found_and_confirmed_beside_the_references(ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.95}, {"cpp_wrapper": 0.95, "size_asserts": 0.97}), at_hand=MARKED)
    tuning = tune(bench, limits(), ledger)
    assert tuning.answer == title(JOINT, cpp_wrapper=True, size_asserts=False)
    assert tuning.plan == whole_graph(JOINT, {"cpp_wrapper": True, "size_asserts": False})
    assert tuning.rival == TORCH_COMPILE
    assert tuning.gain is not None
    assert tuning.gain.bounds is not None
    assert tuning.gain.bounds[0] < 1 / (0.95 * 0.95 * 0.97) < tuning.gain.bounds[1]
    finals = {one.title for one in tuning.tries if one.final}
    assert finals == {EAGER, TORCH_COMPILE, AT_HAND, tuning.answer}
    assert outcome(tuning, title(JOINT, max_fusion_size=16)) is Outcome.SAME_CODE
    assert tuning.answer in search_sentences(tuning)


def test_every_neighbour_of_the_answer_was_tried(ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.95}, {"cpp_wrapper": 0.95, "size_asserts": 0.97, "inplace_buffers": 0.98}))
    tuning = tune(bench, limits(), ledger)
    assert tuning.answer == title(JOINT, cpp_wrapper=True, inplace_buffers=False, size_asserts=False)
    best = {"cpp_wrapper": True, "inplace_buffers": False, "size_asserts": False}
    for change in KEYS:
        ((key, value),) = change.items()
        neighbour = {**best, key: value} if key not in best else {k: v for k, v in best.items() if k != key}
        assert title(JOINT, **neighbour) in tuning.by_title


def test_a_plan_without_an_undisturbed_round_is_dropped(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = title(JOINT)

    def without_samples(*args: Any, **options: Any) -> RoundsResult:
        result = measure_rounds(*args, **options)
        return replace(result, samples={name: phases for name, phases in result.samples.items() if name != lost})

    monkeypatch.setattr(tries, "measure_rounds", without_samples)
    tuning = tune(ReplayBench(cost_model({AS_TORCH_COMPILE: 0.9}, {})), limits(), ledger)
    assert outcome(tuning, lost) is Outcome.FAILED
    assert tuning.by_title[lost].why == "it could not be compared with torch.compile"
    assert tuning.answer == title(AS_TORCH_COMPILE, cpp_wrapper=True)


def test_keys_are_tried_without_the_wrapper_first(ledger: Ledger) -> None:
    tuning = tune(ReplayBench(cost_model({JOINT: 0.95}, {"cpp_wrapper": 0.95, "size_asserts": 0.97})), limits(), ledger)
    keys = [one for one in tuning.tries if one.stage is SearchStage.KEYS]
    wrapped = ["cpp_wrapper=True" in one.title for one in keys]
    assert wrapped == sorted(wrapped)
    assert set(wrapped) == {False, True}


def test_the_likeliest_tracings_are_tried_with_a_wrapper_before_others(ledger: Ledger) -> None:
    tuning = tune(ReplayBench(cost_model({}, {})), limits(), ledger)
    plans = [one.plan for one in tuning.tries if one.plan is not None][:5]
    assert [(one.tracing, bool(one[WHOLE].config)) for one in plans] == [
        (WAYS[0], False),
        (WAYS[1], True),
        (WAYS[0], True),
        (WAYS[1], False),
        (WAYS[2], False),
    ]


def test_equal_code_is_neither_checked_nor_timed_twice(ledger: Ledger) -> None:
    bench = ReplayBench(lambda plan: Behaviour(0.9, code="the same"))
    tuning = tune(bench, limits(), ledger)
    assert len(bench.requests("check")) == len({TORCH_COMPILE, "the code"})
    assert tuning.counts[Outcome.MEASURED] == 1
    assert tuning.counts[Outcome.SAME_CODE] == len(tuning.tries) - 3
    assert all(tuning.by_title[one.same_as].outcome is Outcome.MEASURED for one in tuning.tries if one.same_as)


def test_the_better_reference_is_the_answer_if_nothing_is_faster(ledger: Ledger) -> None:
    slow = cost_model(dict.fromkeys(WAYS, 1.02), {"cpp_wrapper": 0.999})
    by_full = tune(ReplayBench(slow), limits(), ledger)
    assert (by_full.answer, by_full.plan, by_full.gain) == (TORCH_COMPILE, None, None)
    said = search_sentences(by_full)
    assert said.startswith(
        f"The search tried {by_full.tried} plans. None is clearly faster than torch.compile. The best"
    )
    assert "to count" not in said
    by_eager = tune(ReplayBench(slow, eager_over=0.8), limits(), ledger)
    assert (by_eager.answer, by_eager.gain) == (EAGER, None)


def test_a_faster_plan_has_the_least_difference_that_counts() -> None:
    plan = whole_graph_candidate(SearchStage.TRACING, JOINT)
    fast = Try(plan.title, plan.stage, Outcome.MEASURED, plan.plan, over_full=Figure(1.06, 1.05, 1.08), final=True)
    full = Try(TORCH_COMPILE, SearchStage.REFERENCE, Outcome.MEASURED, final=True)
    times = {EAGER: 1.0, TORCH_COMPILE: 1.0, plan.title: 1 / 1.06}
    timings = tuple(
        Timing(title, Phase.STEP, (seconds,) * 20, exactly(seconds), speedup=exactly(1 / seconds))
        for title, seconds in times.items()
    )
    conditions = Conditions("cpu", "2.13.0", 2, 0.99, 20, "", 1.0, floors={Phase.STEP: 0.08})
    tuning = Tuning((full, fast), TORCH_COMPILE, TORCH_COMPILE, timings=timings, conditions=conditions)
    why = "6.0 % is too small to count: eager differs from itself by up to 8.0 %"
    assert search_sentences(tuning).endswith(f"not clearly faster than torch.compile (1.06–1.06×); {why}.")


@pytest.mark.parametrize("code", ["the same", ""], ids=["equal code", "code of their own"])
def test_equally_fast_plans_give_no_gain_and_compile_once_each(code: str, tmp_path: Path) -> None:
    for seed in range(50):
        bench = ReplayBench(lambda plan: Behaviour(code=code), eager_over=1.0, noise=0.05, drift=0.003)
        bench.random.seed(seed)
        tuning = tune(bench, limits(120.0), Ledger(tmp_path / f"{seed}"))
        compiled = bench.requests("compile")
        assert len(compiled) == len(set(compiled)) > len(WAYS)
        plans = 1 if code else tuning.counts[Outcome.MEASURED] + tuning.counts[Outcome.SLOWER]
        assert len(bench.requests("check")) == len([TORCH_COMPILE]) + plans
        assert tuning.gain is None, seed
        assert tuning.plan is None


def test_the_plan_at_hand_is_the_answer_if_fastest(ledger: Ledger) -> None:
    bench = ReplayBench(lambda plan: Behaviour(0.8 if plan == MARKED else 0.9), at_hand=MARKED)
    tuning = tune(bench, limits(), ledger)
    assert (tuning.answer, tuning.rival, tuning.plan) == (AT_HAND, AT_HAND, MARKED)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Behaviour(0.5, wrong="output: off by up to 3"), Outcome.WRONG),
        (Behaviour(0.5, failure="g++ failed"), Outcome.FAILED),
        (Behaviour(0.5, refusal="it cannot be traced"), Outcome.FAILED),
        (Behaviour(0.5, raises="check"), Outcome.FAILED),
        (Behaviour(0.5, raises="call"), Outcome.FAILED),
        (Behaviour(0.5, raises="trouble"), Outcome.FAILED),
    ],
    ids=["wrong", "not compiled", "not traced", "raises when checked", "raises when timed", "traced again"],
)
def test_wrong_or_failing_plans_are_dropped_with_their_reason(
    behaviour: Behaviour, expected: Outcome, ledger: Ledger
) -> None:
    rest = cost_model({AS_TORCH_COMPILE: 0.9}, {})
    tuning = tune(ReplayBench(lambda plan: behaviour if plan.tracing == JOINT else rest(plan)), limits(), ledger)
    assert tuning.answer == title(AS_TORCH_COMPILE, cpp_wrapper=True)
    assert outcome(tuning, title(JOINT)) is expected
    why = tuning.by_title[title(JOINT)].why
    assert any(reason in why for reason in filter(None, (behaviour.wrong, behaviour.failure, behaviour.refusal))) or (
        behaviour.raises and why
    )
    assert all(one.outcome is not Outcome.MEASURED for one in tuning.tries if one.plan and one.plan.tracing == JOINT)


def test_bitwise_accepts_only_plans_that_equal_eager_bitwise(ledger: Ledger) -> None:
    def simulate(plan: Plan) -> Behaviour:
        return Behaviour(0.7) if plan.tracing == JOINT else Behaviour(0.9, bitwise=plan.tracing == AS_TORCH_COMPILE)

    tuning = tune(ReplayBench(simulate), limits(numbers=NumericsRequirement.BITWISE), ledger)
    assert tuning.plan is not None
    assert tuning.plan.tracing == AS_TORCH_COMPILE
    right = tuning.by_title[title(JOINT)]
    assert (right.outcome, right.why) == ("not bitwise", "its results are right, but not equal to eager's to the bit")
    assert "wrong" not in search_sentences(tuning) + tries_table(tuning).text()
    assert "not bitwise" in tries_table(tuning).text()


@pytest.mark.parametrize("bitwise", [True, False])
def test_bitwise_compares_with_torch_compile_only_if_it_equals_eager(bitwise: bool, ledger: Ledger) -> None:
    plans = Behaviour(1.1, bitwise=True)
    bench = ReplayBench(lambda _plan: plans, eager_over=1.3, torch_compile=Behaviour(bitwise=bitwise))
    tuning = tune(bench, limits(numbers=NumericsRequirement.BITWISE), ledger)
    assert tuning.rival == (TORCH_COMPILE if bitwise else EAGER)
    assert (tuning.plan is None) == bitwise
    left_out = "torch.compile was left out: its results are right, but not equal to eager's to the bit."
    assert (left_out in search_sentences(tuning)) == (not bitwise)


def test_plans_may_need_more_memory_than_eager_only_if_allowed(ledger: Ledger, tmp_path: Path) -> None:
    def simulate(plan: Plan) -> Behaviour:
        over = 0.9 if plan.tracing == AS_TORCH_COMPILE else 1.0
        return Behaviour(0.7, peak_bytes=30 * MIB) if plan.tracing == JOINT else Behaviour(over, code=f"{plan.tracing}")

    tuning = tune(ReplayBench(simulate), limits(), ledger)
    assert tuning.answer == title(AS_TORCH_COMPILE, cpp_wrapper=True)
    assert tuning.by_title[title(JOINT)].why == "it needs more memory than the 10.0 MiB that eager needs"
    allowed = tune(ReplayBench(simulate), limits(max_memory=40 * MIB), Ledger(tmp_path / "other"))
    assert allowed.plan is not None
    assert allowed.plan.tracing == JOINT


def test_frozen_weights_count_where_memory_is_limited(tmp_path: Path) -> None:
    def simulate(plan: Plan) -> Behaviour:
        over = 0.7 if plan.tracing.frozen else 0.9 if plan.tracing == JOINT else 1.0
        return Behaviour(over, code=f"{plan.tracing}", constant_bytes=30 * MIB if plan.tracing.frozen else 0)

    ledger, frozen = Ledger(tmp_path / "tries.jsonl"), title(FROZEN, cpp_wrapper=True)
    by_default = tune(ReplayBench(simulate, grad=False), limits(), ledger)
    assert by_default.answer == frozen
    assert "30.0 MiB of frozen weights besides those of the model" in search_sentences(by_default)
    for each in (ledger, Ledger(tmp_path / "others.jsonl")):  # with and without the tries of an earlier search
        limited = tune(ReplayBench(simulate, grad=False), limits(max_memory=35 * MIB), each)
        assert limited.answer == title(JOINT)
        assert "more memory than the 35.0 MiB allowed, 30.0 MiB for frozen weights" in limited.by_title[frozen].why
    allowed = tune(ReplayBench(simulate, grad=False), limits(max_memory=45 * MIB), Ledger(tmp_path / "more.jsonl"))
    assert allowed.answer == frozen


def test_plans_that_take_too_long_to_compile_are_not_chosen(ledger: Ledger) -> None:
    def simulate(plan: Plan) -> Behaviour:
        over = 0.9 if plan.tracing == AS_TORCH_COMPILE else 1.0
        return Behaviour(0.7, compile_s=50.0) if plan.tracing == JOINT else Behaviour(over, code=f"{plan.tracing}")

    tuning = tune(ReplayBench(simulate), limits(2000.0, max_compile_s=20.0), ledger)
    assert tuning.answer == title(AS_TORCH_COMPILE, cpp_wrapper=True)


@pytest.mark.parametrize("budget_s", [20.0, 45.0, 90.0, 300.0])
def test_the_budget_is_kept_and_untried_plans_are_listed(budget_s: float, ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.9}, {"cpp_wrapper": 0.95}))
    tuning = tune(bench, limits(budget_s), ledger)
    assert tuning.spent_s <= budget_s
    left_out = [one for one in tuning.tries if one.outcome is Outcome.NOT_TRIED]
    assert all("the budget" in one.why or "slower than the best" in one.why for one in left_out)
    assert any("the budget" in one.why for one in left_out) == (budget_s < 300)
    assert tuning.answer
    compiled = len(bench.requests("compile"))
    assert compiled + len(left_out) <= len(tuning.tries) + len([one for one in tuning.tries if one.final])


def test_plans_are_compared_with_eager_if_torch_compile_fails(ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.9}, {}), torch_compile=Behaviour(failure="no lowering\nfor this op"))
    tuning = tune(bench, limits(), ledger)
    assert tuning.by_title[TORCH_COMPILE].why == "RuntimeError: no lowering"
    assert (tuning.answer, tuning.rival) == (title(JOINT), EAGER)


def test_the_partitioner_is_not_tried_without_a_backward(ledger: Ledger) -> None:
    tuning = tune(ReplayBench(cost_model({JOINT: 0.9}, {}), grad=False), limits(), ledger)
    traced = [one.plan.tracing for one in tuning.tries if one.stage is SearchStage.TRACING and one.plan]
    options = [(way.joint_passes, way.decompositions, way.frozen) for way in traced]
    assert len(options) == len(set(options)) == 4
    assert tuning.answer == title(JOINT)


@pytest.mark.parametrize("after", [1, 4, 8])
def test_a_cancelled_search_keeps_its_tries_and_the_best(after: int, ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.9}, {"cpp_wrapper": 0.95}))

    def is_cancelled() -> bool:
        return len(bench.requests("prepare")) >= after

    bench.context = replace(bench.context, run=Run(cancelled=is_cancelled))
    tuning = tune(bench, limits(), ledger)
    assert tuning.stopped == "cancelled"
    assert (tuning.answer, tuning.plan) == ("", None)
    text = search_sentences(tuning)
    assert text.startswith("The search ended before its final comparison: cancelled.")
    assert ("Best so far" in text) == (after > 3)


def test_an_interrupted_search_keeps_its_tries(ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.9}, {}))
    check = bench.check

    def interrupt_fourth_check(prepared: Any) -> Any:
        if len(bench.requests("check")) == 4:
            raise KeyboardInterrupt
        return check(prepared)

    bench.check = interrupt_fourth_check  # type: ignore[method-assign]
    tuning = tune(bench, limits(), ledger)
    assert tuning.stopped == "interrupted"
    assert tuning.best_so_far is not None


def test_every_step_reports_progress_with_the_best_so_far(ledger: Ledger) -> None:
    reports: list[tuple[str, float]] = []
    bench = ReplayBench(cost_model({JOINT: 0.9}, {}))
    bench.context = replace(bench.context, run=Run(progress=lambda text, done: reports.append((text, done))))
    tune(bench, limits(), ledger)
    fractions = [done for _, done in reports]
    assert fractions == sorted(fractions)
    assert reports[-1][0].startswith("best so far 1.11× as fast as torch.compile, ")
    gaps = [later - earlier for earlier, later in itertools.pairwise(fractions)]
    assert max(gaps) * 600.0 <= 16.0  # a batch of compiles, which report their own progress


def test_traces_without_a_plan_in_the_race_are_freed(ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.8, AS_TORCH_COMPILE: 0.9}, {}))
    tune(bench, limits(), ledger)
    freed = bench.requests("free")
    assert all(len(kept) <= 4 for kept in freed)
    assert all(JOINT in kept for kept in freed[1:])


def test_the_data_frame_has_all_tries_and_the_text_the_timed_ones(ledger: Ledger) -> None:
    tuning = tune(ReplayBench(cost_model({JOINT: 0.9}, {"cpp_wrapper": 0.9})), limits(90.0), ledger)
    table = tries_table(tuning)
    frame = table.dataframe()
    assert list(frame["plan"]) == [one.title for one in table.rows]
    assert frame["plan"][0] == tuning.answer
    assert set(frame["outcome"]) <= {str(one) for one in Outcome}
    text = table.text()
    assert " not tried" in text
    assert "90.0 s" not in text.partition("spent:")[2]


def test_cpp_wrappers_are_tried_only_with_the_best_way_to_trace(ledger: Ledger) -> None:
    ways = {way: 0.9 if way == JOINT else 1.2 for way in WAYS}
    tuning = tune(ReplayBench(cost_model(ways, {"cpp_wrapper": 0.95})), limits(), ledger)
    wrapped = {one.title: one.outcome for one in tuning.tries if one.stage is SearchStage.WRAPPER}
    assert wrapped.pop(whole_graph_candidate(SearchStage.WRAPPER, JOINT, WRAPPER).title) is Outcome.MEASURED
    assert set(wrapped.values()) == {Outcome.NOT_TRIED}


def test_an_unexpected_error_names_the_best_and_keeps_the_record(ledger: Ledger) -> None:
    bench, kept = ReplayBench(cost_model({JOINT: 0.9}, {})), list[Tuning]()
    read = bench.peak_memory

    def peak_memory(call: Any, limit_s: float) -> Any:
        if len(bench.requests("check")) >= 4:
            raise ZeroDivisionError("nobody expected that")
        return read(call, limit_s)

    bench.peak_memory = peak_memory  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError) as raised:
        tune(bench, limits(), ledger, kept.append)
    assert "Best so far, while searching: whole graph, default partitioner, joint passes" in raised.value.__notes__[0]
    assert kept[-1].stopped == "ZeroDivisionError: nobody expected that"
    assert kept[-1].counts[Outcome.MEASURED] >= 3


def test_a_search_on_a_short_budget_compares_one_plan_or_says_why_none(tmp_path: Path) -> None:
    slow = ReplayBench(cost_model({JOINT: 0.9}, {}, compile_s=30.0), at_hand=MARKED)
    tuning = tune(slow, limits(60.0), Ledger(tmp_path / "a"))
    assert tuning.answer == title(JOINT)
    assert {one.title for one in tuning.tries if one.final} >= {EAGER, TORCH_COMPILE, title(JOINT)}
    assert tuning.spent_s <= 60.0
    late = tune(ReplayBench(cost_model({JOINT: 0.9}, {}, compile_s=45.0)), limits(60.0), Ledger(tmp_path / "c"))
    assert late.answer == title(JOINT)
    assert late.spent_s <= 60.0
    too_slow = ReplayBench(cost_model({JOINT: 0.9}, {}, compile_s=90.0), at_hand=MARKED)
    lacking = tune(too_slow, limits(60.0), Ledger(tmp_path / "b"))
    assert lacking.plan is None
    left_out = len(lacking.tries) - 2
    assert (lacking.tried, lacking.not_tried) == (0, {"the budget was too short": left_out})
    text = f"The search tried no plan. {left_out} plans were not tried: the budget was too short."
    assert search_sentences(lacking) == text
    assert lacking.spent_s <= 60.0


def pieces_of(plan: Plan) -> list[SimulatedPiece]:
    """Return two pieces of the forward, one faster and one much slower with a key, and two of the backward."""
    forward, backward = (config_of(plan.regions[0], direction) for direction in Direction)
    small_fusions, no_asserts = "max_fusion_size" in forward, "size_asserts" in backward
    return [
        SimulatedPiece("many", plan.regions[0].name, Direction.FORWARD, 12, 0.0009 if small_fusions else 0.001),
        SimulatedPiece("one", plan.regions[0].name, Direction.FORWARD, 1, 0.009 if small_fusions else 0.003),
        SimulatedPiece("back", plan.regions[0].name, Direction.BACKWARD, 1, 0.010 if no_asserts else 0.012),
        SimulatedPiece("tiny", plan.regions[0].name, Direction.BACKWARD, 1, 0.0001 if no_asserts else 0.00011),
    ]


def test_config_of_a_region_minimizes_total_time_of_its_pieces(ledger: Ledger) -> None:
    def simulate(plan: Plan) -> Behaviour:
        if plan.tracing != JOINT or WHOLE not in plan:
            return Behaviour(1.1)
        return Behaviour(0.9 * sum(one.runs * one.seconds for one in pieces_of(plan)) / 0.02711, code=f"{plan!r}")

    bench = ReplayBench(simulate, simulate_pieces=pieces_of, noise=0.0)
    tuning = tune(bench, limits(), ledger)
    assert tuning.plan is not None
    region = tuning.plan[WHOLE]
    assert config_of(region, Direction.BACKWARD).get("size_asserts") is False
    assert "max_fusion_size" not in config_of(region, Direction.FORWARD)
    raced = {one.partition: one for one in tuning.pieces}
    assert (raced["many"].best, raced["one"].best) == ("max_fusion_size=16", "")
    assert "would" in raced["tiny"].why_not or "faster by less than" in raced["tiny"].why_not
    assert "tiny" not in bench.requests("race piece")


def test_suggestions_and_retraced_plan_at_hand_are_tried(ledger: Ledger) -> None:
    loss = Suggestion("loss", SuggestionKind.LOSS, (Selector(SelectorKind.OPS, ("*loss*",)),), "why", 3, 3, 1, 1)
    everything = Suggestion("all", SuggestionKind.WHOLE, (Selector(SelectorKind.OPS, ("*",)),), "why", 9, 9, 1, 1)

    def simulate(plan: Plan) -> Behaviour:
        return Behaviour(0.7 if "mlp" in plan and plan.tracing == AS_TORCH_COMPILE else 0.9, code=f"{plan!r}")

    bench = ReplayBench(simulate, at_hand=MARKED, suggested=[loss, everything])
    tuning = tune(bench, limits(2000.0), ledger)
    others = [one for one in tuning.tries if one.stage is SearchStage.OTHERS]
    assert {one.plan.tracing for one in others if one.plan and "mlp" in one.plan} == {*WAYS} - {MARKED.tracing}
    assert [one.plan.regions[0].name for one in others if one.plan and "mlp" not in one.plan] == ["loss"]
    assert tuning.plan == MARKED.traced(AS_TORCH_COMPILE)


def test_only_timed_steps_refuse_other_work(ledger: Ledger) -> None:
    bench = ReplayBench(cost_model({JOINT: 0.9}, {}))
    tune(bench, limits(), ledger)
    timed, other = (sum(one is flag for one in bench.requests("step")) for flag in (True, False))
    assert timed == sum(len(bench.requests(what)) for what in ("floor", "race", "pieces", "race piece"))
    assert other >= len(bench.requests("prepare")) + len(bench.requests("check"))


def test_the_answer_lists_only_differences_from_torch_compile(ledger: Ledger) -> None:
    def simulate(plan: Plan) -> Behaviour:
        return (
            Behaviour(0.8, launches=90, peak_bytes=8 * MIB) if plan.tracing == JOINT else Behaviour(1.0, launches=120)
        )

    text = search_sentences(tune(ReplayBench(simulate), limits(), ledger))
    assert "Compared with torch.compile it has 90 instead of 120 launches of its kernels, 8.00 MiB instead of" in text
    assert "kept for the backward" not in text
    assert "Each partition decomposes its ops, after autograd." in text


@pytest.mark.parametrize(
    ("full", "expected", "said"),
    [
        (
            Behaviour(0.1, wrong="output: off by up to 3"),
            "wrong results",
            "gives wrong results on this call: output: off",
        ),
        (
            Behaviour(0.1, chaotic="output: off by up to 3"),
            "chaotic",
            "was left out, as rounding decides its results: out",
        ),
        (Behaviour(0.1, raises="check"), "failed", "fails on this call: RuntimeError: no kernel"),
        (Behaviour(0.1, raises="call"), "failed", "fails on this call: "),
    ],
    ids=["wrong", "chaotic", "raises when checked", "raises when timed"],
)
def test_plans_race_eager_alone_if_torch_compile_is_not_right(
    full: Behaviour, expected: str, said: str, ledger: Ledger
) -> None:
    tuning = tune(ReplayBench(cost_model({JOINT: 0.9}, {}), torch_compile=full), limits(), ledger)
    assert tuning.by_title[TORCH_COMPILE].outcome == expected
    assert (tuning.answer, tuning.rival) == (title(JOINT), EAGER)
    assert all(one.over_full is None for one in tuning.tries)
    assert tuning.counts[Outcome.FAILED] == 0
    assert f"torch.compile {said}" in search_sentences(tuning)
    assert f"{expected}: " in " ".join(tries_table(tuning).text().split())


def test_eager_is_the_answer_if_torch_compile_is_wrong_and_no_plan_faster(ledger: Ledger) -> None:
    slow = cost_model(dict.fromkeys(WAYS, 1.5), {})
    tuning = tune(ReplayBench(slow, torch_compile=Behaviour(0.1, wrong="output")), limits(), ledger)
    assert (tuning.answer, tuning.plan, tuning.by_title[TORCH_COMPILE].final) == (EAGER, None, False)


def test_plans_that_races_have_shown_to_be_slower_are_not_compared_again(ledger: Ledger, tmp_path: Path) -> None:
    behind = tune(ReplayBench(cost_model(dict.fromkeys(WAYS, 1.1), {})), limits(), ledger)
    assert {one.title for one in behind.tries if one.final} == {EAGER, TORCH_COMPILE}
    assert " % slower than torch.compile" in search_sentences(behind)
    ways = dict(zip(WAYS, (0.8, 0.9, 0.99), strict=False))
    ahead = tune(ReplayBench(cost_model(ways, {})), limits(), Ledger(tmp_path / "other"))
    assert {one.title for one in ahead.tries if one.final} == {EAGER, TORCH_COMPILE, title(WAYS[0])}


def test_untried_plans_are_counted_by_reason(ledger: Ledger) -> None:
    ways = {way: 0.9 if way == JOINT else 1.2 for way in WAYS}
    tuning = tune(ReplayBench(cost_model(ways, {"cpp_wrapper": 0.95})), limits(90.0), ledger)
    assert set(tuning.not_tried) == {"the budget was too short", "too slow without the C++ wrapper"}
    assert sum(tuning.not_tried.values()) == tuning.counts[Outcome.NOT_TRIED]
    for why, number in tuning.not_tried.items():
        assert f"{number} plan{'s were' if number > 1 else ' was'} not tried: {why}." in search_sentences(tuning)


def test_progress_counts_the_plans_that_the_answer_counts(ledger: Ledger) -> None:
    reports: list[str] = []
    bench = ReplayBench(cost_model({JOINT: 0.9}, {}), at_hand=MARKED)
    bench.context = replace(bench.context, run=Run(progress=lambda text, _: reports.append(text)))
    tuning = tune(bench, limits(), ledger)
    assert f", {tuning.tried} plans tried; " in reports[-1]
    assert f"{tuning.tried} plans" in search_sentences(tuning)
    assert tuning.tried + tuning.counts[Outcome.NOT_TRIED] == len(tuning.tries) - len({EAGER, TORCH_COMPILE})


def test_a_best_so_far_that_falls_says_why(ledger: Ledger) -> None:
    reports: list[str] = []
    bench = ReplayBench(cost_model({JOINT: 0.9}, {}), noise=0.0)
    bench.context = replace(bench.context, run=Run(progress=lambda text, _: reports.append(text)))
    call, calls = bench.call, itertools.count()

    def slower_each_time(prepared: Any, title: str) -> Any:
        behaviour = replace(prepared.behaviour, over=prepared.behaviour.over * (1.0 + 0.02 * next(calls)))
        return call(replace(prepared, behaviour=behaviour), title)

    bench.call = slower_each_time  # type: ignore[method-assign]
    tune(bench, limits(), ledger)
    figures = [(float(text.split("×")[0].split()[-1]), text) for text in reports if text.startswith("best so far")]
    highest = 0.0
    for figure, text in figures:
        assert figure >= highest or f"({highest:.2f}× before a plan was timed again)" in text
        highest = max(highest, figure)
    assert any("timed again" in text for _, text in figures)


@pytest.mark.parametrize(("floor_s", "stops"), [(0.0328, True), (0.0320, False), (0.0340, False), (None, False)])
def test_a_search_ends_when_its_best_plan_is_at_the_floor_of_the_call(
    floor_s: float | None,
    stops: bool,
    ledger: Ledger,
) -> None:
    pieces = [SimulatedPiece("a", WHOLE, Direction.FORWARD, 1, 0.01)]
    bench = ReplayBench(cost_model({}, {}), floor=floor_s, noise=0.0, simulate_pieces=lambda _plan: pieces)
    tuning = tune(bench, limits(), ledger)
    assert bench.requests("floor") == [pytest.approx(0.03 * 600.0)]
    assert (tries.AT_FLOOR in tuning.not_tried) is stops
    assert (f"not tried: {tries.AT_FLOOR}." in search_sentences(tuning)) is stops
    assert (tuning.tried == 1) is stops, "a plan below the floor disproves it"
    assert tuning.timings, "the final comparison follows all the same"
