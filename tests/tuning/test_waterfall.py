"""Where the gain of a plan comes from: on a simulated bench, in the table, the drawing and on a live call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.errors import MeasureError
from regional_explorer.exploration.plots import Plots
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.plan import AS_TORCH_COMPILE, Plan, Region, Selector, SelectorKind, Tracing, whole_graph
from regional_explorer.record.tuning import PLAN_FOUND, TOGETHER, TORCH_COMPILE, GainPart, Tuning
from regional_explorer.tables.tuning import gain_parts_table
from regional_explorer.tuning.waterfall import gain_parts, without_each_change
from tests.shared.fakes import TickingClock
from tests.shared.sessions import measured
from tests.tuning.replay import Behaviour, ReplayBench, cost_model

WAY = Tracing("min_cut")
PLAN = whole_graph(WAY, {"cpp_wrapper": True, "size_asserts": False, "max_fusion_size": 16})


def bench() -> ReplayBench:
    return ReplayBench(cost_model({WAY: 0.9, AS_TORCH_COMPILE: 1.0}, {"cpp_wrapper": 0.95, "size_asserts": 0.98}))


def test_the_bars_lead_from_torch_compile_to_the_plan() -> None:
    parts = {part.title: part for part in gain_parts(bench(), PLAN, 60.0)}
    plan_s = 0.03 * 0.9 * 0.95 * 0.98
    assert parts[TORCH_COMPILE].seconds.value == pytest.approx(0.03, rel=0.01)
    assert parts[PLAN_FOUND].seconds.value == pytest.approx(plan_s, rel=0.01)
    assert parts[str(WAY)].seconds.value == pytest.approx(plan_s / 0.9 - plan_s, rel=0.1)
    assert parts["cpp_wrapper=True"].seconds.value == pytest.approx(plan_s / 0.95 - plan_s, rel=0.1)
    saved = sum(part.seconds.value for part in parts.values() if part.is_change)
    assert parts[TORCH_COMPILE].seconds.value - saved == pytest.approx(parts[PLAN_FOUND].seconds.value)
    assert all(part.seconds.bounds for part in parts.values())


def test_a_key_without_effect_saves_nothing() -> None:
    parts = {part.title: part for part in gain_parts(bench(), PLAN, 60.0)}
    assert parts["max_fusion_size=16"].seconds == exactly(0.0)
    assert parts["max_fusion_size=16"].note == "the code is the same without it"


@pytest.mark.parametrize(
    "trouble",
    [
        Behaviour(refusal="it cannot be traced"),
        Behaviour(failure="it does not compile"),
        Behaviour(raises="check"),
        Behaviour(wrong="y differs"),
        Behaviour(raises="call"),
        Behaviour(raises="trouble"),
    ],
    ids=lambda behaviour: behaviour.refusal or behaviour.failure or behaviour.wrong or behaviour.raises,
)
def test_a_change_without_which_the_call_fails_is_part_of_the_rest(trouble: Behaviour) -> None:
    replayed = bench()
    simulate = replayed.simulate
    replayed.simulate = lambda plan: trouble if plan.tracing == AS_TORCH_COMPILE else simulate(plan)
    parts = {part.title: part for part in gain_parts(replayed, PLAN, 60.0)}
    assert str(WAY) not in parts
    assert parts[TOGETHER].seconds.value > parts["cpp_wrapper=True"].seconds.value


@pytest.mark.parametrize("trouble", [Behaviour(wrong="y differs"), Behaviour(failure="no compiler")])
def test_a_gain_over_a_wrong_torch_compile_is_not_shown(trouble: Behaviour) -> None:
    replayed = bench()
    replayed.torch_compile = trouble
    with pytest.raises(MeasureError, match=r"torch\.compile"):
        gain_parts(replayed, PLAN, 60.0)


def test_a_plan_that_has_become_wrong_is_not_taken_apart() -> None:
    replayed = bench()
    replayed.simulate = lambda _plan: Behaviour(0.5, wrong="y differs")
    with pytest.raises(MeasureError, match="results"):
        gain_parts(replayed, PLAN, 60.0)


def test_keys_are_left_out_in_both_directions() -> None:
    region = Region("mlp", (Selector(SelectorKind.OPS, ("*",)),), config={"a": 1}, backward_config={"a": 1, "b": [2]})
    others = without_each_change(Plan((region,), tracing=AS_TORCH_COMPILE))
    assert set(others) == {"a=1", "b=[2]"}
    assert others["a=1"].regions[0].config == {}
    assert others["a=1"].regions[0].backward_config == {"b": [2]}
    assert others["b=[2]"].regions[0].backward_config == {"a": 1}


def test_the_table_says_what_brings_nothing() -> None:
    parts = (
        GainPart(TORCH_COMPILE, Figure(0.058, 0.0575, 0.0585)),
        GainPart("cpp_wrapper=True", Figure(0.0019, 0.0015, 0.0023), is_change=True),
        GainPart("size_asserts=False", Figure(0.0001, -0.0002, 0.0004), is_change=True),
        GainPart(TOGETHER, Figure(0.0, -0.0003, 0.0003), is_change=True),
        GainPart(PLAN_FOUND, Figure(0.056, 0.0555, 0.0565)),
    )
    session = replace(measured(), tuning=Tuning((), parts=parts))
    text = gain_parts_table(session).text()
    assert "−1.90 ms" in text
    assert "may save nothing" in text
    assert len(Plots(session).waterfall().patches) == len(parts)


def test_without_a_plan_there_is_nothing_to_take_apart() -> None:
    with rx.explore(torch.sin, (torch.ones(4),)) as ex, pytest.raises(MeasureError, match="has found none"):
        ex.waterfall(1.0)


@pytest.mark.compiles
def test_the_gain_of_a_live_plan_is_taken_apart(slow_references: TickingClock, tmp_path: Path) -> None:
    x = torch.randn(16, 16, requires_grad=True)
    with rx.explore(lambda x: (x @ x).relu().softmax(-1), (x,)) as ex:
        found = ex.tune(20.0, keys=[], ledger=tmp_path / "tries.jsonl")
        assert found.plan is not None
        frame = ex.waterfall(20.0)
        first, *_, last = frame["part"]
        assert (first, last) == (TORCH_COMPILE, PLAN_FOUND)
        assert "Where the gain comes from" in rx.load(ex.save(tmp_path / "session.json")).text
