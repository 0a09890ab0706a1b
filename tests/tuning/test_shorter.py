"""The search on a shorter call: what is tried there, what of it on the call, and what its record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regional_explorer as rx
from regional_explorer.record.expected import expected_compile_s
from regional_explorer.record.plan import AS_TORCH_COMPILE, Tracing
from regional_explorer.record.tuning import TORCH_COMPILE, Outcome, SearchStage, Tuning
from regional_explorer.tables.tuning import search_sentences, tries_table
from regional_explorer.tuning import live_bench
from regional_explorer.tuning.budget import Limits
from regional_explorer.tuning.forecast import forecast
from regional_explorer.tuning.ledger import Ledger
from regional_explorer.tuning.search import tune
from regional_explorer.tuning.space import whole_graph_candidate
from tests.shared.models import GPT
from tests.shared.small_models import Norms
from tests.tuning.replay import Behaviour, ReplayBench, cost_model

JOINT = Tracing(joint_passes=True)
KEYS = ({"cpp_wrapper": True}, {"size_asserts": False}, {"max_fusion_size": 16}, {"inplace_buffers": False})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "tries.jsonl")


def title(tracing: Tracing, **config: Any) -> str:
    return whole_graph_candidate(SearchStage.KEYS, tracing, config).title


def search(ledger: Ledger, whole: ReplayBench, short: ReplayBench | None, budget_s: float = 120.0) -> Tuning:
    whole.shortened = short
    return tune(whole, Limits(budget_s, keys=KEYS), ledger)


def slow(tracings: dict[Tracing, float], keys: dict[str, float]) -> ReplayBench:
    """Return a call whose plans take 30 s to compile each."""
    return ReplayBench(cost_model(tracings, keys, compile_s=30.0), full_s=25.0)


def short(tracings: dict[Tracing, float], keys: dict[str, float]) -> ReplayBench:
    """Return the shorter call, whose plans take 2 s to compile."""
    return ReplayBench(cost_model(tracings, keys, compile_s=2.0), full_s=2.0, step_s=0.005, repeats="1 of 8 Block")


COSTS: tuple[dict[Tracing, float], dict[str, float]] = ({JOINT: 1.0, Tracing("min_cut"): 0.9}, {"size_asserts": 0.95})


def test_what_is_fast_on_the_shorter_call_is_found_on_the_call(ledger: Ledger) -> None:
    tuning = search(ledger, slow(*COSTS), short(*COSTS))
    assert tuning.answer == title(Tracing("min_cut"), size_asserts=False)
    assert tuning.shorter == "1 of 8 Block"
    assert tuning.spent_s <= 125.0
    promised = tuning.by_title[tuning.answer].promised
    assert promised is not None
    assert tuning.gain is not None
    assert promised.value == pytest.approx(tuning.gain.value, rel=0.02)


def test_without_it_the_same_budget_finds_nothing(ledger: Ledger) -> None:
    assert search(ledger, slow(*COSTS), None).answer == TORCH_COMPILE


def test_plans_that_are_slow_on_it_are_not_tried_on_the_call(ledger: Ledger) -> None:
    whole = slow(*COSTS)
    tuning = search(ledger, whole, short(*COSTS), 600.0)
    left = [one for one in tuning.tries if one.outcome is Outcome.SHORTER]
    assert title(JOINT) in {one.title for one in left}
    assert all(one.promised is not None and one.score is None and not one.can_be_chosen for one in left)
    tried_on_call = {whole.simulate(plan).over for plan in whole.requests("prepare")}
    assert len(whole.requests("compile")) < len(left)
    assert min(tried_on_call) == pytest.approx(0.9 * 0.95)


def test_where_it_misleads_more_plans_are_tried_on_the_call(ledger: Ledger) -> None:
    misleading = short({JOINT: 1.0, Tracing("min_cut"): 0.9, AS_TORCH_COMPILE: 0.93}, {})
    whole = slow({JOINT: 1.0, Tracing("min_cut"): 1.05, AS_TORCH_COMPILE: 0.9}, {})
    tuning = search(ledger, whole, misleading, 600.0)
    assert tuning.by_title[title(Tracing("min_cut"))].outcome in (Outcome.MEASURED, Outcome.SLOWER)
    assert tuning.answer.startswith(title(AS_TORCH_COMPILE))


def test_a_plan_that_is_wrong_on_it_is_not_tried_on_the_call(ledger: Ledger) -> None:
    shorter = short(*COSTS)
    right = shorter.simulate

    def simulate(plan: Any) -> Behaviour:
        behaviour = right(plan)
        return Behaviour(0.5, code="wrong", wrong="it differs") if plan.tracing == Tracing("min_cut") else behaviour

    shorter.simulate = simulate
    tuning = search(ledger, slow(*COSTS), shorter)
    assert tuning.by_title[title(Tracing("min_cut"))].outcome is Outcome.WRONG
    assert tuning.answer != title(Tracing("min_cut"))


def test_no_time_is_spent_on_it_if_none_is_left(ledger: Ledger) -> None:
    whole = ReplayBench(cost_model(*COSTS, compile_s=30.0), full_s=100.0)
    search(ledger, whole, short(*COSTS))
    assert not whole.requests("shorter")


def test_the_sentences_and_the_table_say_what_was_tried_where(ledger: Ledger) -> None:
    tuning = search(ledger, slow(*COSTS), short(*COSTS))
    on_call = sum(one.score is not None and one.plan is not None for one in tuning.tries)
    text = search_sentences(tuning)
    assert f"{on_call} of them on the whole call, the others on a shorter one (1 of 8 Block)" in text
    assert "on the shorter call after" in "".join(tries_table(tuning).notes())
    frame = tries_table(tuning).dataframe()
    row = frame.set_index("plan").loc[tuning.answer]
    assert row["promised"] == pytest.approx(row["over_full"], rel=0.02)


@pytest.mark.compiles
@pytest.mark.usefixtures("slow_references")
def test_a_live_search_uses_it_and_leaves_the_model_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = Norms(depth=4), torch.randn(8, 32, requires_grad=True)
    before = model(x)
    monkeypatch.setattr(live_bench, "suggest_regions", lambda _graphs: ())
    with rx.explore(model, (x,)) as ex:
        tuning = ex.tune(60.0, keys=[], ledger=tmp_path / "tries.jsonl").record
    assert tuning.shorter == "1 of 4 Sequential"
    assert any(one.promised is not None for one in tuning.tries)
    torch.testing.assert_close(model(x), before, rtol=0.0, atol=0.0)
    assert all("forward" not in vars(module) for module in model.modules())


def test_a_plan_without_time_on_the_call_was_tried_all_the_same(ledger: Ledger) -> None:
    equal: tuple[dict[Tracing, float], dict[str, float]] = ({JOINT: 0.9, Tracing("min_cut"): 0.9}, {})
    tuning = search(ledger, slow(*equal), short(*equal))
    without_time = [one for one in tuning.tries if one.outcome is Outcome.SHORTER and "budget" in one.why]
    assert without_time
    assert all(one.promised is not None and one.compile_s is None for one in without_time)
    assert tuning.tried == sum(one.plan is not None and one.outcome is not Outcome.NOT_TRIED for one in tuning.tries)


@pytest.mark.parametrize("budget_s", [20.0, 120.0, 1800.0])
def test_a_forecast_says_about_what_a_search_tries(ledger: Ledger, budget_s: float) -> None:
    model, ids = GPT(width=32, depth=6).eval(), torch.randint(2, 50, (2, 16))
    with rx.explore(model, (ids,)) as ex:
        session = ex.session
    expected, full_s = forecast(session, budget_s), expected_compile_s(session)
    assert full_s is not None
    whole = ReplayBench(cost_model(*COSTS, compile_s=0.8 * full_s), full_s=full_s)
    tuning = search(ledger, whole, short(*COSTS), budget_s)
    timed = sum(one.plan is not None and one.score is not None for one in tuning.tries)
    assert 0.3 * timed <= expected.whole <= 3.0 * max(1, timed)
    assert str(expected).startswith("about")
